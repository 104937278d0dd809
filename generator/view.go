package generator

import (
	"slices"

	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/sandbox"
)

// view collects the paths of the host that a server sees.
type view struct {
	shown []string // by the base file system, at the same paths
	binds []bind
	links []located
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

// show notes that the server is to see f.Real, and the links that lead there.
func (v *view) show(f hostfs.File, b bind) {
	v.follow(f, b.key)
	for _, root := range softwareRoots() {
		if sandbox.Below(f.Real, root) && !b.writable {
			b.real, b.live, b.why = root, false, "software of the machine, readable by all its users"
		}
	}
	for i, have := range v.binds {
		if have.real == b.real && have.writable == b.writable {
			if have.why != b.why {
				v.binds[i].why += "; " + b.why
			}
			v.binds[i].live = have.live || b.live
			return
		}
	}
	v.binds = append(v.binds, b)
}

func (v *view) follow(f hostfs.File, key string) {
	for _, l := range f.Links {
		v.links = append(v.links, located{l, key})
	}
}

// visible reports whether the server sees a path of the host, or at least that it is there.
func (v *view) visible(real string) bool {
	for _, root := range v.shown {
		if sandbox.Below(real, root) {
			return true
		}
	}
	return slices.ContainsFunc(v.binds, func(b bind) bool { return overlap(real, b.real) })
}
