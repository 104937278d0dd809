// DRAFT by the lead so that the others can integrate and run the end-to-end tests NOW. Whoever owns package generator:
// delete this one file when yours is in place; nothing else depends on its unexported names.

package generator

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/hashicorp/hcl/v2"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/sandbox"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

type link struct{ at, text string }

const maxLinks = 40

func resolve(fsys fs.FS, p string) (real string, links []link, err error) {
	real, rest := "/", strings.TrimPrefix(path.Clean(p), "/")
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			real = path.Dir(real)
			continue
		}
		next := path.Join(real, name)
		st, err := fs.Lstat(fsys, next[1:])
		if err != nil {
			return "", nil, err
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			real = next
			continue
		}
		if len(links) == maxLinks {
			return "", nil, fmt.Errorf("%q: too many levels of symbolic links", p)
		}
		text, err := fs.ReadLink(fsys, next[1:])
		if err != nil {
			return "", nil, err
		}
		links = append(links, link{next, text})
		if path.IsAbs(text) {
			real = "/"
		}
		rest = strings.Trim(text+"/"+rest, "/")
	}
	return real, links, nil
}
func below(p, dir string) bool {
	return p != dir && strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
func within(p, dir string) bool { return p == dir || below(p, dir) }

var wide = []string{"/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/media", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/tmp", "/var/cache", "/var/opt"}

func (h Host) tooWide(dir string) bool {
	list := append([]string{h.Home}, wide...)
	list = append(list, h.Private...)
	for _, w := range list {
		if w != "" && within(w, dir) {
			return true
		}
	}
	return path.Dir(dir) == "/home"
}
func (h Host) refusal(p string) string {
	for _, secret := range h.Private {
		if within(p, secret) || below(secret, p) {
			return "private"
		}
	}
	if h.tooWide(p) {
		return "wide"
	}
	return ""
}
func cause(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "it does not exist"
	}
	return err.Error()
}

// interpreters run a program that is named in their arguments. Their own options that take a value are skipped with it.
var interpreters = regexp.MustCompile(`^(node|nodejs|bun|deno|python[0-9.]*|pypy[0-9.]*|ruby[0-9.]*|perl|java|php|bash|sh|dash|tsx|ts-node)$`)

// program is what a declaration's command means on this host.
type program struct {
	command string // absolute, as it is called
	needs   []need // what must be visible for it
}

// need is a path that the program needs, with the tree that it is shown in.
type need struct{ path, tree, why string }

// findProgram looks the command up and follows it to its interpreter and to its own code.
func (c *compiler) findProgram() (program, bool) {
	s := c.server
	command, ok := c.lookUp("server.command", s.Command)
	if !ok {
		return program{}, false
	}
	p := program{command: command}
	if !c.follow(&p, command, "the command", 0) {
		return program{}, false
	}
	if interpreters.MatchString(path.Base(command)) {
		for _, a := range s.Args {
			if strings.HasPrefix(a, "-") {
				if a == "-m" || a == "-c" || a == "-e" || a == "--eval" || a == "-p" || a == "--print" {
					break // what runs is not a file
				}
				continue
			}
			if !looksLikePath(a) {
				break
			}
			return p, c.addScript(&p, a)
		}
	}
	return p, true
}

func looksLikePath(a string) bool {
	if strings.Contains(a, "/") {
		return true
	}
	switch path.Ext(a) {
	case ".js", ".mjs", ".cjs", ".ts", ".py", ".rb", ".pl", ".jar", ".php", ".sh":
		return true
	}
	return false
}

func (c *compiler) addScript(p *program, script string) bool {
	if !path.IsAbs(script) {
		return c.fail("Program with a relative path", fmt.Sprintf("server.args names the program %q. A server does not start in any directory of the host's: write its absolute path, or one below ${servers}.", script))
	}
	real, _, err := resolve(c.host.FS, script)
	if err != nil {
		return c.fail("Program not found", fmt.Sprintf("server.args names the program %q: %s. Install it there, or correct the path.", script, cause(err)))
	}
	p.needs = append(p.needs, need{script, c.treeOf(real), "the program"})
	return true
}

// lookUp finds a command as execvp(3) would, in the host's directories.
func (c *compiler) lookUp(key, command string) (string, bool) {
	if path.IsAbs(command) {
		return path.Clean(command), true
	}
	if strings.Contains(command, "/") {
		return "", c.fail("Command with a relative path", fmt.Sprintf("%s is %q. Write an absolute path, or a bare name to be looked up in PATH.", key, command))
	}
	for _, dir := range c.host.Path {
		candidate := path.Join(dir, command)
		if !path.IsAbs(candidate) {
			continue
		}
		real, _, err := resolve(c.host.FS, candidate)
		if err != nil {
			continue
		}
		if st, err := fs.Stat(c.host.FS, real[1:]); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return candidate, true
		}
	}
	return "", c.fail("Command not found", fmt.Sprintf("%s is %q, which is in none of %s. Install it, or write its absolute path.", key, command, strings.Join(c.host.Path, ", ")))
}

