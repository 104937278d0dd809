package generator

import (
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/sandbox"
)

// installed is the package that a program on this host belongs to. Programs are often links: npm, pipx and uv make one
// for each command of a package.
func (c facts) installed(program string) origin {
	if !path.IsAbs(program) || path.Clean(program) != program {
		return origin{}
	}
	f, err := c.host.resolve(program)
	if err != nil || !f.Regular() {
		return origin{}
	}
	o := origin{}
	switch {
	case strings.Contains(f.Real, "/node_modules/"):
		o = c.ofNPM(f)
	case strings.HasPrefix(c.host.head(f.Real), "\x7fELF"):
		o = c.ofBinary(f)
	case path.Base(path.Dir(f.Real)) == "bin":
		prefix := path.Dir(path.Dir(f.Real))
		o = c.ofPyPI([]string{prefix}, func(d distribution) bool { return d.commands(path.Base(f.Real)) }, func(d distribution) bool {
			return d.wrote("bin/"+path.Base(f.Real), f.Real)
		})
	}
	if o.certain() {
		o.rests = append(o.rests, placesOf(f)...)
	}
	return o
}

// placesOf are the places that decide which file a path leads to.
func placesOf(f hostfs.File) []string {
	places := []string{f.Real}
	for _, l := range f.Links {
		places = append(places, l.At)
	}
	return places
}

// managers are package managers that are packages themselves.
var managers = []string{"npm", "pnpm", "yarn", "bun", "pypi:uv", "pypi:pipx"}

// hosts reports whether a program is certainly the interpreter or runner that its name says: it is the host's own, the
// one that pfar's PATH has, or it stands in an installation of Node.js or Python, or a package of that name.
func (c facts) hosts(f hostfs.File) bool {
	called, prefix := path.Base(f.Written), path.Dir(path.Dir(f.Real))
	if slices.ContainsFunc(softwareRoots(), func(root string) bool { return sandbox.Below(f.Real, root) }) {
		return true
	}
	if found, ok := c.host.lookup(called); ok && found.Real == f.Real {
		return true
	}
	if o := c.installed(f.Written); o.certain() && slices.Contains(managers, o.pkg) {
		return true
	}
	m := versioned.FindStringSubmatch(path.Base(f.Real))
	return path.Base(path.Dir(f.Real)) == "bin" && m != nil &&
		(m[1] == "node" && c.host.exists(path.Join(prefix, "lib/node_modules/npm/package.json")) ||
			m[1] == "python" && c.host.exists(path.Join(prefix, "lib", path.Base(f.Real), "os.py")))
}
