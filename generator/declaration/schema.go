package declaration

import (
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/nearest"
)

const (
	serverSection  = "server"
	sandboxSection = "sandbox"
	trustSection   = "trust"
	toolSection    = "tool"
	authSection    = "auth"

	credentialSection = "credential" // one of auth, where it is a table
)

// key is one row of the schema. Values are as both syntaxes write them.
type key struct {
	name    string
	example string // "": a table
	unsaid  string // what newDecoder has where a file says nothing; "": nothing
	read    func(*decoder, *field)
}

// section is a table with fixed keys; the one without a name is the file itself.
type section struct {
	name string
	keys []key
}

// launchKeys stand in server or at the top, where S3's registry has them.
func launchKeys() []key {
	return []key{
		{"transport", `"stdio"`, `"stdio"`, (*decoder).transport},
		{"url", `"https://mcp.example.com/mcp"`, "", (*decoder).url},
		{"path", `"/run/notion/mcp.sock"`, "", (*decoder).path},
		{"command", `"node"`, "", (*decoder).command},
		{"args", `["${servers}/notion/index.js"]`, `[]`, (*decoder).args},
		{"version", `"1.2.3"`, "", (*decoder).version},
	}
}

func fileSection() section {
	return section{"", slices.Concat([]key{
		{"name", `"notion"`, "", (*decoder).name},
		{"description", `"Notion workspace"`, "", (*decoder).description},
		{"label", `"sensitive"`, `"sensitive"`, (*decoder).label},
		{"service", `"github"`, "", (*decoder).service},
		{"allowed_domains", `["api.notion.com"]`, `[]`, (*decoder).allowedDomains},
		{"blocked_domains", `["ads.example.com"]`, `[]`, (*decoder).blockedDomains},
		{"allow_private", "", `{}`, (*decoder).allowPrivate},
		{"tls_pins", "", `{}`, (*decoder).tlsPins},
		{"enabled", `true`, `true`, (*decoder).enabled},
		{"autostart", `true`, `true`, (*decoder).autostart},
		{"timeout", `"60s"`, `"60s"`, (*decoder).timeout},
		{"idle_timeout", `"15m"`, `"0s"`, (*decoder).idleTimeout},
		{"client_capabilities", `["elicitation"]`, `[]`, (*decoder).clientCapabilities},
		{"sessions", `"own"`, `"shared"`, (*decoder).sessions},
		{"sessions_max", `16`, `16`, (*decoder).sessionsMax},
		{"session_idle", `"15m"`, `"15m"`, (*decoder).sessionIdle},
		{"pins", `"hold"`, `"trust-first"`, (*decoder).pins},
		{"token_env", `"NOTION_TOKEN"`, "", (*decoder).tokenEnv},
		{"env", "", `{}`, (*decoder).env},
		{authSection, "", `{}`, (*decoder).auth},
		{serverSection, "", "", (*decoder).serverBlock},
		{sandboxSection, "", "", (*decoder).sandboxBlock},
		{trustSection, "", "", (*decoder).trustBlock},
		{toolSection, "", "", (*decoder).tools},
	}, launchKeys())}
}

func serverKeys() section { return section{serverSection, launchKeys()} }

func sandboxKeys() section {
	return section{sandboxSection, []key{
		{"memory_limit", `"256m"`, `"256m"`, (*decoder).memoryLimit},
		{"tasks_max", `256`, `256`, (*decoder).tasksMax},
		{"cpu_quota", `"50%"`, "", (*decoder).cpuQuota},
		{"read_only_fs", `true`, `true`, (*decoder).readOnlyFS},
		{"allow_tmp", `true`, `true`, (*decoder).allowTmp},
		{"read_only", `["/srv/data"]`, `[]`, (*decoder).readOnly},
		{"writable", `["/srv/data"]`, `[]`, (*decoder).writable},
		{"state", `true`, `false`, (*decoder).state},
	}}
}

func trustKeys() section {
	return section{trustSection, []key{
		{"public_source", `false`, "", trust(func(d *decoder) *gate.Flag { return &d.server.Trust.PublicSource })},
		{"secret_data", `true`, "", trust(func(d *decoder) *gate.Flag { return &d.server.Trust.SecretData })},
		{"public_sink", `false`, "", trust(func(d *decoder) *gate.Flag { return &d.server.Trust.PublicSink })},
		{"dangerous_writes", `true`, "", trust(func(d *decoder) *gate.Flag { return &d.server.Trust.DangerousWrites })},
	}}
}

