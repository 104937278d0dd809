package generator

import (
	"cmp"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/sandbox"
)

// AdapterPath is where a sandbox has the adapter, wherever the host has it.
const AdapterPath = "/run/pfar/pfar-adapter"

// Where a sandbox has what the adapter opens of the host's.
const (
	socketPath = "/run/pfar/server.sock"
	pipePath   = "/run/pfar/server" // .in and .out
)

// adapter is how pfar's adapter runs in a sandbox, before the server or in its place. The zero value is none: the
// gateway speaks with the server itself.
type adapter struct {
	args   []string
	mounts []sandbox.Mount
}

// adapt has pfar's adapter speak with a server that does not speak on its stdio.
func (c *findings) adapt(s *declaration.Server, h Host) adapter {
	if s.Transport == declaration.Stdio {
		return adapter{}
	}
	a := adapter{mounts: c.adapterMounts(h)}
	switch {
	case s.Remote():
		a.args = remote(s)
	case s.Attached():
		c.attach(&a, s, h)
	case s.Transport == declaration.UDS:
		a.args = append(uds(s, s.Path), "--")
	case s.Transport == declaration.Pipe:
		a.args = []string{"pipe", s.Path, "--"}
	case s.Transport == declaration.SSE:
		a.args = []string{"port", "--sse", s.URL, "--"}
	default:
		a.args = []string{"port", s.URL, "--"}
	}
	if s.Transport != declaration.UDS && s.Starts() {
		c.ownPort(s)
	}
	return a
}

// ownPort refuses the port of a server that its allowed_domains have: there, that port leads to the host.
func (c *findings) ownPort(s *declaration.Server) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return // which the declaration's reader has refused
	}
	port, _ := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	for _, e := range s.Allowed {
		if e.Prefix.IsValid() && e.Prefix.Addr().IsLoopback() && (e.AnyPort || uint64(e.Port) == port) {
			c.fail("url", "Port of the machine", "allowed_domains has %s, so port %d of the server's loopback leads to "+
				"the machine. "+
				"Have the server listen at another port.", e, port)
		}
	}
}

// wrap has the adapter run, and the server's command as its child.
func (a adapter) wrap(box *sandbox.Sandbox) {
	if a.args == nil {
		return
	}
	args := a.args
	if box.Command != "" {
		args = slices.Concat(args, []string{box.Command}, box.Args)
	}
	box.Command, box.Args = AdapterPath, args
}

// adapterMounts are how a sandbox sees the adapter.
func (c *findings) adapterMounts(h Host) []sandbox.Mount {
	const key = "transport"
	f, err := h.resolve(h.Adapter)
	switch {
	case h.Adapter == "", err != nil, !f.Regular():
		c.lack([]string{h.Adapter}, key, "Adapter not found", "pfar-adapter, which connects to servers, does not "+
			"lie beside pfard. Install pfar whole.")
		return nil
	case !f.Executable():
		c.lack(paths(f), key, "Adapter not executable", "%s is not executable. Install pfar again.", where(f))
		return nil
	}
	return []sandbox.Mount{
		{Kind: sandbox.Dir, Dest: path.Dir(AdapterPath), Why: "pfar's own"},
		{Kind: sandbox.ROOverlay, Source: f.Real, Dest: AdapterPath, Why: "pfar's adapter, which connects to the server"},
	}
}

// uds are the adapter's arguments for a server at a socket.
func uds(s *declaration.Server, socket string) []string {
	args := []string{"uds"}
	if s.URL != "" {
		args = append(args, "--url", s.URL)
	}
	return append(args, socket)
}

// attach shows the adapter the socket, or the FIFOs, of a server that runs without pfar.
func (c *findings) attach(a *adapter, s *declaration.Server, h Host) {
	s.Sandbox.AllowTmp = false // the adapter writes no file
	owners, ok := c.owners(s, h)
	if !ok {
		return
	}
	ends := map[string]string{s.Path: socketPath}
	a.args = uds(s, socketPath)
	if s.Transport == declaration.Pipe {
		ends = map[string]string{s.Path + ".in": pipePath + ".in", s.Path + ".out": pipePath + ".out"}
		a.args = []string{"pipe", pipePath}
	}
	for _, k := range s.Credentials {
		a.args = slices.Insert(a.args, 1, "--token-env", k.Env)
	}
	door := sandbox.Door{FIFO: s.Transport == declaration.Pipe, Owners: owners}
	for _, p := range []string{s.Path, s.Path + ".in", s.Path + ".out"} {
		if dest, ok := ends[p]; ok {
			if f, ok := c.door(p, door.FIFO, h); ok {
				a.mounts = append(a.mounts, sandbox.Mount{
					Kind: sandbox.ROBind, Source: f.Real, Dest: dest, Door: &door, Why: "where the server listens",
				})
			}
		}
	}
}

