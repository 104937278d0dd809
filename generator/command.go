package generator

import (
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/sandbox"
)

// software finds the server's programs and the files that they need.
type software struct {
	facts
	*findings
	*bounds
	*view
	path []string // directories of programs that are looked up inside
}

// command finds the server's command and all that it needs to start. It returns its path inside the sandbox.
func (c *software) command() string {
	const key = "command"
	name := c.server.Command
	switch {
	case name == "":
		c.fail(key, "No command", "The declaration has no program to start. Write command = \"node\", for example.")
		return ""
	case !strings.Contains(name, "/"):
		f, ok := c.host.lookup(name)
		if !ok {
			c.lack(c.host.candidates(name), key, "Command not found", "No directory in pfar's PATH has %q. Install it, or "+
				"write the absolute path.", name)
			return ""
		}
		c.addPath(f.Written)
		return c.executable(f, key)
	case !path.IsAbs(name):
		c.fail(key, "Command not absolute", "%q is relative to an unknown directory. Write the absolute path, such as %q.",
			name, c.absolute(name))
		return ""
	case path.Clean(name) != name:
		c.fail(key, "Path not clean", "%q has \"//\", \".\" or \"..\" in it, or ends in \"/\". Write %q.", name, path.Clean(name))
		return ""
	}
	f, err := c.host.resolve(name)
	if err != nil {
		c.lack(paths(f), key, "Command not found", "%v. Install it, or write where it is.", err)
		return ""
	}
	return c.executable(f, key)
}

// executable shows a program that the kernel is to start, and what that needs in its turn.
func (c *software) executable(f hostfs.File, key string) string {
	switch {
	case c.shim(f, key):
		return ""
	case !f.Regular():
		c.fail(key, "Not a program", "%s is not a regular file. Write the path of a program.", where(f))
		return ""
	case !f.Executable():
		c.lack(paths(f), key, "Not executable", "%s is not executable. Mark it so with chmod +x, or name its interpreter "+
			"as the command and the file in args.", where(f))
		return ""
	}
	if !c.permitted(f, key) {
		return ""
	}
	what := "the interpreter " + path.Base(f.Written)
	if f.Written == c.server.Command || path.Base(f.Written) == c.server.Command {
		what = "the command"
	}
	if c.server.Package != "" && f.Written == c.server.Command {
		what = "the package " + c.server.Package
	}
	c.environmentOf(f, key)
	c.show(f, bind{real: c.treeOfCommand(f), key: key, why: what})
	if isInterpreter(f) {
		c.addPath(f.Written)
	}
	c.shebang(f, key)
	return f.Written
}

// permitted refuses programs among what no server may see. What is private to pfar is so with all that is in it.
func (c *software) permitted(f hostfs.File, key string) bool {
	for _, dir := range c.private {
		if sandbox.Below(f.Real, dir) {
			c.fail(key, "Refused path", "%s lies in %s, with pfar's own files, which no server sees. Install it elsewhere.", where(f), dir)
			return false
		}
	}
	for _, dir := range systemDirectories() {
		if sandbox.Below(f.Real, dir) && dir != "/etc" {
			c.fail(key, "Refused path", "%s lies in %s, which belongs to the system. Install it elsewhere.", where(f), dir)
			return false
		}
	}
	return true
}

// environmentOf shows the virtual environment that a link to Python stands in: Python looks for its packages beside the
// link, not beside what it leads to.
func (c *software) environmentOf(f hostfs.File, key string) {
	at := []string{f.Real}
	for _, l := range f.Links {
		at = append(at, l.At)
	}
	for _, p := range at {
		prefix := path.Dir(path.Dir(p))
		if path.Base(path.Dir(p)) == "bin" && c.host.exists(path.Join(prefix, "pyvenv.cfg")) && !c.broad(prefix) {
			c.show(hostfs.File{Real: prefix}, bind{real: prefix, key: key, why: "the virtual environment of " + path.Base(f.Written)})
		}
	}
}

