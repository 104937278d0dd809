package generator

import (
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/sandbox"
)

// assemble puts the declaration's own mounts between those of the base and the remounts.
func (c *base) assemble(base []sandbox.Mount) []sandbox.Mount {
	var own []sandbox.Mount
	have := slices.Clone(c.shown)
	for _, b := range c.binds {
		if !b.writable {
			have = append(have, b.real)
		}
	}
	covered := func(p string, itself bool) bool {
		return slices.ContainsFunc(have, func(dir string) bool { return sandbox.Below(p, dir) && (itself || p != dir) })
	}
	for _, b := range c.binds {
		m := sandbox.Mount{Kind: sandbox.ROOverlay, Source: b.real, Dest: b.real, Why: b.why}
		if b.writable {
			m.Kind = sandbox.Bind
		} else if covered(b.real, false) || slices.Contains(c.shown, b.real) {
			continue
		} else {
			m.Live = slices.ContainsFunc(c.binds, func(o bind) bool { return o.live && sandbox.Below(o.real, b.real) })
		}
		own = append(own, m)
	}
	for _, l := range c.links {
		m := sandbox.Mount{Kind: sandbox.Symlink, Source: l.Text, Dest: l.At, Why: "a link on the way, as on the machine"}
		at := func(other sandbox.Mount) bool { return other.Dest == m.Dest }
		if covered(l.At, true) || slices.ContainsFunc(base, at) || slices.ContainsFunc(own, at) {
			continue
		}
		own = append(own, m)
	}
	closed := sealed(base, own)
	for _, dir := range closed {
		own = append(own, sandbox.Mount{Kind: sandbox.Tmpfs, Dest: dir, Size: rootSize, Why: "the directory of what is " +
			"shown in it, and nothing else"})
	}
	slices.SortFunc(own, func(a, b sandbox.Mount) int { return strings.Compare(a.Dest, b.Dest) }) // what is above comes first
	// Certificates of ours come last, whatever shows the host's.
	mounts := append(insertEarly(base, own), c.bundles()...)
	remounts := append(append(closed, c.covers...), "/etc", "/dev")
	if c.server.Sandbox.ReadOnlyFS {
		remounts = append(remounts, "/")
	}
	for _, dest := range remounts {
		mounts = append(mounts, sandbox.Mount{Kind: sandbox.Remount, Dest: dest, Why: "nothing more is made here"})
	}
	return mounts
}

// sealed are the folders of single files that are shown in the server's scratch space: made there, they would be the
// server's to write to.
func sealed(base, own []sandbox.Mount) []string {
	var dirs []string
	for _, m := range own {
		dir := path.Dir(m.Dest)
		inScratch := slices.ContainsFunc(base, func(b sandbox.Mount) bool {
			return b.Kind == sandbox.Tmpfs && b.Perms != 0 && b.Dest != dir && sandbox.Below(dir, b.Dest)
		})
		shown := slices.ContainsFunc(own, func(o sandbox.Mount) bool { return o.Kind != sandbox.Symlink && sandbox.Below(dir, o.Dest) })
		if inScratch && !shown && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// insertEarly appends own, but links that a mount of the base lies behind go before it.
func insertEarly(base, own []sandbox.Mount) []sandbox.Mount {
	early := slices.DeleteFunc(slices.Clone(own), func(m sandbox.Mount) bool { return !topLevelLink(m) })
	late := slices.DeleteFunc(slices.Clone(own), topLevelLink)
	mounts := append([]sandbox.Mount{base[0]}, early...)
	mounts = append(mounts, base[1:]...)
	return append(mounts, late...)
}

func topLevelLink(m sandbox.Mount) bool {
	return m.Kind == sandbox.Symlink && path.Dir(m.Dest) == "/"
}
