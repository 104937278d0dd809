// Package generator compiles a declaration and facts about the host into the plan of everything that pfar will create
// for it.
package generator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// serverHome is every server's home inside its sandbox.
const serverHome = "/home/mcp"

// Compile says what pfar has to create for a server, or what is wrong with its declaration on this host. It looks at
// the host and changes nothing. With an error among the diagnostics the plan is empty.
func Compile(s declaration.Server, h Host) (plan.Plan, hcl.Diagnostics) {
	c := newCompiler(s, h)
	if s.Transport != declaration.Stdio {
		c.fail("transport", "Transport not served yet", "pfar serves servers with the transport \"stdio\" so far, and this one has %q. Write transport = \"stdio\" with the server's command, or move the file out of this folder until then.", s.Transport)
		return plan.Plan{}, c.diags
	}
	box := sandbox.Sandbox{
		Args: s.Args, Dir: serverHome, Hostname: s.Name,
		Limits: sandbox.Limits{Memory: s.Sandbox.Memory, Tasks: s.Sandbox.Tasks, CPU: s.Sandbox.CPU},
	}
	base := c.base()
	box.Command = c.command()
	c.program(box.Command)
	c.declared()
	c.separate()
	known := c.gateway()
	if c.diags.HasErrors() {
		return plan.Plan{}, c.diags
	}
	box.Mounts = c.assemble(base)
	box.Env = c.environment()
	c.checkArgs(box)
	if err := box.Validate(); err != nil { // what the launcher would refuse
		c.fail("command", "Sandbox not possible", "The sandbox for this server cannot be built: %v.", err)
		return plan.Plan{}, c.diags
	}
	p := plan.Plan{
		Name: s.Name, File: s.File, Enabled: s.Enabled, Autostart: s.Autostart, State: s.Sandbox.State,
		Gateway: known, Sandbox: box, Egress: reach(s), TLSPins: s.TLSPins, Files: c.files(), Scopes: s.Scopes, Setting: setting(s),
	}
	for _, k := range s.Credentials {
		p.Credentials = append(p.Credentials, plan.Credential{Name: k.Env, Key: k.Key, From: k.From, Deliver: k.Deliver, Hosts: k.Hosts, Places: k.Places})
	}
	return p, c.diags
}

// reach is where a server may connect to.
func reach(s declaration.Server) egress.Policy {
	return egress.Policy{Endpoints: s.Allowed, Blocked: s.Blocked, Private: s.Private}
}

// maxHello bounds what the gateway is told of a server, in bytes as JSON: it travels in one packet of 64 KiB, to which
// the launcher adds a little.
const maxHello = 60 << 10

// gateway is what the gateway is told.
func (c *compiler) gateway() handover.Server {
	s := c.server
	g := handover.Server{
		Name: s.Name, Description: s.Description, Label: string(s.Label), Timeout: s.Timeout,
		Capabilities: s.Capabilities, Sessions: handover.Sessions(s.Sessions), Pins: string(s.Pins), Version: s.Version, Program: program(s),
		OnDemand: !s.Autostart || s.IdleTimeout > 0, IdleTimeout: s.IdleTimeout,
	}
	for name, t := range s.Tools {
		if g.Tools == nil {
			g.Tools = map[string]handover.Tool{}
		}
		g.Tools[name] = handover.Tool{Semantics: readsOrWrites(t), Aliases: t.Aliases}
	}
	d := declared(s)
	d.Packages, d.Holds = c.packages(), c.holds()
	if len(d.Holds) > 0 || len(d.Words) > 0 || len(d.Packages) > 0 || d.Service != "" || d.Of != "" || len(s.Allowed) > 0 {
		g.Declared, _ = json.Marshal(d) // strings
	}
	if b, err := json.Marshal(g); err != nil || len(b) > maxHello {
		c.fail("tool", "Too many tools", "The blocks of the server's tools take %d bytes, and at most %d fit. Remove tools for which the server's own hints suffice.", len(b), maxHello)
	}
	return g
}

// program is the digest of what a declaration says is run: another program under the same name offers other tools.
func program(s declaration.Server) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{s.Command}, s.Args...), "\x00"))) // neither can hold a NUL
	return hex.EncodeToString(sum[:])
}

// compiler is one compilation.
type compiler struct {
	server  declaration.Server
	host    Host
	home    string   // resolved; "": none
	private []string // resolved
	wide    map[string]bool

	shown  []string // what the base file system shows of the host, at the host's own paths
	binds  []bind
	links  []located
	covers []string // empty folders over some of the host's
	path   []string // directories of programs that are looked up inside
	diags  hcl.Diagnostics
}

// bind is a file or folder of the host that the server gets at the same place.
type bind struct {
	real     string
	writable bool
	live     bool   // see sandbox.Mount
	key      string // of the declaration that asked for it
	why      string
}

// located is a link and the key that led over it.
type located struct {
	hostfs.Link
	key string
}

func newCompiler(s declaration.Server, h Host) *compiler {
	c := &compiler{server: s, host: h, wide: map[string]bool{}}
	if path.IsAbs(h.Home) && path.Clean(h.Home) != "/" {
		c.home = h.real(h.Home)
	}
	for _, p := range h.Private {
		if path.IsAbs(p) {
			c.private = append(c.private, h.real(p))
		}
	}
	for _, p := range wideDirectories() {
		c.wide[p], c.wide[h.real(p)] = true, true
	}
	return c
}

// fail reports an error at a key of the declaration.
func (c *compiler) fail(key, summary, format string, args ...any) {
	c.report(hcl.DiagError, key, summary, format, args...)
}

func (c *compiler) warn(key, summary, format string, args ...any) {
	c.report(hcl.DiagWarning, key, summary, format, args...)
}

func (c *compiler) report(severity hcl.DiagnosticSeverity, key, summary, format string, args ...any) {
	at := c.server.Place(key)
	c.diags = c.diags.Append(&hcl.Diagnostic{Severity: severity, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: &at})
}

// lack reports an error that may be none once one of some paths is there, or is another file.
func (c *compiler) lack(paths []string, key, summary, format string, args ...any) {
	c.fail(key, summary, format, args...)
	c.diags[len(c.diags)-1].Extra = absent(paths)
}

// show notes that the server is to see f.Real, and the links that lead there.
func (c *compiler) show(f hostfs.File, b bind) {
	c.follow(f, b.key)
	for _, root := range softwareRoots() {
		if sandbox.Below(f.Real, root) && !b.writable {
			b.real, b.live, b.why = root, false, "software of the host, readable by all its users"
		}
	}
	for i, have := range c.binds {
		if have.real == b.real && have.writable == b.writable {
			if have.why != b.why {
				c.binds[i].why += "; " + b.why
			}
			c.binds[i].live = have.live || b.live
			return
		}
	}
	c.binds = append(c.binds, b)
}

func (c *compiler) follow(f hostfs.File, key string) {
	for _, l := range f.Links {
		c.links = append(c.links, located{l, key})
	}
}
