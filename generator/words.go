package generator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// Words prints all that would be created for a server, in the order of its creation.
func Words(p plan.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, declared in %s (%s)\n", p.Name, quote(p.File), whenStarted(p))
	if p.Sandbox.Remote != "" {
		fmt.Fprintf(&b, "a remote server, at %s\n", quote(p.Sandbox.Remote))
	}
	if p.Sandbox.Attached != "" {
		fmt.Fprintf(&b, "a server that runs on this machine without pfar, at %s\n", quote(p.Sandbox.Attached))
	}
	fmt.Fprintf(&b, "\nProcesses\n")
	table(&b, [][]string{
		{"pfar-mcp@" + p.Name, "launches the sandbox and watches it"},
		{"", "runs " + commandLine(p)},
		{"", "in " + quote(p.Sandbox.Dir)},
		{"pfar-egress@" + p.Name, "answers for declared names inside, takes what the ruleset sends it, connects outside"},
		{"", "explicit proxy on 127.0.0.1:" + strconv.Itoa(egress.ProxyPort)},
	})
	fmt.Fprintf(&b, "\nLimits\n")
	table(&b, limitRows(p))
	fmt.Fprintf(&b, "\nNamespaces\n  user, pid, mount, ipc, uts, cgroup, network: all its own; user %d, no "+
		"capabilities, system calls filtered\n", sandbox.UID)
	fmt.Fprintf(&b, "\nFile system\n")
	var rows [][]string
	for _, m := range p.Sandbox.Mounts {
		rows = append(rows, mountRow(m))
	}
	table(&b, rows)
	fmt.Fprintf(&b, "\nEnvironment\n")
	rows = nil
	for _, e := range p.Sandbox.Env {
		value := quote(e.Value)
		if e.Credential != "" {
			value = "credential " + quote(e.Credential)
			if slices.ContainsFunc(p.Credentials, func(c plan.Credential) bool { return c.Name == e.Credential && c.Deliver == broker.OnWire }) {
				value = "placeholder of " + value
			}
		}
		rows = append(rows, []string{e.Name, value})
	}
	table(&b, rows)
	fmt.Fprintf(&b, "\nCredentials\n")
	rows = nil
	for _, c := range p.Credentials {
		row := []string{c.Name, "from " + givenBy(c)}
		if how := delivery(c); how != "" {
			row = append(row, how)
		}
		rows = append(rows, row)
	}
	if len(p.Scopes) > 0 {
		rows = append(rows, []string{"scopes", "required of its OAuth tokens", strings.Join(p.Scopes, ", ")})
	}
	table(&b, orNone(rows))
	fmt.Fprintf(&b, "\nEgress\n")
	rows = nil
	for _, e := range p.Egress.Endpoints {
		rows = append(rows, []string{e.String(), ports(e) + mayLeadTo(p, e)})
	}
	for _, e := range p.Egress.Blocked {
		rows = append(rows, []string{e.String(), "blocked"})
	}
	for _, host := range slices.Sorted(maps.Keys(p.CA)) {
		rows = append(rows, []string{host, "verified by authorities of its own, SHA-256 " + digest(p.CA[host])})
	}
	for _, host := range slices.Sorted(maps.Keys(p.TLSPins)) {
		for _, pin := range p.TLSPins[host] {
			rows = append(rows, []string{host, "pinned to " + pin.String()})
		}
	}
	table(&b, orNone(rows))
	fmt.Fprintf(&b, "\nRuleset of its network\n")
	for line := range strings.Lines(strings.ReplaceAll(p.Egress.Ruleset().String(), "\t", "  ")) {
		b.WriteString(strings.TrimRight("  "+line, " \n") + "\n")
	}
	fmt.Fprintf(&b, "\nGateway\n")
	table(&b, gatewayRows(p))
	return b.String()
}

