package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Vet reports whether name may lead to addr, and if not, what addr is, as the function Vet does: an entry of Private
// for the name allows more, and an exact one stands for its name alone, whatever a wildcard says. The name is in
// canonical form (Decision.Host), the address not mapped into IPv6.
func (p Policy) Vet(name string, addr netip.Addr) (reason string, ok bool) {
	if reason, ok = Vet(addr); ok || p.Named(name, addr) {
		return "", true
	}
	return reason, false
}

// Named reports whether an entry of Private lets name lead to addr. Such a connection is one into the own network, so
// it is never another proxy's to make.
func (p Policy) Named(name string, addr netip.Addr) bool {
	return p.private(name, func(prefix netip.Prefix) bool { return names(prefix, addr) })
}

// NamedExactly reports whether an entry of Private lets name lead to addr even if addr is this host's own. A range does
// not: who declares a network means the other hosts in it. Loopback is no other host's.
func (p Policy) NamedExactly(name string, addr netip.Addr) bool {
	return p.private(name, func(prefix netip.Prefix) bool {
		return names(prefix, addr) && (prefix.IsSingleIP() || addr.IsLoopback())
	})
}

// private reports whether f holds for a prefix that is declared for name.
func (p Policy) private(name string, f func(netip.Prefix) bool) bool {
	exact := false
	for i := range p.Private {
		exact = exact || !p.Private[i].Wildcard && hasName(p.Private[i].Host, false, name)
	}
	for i := range p.Private {
		e := &p.Private[i]
		if e.Wildcard == exact || !hasName(e.Host, e.Wildcard, name) {
			continue
		}
		if slices.ContainsFunc(e.Prefixes, f) {
			return true
		}
	}
	return false
}

// String returns the name, as Endpoint.String does.
func (e Private) String() string { return Endpoint{Host: e.Host, Wildcard: e.Wildcard}.String() }

// ParsePrivate reads an address or a prefix of allow_private. Its errors say what to write instead.
func ParsePrivate(s string) (netip.Prefix, error) {
	none := fmt.Errorf(`%s is neither an address nor a prefix: write "10.1.2.3", "10.1.0.0/16" or "fd12:3456::/32"`,
		quote(s))
	if s == "" {
		return netip.Prefix{}, errors.New(`an empty entry allows nothing: write an address, such as "10.1.2.3", or leave it out`)
	}
	if refuseSyntax(s) != nil || strings.Contains(s, "*") {
		return netip.Prefix{}, none
	}
	if inner, port, err := splitPort(s); err != nil || port != 0 || inner != s {
		return netip.Prefix{}, fmt.Errorf("%s must be an address alone, for ports belong to allowed_domains: write %s", quote(s),
			bareAddress(inner))
	}
	name, length, slash := strings.Cut(s, "/")
	_, err := netip.ParseAddr(name)
	if err != nil && !strings.Contains(s, ":") && !endsInNumber(name) {
		return netip.Prefix{}, fmt.Errorf("%s is a name, and where it leads is for its owner to say: write the "+
			"address, such as %s", quote(s), bareAddress(""))
	}
	if mask, err := netip.ParseAddr(length); slash && err == nil {
		return netip.Prefix{}, fmt.Errorf("%s has a netmask: write the length of the prefix, such as %s", quote(s), withLength(name, mask))
	}
	if p, perr := netip.ParsePrefix(s); perr != nil && (slash || err != nil) && !strings.Contains(s, "%") {
		return netip.Prefix{}, none
	} else if perr == nil && p.Bits() < minPrefix {
		example := map[bool]string{true: "10.0.0.0/8", false: "fd00::/8"}[p.Addr().Is4()]
		return netip.Prefix{}, fmt.Errorf("%s covers more than one network: write what is meant, of /%d or "+
			"longer, such as %q", quote(s), minPrefix, example)
	}
	e, err := parsePrefix(s, s, 0)
	return e.Prefix, err
}

// Futile says why a prefix of allow_private lets a name lead to no address that Vet refuses, and "" if it does. Part is
// the special range that a prefix covers without being a part of it, if there is one.
func Futile(prefix netip.Prefix) (why string, part netip.Prefix) {
	for i := range specials {
		s := &specials[i]
		if s.never || !s.prefix.Overlaps(prefix) {
			continue
		}
		if prefix.Bits() >= s.prefix.Bits() {
			return "", netip.Prefix{}
		}
		if !part.IsValid() || s.prefix.Bits() < part.Bits() {
			part = s.prefix
		}
	}
	switch {
	case part.IsValid():
		return "is wider than " + part.String() + ", which it would have to be a part of", part
	case prefix.Addr().Is6() && !globalUnicast.Overlaps(prefix):
		return "", netip.Prefix{} // reserved without a row
	}
	return "is public, so that the name may lead there anyway", netip.Prefix{}
}

// Ranges are all special ranges that a name may be declared to lead to, as prefixes of a Private: whoever names a
// mirror of their own network says no address. Single addresses are not among them, as those of metadata services.
func Ranges() (list []netip.Prefix) {
	for i := range specials {
		if s := &specials[i]; !s.never && !s.prefix.IsSingleIP() || s.reason == "loopback" {
			list = append(list, s.prefix)
		}
	}
	return list
}

// bareAddress returns s, quoted, if it is an address or a prefix, and otherwise one.
func bareAddress(s string) string {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return strconv.Quote(a.String())
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return strconv.Quote(p.Masked().String())
	}
	return `"10.1.2.3"`
}

// withLength returns the prefix of an address and its netmask, quoted, or one that is well formed.
func withLength(addr string, mask netip.Addr) string {
	a, err := netip.ParseAddr(addr)
	if err != nil || !a.Is4() || !mask.Is4() {
		return `"10.1.0.0/16"`
	}
	bits := 0
	for m := mask.As4(); bits < 32 && m[bits/8]&(0x80>>(bits%8)) != 0; bits++ {
	}
	if p := netip.PrefixFrom(a, bits).Masked(); bits >= minPrefix {
		return strconv.Quote(p.String())
	}
	return `"10.1.0.0/16"`
}
