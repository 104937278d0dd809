package egress

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Ruleset is one table of nftables(8) as plain data. The zero value is no table.
type Ruleset struct {
	Family string  `json:"family"` // "inet": IPv4 and IPv6
	Table  string  `json:"table"`
	Chains []Chain `json:"chains"`
}

// Chain is a base chain: what the kernel asks about each packet at a hook.
type Chain struct {
	Name     string `json:"name"`
	Type     string `json:"type"` // "nat", which sees the first packet of a connection only, or "filter"
	Hook     string `json:"hook"` // "output"
	Priority int    `json:"priority"`
	Accept   bool   `json:"accept,omitempty"` // what no rule decides is accepted, not dropped
	Rules    []Rule `json:"rules"`
}

// Rule is what all of its matches must fit, and what then happens. The zero value drops everything.
type Rule struct {
	States      []string     `json:"states,omitempty"`     // of connection tracking: "established", "related", "new"; none: any
	Destination netip.Prefix `json:"destination,omitzero"` // zero: any
	Protocol    string       `json:"protocol,omitempty"`   // "tcp" or "udp"; "": any
	Port        uint16       `json:"port,omitempty"`       // destination port of Protocol; 0: any
	Rate        uint64       `json:"rate,omitempty"`       // packets a second that the rule fits, after the first Burst; 0: all
	Burst       uint32       `json:"burst,omitempty"`      // packets
	Action      Action       `json:"action"`
	RedirectTo  uint16       `json:"redirect_to,omitempty"` // port on loopback, of Redirect
	Group       uint16       `json:"group,omitempty"`       // NFLOG group, of Log
	Snaplen     uint32       `json:"snaplen,omitempty"`     // octets of a packet that Log copies
	Comment     string       `json:"comment,omitempty"`     // why, at most 127 octets; nft(8) shows it
}

// Action is what happens to a packet that fits a rule. All but Log and Jump end the chain. The zero value drops.
type Action uint8

const (
	Drop Action = iota
	Accept
	Redirect    // to a port on this namespace's loopback, where SO_ORIGINAL_DST tells the destination
	Log         // to an NFLOG group; goes on with the next rule
	RejectReset // TCP only: connect(2) returns ECONNREFUSED
	RejectAdmin // ICMP administratively prohibited; a datagram's send(2) returns EPERM
	Jump        // to another chain of a HostTable, and back
	Goto        // to another chain of a HostTable
)

// logSnaplen holds an IPv4 header with all of its options, or an IPv6 header and some extensions, and then the ports.
// What a program had to say is no business of the log.
const logSnaplen = 64

// Ruleset returns the table for the namespace of a server with this policy. It is no wall: a namespace that has only
// loopback is one already. It brings what may be allowed to the bridge, which decides (Decide), and has everything else
// fail at once rather than time out.
//
// Entries are read like this. A literal on loopback means a service of the host, so its port on the server's own
// loopback leads there too. What the namespace itself needs comes first: a literal that takes in the resolver, the
// proxy or the redirect port ("127.0.0.1:53", "127.0.0.0/8") leaves these where they are, and such a service of the
// host is reached through the proxy alone. A literal within the synthetic ranges adds nothing: there each address
// already means a name. It is the bridge that knows what a prefix does not name (names): more may arrive there than is
// allowed.
func (p Policy) Ruleset() Ruleset {
	return Ruleset{Family: "inet", Table: "pfar", Chains: []Chain{
		{Name: "divert", Type: "nat", Hook: "output", Priority: -100, Accept: true, Rules: append(divert(), p.literals()...)},
		{Name: "out", Type: "filter", Hook: "output", Rules: out()},
	}}
}

func divert() []Rule {
	loopback4, loopback6 := p("127.0.0.1/32"), p("::1/128")
	return []Rule{
		// The first rule that fits decides: these keep a declared literal from taking the namespace's own listeners away.
		{Destination: loopback4, Protocol: "tcp", Port: ResolverPort, Action: Accept, Comment: "the resolver itself"},
		{Destination: loopback4, Protocol: "tcp", Port: ProxyPort, Action: Accept, Comment: "the proxy itself"},
		// Nothing is to be found here without a redirect, and the bridge says so.
		{Destination: loopback4, Protocol: "tcp", Port: RedirectPort, Action: Accept, Comment: "the bridge itself"},
		{Destination: loopback6, Protocol: "tcp", Port: RedirectPort, Action: Accept, Comment: "the bridge itself"},
		{Destination: SyntheticIPv4(), Protocol: "tcp", Action: Redirect, RedirectTo: RedirectPort, Comment: "addresses that stand for names"},
		{Destination: SyntheticIPv6(), Protocol: "tcp", Action: Redirect, RedirectTo: RedirectPort, Comment: "addresses that stand for names"},
	}
}