// gatewayRows is what the gateway makes of the server.
func gatewayRows(p plan.Plan) [][]string {
	g := p.Gateway
	clients := "asked for nothing"
	if len(g.Capabilities) > 0 {
		clients = "asked for " + strings.Join(g.Capabilities, ", ")
	}
	sessions := "share one process"
	if g.Sessions.Own {
		sessions = fmt.Sprintf("have a process each, at most %d at once, stopped after %s without a call", g.Sessions.Max,
			declaration.Short(g.Sessions.Idle))
	}
	pins := "what it offers first is accepted, what changes is held"
	if g.Pins == string(declaration.Hold) {
		pins = "what it offers is held until it is accepted"
	}
	version := "any"
	if g.Version != "" {
		version = quote(g.Version) + " expected"
	}
	rows := [][]string{{"clients", clients}, {"sessions", sessions}, {"pins", pins}, {"version", version}}
	for _, says := range gateWords(p) {
		rows = append(rows, []string{"gate", says})
	}
	for _, name := range slices.Sorted(maps.Keys(g.Tools)) {
		for _, a := range g.Tools[name].Aliases {
			rows = append(rows, []string{"alias", quote(a) + " for " + quote(name)})
		}
		rows = append(rows, ownersWords(name, g.Tools[name])...)
	}
	return rows
}

// ownersWords says how a tool that clients see, or the node that flows call, differs from what its server lists.
func ownersWords(name string, t handover.Tool) (rows [][]string) {
	if t.Enabled != nil {
		word := map[bool]string{true: "on", false: "off"}[*t.Enabled]
		rows = append(rows, []string{"tool", quote(name) + " is switched " + word})
	}
	if t.Rename != "" {
		rows = append(rows, []string{"tool", quote(name) + " is served as " + quote(t.Rename)})
	}
	if t.Description != "" {
		rows = append(rows, []string{"tool", quote(name) + " has the owner's description"})
	}
	for _, said := range []struct {
		what  string
		names []string
	}{{"inputs", t.Inputs}, {"params", t.Params}, {"outputs", t.Outputs}} {
		if said.names != nil {
			what := cmp.Or(strings.Join(said.names, ", "), "none")
			rows = append(rows, []string{"tool", quote(name) + " has these " + said.what + " in flows: " + what})
		}
	}
	return rows
}

func whenStarted(p plan.Plan) string {
	switch {
	case !p.Enabled:
		return "disabled: never started"
	case !p.Autostart && p.Gateway.IdleTimeout == 0:
		return "started by the first call"
	case !p.Autostart:
		return "started by a call, put to sleep after " + declaration.Short(p.Gateway.IdleTimeout) + " without one"
	case p.Gateway.IdleTimeout > 0:
		return "started with pfar, put to sleep after " + declaration.Short(p.Gateway.IdleTimeout) + " without a call"
	}
	return "started with pfar"
}

func commandLine(p plan.Plan) string {
	words := []string{quote(p.Sandbox.Command)}
	for _, a := range p.Sandbox.Args {
		words = append(words, quote(a))
	}
	return strings.Join(words, " ")
}

func limitRows(p plan.Plan) [][]string {
	l := p.Sandbox.Limits
	cpu := "no quota"
	if l.CPU > 0 {
		cpu = fmt.Sprintf("%d %% of one core", l.CPU)
	}
	return [][]string{{"memory", size(l.Memory)}, {"tasks", strconv.Itoa(l.Tasks) + " processes and threads"}, {"cpu", cpu}}
}

func mountRow(m sandbox.Mount) []string {
	what := quote(m.Dest)
	switch {
	case m.Kind == sandbox.Symlink:
		what += " -> " + quote(m.Source)
	case m.Source != "" && m.Source != m.Dest:
		what += " from " + quote(m.Source)
	case m.Size > 0:
		what += ", " + size(m.Size)
	}
	if m.Door != nil {
		what += doorWords(*m.Door)
	}
	return []string{string(m.Kind), what, m.Why}
}

func givenBy(c plan.Credential) string {
	if c.From != "" {
		return "the variable " + quote(c.From) + " of pfar's environment"
	}
	return "the vault, key " + quote(c.Key)
}