func toolKeys() section {
	return section{toolSection, []key{
		{"semantics", `"read"`, "", (*decoder).semantics},
		{"effect", `"irreversible"`, "", (*decoder).effect},
		{"audience", `"public"`, "", (*decoder).audience},
		{"output", `"sensitive raw"`, "", (*decoder).output},
		{"alias", `["mcp-notion-search"]`, "", (*decoder).alias},
	}}
}

// authKeys are not all that stands in auth: the other keys there are variables of the server.
func authKeys() section {
	return section{authSection, []key{
		{"token_env", `"NOTION_TOKEN"`, "", (*decoder).tokenEnv},
		{"scopes", `["repo:read"]`, `[]`, (*decoder).scopes},
	}}
}

func credentialKeys() section {
	return section{credentialSection, []key{
		{"secret", `"vault:notion_token"`, "", (*decoder).secret},
		{"deliver", `"env"`, `"env"`, (*decoder).deliver},
		{"hosts", `["api.notion.com"]`, "", func(d *decoder, f *field) { d.delivery.hosts = f }},
		{"in", `["header:authorization"]`, `["header:authorization"]`, (*decoder).places},
	}}
}

// sections are those of the file that is read.
func (d *decoder) sections() []section {
	if d.client != nil {
		return clientSections()
	}
	return sections()
}

// words are what other tools call the keys of the file that is read.
func (d *decoder) words() map[string]string {
	if d.client != nil {
		return wordsOfClients()
	}
	return otherWords()
}

func sections() []section {
	return []section{fileSection(), serverKeys(), sandboxKeys(), trustKeys(), toolKeys(), authKeys(), credentialKeys()}
}

// Key is one key of the schema, for those who document it.
type Key struct {
	Section string // "sandbox"; "" is the file itself
	Name    string
	Type    string // "string", "number", "boolean", "list" or "table"
	Default string // as both syntaxes write it; "": there is none
}

// Keys returns the schema. The keys of server stand at the top as well.
func Keys() []Key { return keysOf(sections()) }

// ClientKeys returns the schema of clients.
func ClientKeys() []Key { return keysOf(clientSections()) }

func keysOf(sections []section) []Key {
	var all []Key
	for _, s := range sections {
		for _, k := range s.keys {
			all = append(all, Key{s.name, k.name, k.kind(), k.unsaid})
		}
	}
	return all
}

func (k key) kind() string {
	switch {
	case k.example == "":
		return "table"
	case k.example[0] == '"':
		return "string"
	case k.example[0] == '[':
		return "list"
	case k.example == "true" || k.example == "false":
		return "boolean"
	}
	return "number"
}

