package generator

import (
	"path"
	"slices"
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

// bounds says which folders of the host no server sees, or none sees whole.
type bounds struct {
	on      Host
	home    string   // resolved; "": none
	private []string // resolved
	wide    map[string]bool
}

func newBounds(h Host) *bounds {
	b := &bounds{on: h, wide: map[string]bool{}}
	if path.IsAbs(h.Home) && path.Clean(h.Home) != "/" {
		b.home = h.real(h.Home)
	}
	for _, p := range h.Private {
		if path.IsAbs(p) {
			b.private = append(b.private, h.real(p))
		}
	}
	for _, p := range wideDirectories() {
		b.wide[p], b.wide[h.real(p)] = true, true
	}
	return b
}

// homeOf returns the home directory that p is or lies in, or "".
func (b *bounds) homeOf(p string) string {
	if b.home != "" && sandbox.Below(p, b.home) {
		return b.home
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
func (b *bounds) hidden(p string) string {
	home := b.homeOf(p)
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
func (b *bounds) withheld(p string) string {
	for _, dir := range systemDirectories() {
		if sandbox.Below(p, dir) {
			return "it lies in " + dir + ", which belongs to the system"
		}
	}
	if b.wide[p] {
		return "it holds more than any one server needs"
	}
	for _, dir := range b.private {
		if overlap(p, dir) {
			return "pfar's own files are in " + dir
		}
	}
	switch home := b.homeOf(p); {
	case p == home, b.home != "" && sandbox.Below(b.home, p):
		return "it holds a whole home directory"
	}
	if dir := b.hidden(p); dir != "" {
		return "keys, passwords and settings are kept in places like " + dir
	}
	return ""
}

// broad reports whether p is too much to show for the sake of one file in it.
func (b *bounds) broad(p string) bool {
	if b.wide[p] || p == b.homeOf(p) || b.home != "" && sandbox.Below(b.home, p) {
		return true
	}
	if dir := b.hidden(p); dir != "" { // ~/.cargo has tokens, ~/.local/share the keyrings
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
	return slices.ContainsFunc(b.private, func(dir string) bool { return overlap(p, dir) })
}

// treeOfProgram is what a script needs to run: its package, or the folder of node_modules that it was installed in.
func (b *bounds) treeOfProgram(f hostfs.File) string {
	if dir, _, ok := strings.Cut(f.Real, "/node_modules/"); ok {
		return b.narrow(f, path.Join(dir, "node_modules"))
	}
	start := f.Real
	if !f.Directory() {
		start = path.Dir(f.Real)
	}
	for dir := start; !b.broad(dir); dir = path.Dir(dir) {
		for _, marker := range []string{"package.json", "pyproject.toml", "setup.py", "Gemfile", "deno.json", "composer.json"} {
			if b.on.exists(path.Join(dir, marker)) {
				return dir
			}
		}
	}
	return b.narrow(f, start)
}

// treeOfCommand is what a program that the kernel starts needs: its installation.
func (b *bounds) treeOfCommand(f hostfs.File) string {
	if strings.Contains(f.Real, "/node_modules/") {
		return b.treeOfProgram(f)
	}
	dir := path.Dir(f.Real)
	prefix := path.Dir(dir)
	if base := path.Base(dir); base == "bin" || base == "sbin" {
		if sandbox.Below(prefix, "/opt") && prefix != "/opt" || b.installation(prefix) {
			return b.narrow(f, prefix)
		}
		return f.Real
	}
	if sandbox.Below(dir, "/opt") {
		return b.narrow(f, dir)
	}
	if strings.HasPrefix(b.on.head(f.Real), "#!") {
		return b.treeOfProgram(f)
	}
	return f.Real
}

// installation reports whether a prefix holds more than programs, as that of a language's runtime does.
func (b *bounds) installation(prefix string) bool {
	return slices.ContainsFunc([]string{"lib", "lib64", "libexec", "share", "pyvenv.cfg"},
		func(part string) bool { return b.on.exists(path.Join(prefix, part)) })
}

// narrow returns tree, or the file alone if that is too much.
func (b *bounds) narrow(f hostfs.File, tree string) string {
	if b.broad(tree) {
		return f.Real
	}
	return tree
}