// follow adds what running file needs: its tree, and for a script its interpreter's.
func (c *compiler) follow(p *program, file, what string, depth int) bool {
	real, _, err := resolve(c.host.FS, file)
	if err != nil {
		return c.fail("Command not found", fmt.Sprintf("%s is %q: %s. Install it, or correct the path.", what, file, cause(err)))
	}
	st, err := fs.Stat(c.host.FS, real[1:])
	switch {
	case err != nil:
		return c.fail("Command not found", fmt.Sprintf("%s is %q: %s.", what, file, cause(err)))
	case !st.Mode().IsRegular() || st.Mode()&0o111 == 0:
		return c.fail("Command not executable", fmt.Sprintf("%s is %q, which is not an executable file. Make it one (chmod +x), or name the interpreter as command and the file as first argument.", what, file))
	case strings.Contains(file, "/shims/") || strings.Contains(real, "/shims/"):
		return c.fail("Command is a version manager's shim", fmt.Sprintf("%s is %q, which only looks for the real program. Name that one: pyenv which, asdf which, mise which or volta which says where it is.", what, file))
	}
	p.needs = append(p.needs, need{file, c.treeOf(real), what})
	interpreter, arg := shebang(c.host.FS, real)
	if interpreter == "" {
		return true
	}
	if depth == 4 { // the kernel's bound, execve(2)
		return c.fail("Command not executable", fmt.Sprintf("%s is %q, a script whose interpreter is a script, more than 4 deep.", what, file))
	}
	if path.Base(interpreter) == "env" && arg != "" {
		name := strings.Fields(strings.TrimPrefix(arg, "-S "))[0]
		found, ok := c.lookUp("the interpreter of "+file, name)
		if !ok {
			return false
		}
		c.path(path.Dir(found))
		return c.follow(p, found, "the interpreter of "+path.Base(file), depth+1)
	}
	return c.follow(p, interpreter, "the interpreter of "+path.Base(file), depth+1)
}

// shebang returns the interpreter and its argument from a script's first line (execve(2)), "" if it is not a script.
func shebang(fsys fs.FS, real string) (interpreter, arg string) {
	f, err := fsys.Open(real[1:])
	if err != nil {
		return "", ""
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	rest, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return "", ""
	}
	interpreter, arg, _ = strings.Cut(strings.TrimSpace(rest), " ")
	if !path.IsAbs(interpreter) {
		return "", ""
	}
	return path.Clean(interpreter), strings.TrimSpace(arg)
}

// markers are files at the root of one program's code.
var markers = []string{"package.json", "pyproject.toml", "setup.py", "Gemfile", "composer.json", "deno.json"}

