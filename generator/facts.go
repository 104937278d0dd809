package generator

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
)

// serverHome is every server's home inside its sandbox.
const serverHome = "/home/mcp"

// facts are the input of a compilation.
type facts struct {
	server declaration.Server
	host   Host
}

// commandPath is the command's absolute path, "" if it has none.
func (c facts) commandPath() string {
	if strings.Contains(c.server.Command, "/") {
		return c.server.Command
	}
	f, _ := c.host.lookup(c.server.Command)
	return f.Written
}

// absolute is a path that somebody may have meant by a relative one. "~" is a shell's word for a home.
func (c facts) absolute(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		return path.Join(cmp.Or(c.host.Home, "/home/NAME"), rest)
	}
	if strings.HasPrefix(name, "~") {
		return path.Join("/home", name[1:])
	}
	return path.Join(path.Dir(c.server.File), name)
}

// opens reports whether the bridge opens connections of this server.
func (c facts) opens() bool {
	wired := func(k declaration.Credential) bool { return k.Deliver == broker.OnWire }
	return len(c.server.TLSPins) > 0 || c.server.CA != "" || slices.ContainsFunc(c.server.Credentials, wired)
}

// reach is where a server may connect to.
func reach(s declaration.Server) egress.Policy {
	return egress.Policy{Endpoints: s.Allowed, Blocked: s.Blocked, Private: s.Private}
}
