package declaration

import (
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/visible"
)

// checkServer checks what everyone after the reader relies on.
func checkServer(t *testing.T, s *Server) {
	t.Helper()
	must := func(ok bool, what string) {
		t.Helper()
		if !ok {
			t.Errorf("%s: %+v", what, s)
		}
	}
	must(namePattern.MatchString(s.Name) && !strings.Contains(s.Name, "--"), "name")
	must(slices.Contains([]Label{Public, Internal, Sensitive, Regulated, Secret}, s.Label), "label")
	for _, e := range s.Allowed {
		again, err := egress.ParseEndpoint(e.String())
		must(err == nil && again == e, "endpoint "+e.String())
	}
	private := map[string]bool{}
	for _, e := range s.Private {
		must(slices.ContainsFunc(s.Allowed, func(a egress.Endpoint) bool { return a.Host == e.Host && a.Wildcard == e.Wildcard }), "private name is allowed "+e.String())
		must(e.Host != "" && !private[e.String()] && len(e.Prefixes) > 0 && len(e.Prefixes) <= maxPrefixes, "private "+e.String())
		private[e.String()] = true
		for i, prefix := range e.Prefixes {
			again, err := egress.ParsePrivate(prefix.String())
			must(err == nil && again == prefix && !slices.Contains(e.Prefixes[:i], prefix), "private prefix "+prefix.String())
		}
	}
	must(s.Timeout >= time.Second && s.Timeout <= time.Hour, "timeout")
	must(s.IdleTimeout == 0 || s.IdleTimeout >= time.Second && s.IdleTimeout <= 7*24*time.Hour, "idle timeout")
	must(s.Sandbox.Memory >= minMemory && s.Sandbox.Memory <= maxMemory, "memory")
	must(s.Sandbox.Tasks >= minTasks && s.Sandbox.Tasks <= maxTasks, "tasks")
	must(s.Sandbox.CPU >= 0 && s.Sandbox.CPU <= maxCPU, "cpu")
	for _, p := range slices.Concat(s.Sandbox.ReadOnly, s.Sandbox.Writable) {
		must(path.IsAbs(p) && path.Clean(p) == p && p != "/" && !strings.ContainsFunc(p, visible.Deceptive), "path "+p)
		must(!below(p, "/proc") && !below(p, "/run") && !below(p, "/var/lib/pfar"), "path "+p)
	}
	for _, a := range s.Args {
		must(!strings.ContainsRune(a, 0), "NUL in args")
	}
	checkTransport(must, s)
	checkEnvironment(must, s)
	checkTools(must, s)
	checkSessions(must, s)
}

func checkTools(must func(bool, string), s *Server) {
	seen := map[string]bool{}
	for name, tool := range s.Tools {
		must(toolPattern.MatchString(name) && slices.Contains([]string{"", "read", "write"}, tool.Semantics), "tool")
		gates := tool.Semantics != "" || tool.Effect != 0 || tool.Audience != 0 || tool.Output != gate.Label{}
		shows := tool.Enabled != nil || tool.Rename != "" || tool.Description != "" || len(tool.Aliases) > 0
		flows := tool.Inputs != nil || tool.Params != nil || tool.Outputs != nil
		must(gates || shows || flows || len(tool.Scopes) > 0, "something is said of the tool "+name)
		must(len(tool.Scopes) <= maxScopes, "scopes")
		must(tool.Rename == "" || renamePattern.MatchString(tool.Rename), "rename")
		must(len(tool.Aliases) <= maxAliases, "aliases")
		for _, a := range tool.Aliases {
			folded := strings.ReplaceAll(a, "_", "-")
			must(aliasPattern.MatchString(a) && len(a) <= maxAlias && !seen[folded], "alias "+a)
			seen[folded] = true
		}
	}
}

