package control

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/units/migrate"
)

// Dirs says where pfard and the operator's CLI meet, so that both compute the same places.
type Dirs struct {
	Run     string   // sockets and what credentials pass through: always memory, never a disk
	State   string   // token, logs, private homes, vault
	Config  string   // the declarations, where pfar writes them
	Below   []string // folders of declarations that those of Config hide, and each those of the next one
	Servers string   // programs installed for servers
}

// DefaultDirs derives the directories of the user uid from the environment that getenv reads: root has the system's
// directories, anybody else those of the XDG Base Directory Specification. An XDG path that is not absolute is
// ignored, as the specification demands.
func DefaultDirs(getenv func(string) string, uid int) Dirs {
	home := func(variable, below string) string {
		if p := getenv(variable); filepath.IsAbs(p) {
			return filepath.Join(p, "pfar")
		}
		return filepath.Join(getenv("HOME"), below, "pfar")
	}
	d := Dirs{Run: "/run/pfar", State: "/var/lib/pfar", Config: "/etc/pfar/mcp.d"}
	installed := "/usr/lib/pfar/mcp.d"
	if uid != 0 {
		d.State = home("XDG_STATE_HOME", ".local/state")
		d.Config = filepath.Join(home("XDG_CONFIG_HOME", ".config"), "mcp.d")
		installed = filepath.Join(home("XDG_DATA_HOME", ".local/share"), "mcp.d") // those of /usr/lib are the machine's
		// /dev/shm is a tmpfs on every Linux; whoever uses the directory checks its owner, for anybody may make it.
		d.Run = "/dev/shm/pfar-" + strconv.Itoa(uid)
		if p := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(p) {
			d.Run = filepath.Join(p, "pfar")
		}
	}
	for variable, dir := range map[string]*string{
		"PFAR_RUN_DIR": &d.Run, "PFAR_STATE_DIR": &d.State,
	} {
		if p := getenv(variable); p != "" {
			*dir = p
		}
	}
	d.Below = []string{filepath.Join(d.Run, "mcp.d"), installed}
	if p := getenv("PFAR_CONFIG_DIR"); p != "" {
		all := filepath.SplitList(p)
		d.Config, d.Below = all[0], all[1:]
	}
	d.Servers = filepath.Join(d.State, "servers")
	if p := getenv("PFAR_SERVERS_DIR"); p != "" {
		d.Servers = p
	}
	return d
}

// Absolute returns the directories as seen from anywhere: a relative one comes from the environment, and would protect
// nothing once compared with a sandbox's paths.
func (d Dirs) Absolute() (Dirs, error) {
	for _, dir := range []*string{&d.Run, &d.State, &d.Config, &d.Servers} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return Dirs{}, fmt.Errorf("making %q absolute: %w", *dir, err)
		}
		*dir = abs
	}
	d.Below = slices.Clone(d.Below)
	for i, dir := range d.Below {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Dirs{}, fmt.Errorf("making %q absolute: %w", dir, err)
		}
		d.Below[i] = abs
	}
	return d, nil
}

// Folders are the folders of declarations, the first of which comes before all others. Beside one that somebody names
// there are no others.
func (d Dirs) Folders(declarations string) []string {
	if declarations != d.Config {
		return []string{declarations}
	}
	return append([]string{d.Config}, d.Below...)
}

// Control is pfard's socket.
func (d Dirs) Control() string { return filepath.Join(d.Run, "control.sock") }

// Look is pfard's socket for those who may look, and change nothing.
func (d Dirs) Look() string { return filepath.Join(d.Run, "look.sock") }

// Gateway is the gateway's socket for clients.
func (d Dirs) Gateway() string { return filepath.Join(d.Run, "gateway.sock") }

// Operator is the gateway's socket for the operator alone: pins, approvals, sessions.
func (d Dirs) Operator() string { return filepath.Join(d.Run, "operator.sock") }

// Passkey is the gateway's socket on which each act is signed with a passkey.
func (d Dirs) Passkey() string { return filepath.Join(d.Run, "passkey.sock") }

// Egress is the socket on which the named server's egress bridge tells of its connections.
func (d Dirs) Egress(name string) string { return filepath.Join(d.Run, "egress", name+".sock") }

