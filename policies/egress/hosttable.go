package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// HostTable is the host's table of nftables(8) as plain data: what holds bridges, and touches nothing else there.
type HostTable struct {
	Family string // "inet": IPv4 and IPv6
	Name   string
	Sets   []HostSet
	Chains []HostChain
}

// HostSet is a set of addresses with their ports, of one family.
type HostSet struct {
	Name     string
	IPv6     bool
	Expires  bool // its elements do
	Elements []HostElement
}

// HostElement is a member of a set, for the time that is left to it.
type HostElement struct {
	Addr    netip.Addr
	Port    uint16
	Timeout time.Duration // whole milliseconds; 0: for ever
}

// HostChain is a chain. One with a hook sees what the host sends or is sent, and accepts what no rule decides.
type HostChain struct {
	Name  string
	Hook  string // "output" or "input"; "": other chains lead to it
	Rules []HostRule
}

// HostRule is what all of its matches must fit, and what then happens. The zero value drops everything.
type HostRule struct {
	Opening  bool   // the first segments of TCP connections
	Under    bool   // all others
	Cgroup   Cgroup // of the socket, or the one above at that level; zero: any, and what has no socket
	Protocol string // "tcp" or "udp"; "": any
	Set      string // of this destination, with the port of Protocol
	IPv6     bool   // the set is
	Counter  bool
	Action   Action
	Chain    string // to go on with, of Jump and Goto
	Comment  string // at most 127 octets
}

// Table returns the table for h as of now.
//
// What the host sends meets one rule: the chains behind it are met by nothing but the bridges' own packets. The sockets
// of a bridge carry its cgroup, whatever it does to itself; the kernel's own packets, such as a reset, carry none, nor
// does its answer to a connection from outside. So there is one rule about those, too: a bridge listens in no namespace
// but its server's, and the first segment to a socket of its own is refused. A login that waits for a browser has one
// port of loopback.
//
// What is under way goes on, whatever happens to the table or to what is allowed: a rule is about the first segment of
// a connection, and about each datagram. Connection tracking (ct state) would say the same, but a single rule with it
// has the kernel track every connection of the host, also of those who took care that it does not.
func (h Hold) Table(now time.Time) HostTable {
	t := HostTable{Family: "inet", Name: "pfar", Sets: []HostSet{h.names(false), h.names(true)}}
	bridges := HostChain{Name: "bridges", Rules: []HostRule{{Under: true, Action: Accept, Comment: "connections that were let through"}}}
	dns := HostChain{Name: "dns", Rules: []HostRule{
		{Protocol: "udp", Set: "dns4", Action: Accept},
		{Protocol: "tcp", Set: "dns4", Action: Accept},
		{Protocol: "udp", Set: "dns6", IPv6: true, Action: Accept},
		{Protocol: "tcp", Set: "dns6", IPv6: true, Action: Accept},
	}}
	in := HostChain{Name: "in", Hook: "input"}
	var each []HostChain
	list := slices.Clone(h.Bridges)
	slices.SortStableFunc(list, func(a, b Bridge) int { return strings.Compare(a.Server, b.Server) })
	for i, b := range list {
		if b.Cgroup == (Cgroup{}) || i > 0 && list[i-1].Server == b.Server {
			continue // "any" is not meant; of two with one name there cannot be two chains
		}
		name := identifier(b.Server)
		to4, to6 := allowedSet("to4-"+name, false, b.Allowed, now), allowedSet("to6-"+name, true, b.Allowed, now)
		t.Sets = append(t.Sets, to4, to6)
		if b.Listens != 0 {
			at := HostSet{Name: "at4-" + name}
			at.add(HostElement{Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Port: b.Listens})
			t.Sets = append(t.Sets, at)
			in.Rules = append(in.Rules, HostRule{Opening: true, Cgroup: b.Cgroup, Protocol: "tcp", Set: at.Name, Action: Accept})
		}
		bridges.Rules = append(bridges.Rules, HostRule{Cgroup: b.Cgroup, Action: Goto, Chain: "bridge-" + name})
		each = append(each, HostChain{Name: "bridge-" + name, Rules: append([]HostRule{
			{Protocol: "tcp", Set: to4.Name, Action: Accept},
			{Protocol: "tcp", Set: to6.Name, IPv6: true, Action: Accept},
			{Action: Jump, Chain: dns.Name},
		}, rejectAll("neither declared nor a name server")...)})
	}
	bridges.Rules = append(bridges.Rules, rejectAll("nobody has said what it may reach")...)
	in.Rules = append(in.Rules, HostRule{
		Opening: true, Cgroup: h.Slice, Counter: true, Action: RejectReset,
		Comment: "who would listen there has been taken over",
	})
	t.Chains = append([]HostChain{
		{Name: "out", Hook: "output", Rules: []HostRule{{Cgroup: h.Slice, Action: Jump, Chain: bridges.Name,
			Comment: "egress bridges, and nothing else"}}},
		in, bridges, dns,
	}, each...)
	return t
}

