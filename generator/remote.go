package generator

import (
	"path"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units/sandbox"
)

// AdapterPath is where a sandbox has the adapter, wherever the host has it.
const AdapterPath = "/run/pfar/pfar-adapter"

// adapt has pfar's adapter run in the sandbox of a server that runs elsewhere. It returns how the sandbox sees the
// adapter.
func (c *findings) adapt(s *declaration.Server, h Host) []sandbox.Mount {
	const key = "transport"
	f, err := h.resolve(h.Adapter)
	switch {
	case h.Adapter == "", err != nil, !f.Regular():
		c.lack([]string{h.Adapter}, key, "Adapter not found", "pfar-adapter, which connects to remote servers, does not "+
			"lie beside pfard. Install pfar whole.")
		return nil
	case !f.Executable():
		c.lack(paths(f), key, "Adapter not executable", "%s is not executable. Install pfar again.", where(f))
		return nil
	}
	s.Command, s.Args = AdapterPath, []string{"remote"}
	if s.Transport == declaration.SSE {
		s.Args = append(s.Args, "--sse")
	}
	if strings.HasPrefix(s.URL, "http:") {
		s.Args = append(s.Args, "--insecure")
	}
	s.Sandbox.AllowTmp = false // the adapter writes no file
	for _, k := range s.Credentials {
		for _, p := range k.Places {
			switch {
			case p == broker.Standard()[0]:
				s.Args = append(s.Args, "--token-env", k.Env)
			case p.Part == broker.Query:
				s.Args = append(s.Args, "--query-env", p.Name+"="+k.Env)
			default:
				s.Args = append(s.Args, "--header-env", p.Name+"="+k.Env)
			}
		}
	}
	s.Args = append(s.Args, strings.Replace(s.URL, "//localhost", "//127.0.0.1", 1)) // as it is allowed
	return []sandbox.Mount{
		{Kind: sandbox.Dir, Dest: path.Dir(AdapterPath), Why: "pfar's own"},
		{Kind: sandbox.ROOverlay, Source: f.Real, Dest: AdapterPath, Why: "pfar's adapter, which connects to the server"},
	}
}