// treeOf returns the directory that the real file belongs to, or the file itself where that would be too wide.
func (c *compiler) treeOf(file string) string {
	if i := strings.Index(file, "/node_modules/"); i >= 0 {
		return file[:i] + "/node_modules" // node looks for its modules in all of them up to the topmost
	}
	dir := path.Dir(file)
	if path.Base(dir) == "bin" && !c.host.tooWide(path.Dir(dir)) {
		return path.Dir(dir) // an installation prefix, with lib beside bin: nvm, /opt/NAME
	}
	for d, up := dir, 0; up < 5 && !c.host.tooWide(d); d, up = path.Dir(d), up+1 {
		for _, m := range markers {
			if _, err := fs.Stat(c.host.FS, path.Join(d, m)[1:]); err == nil {
				return d
			}
		}
	}
	if c.host.tooWide(dir) {
		return file
	}
	return dir
}

// Host is what Compile may know of the machine.
type Host struct {
	FS       fs.ReadLinkFS // rooted at /
	Path     []string      // directories in which a bare command is looked up
	Home     string        // the operator's home directory, never shown whole
	StateDir string        // a server's private home is StateDir/NAME
	Private  []string      // what no server is ever shown: pfar's own directories
}

// home is a server's home directory inside its sandbox.
const home = "/home/mcp"

// Compile says everything that pfar will create for a server. It only reads, and only what Host gives. With an error
// among the diagnostics the plan must not be used.
func Compile(s declaration.Server, h Host) (Plan, hcl.Diagnostics) {
	c := &compiler{server: s, host: h}
	if s.Transport != declaration.Stdio {
		c.fail("Transport not served yet", fmt.Sprintf("transport = %q is read and checked, but this version of pfar serves stdio only. Use a stdio server, or set enabled = false until then.", s.Transport))
		return Plan{}, c.diags
	}
	program, ok := c.findProgram()
	if ok {
		c.show(program)
		c.showFolders()
	}
	if c.diags.HasErrors() {
		return Plan{}, c.diags
	}
	p := Plan{
		Name: s.Name, File: s.File, Enabled: s.Enabled, Autostart: s.Autostart, State: s.Sandbox.State,
		Gateway:     handover.Server{Name: s.Name, Description: s.Description, Label: string(s.Label), Timeout: s.Timeout, Tools: tools(s.Tools)},
		Egress:      egress.Policy{Endpoints: s.Allowed},
		Credentials: credentials(s.Credentials),
		Sandbox: sandbox.Sandbox{
			Mounts: c.fileSystem(), Env: c.environment(), Command: program.command, Args: s.Args, Dir: home,
			Limits: sandbox.Limits{Memory: s.Sandbox.Memory, Tasks: s.Sandbox.Tasks, CPU: s.Sandbox.CPU},
		},
	}
	if err := p.Sandbox.Validate(); err != nil {
		c.fail("Sandbox that cannot be made", fmt.Sprintf("Its parts get in each other's way: %v.", err))
	}
	return p, c.diags
}

// compiler collects what one server needs.
type compiler struct {
	server declaration.Server
	host   Host
	binds  map[string]sandbox.Mount // by destination
	links  map[string]string
	paths  []string // directories for the server's PATH, before the usual ones
	diags  hcl.Diagnostics
}

// fail adds an error about the declaration and returns false. What it is about the summary and the detail name; the
// file is as close as the place comes, for the mistake may be on the host.
func (c *compiler) fail(summary, detail string) bool {
	start := hcl.Pos{Line: 1, Column: 1}
	c.diags = append(c.diags, &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &hcl.Range{Filename: c.server.File, Start: start, End: start},
	})
	return false
}

// path adds a directory to the server's PATH unless the usual one has it.
func (c *compiler) path(dir string) {
	if !slices.Contains(usualPath, dir) && !slices.Contains(c.paths, dir) {
		c.paths = append(c.paths, dir)
	}
}

var usualPath = []string{"/usr/local/bin", "/usr/bin", "/bin"}

// show makes what the program needs visible.
func (c *compiler) show(p program) {
	c.path(path.Dir(p.command))
	for _, n := range p.needs {
		c.add(n.path, n.tree, sandbox.ROBind, n.why)
	}
}

