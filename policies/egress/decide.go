package egress

import (
	"net/netip"
	"strings"
)

// Verdict is what happens to a connection. The zero value denies.
type Verdict uint8

const (
	Deny Verdict = iota
	Allow
)

// String returns "allow", and "deny" for everything else.
func (v Verdict) String() string {
	if v == Allow {
		return "allow"
	}
	return "deny"
}

// Reasons of a Decision. They are stable: logs, audit records and X-Pfar-Reason carry them.
const (
	Declared        = "declared"
	BadName         = "bad-name"          // no host name, or one that programs read in different ways
	NameNotDeclared = "name-not-declared" // no entry has the name
	PortNotDeclared = "port-not-declared" // an entry has the name, none with this port
	AddressLiteral  = "address-literal"   // an address, and no entry names it
	AddressRefused  = "address-refused"   // of the bridge: a declared name has no address that may be reached
	NameBlocked     = "blocked"           // an entry of Blocked has the name and the port
)

// Decision says whether a connection may be made, and by which entry.
type Decision struct {
	Verdict Verdict
	Reason  string
	Rule    string     // the entry that allows or blocks, or that has the name but not the port
	Host    string     // in canonical form, to be looked up; "" if it has none
	Addr    netip.Addr // of a declared address literal, instead of a lookup
}

// Decide judges host (a name, or an address without brackets) and port before anything is looked up: a refused name
// never leaves the host, not even as a query. What is blocked is refused, whatever allows it: an entry
// without a port blocks all ports, and a wildcard all names below its own, however many labels they have more.
func (p Policy) Decide(host string, port uint16) Decision {
	if addr, err := netip.ParseAddr(host); err == nil {
		return p.decide(Decision{Host: host, Addr: addr, Reason: AddressLiteral}, port)
	}
	name, err := canonicalName(host)
	if err != nil {
		return Decision{Reason: BadName}
	}
	for i := range p.Blocked {
		if e := &p.Blocked[i]; e.blocks(name, port) {
			return Decision{Host: name, Reason: NameBlocked, Rule: e.String()}
		}
	}
	return p.decide(Decision{Host: name, Reason: NameNotDeclared}, port)
}

func (e *Endpoint) blocks(name string, port uint16) bool {
	if e.Host == "" || e.Port != 0 && e.Port != port {
		return false
	}
	if below, ok := strings.CutSuffix(name, e.Host); ok && e.Wildcard {
		return strings.HasSuffix(below, ".")
	}
	return !e.Wildcard && name == e.Host
}

func (p Policy) decide(d Decision, port uint16) Decision {
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		if !e.matches(d) {
			continue
		}
		if e.hasPort(port) {
			d.Verdict, d.Reason, d.Rule = Allow, Declared, e.String()
			return d
		}
		if d.Rule == "" {
			d.Reason, d.Rule = PortNotDeclared, e.String()
		}
	}
	return d
}

// Limits reports whether an entry of Policy.Blocked takes something from what allowed, an entry of Endpoints, allows.
func (e Endpoint) Limits(allowed Endpoint) bool {
	switch {
	case allowed.Host == "" || e.Host == "" || e.Port != 0 && !allowed.hasPort(e.Port):
		return false
	case !allowed.Wildcard:
		return e.blocks(allowed.Host, e.Port)
	case !e.Wildcard:
		return hasName(allowed.Host, true, e.Host)
	}
	return allowed.Host == e.Host || e.blocks(allowed.Host, e.Port)
}

func (e *Endpoint) matches(d Decision) bool {
	if d.Addr.IsValid() {
		return e.Host == "" && e.Prefix.IsValid() && names(e.Prefix, d.Addr)
	}
	return hasName(e.Host, e.Wildcard, d.Host)
}

// hasName reports whether a declared host, or the names with one label more than it, include name.
func hasName(host string, wildcard bool, name string) bool {
	switch {
	case host == "":
		return false
	case !wildcard:
		return name == host
	}
	label, rest, ok := strings.Cut(name, ".")
	return ok && label != "" && rest == host
}

func (e *Endpoint) hasPort(port uint16) bool {
	if port == 0 {
		return false
	}
	return e.AnyPort || e.Port == port || e.Port == 0 && (port == 443 || port == 80)
}

// SameHost reports whether a and b are one host: two names with the same canonical form, or the same address.
func SameHost(a, b string) bool {
	if x, err := netip.ParseAddr(a); err == nil {
		y, err := netip.ParseAddr(b)
		return err == nil && x == y
	}
	x, err := canonicalName(a)
	if err != nil {
		return false
	}
	y, err := canonicalName(b)
	return err == nil && x == y
}
