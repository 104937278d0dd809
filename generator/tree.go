package generator

import (
	"path"
	"strings"

	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/sandbox"
)

// wideDirectories hold more than any one server needs: they are never bound whole.
func wideDirectories() []string {
	return []string{
		"/", "/etc", "/home", "/root", "/var", "/opt", "/srv", "/tmp", "/mnt", "/media", "/usr", "/usr/local", "/lost+found",
		"/var/lib", "/var/cache", "/var/log", "/var/spool", "/var/mail", "/var/tmp", "/var/opt", "/var/home", "/var/srv", "/var/www",
		"/run", "/proc", "/sys", "/dev", "/boot", "/efi", "/snap", "/nix", "/gnu",
	}
}

// systemDirectories belong to the kernel, to the system or to its secrets, with all that is below them.
func systemDirectories() []string {
	return []string{"/proc", "/sys", "/dev", "/run", "/boot", "/efi", "/etc", "/lost+found"}
}

// softwareRoots hold programs that every user of the host may read, whose files need each other.
func softwareRoots() []string {
	return []string{"/usr", "/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"}
}

// homeOf returns the home directory that p is or lies in, or "".
func (c *compiler) homeOf(p string) string {
	if c.home != "" && sandbox.Below(p, c.home) {
		return c.home
	}
	for _, homes := range []string{"/home", "/var/home"} {
		if rest, ok := strings.CutPrefix(p, homes+"/"); ok {
			user, _, _ := strings.Cut(rest, "/")
			return path.Join(homes, user)
		}
	}
	if sandbox.Below(p, "/root") {
		return "/root"
	}
	return ""
}

// hidden returns the part of p directly below a home whose name begins with a dot, or "".
func (c *compiler) hidden(p string) string {
	home := c.homeOf(p)
	if home == "" || home == "/home/linuxbrew" {
		return ""
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(p, home), "/"), "/")
	if !strings.HasPrefix(first, ".") {
		return ""
	}
	return path.Join(home, first)
}

// withheld says why a folder of the host is given to no server, or "". p is resolved.
func (c *compiler) withheld(p string) string {
	for _, dir := range systemDirectories() {
		if sandbox.Below(p, dir) {
			return "it lies in " + dir + ", which belongs to the system"
		}
	}
	if c.wide[p] {
		return "it holds more than any one server needs"
	}
	for _, dir := range c.private {
		if overlap(p, dir) {
			return "pfar's own files are in " + dir
		}
	}
	switch home := c.homeOf(p); {
	case p == home, c.home != "" && sandbox.Below(c.home, p):
		return "it holds a whole home folder"
	}
	if dir := c.hidden(p); dir != "" {
		return "keys, passwords and settings are kept in places like " + dir
	}
	return ""
}

// broad reports whether p is too much to show for the sake of one file in it.
func (c *compiler) broad(p string) bool {
	if c.wide[p] || p == c.homeOf(p) || c.home != "" && sandbox.Below(c.home, p) {
		return true
	}
	if dir := c.hidden(p); dir != "" { // ~/.cargo has tokens, ~/.local/share the keyrings
		rest, _ := strings.CutPrefix(p, dir)
		if rest == "" || path.Base(dir) == ".local" && strings.Count(rest, "/") == 1 {
			return true
		}
	}
	for _, dir := range systemDirectories() {
		if sandbox.Below(p, dir) {
			return true
		}
	}
	for _, dir := range c.private {
		if overlap(p, dir) {
			return true
		}
	}
	return false
}

// treeOfProgram is what a script needs to run: its package, or the folder of node_modules that it was installed in.
func (c *compiler) treeOfProgram(f hostfs.File) string {
	if dir, _, ok := strings.Cut(f.Real, "/node_modules/"); ok {
		return c.narrow(f, path.Join(dir, "node_modules"))
	}
	start := f.Real
	if !f.Directory() {
		start = path.Dir(f.Real)
	}
	for dir := start; !c.broad(dir); dir = path.Dir(dir) {
		for _, marker := range []string{"package.json", "pyproject.toml", "setup.py", "Gemfile", "deno.json", "composer.json"} {
			if c.host.exists(path.Join(dir, marker)) {
				return dir
			}
		}
	}
	return c.narrow(f, start)
}

// treeOfCommand is what a program that the kernel starts needs: its installation.
func (c *compiler) treeOfCommand(f hostfs.File) string {
	if strings.Contains(f.Real, "/node_modules/") {
		return c.treeOfProgram(f)
	}
	dir := path.Dir(f.Real)
	prefix := path.Dir(dir)
	if base := path.Base(dir); base == "bin" || base == "sbin" {
		if sandbox.Below(prefix, "/opt") && prefix != "/opt" || c.installation(prefix) {
			return c.narrow(f, prefix)
		}
		return f.Real
	}
	if sandbox.Below(dir, "/opt") {
		return c.narrow(f, dir)
	}
	if strings.HasPrefix(c.host.head(f.Real), "#!") {
		return c.treeOfProgram(f)
	}
	return f.Real
}

// installation reports whether a prefix holds more than programs, as that of a language's runtime does.
func (c *compiler) installation(prefix string) bool {
	for _, part := range []string{"lib", "lib64", "libexec", "share", "pyvenv.cfg"} {
		if c.host.exists(path.Join(prefix, part)) {
			return true
		}
	}
	return false
}

// narrow returns tree, or the file alone if that is too much.
func (c *compiler) narrow(f hostfs.File, tree string) string {
	if c.broad(tree) {
		return f.Real
	}
	return tree
}
