package generator

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/sandbox"
)

// shares are the paths of the host that the declaration names.
type shares struct {
	facts
	*findings
	*bounds
	*view
}

// declared shows what sandbox.read_only and sandbox.writable name.
func (c shares) declared() {
	for i, p := range c.server.Sandbox.ReadOnly {
		c.declare(p, bind{key: fmt.Sprintf("sandbox.read_only[%d]", i), why: "declared in read_only"})
	}
	for i, p := range c.server.Sandbox.Writable {
		c.declare(p, bind{writable: true, key: fmt.Sprintf("sandbox.writable[%d]", i), why: "declared in writable"})
	}
}

func (c shares) declare(p string, b bind) {
	list, _, _ := strings.Cut(b.key, "[")
	if !path.IsAbs(p) || path.Clean(p) != p {
		c.fail(b.key, "Path not absolute", "%q is not an absolute path, or has \"//\", \".\" or \"..\" in it. Write the "+
			"path from \"/\" on, such as %q.", p, c.absolute(p))
		return
	}
	f, err := c.host.resolve(p)
	if err != nil {
		c.lack(paths(f), b.key, "Path not found", "%v. Make it, or remove it from %s.", err, list)
		return
	}
	if !f.Regular() && !f.Directory() {
		c.fail(b.key, "Refused path", "%s is neither a file nor a directory: a socket or a device leads out of the "+
			"sandbox. Remove it from %s.", where(f), list)
		return
	}
	if why := c.withheld(f.Real); why != "" {
		c.fail(b.key, "Refused path", "%s cannot be in %s: %s. Name the directory that the server works on.", where(f), list,
			why)
		return
	}
	for _, root := range append(softwareRoots(), "/bin", "/sbin", "/lib", "/lib64") {
		if b.writable && sandbox.Below(f.Real, root) {
			c.fail(b.key, "Refused path", "%s cannot be in %s: %s is the system's installation, which no server may change. "+
				"Name the directory that the server works on.", where(f), list, root)
			return
		}
	}
	b.real, b.live = f.Real, f.Directory() && !b.writable
	c.show(f, b)
}

// separate refuses whatever lies below a place that the server may write to. At the next start the server could have
// put a link there, on the way to a file or where bwrap makes a mount point.
func (c shares) separate() {
	writable := slices.DeleteFunc(slices.Clone(c.binds), func(b bind) bool { return !b.writable })
	if c.server.Sandbox.State {
		writable = append(writable, bind{real: c.host.real(serverHome), key: "sandbox.state"})
	}
	for _, w := range writable {
		for _, b := range c.binds {
			switch {
			case b.key == w.key, !sandbox.Below(b.real, w.real):
			case b.real == w.real && strings.HasPrefix(b.key, "sandbox.") && w.key != "sandbox.state":
				c.fail(b.key, "Path both read-only and writable", "%q is both: %s, and %s. Keep one.", b.real, b.why, w.why)
			default:
				c.fail(b.key, "Path within a writable one", "%q (%s) lies within %q, where the server could replace it. Put the "+
					"two beside each other, or remove one.", b.real, b.why, w.real)
			}
		}
		for _, l := range c.links {
			if sandbox.Below(l.At, w.real) {
				c.fail(l.key, "Link within a writable path", "%q is reached over the link %q, which lies within %q, where the "+
					"server could change it. Write the path that the link leads to.", c.writtenAt(l.key), l.At, w.real)
			}
		}
	}
}

// writtenAt is what the declaration has at a key.
func (c shares) writtenAt(key string) string {
	var i int
	s := c.server
	for list, values := range map[string][]string{"args": s.Args, "sandbox.read_only": s.Sandbox.ReadOnly,
		"sandbox.writable": s.Sandbox.Writable} {
		if n, err := fmt.Sscanf(key, list+"[%d]", &i); n == 1 && err == nil && i < len(values) {
			return values[i]
		}
	}
	return s.Command
}

// checkArgs warns of paths of the host that the server is told of and cannot see.
func (c shares) checkArgs(args []string) {
	for i, a := range args {
		if _, value, ok := strings.Cut(a, "="); ok && strings.HasPrefix(a, "-") {
			a = value
		}
		if !path.IsAbs(a) || a == "/" {
			continue
		}
		f, err := c.host.resolve(path.Clean(a))
		if err == nil && !c.visible(f.Real) && !sandbox.Below(f.Real, serverHome) && f.Real != "/tmp" {
			c.warn(fmt.Sprintf("args[%d]", i), "Path not visible", "%q is there on this machine, and the server does not see "+
				"it. Name it in sandbox.read_only or sandbox.writable if it should.", a)
		}
	}
}