// rejectAll has a program see its error at once, not by timeout.
func rejectAll(why string) []HostRule {
	return []HostRule{
		{Protocol: "tcp", Counter: true, Action: RejectReset, Comment: why},
		{Counter: true, Action: RejectAdmin, Comment: why},
	}
}

// names is the set of name servers. A zone is no part of the address on the wire.
func (h Hold) names(ipv6 bool) HostSet {
	s := HostSet{Name: map[bool]string{false: "dns4", true: "dns6"}[ipv6], IPv6: ipv6}
	for _, d := range h.DNS {
		s.add(HostElement{Addr: d.Addr(), Port: d.Port()})
	}
	return s
}

func allowedSet(name string, ipv6 bool, list []Allowed, now time.Time) HostSet {
	s := HostSet{Name: name, IPv6: ipv6, Expires: true}
	for _, a := range list {
		if left := min(a.Until.Sub(now), maxAllowed).Truncate(time.Millisecond); left > 0 {
			s.add(HostElement{a.Addr, a.Port, left})
		}
	}
	return s
}

// add adds an element of the set's family, or extends the one that is there.
func (s *HostSet) add(e HostElement) {
	e.Addr = e.Addr.Unmap().WithZone("")
	if !e.Addr.IsValid() || e.Addr.Is6() != s.IPv6 || e.Port == 0 {
		return
	}
	for i := range s.Elements {
		if x := &s.Elements[i]; x.Addr == e.Addr && x.Port == e.Port {
			x.Timeout = max(x.Timeout, e.Timeout)
			return
		}
	}
	s.Elements = append(s.Elements, e)
}

// identifier returns a server's name as nft(8) reads it. Names of declarations and of sessions are such already.
func identifier(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, s)
}

// String returns the table as `nft list table` of nftables 1.0.6 prints it, where no cgroup has a path.
func (t HostTable) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", t.Family, t.Name)
	for _, s := range t.Sets {
		kind, flags := "ipv4_addr", ""
		if s.IPv6 {
			kind = "ipv6_addr"
		}
		if s.Expires {
			flags = "\t\tflags timeout\n"
		}
		fmt.Fprintf(&b, "\tset %s {\n\t\ttype %s . inet_service\n%s%s\t}\n\n", s.Name, kind, flags, s.elements())
	}
	for i, c := range t.Chains {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if c.Hook != "" {
			fmt.Fprintf(&b, "\t\ttype filter hook %s priority filter; policy accept;\n", c.Hook)
		}
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func (s HostSet) elements() string {
	if len(s.Elements) == 0 {
		return ""
	}
	list := make([]string, len(s.Elements))
	for i, e := range s.Elements {
		list[i] = fmt.Sprintf("%s . %d", e.Addr, e.Port)
		if e.Timeout > 0 {
			list[i] += " timeout " + nftDuration(e.Timeout)
		}
	}
	return "\t\telements = { " + strings.Join(list, ",\n\t\t\t     ") + " }\n"
}

// nftDuration is like Duration.String, but leaves out what is zero.
func nftDuration(d time.Duration) string {
	var b strings.Builder
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / u.of; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.of
		}
	}
	return b.String()
}

// String returns the rule in the syntax of nft(8).
func (r HostRule) String() string {
	var words []string
	add := func(format string, a ...any) { words = append(words, fmt.Sprintf(format, a...)) }
	if r.Opening {
		add("tcp flags syn / fin,syn,rst,ack")
	}
	if r.Under {
		add("tcp flags != syn / fin,syn,rst,ack")
	}
	if r.Cgroup != (Cgroup{}) {
		add("socket cgroupv2 level %d %d", r.Cgroup.Level, r.Cgroup.ID)
	}
	switch family := map[bool]string{false: "ip", true: "ip6"}[r.IPv6]; {
	case r.Set != "":
		add("%s daddr . %s dport @%s", family, r.Protocol, r.Set)
	case r.Protocol != "":
		add("meta l4proto %s", r.Protocol)
	}
	if r.Counter {
		add("counter packets 0 bytes 0")
	}
	switch r.Action {
	case Jump, Goto:
		add("%s %s", map[Action]string{Jump: "jump", Goto: "goto"}[r.Action], r.Chain)
	default:
		add("%s", Rule{Action: r.Action})
	}
	if r.Comment != "" {
		add("comment %q", r.Comment)
	}
	return strings.Join(words, " ")
}