func checkSessions(must func(bool, string), s *Server) {
	must(slices.IsSorted(s.Capabilities) && len(slices.Compact(slices.Clone(s.Capabilities))) == len(s.Capabilities), "each capability once")
	for _, c := range s.Capabilities {
		must(slices.Contains([]string{"elicitation", "roots", "sampling"}, c), "capability "+c)
	}
	must(s.Pins == TrustFirst || s.Pins == Hold, "pins")
	if !s.Sessions.Own {
		must(s.Sessions == Sessions{}, "shared sessions")
		return
	}
	must(s.Sessions.Max >= 1 && s.Sessions.Max <= maxSessions, "sessions")
	must(s.Sessions.Idle >= time.Second && s.Sessions.Idle <= maxSessionIdle, "idle sessions")
	must((s.Transport != Pipe || s.Starts()) && !s.Sandbox.State, "a process for each session")
}

func checkTransport(must func(bool, string), s *Server) {
	must(!strings.ContainsFunc(s.Command, visible.Deceptive), "command")
	switch s.Transport {
	case Stdio:
		must((s.Command != "" || s.Package != "") && s.URL == "" && s.Path == "", "stdio")
	case UDS, Pipe:
		must(path.IsAbs(s.Path) && (s.URL == "" || s.Transport == UDS), "socket")
		must(s.Starts() || len(s.Args) == 0 && len(s.Env) == 0 && len(s.Allowed) == 0, "attached")
	case SSE, StreamHTTP:
		if s.Starts() {
			must(strings.HasPrefix(s.URL, "http:") && s.Path == "", "port")
			break
		}
		must(s.URL != "" && s.Path == "" && s.Command == "" && len(s.Args) == 0 && len(s.Env) == 0, "remote")
		must(len(s.Allowed) > 0, "host of the URL is allowed")
	default:
		must(false, "transport")
	}
}

func checkDelivery(must func(bool, string), s *Server, c Credential) {
	if c.Deliver != broker.OnWire {
		must(slices.Contains([]broker.Delivery{broker.InEnvironment, broker.InFile}, c.Deliver) && c.Hosts == nil && c.Places == nil, "delivery of "+c.Env)
		return
	}
	must(len(c.Hosts) > 0 && len(c.Hosts) <= maxHosts && len(c.Places) > 0 && len(c.Places) <= maxPlaces, "brokered "+c.Env)
	for i, h := range c.Hosts {
		must(h.Host != "" && !h.Wildcard && h.Port != 0 && h.Port != 80 && !slices.Contains(c.Hosts[:i], h), "host "+h.String())
		exact := func(a egress.Endpoint) bool {
			return a.Host == h.Host && !a.Wildcard && (a.Port == h.Port || a.Port == 0 && h.Port == 443)
		}
		must(slices.ContainsFunc(s.Allowed, exact), "host is spelt out "+h.String())
	}
	for i, p := range c.Places {
		again, err := broker.ParsePlace(p.String())
		must(err == nil && again == p && !slices.Contains(c.Places[:i], p), "place "+p.String())
	}
}

func checkEnvironment(must func(bool, string), s *Server) {
	seen := map[string]bool{}
	for _, c := range s.Credentials {
		must(variableName.MatchString(c.Env) && reserved(c.Env) == "" && !seen[c.Env], "credential "+c.Env)
		must((c.Key == "") != (c.From == ""), "credential from one place")
		must(c.Key == "" || vaultKey.MatchString(c.Key), "vault key")
		must(c.From == "" || variableName.MatchString(c.From), "credential from a variable")
		checkDelivery(must, s, c)
		seen[c.Env] = true
	}
	for _, v := range s.Env {
		must(variableName.MatchString(v.Name) && reserved(v.Name) == "" && !seen[v.Name], "variable "+v.Name)
		must(!strings.ContainsRune(v.Value, 0), "NUL in a variable")
		seen[v.Name] = true
	}
	must(slices.IsSortedFunc(s.Credentials, func(a, b Credential) int { return strings.Compare(a.Env, b.Env) }), "sorted credentials")
	must(slices.IsSortedFunc(s.Env, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) }), "sorted variables")
}