func out() []Rule {
	return []Rule{
		// The answers of redirected connections go to addresses that are not loopback, and so does a reset.
		{States: []string{"established", "related"}, Action: Accept, Comment: "answers, and the resets of below"},
		{Destination: p("127.0.0.0/8"), Action: Accept, Comment: "its own loopback, and what is redirected"},
		{Destination: p("::1/128"), Action: Accept, Comment: "its own loopback, and what is redirected"},
		// Without "new" it would tell of the last segments of connections that the kernel has forgotten. The owner needs
		// to hear of a destination once, not as often as a program in a loop asks for it.
		{States: []string{"new"}, Rate: 20, Burst: 50, Action: Log, Group: LogGroup, Snaplen: logSnaplen, Comment: "tell of what is refused"},
		{Protocol: "tcp", Action: RejectReset, Comment: "at once, not by timeout"},
		{Action: RejectAdmin, Comment: "at once, not by timeout"},
	}
}

// literals returns the redirects of declared addresses, without those that divert or another one covers, and in an
// order of their own: the order of entries means nothing.
func (p Policy) literals() []Rule {
	var list []Rule
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		if e.Host != "" || !e.Prefix.IsValid() || e.Prefix.Addr().Is4In6() || e.Prefix.Bits() < minPrefix {
			continue // a name, or nothing that ParseEndpoint returns
		}
		ports := []uint16{e.Port}
		if e.Port == 0 && !e.AnyPort { // and 0 is every port to a rule
			ports = []uint16{80, 443}
		}
		for _, port := range ports {
			list = append(list, Rule{
				Destination: e.Prefix.Masked(), Protocol: "tcp", Port: port,
				Action: Redirect, RedirectTo: RedirectPort, Comment: "declared: " + e.String(),
			})
		}
	}
	slices.SortFunc(list, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), a.Destination.Addr().Compare(b.Destination.Addr()),
			cmp.Compare(a.Destination.Bits(), b.Destination.Bits()),
			cmp.Compare(a.Comment, b.Comment))
	})
	first, kept := divert(), list[:0]
	for _, r := range list {
		// Prefixes are disjoint, or one holds the other and comes first.
		if n := len(kept); n > 0 && kept[n-1].Port == r.Port && covers(kept[n-1].Destination, r.Destination) {
			continue
		}
		if !slices.ContainsFunc(first, func(f Rule) bool { return covers(f.Destination, r.Destination) && (f.Port == 0 || f.Port == r.Port) }) {
			kept = append(kept, r)
		}
	}
	return kept
}

// covers reports whether every address of q is one of p.
func covers(p, q netip.Prefix) bool { return p.Bits() <= q.Bits() && p.Contains(q.Addr()) }

// String returns the table as `nft list ruleset` of nftables 1.0.6 prints it, and as nft(8) reads it.
func (r Ruleset) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", r.Family, r.Table)
	for i, c := range r.Chains {
		if i > 0 {
			b.WriteByte('\n')
		}
		priority, policy := fmt.Sprint(c.Priority), "drop"
		if c.Priority == 0 {
			priority = "filter"
		}
		if c.Accept {
			policy = "accept"
		}
		fmt.Fprintf(&b, "\tchain %s {\n\t\ttype %s hook %s priority %s; policy %s;\n", c.Name, c.Type, c.Hook, priority, policy)
		for _, rule := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", rule)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// String returns the rule in the syntax of nft(8).
func (r Rule) String() string {
	var words []string
	add := func(format string, a ...any) { words = append(words, fmt.Sprintf(format, a...)) }
	if len(r.States) > 0 {
		add("ct state %s", strings.Join(r.States, ","))
	}
	if d := r.Destination; d.IsValid() {
		family, address := "ip", d.String()
		if d.Addr().Is6() {
			family = "ip6"
		}
		if d.IsSingleIP() {
			address = d.Addr().String()
		}
		add("%s daddr %s", family, address)
	}
	switch {
	case r.Protocol != "" && r.Port != 0:
		add("%s dport %d", r.Protocol, r.Port)
	case r.Protocol != "":
		add("meta l4proto %s", r.Protocol)
	}
	if r.Rate != 0 {
		add("limit rate %d/second burst %d packets", r.Rate, r.Burst)
	}
	switch r.Action {
	case Accept:
		add("accept")
	case Redirect:
		add("redirect to :%d", r.RedirectTo)
	case Log:
		add("log group %d snaplen %d", r.Group, r.Snaplen)
	case RejectReset:
		add("reject with tcp reset")
	case RejectAdmin:
		add("reject with icmpx admin-prohibited")
	default:
		add("drop")
	}
	if r.Comment != "" {
		add("comment %q", r.Comment)
	}
	return strings.Join(words, " ")
}