func ports(e egress.Endpoint) string {
	switch {
	case e.AnyPort:
		return "every port"
	case e.Port == 0:
		return "ports 443 and 80"
	}
	return "port " + strconv.Itoa(int(e.Port))
}

// mayLeadTo says which addresses of the own network are open to a name.
func mayLeadTo(p plan.Plan, e egress.Endpoint) string {
	for _, x := range p.Egress.Private {
		if x.Host != e.Host || x.Wildcard != e.Wildcard || e.Host == "" {
			continue
		}
		var list []string
		for _, prefix := range x.Prefixes {
			entry := egress.Endpoint{Prefix: prefix}.String()
			if prefix.Addr().IsLoopback() {
				entry += " (this machine)"
			}
			list = append(list, entry)
		}
		return "; may lead to " + strings.Join(list, ", ") + " in your own network"
	}
	return ""
}

func orNone(rows [][]string) [][]string {
	if len(rows) == 0 {
		return [][]string{{"none"}}
	}
	return rows
}

// table aligns columns.
func table(b *strings.Builder, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(w, "  %s\n", strings.Join(r, "\t"))
	}
	_ = w.Flush() // a strings.Builder takes everything
}

// quote leaves plain words alone and escapes whatever could be read as something else on a terminal or by a person
func quote(s string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+=:,@%*~", r))
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return strconv.QuoteToASCII(s)
}

// size prints bytes in the unit that divides them.
func size(n int64) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// delivery says how the server gets the value, "" if by the variable itself.
func delivery(c plan.Credential) string {
	switch c.Deliver {
	case broker.InFile:
		return "as the file " + secretFile(c.Name)
	case broker.OnWire:
		return "placeholder inside; the bridge puts the value " + wire(c)
	}
	return ""
}

// wire says where a brokered value goes.
func wire(c plan.Credential) string {
	var places, hosts []string
	for _, p := range c.Places {
		switch p.Part {
		case broker.Header:
			places = append(places, "the field "+quote(p.Name))
		case broker.Query:
			places = append(places, "the parameter "+quote(p.Name))
		default:
			places = append(places, "the "+string(p.Part))
		}
	}
	for _, h := range c.Hosts {
		hosts = append(hosts, h.String())
	}
	return "into " + strings.Join(places, " or ") + " of requests to " + strings.Join(hosts, ", ")
}

// gateWords is what the owner says to the gate, a line for each tool.
func gateWords(p plan.Plan) []string {
	d, _ := p.Declared()
	var list []string
	if d.Service != "" {
		list = append(list, "service "+quote(d.Service))
	}
	for _, w := range d.Words {
		list = append(list, saysOf(w))
	}
	return list
}

func saysOf(w gate.Word) string {
	var parts []string
	add := func(said bool, words string, value fmt.Stringer) {
		if said {
			parts = append(parts, words+" "+value.String())
		}
	}
	output := gate.Label{Confidentiality: w.Confidentiality, Integrity: w.Integrity}
	add(output.Known(), "output", output)
	add(!output.Known() && w.Confidentiality != 0, "output", w.Confidentiality)
	add(!output.Known() && w.Integrity != 0, "output", w.Integrity)
	add(w.Audience != 0, "audience", w.Audience)
	add(w.Effect != 0, "effect", w.Effect)
	add(w.Semantics != 0, "semantics", w.Semantics)
	add(w.Trust.PublicSource != 0, "public_source", w.Trust.PublicSource)
	add(w.Trust.SecretData != 0, "secret_data", w.Trust.SecretData)
	add(w.Trust.PublicSink != 0, "public_sink", w.Trust.PublicSink)
	add(w.Trust.DangerousWrites != 0, "dangerous_writes", w.Trust.DangerousWrites)
	about := "all that it offers"
	if w.Tool != "" {
		about = quote(string(w.Tool))
	}
	return about + ": " + strings.Join(parts, ", ")
}