// door finds a socket or FIFO of the host. Its server may make it later, or once more: the launcher asks whose it is at
// each start.
func (c *findings) door(p string, fifo bool, h Host) (hostfs.File, bool) {
	const key = "path"
	what, kind := "a socket", fs.ModeSocket
	if fifo {
		what, kind = "a FIFO", fs.ModeNamedPipe
	}
	f, err := h.resolve(p)
	switch {
	case err != nil:
		c.lack(paths(f), key, "Server not found", "%v. Start the server, or write its command to have pfar start it.", err)
	case f.Real != path.Join(h.real(path.Dir(p)), path.Base(p)):
		c.lack(paths(f), key, "Link in place of a server", "%s is a link, which whoever owns its directory may lead "+
			"elsewhere. "+
			"Write the path that it leads to.", where(f))
	case f.Info.Mode().Type() != kind:
		c.lack(paths(f), key, "Server not found", "%s is not %s. Start the server, or write where it listens.", where(f),
			what)
	case declaration.NotASocket(f.Real):
		c.fail(key, "Refused path", "%s belongs to the machine. Write the path of the server's own socket.", where(f))
	default:
		return f, true
	}
	return f, false
}

// owners are who may own a server's socket: whom the declaration names, or root and pfar's own user.
func (c *findings) owners(s *declaration.Server, h Host) ([]uint32, bool) {
	if s.Owner == "" {
		return slices.Compact([]uint32{0, uint32(h.UID)}), true
	}
	if n, err := strconv.ParseUint(s.Owner, 10, 31); err == nil {
		return []uint32{uint32(n)}, true
	}
	users, _ := h.read(h.real("/etc/passwd"))
	for line := range strings.Lines(string(users)) {
		entry := strings.Split(line, ":")
		if n, err := strconv.ParseUint(entry[min(2, len(entry)-1)], 10, 31); err == nil && entry[0] == s.Owner {
			return []uint32{uint32(n)}, true
		}
	}
	c.lack([]string{"/etc/passwd"}, "owner", "User not found", "/etc/passwd has no user %s. Write the number of the user "+
		"(id -u %s).", quote(s.Owner), quote(s.Owner))
	return nil, false
}

// inside makes the folder, in memory, of the socket or FIFOs of a server that pfar starts.
func (a *adapter) inside(c *findings, s declaration.Server, base []sandbox.Mount) {
	if s.Path == "" || s.Attached() {
		return
	}
	dir := path.Dir(s.Path)
	private := func(m sandbox.Mount) bool { return m.Scratch() && sandbox.Below(dir, m.Dest) }
	taken := func(m sandbox.Mount) bool {
		return m.Dest != "/run" && m.Dest != "/" && (sandbox.Below(dir, m.Dest) || sandbox.Below(m.Dest, dir))
	}
	switch {
	case slices.ContainsFunc(base, private):
	case !sandbox.Below(dir, "/run") || dir == "/run" || slices.ContainsFunc(base, taken):
		c.fail("path", "Refused path", "The server listens in its sandbox, in a directory in memory that is its "+
			"own, and %s is "+
			"none. Write path = %q, and have the command listen there.", quote(dir), "/run/"+s.Name+"/"+path.Base(s.Path))
	default:
		a.mounts = append(a.mounts, sandbox.Mount{
			Kind: sandbox.Tmpfs, Dest: dir, Size: rootSize, Perms: 0o700,
			Why: "where the server listens, for pfar's adapter alone",
		})
	}
}

// contained refuses a command that has a container run, and names what does the same.
func (c *software) contained() bool {
	names, ok := source.Container(append([]string{c.server.Command}, c.server.Args...))
	if !ok {
		return false
	}
	instead := "Write the program of the image as the command"
	if c.host.Services != nil {
		if s, ok := c.host.Services().Instead(names); ok {
			instead = "Write package = \"" + s.Program.Package + "\" (pfar add " + s.Name + ")"
		}
	}
	c.fail("command", "Server in a container", "%s has a daemon run the server, outside of every sandbox: pfar could "+
		"hold nothing of it. %s.", quote(path.Base(c.server.Command)), instead)
	return true
}
