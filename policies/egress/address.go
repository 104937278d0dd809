package egress

import "net/netip"

// special is one range that a declared name must not lead to. A range is named by the document that reserves it.
type special struct {
	prefix netip.Prefix
	reason string
	never  bool // no destination of a connection: not even a declared literal reaches it
	source string
}

// specials is searched in order, so a single address stands before the range that holds it.
var specials = [...]special{
	// Metadata services hand out credentials to whoever asks from the host.
	{p("169.254.169.254/32"), "metadata", false, "AWS, Azure, GCP, OpenStack and others"},
	{p("169.254.170.2/32"), "metadata", false, "AWS ECS task credentials"},
	{p("100.100.100.200/32"), "metadata", false, "Alibaba Cloud"},
	{p("168.63.129.16/32"), "metadata", false, "Azure wire server"},
	{p("192.0.0.192/32"), "metadata", false, "Oracle Cloud"},
	{p("fd00:ec2::254/128"), "metadata", false, "AWS over IPv6"},
	{p("fd20:ce::254/128"), "metadata", false, "GCP over IPv6"},

	{p("0.0.0.0/8"), "unspecified", true, "RFC 1122 3.2.1.3; Linux connects 0.0.0.0 to loopback"},
	{p("10.0.0.0/8"), "private", false, "RFC 1918"},
	{p("100.64.0.0/10"), "shared", false, "RFC 6598, carrier-grade NAT"},
	{p("127.0.0.0/8"), "loopback", false, "RFC 1122 3.2.1.3"},
	{p("169.254.0.0/16"), "link-local", false, "RFC 3927"},
	{p("172.16.0.0/12"), "private", false, "RFC 1918"},
	{p("192.0.0.0/24"), "protocol", false, "RFC 6890 2.1"},
	{p("192.0.2.0/24"), "documentation", false, "RFC 5737"},
	{p("192.88.99.0/24"), "6to4", false, "RFC 7526, relay anycast"},
	{p("192.168.0.0/16"), "private", false, "RFC 1918"},
	{p("198.18.0.0/15"), "benchmarking", false, "RFC 2544; pfar's own answers inside a namespace"},
	{p("198.51.100.0/24"), "documentation", false, "RFC 5737"},
	{p("203.0.113.0/24"), "documentation", false, "RFC 5737"},
	{p("224.0.0.0/4"), "multicast", true, "RFC 5771"},
	{p("255.255.255.255/32"), "broadcast", true, "RFC 919"},
	{p("240.0.0.0/4"), "reserved", false, "RFC 1112 section 4"},

	{p("::/128"), "unspecified", true, "RFC 4291 2.5.2"},
	{p("::1/128"), "loopback", false, "RFC 4291 2.5.3"},
	{p("::/96"), "ipv4-embedded", true, "RFC 4291 2.5.5.1, IPv4-compatible"},
	{p("::ffff:0.0.0.0/96"), "ipv4-embedded", true, "RFC 4291 2.5.5.2, IPv4-mapped"},
	{p("::ffff:0:0:0/96"), "ipv4-embedded", true, "RFC 2765 2.1, IPv4-translated"},
	{p("64:ff9b::/96"), "ipv4-embedded", false, "RFC 6052, NAT64"},
	{p("64:ff9b:1::/48"), "ipv4-embedded", false, "RFC 8215, NAT64 for local use"},
	{p("100::/64"), "discard", false, "RFC 6666"},
	{p("100:0:0:1::/64"), "discard", false, "RFC 9780, dummy prefix"},
	{p("2001::/32"), "ipv4-embedded", false, "RFC 4380, Teredo"},
	{p("2001:2::/48"), "benchmarking", false, "RFC 5180"},
	{p("2001:10::/28"), "protocol", false, "RFC 4843, ORCHID"},
	{p("2001:20::/28"), "protocol", false, "RFC 7343, ORCHIDv2"},
	{p("2001::/23"), "protocol", false, "RFC 2928"},
	{p("2001:db8::/32"), "documentation", false, "RFC 3849"},
	{p("2002::/16"), "ipv4-embedded", false, "RFC 3056, 6to4"},
	{p("3fff::/20"), "documentation", false, "RFC 9637"},
	{p("5f00::/16"), "protocol", false, "RFC 9602, segment routing"},
	{p("fc00::/7"), "private", false, "RFC 4193, unique local"},
	{p("fe80::/10"), "link-local", false, "RFC 4291 2.5.6"},
	{p("fec0::/10"), "site-local", false, "RFC 3879"},
	{p("ff00::/8"), "multicast", true, "RFC 4291 2.7"},
}

// globalUnicast is all that IANA has given out of IPv6 (RFC 4291 2.4): what lies outside is refused without a row.
var globalUnicast = p("2000::/3")

// nat64 is the prefix whose last four octets are the address that is translated into (RFC 6052 2.1).
var nat64 = p("64:ff9b::/96")

func translated(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// p is for the tables above, whose rows are checked by the tests.
func p(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// Vet reports whether a declared name may lead to addr, and if not, what addr is: resolvers are told what to answer by
// whoever owns the name. An IPv4 address is given as such, not mapped into IPv6.
func Vet(addr netip.Addr) (reason string, ok bool) {
	if !addr.IsValid() || addr.Zone() != "" {
		return "not-an-address", false
	}
	for i := range specials {
		if contains(specials[i].prefix, addr) {
			return specials[i].reason, false
		}
	}
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return "reserved", false
	}
	return "", true
}

// names reports whether a declared prefix is meant to hold addr: of a special range it must be a part. So 169.0.0.0/8
// does not name the link-local addresses, and only 169.254.169.254 names the metadata service. The same holds for what
// NAT64 translates into: 64:ff9b::/96 names no private network behind it (RFC 6052 3.1).
func names(declared netip.Prefix, addr netip.Addr) bool {
	if addr.Zone() != "" || !declared.Contains(addr) {
		return false
	}
	if nat64.Contains(addr) && declared.Bits() >= nat64.Bits() {
		return names(netip.PrefixFrom(translated(declared.Addr()), declared.Bits()-nat64.Bits()), translated(addr))
	}
	for i := range specials {
		s := &specials[i]
		if contains(s.prefix, addr) {
			return !s.never && declared.Bits() >= s.prefix.Bits()
		}
	}
	return true
}

func neverADestination(addr netip.Addr) bool {
	for i := range specials {
		if contains(specials[i].prefix, addr) {
			return specials[i].never
		}
	}
	return !addr.IsValid()
}

// contains is Prefix.Contains, which finds no mapped address in the prefix of mapped addresses either.
func contains(p netip.Prefix, addr netip.Addr) bool {
	if addr.Is4In6() {
		return p.Addr().Is4In6()
	}
	return p.Contains(addr)
}