// add shows tree, and makes the written path lead to it by the links that the host has.
func (c *compiler) add(written, tree string, kind sandbox.Kind, why string) {
	if c.binds == nil {
		c.binds, c.links = map[string]sandbox.Mount{}, map[string]string{}
	}
	_, links, err := resolve(c.host.FS, written)
	if err == nil {
		for _, l := range links {
			c.links[l.at] = l.text
		}
	}
	if within(tree, "/usr") || c.isSystemDir(tree) {
		return // shown whole
	}
	if old, ok := c.binds[tree]; ok && old.Kind == sandbox.Bind {
		return
	}
	c.binds[tree] = sandbox.Mount{Kind: kind, Source: tree, Dest: tree, Why: why}
}

// showFolders adds what the sandbox block names.
func (c *compiler) showFolders() {
	for _, folder := range c.server.Sandbox.Writable {
		c.showFolder("sandbox.writable", folder, sandbox.Bind)
	}
	for _, folder := range c.server.Sandbox.ReadOnly {
		c.showFolder("sandbox.read_only", folder, sandbox.ROBind)
	}
	// SB-02: bwrap would make the mount point inside what the server may change, and follow a link that it has put there.
	for outer, m := range c.binds {
		for inner := range c.binds {
			if m.Kind == sandbox.Bind && below(inner, outer) {
				c.fail("Folder below a writable one", fmt.Sprintf("%q lies in the writable %q: the server could put a link in its place. Move one of them, or make both writable by naming only %q.", inner, outer, outer))
			}
		}
	}
}

func (c *compiler) showFolder(key, folder string, kind sandbox.Kind) {
	real, _, err := resolve(c.host.FS, folder)
	if err != nil {
		c.fail("Folder not found", fmt.Sprintf("%s names %q: %s. Make it, or correct the path.", key, folder, cause(err)))
		return
	}
	st, err := fs.Stat(c.host.FS, real[1:])
	if err != nil || !st.IsDir() && !st.Mode().IsRegular() {
		c.fail("Not a folder or file", fmt.Sprintf("%s names %q, which is neither a folder nor a regular file.", key, folder))
		return
	}
	if why := c.host.refusal(real); why != "" {
		c.fail("Folder that no server may see", fmt.Sprintf("%s names %q: %s.", key, folder, why))
		return
	}
	if kind == sandbox.Bind && (within(real, "/usr") || c.isSystemDir(real)) {
		c.fail("Folder that no server may write to", fmt.Sprintf("%s names %q, a part of the system. Use a folder elsewhere, or state = true.", key, folder))
		return
	}
	c.add(folder, real, kind, "declared in "+key)
}

func tools(list map[string]declaration.Tool) map[string]handover.Tool {
	if len(list) == 0 {
		return nil
	}
	out := make(map[string]handover.Tool, len(list))
	for name, t := range list {
		out[name] = handover.Tool{Semantics: t.Semantics}
	}
	return out
}

func credentials(list []declaration.Credential) (out []Credential) {
	for _, c := range list {
		out = append(out, Credential{Name: c.Env, Key: c.Key, From: c.From})
	}
	return out
}

