package generator

import (
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
)

// remote returns the adapter's arguments for a remote server, and removes /tmp from the server's sandbox.
func remote(s *declaration.Server) []string {
	args := []string{"remote"}
	if s.Transport == declaration.SSE {
		args = append(args, "--sse")
	}
	if strings.HasPrefix(s.URL, "http:") {
		args = append(args, "--insecure")
	}
	s.Sandbox.AllowTmp = false // the adapter writes no file
	for _, k := range s.Credentials {
		for _, p := range k.Places {
			switch {
			case p == broker.Standard()[0]:
				args = append(args, "--token-env", k.Env)
			case p.Part == broker.Query:
				args = append(args, "--query-env", p.Name+"="+k.Env)
			default:
				args = append(args, "--header-env", p.Name+"="+k.Env)
			}
		}
	}
	return append(args, strings.Replace(s.URL, "//localhost", "//127.0.0.1", 1)) // as the allowlist has it
}