// Token is the file that holds the bearer token of the gateway's loopback endpoint.
func (d Dirs) Token() string { return filepath.Join(d.State, "token") }

// Log is the file that holds what the named server writes to its standard error.
func (d Dirs) Log(name string) string { return filepath.Join(d.State, "log", name+".log") }

// Homes is the directory of the servers' private homes.
func (d Dirs) Homes() string { return filepath.Join(d.State, "home") }

// Packages is the directory of installed packages, which servers and everyone else may read.
func (d Dirs) Packages() string { return filepath.Join(d.State, "packages") }

// Undo is the directory of what servers have overwritten (generator.Compile).
func (d Dirs) Undo() string { return filepath.Join(d.State, "undo") }

// Pins is the directory of what has been accepted of servers.
func (d Dirs) Pins() string { return filepath.Join(d.State, "pins") }

// Disabled is the file that is there if the operator has disabled the named server.
func (d Dirs) Disabled(name string) string { return filepath.Join(d.State, "disabled", name) }

// Flows is the directory of the set-ups that are under way.
func (d Dirs) Flows() string { return filepath.Join(d.State, "set-ups") }

// Kept is the directory of the last good version of each declaration.
func (d Dirs) Kept() string { return filepath.Join(d.State, "declarations") }

// Upgrades is the directory of which version the package of each server had before.
func (d Dirs) Upgrades() string { return filepath.Join(d.State, "upgrades") }

// Clients is the folder of declared clients, beside that of the servers.
func (d Dirs) Clients() string { return filepath.Join(filepath.Dir(d.Config), "clients.d") }

// OnFailure is the owner's program that is run when a server is disabled because it failed.
func (d Dirs) OnFailure() string { return filepath.Join(filepath.Dir(d.Config), "on-failure") }

// Policies is the directory of the owner's policies for the gate.
func (d Dirs) Policies() string { return filepath.Join(filepath.Dir(d.Config), "policies.d") }

// Models is the directory of the owner's models.
func (d Dirs) Models() string { return filepath.Join(filepath.Dir(d.Config), "models.d") }

// ChatFiles is the directory of the accounts at which the owner talks with pfar.
func ChatFiles(d Dirs) string { return filepath.Join(filepath.Dir(d.Config), "chat.d") }

// ChatStates is the directory of how far each chat is read, and of the messages that are to be deleted.
func ChatStates(d Dirs) string { return filepath.Join(d.State, "chats") }

// Services is the directory of the operator's entries of the catalogue.
func (d Dirs) Services() string { return filepath.Join(filepath.Dir(d.Config), "services.d") }

// FlowFiles is the directory of the owner's flows.
func (d Dirs) FlowFiles() string { return filepath.Join(filepath.Dir(d.Config), "flows.d") }

// OAuth is the directory of the owner's clients with OAuth providers.
func (d Dirs) OAuth() string { return filepath.Join(filepath.Dir(d.Config), "oauth.d") }

// Vault is the directory of the secrets.
func (d Dirs) Vault() string { return filepath.Join(d.State, "vault") }

// Operators is the file of those who sign in with passkeys at the remote console.
func (d Dirs) Operators() string { return filepath.Join(d.State, "operators.json") }

// Given is the file that says to which servers each secret is given.
func (d Dirs) Given() string { return filepath.Join(d.Vault(), "given.json") }

// Audit is the directory of what was recorded (package trail).
func (d Dirs) Audit() string { return filepath.Join(d.State, "audit") }

// Private are the paths that no sandbox may bind, wherever the declarations lie. What lies below /usr, anybody may read.
func (d Dirs) Private(declarations string) []string {
	folders := slices.DeleteFunc(d.Folders(declarations), func(dir string) bool {
		return strings.HasPrefix(dir, "/usr/")
	})
	return append(folders, d.Run, d.Clients(), d.Pins(), filepath.Join(d.State, "gateway"), d.Vault(), d.Audit(),
		d.Homes(), d.Kept(), d.Upgrades(), d.Flows(), filepath.Join(d.State, migrate.Backups), filepath.Join(d.State, "log"),
		filepath.Dir(d.Disabled("x")), d.OnFailure(), d.Policies(), d.Models(), ChatFiles(d),
		d.Services(), d.OAuth(), d.FlowFiles(),
		d.Token(), d.Undo(), d.Operators())
}