// environment is all that the server's process gets.
func (c *compiler) environment() []sandbox.Env {
	proxy := fmt.Sprintf("http://127.0.0.1:%d", units.ProxyPort)
	const direct = "localhost,127.0.0.1,::1"
	env := []sandbox.Env{
		{Name: "PATH", Value: strings.Join(append(c.paths, usualPath...), ":")},
		{Name: "HOME", Value: home}, {Name: "USER", Value: "mcp"}, {Name: "LOGNAME", Value: "mcp"}, {Name: "SHELL", Value: "/bin/sh"},
		{Name: "LANG", Value: "C.UTF-8"},
		// Both spellings: programs disagree (SBX-12). Those that know neither have no way out at all.
		{Name: "HTTP_PROXY", Value: proxy}, {Name: "HTTPS_PROXY", Value: proxy}, {Name: "NO_PROXY", Value: direct},
		{Name: "http_proxy", Value: proxy}, {Name: "https_proxy", Value: proxy}, {Name: "no_proxy", Value: direct},
	}
	if c.server.Sandbox.AllowTmp {
		env = append(env, sandbox.Env{Name: "TMPDIR", Value: "/tmp"})
	} else {
		env = append(env, sandbox.Env{Name: "TMPDIR", Value: home})
	}
	for _, v := range c.server.Env {
		env = append(env, sandbox.Env{Name: v.Name, Value: v.Value})
	}
	for _, v := range c.server.Credentials {
		env = append(env, sandbox.Env{Name: v.Env, Credential: v.Env})
	}
	return env
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// The server's account inside its sandbox, and where its names are to be looked up: by the resolver of its own network
// namespace, which knows what is declared.
const (
	passwd   = "root:x:0:0:root:/root:/usr/sbin/nologin\nmcp:x:1000:1000:MCP server:/home/mcp:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group    = "root:x:0:\nmcp:x:1000:\nnogroup:x:65534:\n"
	hosts    = "127.0.0.1 localhost mcp\n::1 localhost ip6-localhost\n"
	nsswitch = "passwd: files\ngroup: files\nhosts: files dns\n"
	resolv   = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
)

// systemDirs stand beside /usr on hosts that have not merged them.
var systemDirs = []string{"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"}

func (c *compiler) isSystemDir(p string) bool {
	for _, d := range systemDirs {
		if within(p, d) {
			return true
		}
	}
	return false
}

// fileSystem is the whole of what the server sees, in the order in which bwrap makes it.
func (c *compiler) fileSystem() []sandbox.Mount {
	var m []sandbox.Mount
	m = append(m, c.system()...)
	m = append(m, c.etc()...)
	m = append(m,
		sandbox.Mount{Kind: sandbox.Proc, Dest: "/proc", Why: "its own processes"},
		// Whoever is root in there, by whatever hole, may not change the host's kernel by it (SB-01).
		sandbox.Mount{Kind: sandbox.ROBind, Source: "/proc/sys", Dest: "/proc/sys", Why: "the kernel's settings, not to be changed"},
		sandbox.Mount{Kind: sandbox.Dev, Dest: "/dev", Why: "null, zero, full, random, urandom, tty"},
	)
	m = append(m, c.scratch()...)
	m = append(m, c.shown(m)...)
	return append(m,
		sandbox.Mount{Kind: sandbox.Remount, Dest: "/dev", Why: "nothing can be added to it"},
		sandbox.Mount{Kind: sandbox.Remount, Dest: "/", Why: "nothing can be added to it"},
	)
}

// system is the operating system, read-only.
func (c *compiler) system() []sandbox.Mount {
	m := []sandbox.Mount{{Kind: sandbox.ROBind, Source: "/usr", Dest: "/usr", Why: "the operating system's programs and libraries"}}
	for _, d := range systemDirs {
		st, err := fs.Lstat(c.host.FS, d[1:])
		if err != nil {
			continue
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			if text, err := fs.ReadLink(c.host.FS, d[1:]); err == nil {
				m = append(m, sandbox.Mount{Kind: sandbox.Symlink, Source: text, Dest: d, Why: "as on the host"})
			}
			continue
		}
		m = append(m, sandbox.Mount{Kind: sandbox.ROBind, Source: d, Dest: d, Why: "the operating system's programs and libraries"})
	}
	return m
}

// etc holds what name resolution, TLS and the dynamic linker need, and none of the machine's own files that could tell
// a stranger more.
func (c *compiler) etc() []sandbox.Mount {
	var m []sandbox.Mount
	for _, f := range []struct{ name, text string }{
		{"passwd", passwd}, {"group", group}, {"hosts", hosts}, {"nsswitch.conf", nsswitch}, {"resolv.conf", resolv},
	} {
		m = append(m, sandbox.Mount{Kind: sandbox.Data, Dest: "/etc/" + f.name, Text: f.text, Why: "made for the server"})
	}
	for _, f := range []struct{ path, why string }{
		{"/etc/ssl/certs", "certificate authorities"}, {"/etc/ssl/openssl.cnf", "TLS settings"}, {"/etc/pki/tls", "certificate authorities"},
		{"/etc/pki/ca-trust", "certificate authorities"}, {"/etc/ca-certificates", "certificate authorities"},
		{"/etc/ld.so.cache", "where libraries are"}, {"/etc/alternatives", "which programs are meant"}, {"/etc/mime.types", "file types"},
	} {
		real, _, err := resolve(c.host.FS, f.path)
		if err != nil {
			continue
		}
		m = append(m, sandbox.Mount{Kind: sandbox.ROBind, Source: real, Dest: f.path, Why: f.why})
	}
	if text, err := fs.ReadLink(c.host.FS, "etc/localtime"); err == nil {
		if !path.IsAbs(text) {
			text = path.Join("/etc", text)
		}
		if below(text, "/usr") {
			m = append(m, sandbox.Mount{Kind: sandbox.Symlink, Source: text, Dest: "/etc/localtime", Why: "the time zone"})
		}
	}
	return m
}

// scratch is what the server may write to. Each place has its bound, all of them in memory but the private home.
func (c *compiler) scratch() []sandbox.Mount {
	s := c.server.Sandbox
	m := []sandbox.Mount{{Kind: sandbox.Tmpfs, Dest: "/dev/shm", Size: s.Memory / 4, Perms: 0o1777, Why: "shared memory, gone at the end"}}
	if s.AllowTmp {
		m = append(m,
			sandbox.Mount{Kind: sandbox.Tmpfs, Dest: "/tmp", Size: s.Memory / 2, Perms: 0o1777, Why: "temporary files, gone at the end"},
		)
	}
	if !s.ReadOnlyFS {
		for _, d := range []string{"/opt", "/srv", "/var"} {
			m = append(m, sandbox.Mount{Kind: sandbox.Tmpfs, Dest: d, Size: s.Memory / 4, Perms: 0o755, Why: "scratch space of read_only_fs = false, gone at the end"})
		}
	}
	if s.State {
		return append(m, sandbox.Mount{
			Kind: sandbox.Bind, Source: path.Join(c.host.StateDir, c.server.Name), Dest: home, State: true, Why: "its private home, kept from one run to the next",
		})
	}
	return append(m, sandbox.Mount{Kind: sandbox.Tmpfs, Dest: home, Size: s.Memory / 4, Perms: 0o700, Why: "its home, gone at the end"})
}

// shown are the links and folders that the program and the declaration need, outer ones first.
func (c *compiler) shown(before []sandbox.Mount) []sandbox.Mount {
	taken := map[string]bool{}
	for _, m := range before {
		taken[m.Dest] = true
	}
	var m []sandbox.Mount
	for _, at := range sortedKeys(c.links) {
		if taken[at] || within(at, "/usr") || c.isSystemDir(at) || within(at, "/etc/alternatives") || c.insideBind(at) {
			continue
		}
		m = append(m, sandbox.Mount{Kind: sandbox.Symlink, Source: c.links[at], Dest: at, Why: "as on the host"})
	}
	for _, dest := range sortedKeys(c.binds) {
		if b := c.binds[dest]; !taken[dest] && !(b.Kind == sandbox.ROBind && c.insideReadOnly(dest)) {
			m = append(m, b)
		}
	}
	return m
}

func (c *compiler) insideBind(p string) bool {
	for dest := range c.binds {
		if below(p, dest) {
			return true
		}
	}
	return false
}

func (c *compiler) insideReadOnly(p string) bool {
	for dest, b := range c.binds {
		if b.Kind == sandbox.ROBind && below(p, dest) {
			return true
		}
	}
	return false
}

// Digest is the same for two plans exactly if they create the same things.
func Digest(p Plan) string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("encoding a plan: %v", err)) // plain data
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (p Plan) Words() string   { return "" }
func (p Plan) Explain() string { return "" }
