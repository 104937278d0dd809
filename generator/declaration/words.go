package declaration

import "maps"

const (
	serverSection  = "server"
	sandboxSection = "sandbox"
	trustSection   = "trust"
	toolSection    = "tool"
	authSection    = "auth"

	credentialSection = "credential" // one of auth, where it is a table
)

const (
	privateForm = `allow_private = { "db.lan" = ["10.1.2.3"] }`
	pinExample  = `"sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="`
	tlsForm     = `tls_pins = { "api.notion.com" = [` + pinExample + `] }`
)

// inTheList is said of an equal entry.
const inTheList = "%s is in the list already, in line %d. Remove one of the two."

// forms are how tables are written that are no blocks.
func forms() map[string]string {
	all := map[string]string{
		authSection:       `auth = { NOTION_TOKEN = "vault:notion_token" }`,
		credentialSection: `auth = { NOTION_TOKEN = { secret = "vault:notion_token", deliver = "file" } }`,
		"env":             `env = { LOG_LEVEL = "debug" }`,
	}
	maps.Copy(all, objects())
	return all
}

// objects are how tables are written whose keys stand in quotes.
func objects() map[string]string {
	return map[string]string{"allow_private": privateForm, "tls_pins": tlsForm}
}

// otherWords are what other tools call a key.
func otherWords() map[string]string {
	return map[string]string{
		"npm": "package", "pypi": "package", "pkg": "package", "packages": "package",
		"cmd": "command", "program": "command", "exec": "command", "arguments": "args",
		"environment": "env", "envs": "env", "vars": "env", "variables": "env",
		"secrets": "auth", "credentials": "auth", "token": "auth", "api_key": "auth", "password": "auth", "headers": "auth",
		"domains": "allowed_domains", "hosts": "allowed_domains", "host": "allowed_domains", "network": "allowed_domains",
		"egress": "allowed_domains", "allowed_origins": "allowed_domains",
		"blocked_origins": "blocked_domains", "denied_domains": "blocked_domains", "blocklist": "blocked_domains", "deny": "blocked_domains",
		"private": "allow_private", "private_networks": "allow_private", "private_network": "allow_private",
		"private_domains": "allow_private", "private_ips": "allow_private",
		"allow_internal": "allow_private", "allow_local": "allow_private", "allow_lan": "allow_private",
		"allow_loopback": "allow_private", "allow_rebinding": "allow_private",
		"internal": "allow_private", "lan": "allow_private", "ssrf": "allow_private", "rebind": "allow_private",
		"private_addresses": "allow_private",
		"type":              "transport", "protocol": "transport", "endpoint": "url", "uri": "url", "socket": "path",
		"kind": "transport", "port": "url", "listen": "url", "image": "package",
		"memory": "memory_limit", "mem": "memory_limit", "memory_max": "memory_limit", "cpu": "cpu_quota", "cpus": "cpu_quota",
		"pids": "tasks_max", "pids_limit": "tasks_max", "processes": "tasks_max", "tasks": "tasks_max",
		"disabled": "enabled", "active": "enabled", "start": "autostart", "auto_start": "autostart", "idle": "idle_timeout",
		"volumes": "writable", "mounts": "writable", "binds": "writable", "rw": "writable", "write": "writable",
		"ro": "read_only", "read": "read_only",
		"tmp": "allow_tmp", "persist": "state", "home": "state", "backup": "undo", "snapshots": "undo", "tools": "tool",
		"security": "label", "sensitivity": "label", "desc": "description",
		"id": "name", "server_id": "name", "title": "description", "readonly": "read_only_fs", "mcpservers": "server",
		"servers": "server", "mcp": "server",
		"capabilities": "client_capabilities", "client": "client_capabilities", "elicit": "client_capabilities",
		"elicitation": "client_capabilities",
		"sampling":    "client_capabilities", "roots": "client_capabilities",
		"per_session": "sessions", "session_mode": "sessions", "max_sessions": "sessions_max", "instances": "sessions_max",
		"session_timeout": "session_idle",
		"retry":           "retries", "max_retries": "retries", "attempts": "retries", "tries": "retries",
		"pinning": "pins", "trust_first": "pins", "tofu": "pins", "aliases": "alias", "aka": "alias", "also": "alias",
		"certificate_pins": "tls_pins", "cert_pins": "tls_pins", "pinned_certificates": "tls_pins",
		"public_key_pins": "tls_pins", "spki_pins": "tls_pins", "hpkp": "tls_pins",
		"ca_file": "ca", "cafile": "ca", "ca_cert": "ca", "cacert": "ca", "ca_certs": "ca", "ca_bundle": "ca",
		"annotations": "tool", "limits": "sandbox", "resources": "sandbox", "isolation": "sandbox",
	}
}

