package generator

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/sandbox"
)

// environment is all that the server finds: what is true inside, and what its declaration gives.
func (c *compiler) environment() []sandbox.Env {
	proxy := "http://127.0.0.1:" + strconv.Itoa(egress.ProxyPort)
	const local = "localhost,127.0.0.1,::1"
	own := []sandbox.Env{
		{Name: "PATH", Value: strings.Join(slices.Concat(c.path, standardPath()), ":")},
		{Name: "HOME", Value: serverHome},
		{Name: "USER", Value: "mcp"},
		{Name: "LOGNAME", Value: "mcp"},
		{Name: "SHELL", Value: "/bin/sh"},
		{Name: "LANG", Value: "C.UTF-8"},
		// A courtesy to programs that ask; those that do not have no way out all the same.
		{Name: "HTTP_PROXY", Value: proxy},
		{Name: "HTTPS_PROXY", Value: proxy},
		{Name: "NO_PROXY", Value: local},
		{Name: "http_proxy", Value: proxy},
		{Name: "https_proxy", Value: proxy},
		{Name: "no_proxy", Value: local},
		{Name: "NODE_USE_ENV_PROXY", Value: "1"}, // node's fetch reads the others only then, from 22.21 on
	}
	if c.server.Sandbox.AllowTmp {
		own = append(own, sandbox.Env{Name: "TMPDIR", Value: "/tmp"})
	}
	var declared []sandbox.Env
	for _, v := range c.server.Env {
		declared = append(declared, sandbox.Env{Name: v.Name, Value: v.Value})
	}
	for _, k := range c.server.Credentials {
		e := sandbox.Env{Name: k.Env, Credential: k.Env}
		if k.Deliver == broker.InFile {
			e = sandbox.Env{Name: k.Env, Value: secretFile(k.Env)}
		}
		declared = append(declared, e)
	}
	own = append(own, c.trust(declared)...)
	slices.SortStableFunc(declared, func(a, b sandbox.Env) int { return strings.Compare(a.Name, b.Name) })
	// Which of these may be changed at all, the declaration's reader decides.
	own = slices.DeleteFunc(own, func(e sandbox.Env) bool {
		return slices.ContainsFunc(declared, func(d sandbox.Env) bool { return d.Name == e.Name })
	})
	return append(own, declared...)
}
