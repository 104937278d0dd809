package wants

import (
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/monitor"
)

// LongestReason bounds words of a bridge's about a connection, in octets.
const LongestReason = 100

const longestTarget = 300 // octets; a name with its port has at most 259

// Wish is one thing that a server wants to reach.
type Wish struct {
	Host     string
	Port     uint16 // 0: it was only looked up, or there is none
	Obstacle string // why it is nothing for allowed_domains; "": it is
}

// WishOf says what a refusal would have needed.
func WishOf(m monitor.Connection) Wish {
	host, port := splitHost(Clip(m.Host, longestTarget))
	t := Wish{Host: host, Port: port}
	m.Reason, m.Protocol = Clip(m.Reason, LongestReason), Clip(m.Protocol, LongestReason)
	if m.Path == monitor.Kernel && m.Protocol != "tcp" {
		t.Obstacle = "only TCP is passed on, this is " + m.Protocol
		return t
	}
	switch m.Reason {
	case egress.NameNotDeclared, egress.PortNotDeclared, egress.AddressLiteral, "not-declared": // the last is the kernel's
	default:
		t.Obstacle = m.Reason
		return t
	}
	e, err := egress.ParseEndpoint(t.Entry())
	switch {
	case m.Host == "":
		t.Obstacle = m.Reason + ", and it named no host"
	case err != nil:
		t.Obstacle = "nothing that can be declared"
	case e.Wildcard:
		t.Obstacle = "no host name"
	case e.Host == "arpa" || strings.HasSuffix(e.Host, ".arpa"):
		t.Obstacle = "the name of an address, which nothing connects to"
	case e.Prefix.IsValid() && !e.Prefix.IsSingleIP():
		t.Obstacle = "no address"
	case e.Prefix.IsValid():
		if kind, ok := egress.Vet(e.Prefix.Addr().Unmap()); !ok {
			t.Obstacle = "a special address (" + kind + "); declare it only if you know what answers there"
		}
		t.Host = e.Prefix.Addr().String()
	default:
		t.Host = e.Host
	}
	return t
}

// Clip shortens what is longer than a bridge makes it.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// splitHost reads "host:port", "[address]:port", or either without a port.
func splitHost(s string) (host string, port uint16) {
	host, rest, cut := s, "", false
	if inner, ok := strings.CutPrefix(s, "["); ok {
		host, rest, _ = strings.Cut(inner, "]")
		rest, cut = strings.CutPrefix(rest, ":")
	} else if strings.Count(s, ":") == 1 {
		host, rest, cut = strings.Cut(s, ":")
	}
	if !cut {
		return host, 0
	}
	port, ok := egress.ParsePort(rest)
	if !ok {
		return s, 0
	}
	return host, port
}

// Entry is the entry of allowed_domains that would allow a wish.
func (w Wish) Entry() string {
	if w.Port == 0 || w.Port == 443 || w.Port == 80 {
		return w.Host
	}
	return w.Target()
}

// Target is what it wants to reach.
func (w Wish) Target() string {
	if w.Port == 0 {
		return w.Host
	}
	if strings.Contains(w.Host, ":") {
		return "[" + w.Host + "]:" + strconv.Itoa(int(w.Port))
	}
	return w.Host + ":" + strconv.Itoa(int(w.Port))
}