// shebang shows the interpreter of a script.
func (c *software) shebang(f hostfs.File, key string) {
	line, ok := strings.CutPrefix(c.host.head(f.Real), "#!")
	if !ok {
		return
	}
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(line)
	if len(words) == 0 || !path.IsAbs(words[0]) {
		c.fail(key, "Interpreter not found", "%s begins with %q, which names no interpreter. Write its interpreter as the "+
			"command and the file in args.", where(f), "#!"+line)
		return
	}
	next, err := c.host.resolve(path.Clean(words[0]))
	if err != nil || !next.Executable() {
		c.lack(paths(next), key, "Interpreter not found", "%s needs the interpreter %q, which does not exist. Install it.", where(f), words[0])
		return
	}
	if next.Real == f.Real {
		return
	}
	if path.Base(words[0]) != "env" {
		c.executable(next, key)
		return
	}
	c.show(next, bind{real: c.treeOfCommand(next), key: key, why: "the interpreter env"})
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-") || strings.Contains(w, "=") { // env -S NAME=VALUE node
			continue
		}
		found, ok := c.host.lookup(w)
		if path.IsAbs(w) {
			f, err := c.host.resolve(path.Clean(w))
			found, ok = f, err == nil && f.Executable()
		}
		if !ok {
			c.lack(c.host.candidates(w), key, "Interpreter not found", "%s needs %q, which no directory in pfar's PATH has. "+
				"Install it, or write its absolute path as the command and the file in args.", where(f), w)
			return
		}
		c.addPath(found.Written)
		if found.Real != f.Real {
			c.executable(found, key)
		}
		return
	}
}

// addPath lets programs inside find others by name where they were found here.
func (c *software) addPath(program string) {
	if dir := path.Dir(program); !slices.Contains(c.path, dir) && !slices.Contains(standardPath(), dir) {
		c.path = append(c.path, dir)
	}
}

// where names a file by what was written, and what it turned out to be.
func where(f hostfs.File) string {
	if f.Real == f.Written || f.Written == "" {
		return quote(f.Real)
	}
	return quote(f.Written) + " (" + quote(f.Real) + ")"
}

// shim reports the small programs that version managers put before the real ones: they look for their settings in the
// home folder, which is not inside.
func (c *software) shim(f hostfs.File, key string) bool {
	name := path.Base(f.Written)
	paths := []string{f.Written, f.Real}
	for _, l := range f.Links {
		paths = append(paths, l.At)
	}
	for _, p := range paths {
		root, _, ok := strings.Cut(p, "/shims/")
		if !ok {
			root, _, ok = strings.Cut(p, "/.volta/bin/")
			root = path.Join(root, ".volta")
		}
		if !ok {
			continue
		}
		remedy := "Write the absolute path of the real program"
		if real := c.realPrograms(root, name); len(real) > 0 {
			for i := range real {
				real[i] = quote(real[i])
			}
			remedy += ": " + strings.Join(real, " or ")
		} else {
			remedy += ", which `" + strings.TrimPrefix(path.Base(root), ".") + " which " + name + "` prints"
		}
		c.fail(key, "Version manager's shim", "%s only chooses among versions of %s, by settings in the home directory "+
			"that no server sees. %s.", quote(p), name, remedy)
		return true
	}
	return false
}

// realPrograms lists what a version manager has installed under a name.
func (c *software) realPrograms(root, name string) []string {
	var all []string
	for _, pattern := range []string{"versions/*/bin", "installs/*/*/bin", "tools/image/*/*/bin"} {
		dirs := []string{root}
		for part := range strings.SplitSeq(pattern, "/") {
			dirs = c.step(dirs, part)
		}
		for _, dir := range dirs {
			if f, err := c.host.resolve(path.Join(dir, name)); err == nil && f.Executable() {
				all = append(all, f.Written)
			}
		}
	}
	slices.Sort(all)
	return all[:min(len(all), 4)]
}

// step goes one level down: into what is called part, or into everything.
func (c *software) step(dirs []string, part string) []string {
	var next []string
	for _, dir := range dirs {
		if part != "*" {
			next = append(next, path.Join(dir, part))
			continue
		}
		for _, e := range c.host.list(dir) {
			next = append(next, path.Join(dir, e))
		}
	}
	return next
}