func (s section) find(name string) (key, bool) {
	i := slices.IndexFunc(s.keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return s.keys[i], true
}

func (s section) names() []string {
	var n []string
	for _, k := range s.keys {
		n = append(n, k.name)
	}
	return n
}

// otherWords are what other tools call a key.
func otherWords() map[string]string {
	return map[string]string{
		"cmd": "command", "program": "command", "exec": "command", "arguments": "args",
		"environment": "env", "envs": "env", "vars": "env", "variables": "env",
		"secrets": "auth", "credentials": "auth", "token": "auth", "api_key": "auth", "password": "auth", "headers": "auth",
		"domains": "allowed_domains", "hosts": "allowed_domains", "host": "allowed_domains", "network": "allowed_domains", "egress": "allowed_domains", "allowed_origins": "allowed_domains",
		"blocked_origins": "blocked_domains", "denied_domains": "blocked_domains", "blocklist": "blocked_domains", "deny": "blocked_domains",
		"private": "allow_private", "private_networks": "allow_private", "private_network": "allow_private", "private_domains": "allow_private", "private_ips": "allow_private",
		"allow_internal": "allow_private", "allow_local": "allow_private", "allow_lan": "allow_private", "allow_loopback": "allow_private", "allow_rebinding": "allow_private",
		"internal": "allow_private", "lan": "allow_private", "ssrf": "allow_private", "rebind": "allow_private", "private_addresses": "allow_private",
		"type": "transport", "protocol": "transport", "endpoint": "url", "uri": "url", "socket": "path",
		"memory": "memory_limit", "mem": "memory_limit", "memory_max": "memory_limit", "cpu": "cpu_quota", "cpus": "cpu_quota",
		"pids": "tasks_max", "pids_limit": "tasks_max", "processes": "tasks_max", "tasks": "tasks_max",
		"disabled": "enabled", "active": "enabled", "start": "autostart", "auto_start": "autostart", "idle": "idle_timeout",
		"volumes": "writable", "mounts": "writable", "binds": "writable", "rw": "writable", "write": "writable", "ro": "read_only", "read": "read_only",
		"tmp": "allow_tmp", "persist": "state", "home": "state", "tools": "tool", "security": "label", "sensitivity": "label", "desc": "description",
		"id": "name", "server_id": "name", "title": "description", "readonly": "read_only_fs", "mcpservers": "server", "servers": "server", "mcp": "server",
		"capabilities": "client_capabilities", "client": "client_capabilities", "elicit": "client_capabilities", "elicitation": "client_capabilities",
		"sampling": "client_capabilities", "roots": "client_capabilities",
		"per_session": "sessions", "session_mode": "sessions", "max_sessions": "sessions_max", "instances": "sessions_max", "session_timeout": "session_idle",
		"pinning": "pins", "trust_first": "pins", "tofu": "pins", "aliases": "alias", "aka": "alias", "also": "alias",
		"certificate_pins": "tls_pins", "cert_pins": "tls_pins", "pinned_certificates": "tls_pins", "public_key_pins": "tls_pins", "spki_pins": "tls_pins", "hpkp": "tls_pins",
		"annotations": "tool", "limits": "sandbox", "resources": "sandbox", "isolation": "sandbox",
	}
}

// wordsOfCredentials are what a key of a credential is called elsewhere.
func wordsOfCredentials() map[string]string {
	return map[string]string{
		"key": "secret", "value": "secret", "ref": "secret", "reference": "secret", "vault": "secret", "token": "secret", "from": "secret", "source": "secret",
		"delivery": "deliver", "as": "deliver", "via": "deliver", "mode": "deliver", "type": "deliver", "env": "deliver", "file": "deliver", "broker": "deliver",
		"host": "hosts", "domains": "hosts", "allowed_domains": "hosts", "allowed_hosts": "hosts", "to": "hosts",
		"place": "in", "places": "in", "where": "in", "header": "in", "headers": "in", "query": "in", "body": "in",
	}
}

// remedy says what to write instead of a key that s does not know.
func (d *decoder) remedy(s section, name string) string {
	if len(name) > 64 {
		return "Write " + oneOf(s.names()) + "."
	}
	plain := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	if k, ok := wordsOfCredentials()[plain]; ok && s.name == credentialSection {
		d.meant[k] = true
		return "Write " + k + "."
	}
	for _, o := range d.sections() {
		if k, ok := o.find(name); ok && d.words()[name] == "" {
			return d.place(o, k.name)
		}
	}
	if k, ok := s.find(plain); ok {
		d.meant[k.name] = true
		return "Keys are in lower case, with underscores. Write " + k.name + "."
	}
	if w, ok := d.words()[plain]; ok { // before what looks alike: pids is tasks_max, and not pins
		plain = w
	} else if k := nearest.Keyword(plain, s.names()); k != "" {
		d.meant[k] = true
		return "Did you mean " + k + "?"
	}
	for _, o := range d.sections() {
		if k := nearest.Keyword(plain, o.names()); k != "" {
			d.meant[k] = true
			if o.name == s.name {
				return "Write " + k + "."
			}
			return d.place(o, k)
		}
	}
	return "The keys here are " + oneOf(s.names()) + "."
}

// place says where a key belongs that stands elsewhere.
func (d *decoder) place(s section, name string) string {
	d.meant[name] = true
	switch {
	case s.name == "" && d.toml:
		return name + " stands at the top of the file, before the first [table]. Move it there."
	case s.name == "":
		return name + " stands at the top of the file, outside of every block. Move it there."
	case s.name == toolSection:
		return name + " stands in " + d.form(toolSection) + ". Write it there."
	}
	return name + " stands in " + d.form(s.name) + ". Write it there."
}

// form shows how the file's syntax writes a section.
func (d *decoder) form(s string) string {
	switch {
	case s == authSection:
		return `auth = { NOTION_TOKEN = "vault:notion_token" }`
	case s == credentialSection:
		return `auth = { NOTION_TOKEN = { secret = "vault:notion_token", deliver = "file" } }`
	case s == "env":
		return `env = { LOG_LEVEL = "debug" }`
	case s == "allow_private":
		return privateForm
	case s == "tls_pins":
		return tlsForm
	case s == serverSection && d.client != nil && d.toml:
		return "[server.notion]"
	case s == serverSection && d.client != nil:
		return `server "notion" { ... }`
	case s == toolSection && d.toml:
		return "[tool.search]"
	case s == toolSection:
		return `tool "search" { ... }`
	case d.toml:
		return "[" + s + "]"
	}
	return s + " { ... }"
}