// wordsOfCredentials are what a key of a credential is called elsewhere.
func wordsOfCredentials() map[string]string {
	return map[string]string{
		"key": "secret", "value": "secret", "ref": "secret", "reference": "secret", "vault": "secret", "token": "secret",
		"from": "secret", "source": "secret",
		"delivery": "deliver", "as": "deliver", "via": "deliver", "mode": "deliver", "type": "deliver", "env": "deliver",
		"file": "deliver", "broker": "deliver",
		"host": "hosts", "domains": "hosts", "allowed_domains": "hosts", "allowed_hosts": "hosts", "to": "hosts",
		"place": "in", "places": "in", "where": "in", "header": "in", "headers": "in", "query": "in", "body": "in",
	}
}

// wordsOfLabels are what labels are called elsewhere.
func wordsOfLabels() map[string]string {
	return map[string]string{
		"confidential": "sensitive", "private": "sensitive", "personal": "sensitive", "restricted": "regulated",
		"pii": "regulated", "open": "public", "top-secret": "secret",
	}
}

func wordsOfTransports() map[string]string {
	return map[string]string{
		"http": "stream-http", "https": "stream-http", "streamable-http": "stream-http", "streamable_http": "stream-http",
		"streamablehttp": "stream-http", "stream_http": "stream-http",
		"unix": "uds", "socket": "uds", "unix-socket": "uds", "fifo": "pipe", "local": "stdio", "stdin": "stdio", "process": "stdio",
	}
}

func wordsOfCapabilities() map[string]string {
	return map[string]string{
		"elicit": "elicitation", "ask": "elicitation", "input": "elicitation", "form": "elicitation", "user": "elicitation",
		"root": "roots", "folders": "roots", "directories": "roots", "workspace": "roots",
		"sample": "sampling", "model": "sampling", "llm": "sampling", "completion": "sampling", "createmessage": "sampling",
	}
}

func wordsOfSessions() map[string]string {
	return map[string]string{
		"session": "own", "per-session": "own", "per_session": "own", "single": "own", "private": "own", "separate": "own",
		"isolated": "own", "dedicated": "own", "each": "own",
		"share": "shared", "common": "shared", "one": "shared", "global": "shared", "all": "shared",
	}
}

func wordsOfPins() map[string]string {
	return map[string]string{
		"tofu": "trust-first", "trust": "trust-first", "trust_first": "trust-first", "first": "trust-first",
		"trust-on-first-use": "trust-first", "accept": "trust-first", "auto": "trust-first",
		"held": "hold", "ask": "hold", "manual": "hold", "review": "hold", "strict": "hold", "quarantine": "hold", "deny": "hold",
	}
}

func wordsOfDeliveries() map[string]string {
	return map[string]string{
		"environment": "env", "variable": "env", "var": "env", "path": "file", "mount": "file", "brokered": "broker",
		"proxy": "broker", "bridge": "broker",
		"egress": "broker", "wire": "broker", "placeholder": "broker",
	}
}

// wordsOfClients are what a key of a client is called elsewhere.
func wordsOfClients() map[string]string {
	return map[string]string{
		"token": "token_sha256", "tokens": "token_sha256", "secret": "token_sha256", "password": "token_sha256",
		"api_key": "token_sha256", "key": "token_sha256",
		"bearer": "token_sha256", "sha256": "token_sha256", "token_hash": "token_sha256", "digest": "token_sha256",
		"user": "uid", "uids": "uid", "users": "uid", "peer": "uid", "id": "name", "client": "name", "title": "description",
		"desc":            "description",
		"allowed_servers": "servers", "mcpservers": "servers", "access": "servers", "may": "servers",
		"policy": "profile", "mode": "profile", "gate": "profile",
		"session": "sessions", "session_mode": "sessions", "reason": "relax", "why": "relax",
		"tool": "tools", "allowed_tools": "tools", "hidden": "hide", "deny": "hide", "denied": "hide", "block": "hide",
		"exclude": "hide", "allowed": "allow", "include": "allow", "only": "allow",
		"disabled": "enabled", "active": "enabled", "sensitivity": "label", "settings": "server", "security": "label",
		"task": "tasks", "conversations": "tasks", "header": "task_header",
	}
}

func wordsOfClientSessions() map[string]string {
	return map[string]string{
		"default": "sticky", "one": "sticky", "shared": "sticky",
		"own": "connection", "per-connection": "connection", "each": "connection", "session": "connection",
	}
}

func wordsOfSemantics() map[string]string {
	return map[string]string{
		"readonly": "read", "read-only": "read", "read_only": "read", "ro": "read",
		"rw": "write", "readwrite": "write", "destructive": "write",
	}
}

func wordsOfEffects() map[string]string {
	return map[string]string{
		"read": "none", "readonly": "none", "read-only": "none",
		"write": "irreversible", "destructive": "irreversible", "undoable": "reversible",
	}
}

func wordsOfAudiences() map[string]string {
	return map[string]string{
		"world": "public", "everybody": "public", "everyone": "public", "open": "public", "private": "sensitive",
	}
}
