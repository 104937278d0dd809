package egress

import (
	"net/netip"
	"testing"
)

// Each range's first and last address, and the reasons of its neighbours ("" is allowed), worked out from the RFCs.
var ranges = []struct{ first, last, reason, before, after string }{
	{"0.0.0.0", "0.255.255.255", "unspecified", "not-an-address", ""},
	{"10.0.0.0", "10.255.255.255", "private", "", ""},
	{"100.64.0.0", "100.127.255.255", "shared", "", ""},
	{"100.100.100.200", "100.100.100.200", "metadata", "shared", "shared"},
	{"127.0.0.0", "127.255.255.255", "loopback", "", ""},
	{"168.63.129.16", "168.63.129.16", "metadata", "", ""},
	{"169.254.0.0", "169.254.255.255", "link-local", "", ""},
	{"169.254.169.254", "169.254.169.254", "metadata", "link-local", "link-local"},
	{"169.254.170.2", "169.254.170.2", "metadata", "link-local", "link-local"},
	{"172.16.0.0", "172.31.255.255", "private", "", ""},
	{"192.0.0.0", "192.0.0.255", "protocol", "", ""},
	{"192.0.0.192", "192.0.0.192", "metadata", "protocol", "protocol"},
	{"192.0.2.0", "192.0.2.255", "documentation", "", ""},
	{"192.88.99.0", "192.88.99.255", "6to4", "", ""},
	{"192.168.0.0", "192.168.255.255", "private", "", ""},
	{"198.18.0.0", "198.19.255.255", "benchmarking", "", ""},
	{"198.51.100.0", "198.51.100.255", "documentation", "", ""},
	{"203.0.113.0", "203.0.113.255", "documentation", "", ""},
	{"224.0.0.0", "239.255.255.255", "multicast", "", "reserved"},
	{"240.0.0.0", "255.255.255.254", "reserved", "multicast", "broadcast"},
	{"255.255.255.255", "255.255.255.255", "broadcast", "reserved", "not-an-address"},

	{"::", "::", "unspecified", "not-an-address", "loopback"},
	{"::1", "::1", "loopback", "unspecified", "ipv4-embedded"},
	{"::2", "::ffff:ffff", "ipv4-embedded", "loopback", "reserved"},
	{"::ffff:0.0.0.0", "::ffff:255.255.255.255", "ipv4-embedded", "reserved", "reserved"},
	{"::ffff:0:0:0", "::ffff:0:ffff:ffff", "ipv4-embedded", "reserved", "reserved"},
	{"64:ff9b::", "64:ff9b::ffff:ffff", "ipv4-embedded", "reserved", "reserved"},
	{"64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "ipv4-embedded", "reserved", "reserved"},
	{"100::", "100::ffff:ffff:ffff:ffff", "discard", "reserved", "discard"},
	{"100:0:0:1::", "100::1:ffff:ffff:ffff:ffff", "discard", "discard", "reserved"},
	{"2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "ipv4-embedded", "", "protocol"},
	{"2001:1::", "2001:1:ffff:ffff:ffff:ffff:ffff:ffff", "protocol", "ipv4-embedded", "benchmarking"},
	{"2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", "benchmarking", "protocol", "protocol"},
	{"2001:10::", "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff", "protocol", "protocol", "protocol"},
	{"2001:30::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "protocol", "protocol", ""},
	{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "documentation", "", ""},
	{"2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ipv4-embedded", "", ""},
	{"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "documentation", "", ""},
	{"4000::", "5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved", "", "protocol"},
	{"5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "protocol", "reserved", "reserved"},
	{"fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private", "reserved", "reserved"},
	{"fd00:ec2::254", "fd00:ec2::254", "metadata", "private", "private"},
	{"fd20:ce::254", "fd20:ce::254", "metadata", "private", "private"},
	{"fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link-local", "reserved", "site-local"},
	{"fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "site-local", "link-local", "multicast"},
	{"ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast", "site-local", "not-an-address"},
}

func TestVetRefusesSpecialRangesToTheirEdges(t *testing.T) {
	for _, r := range ranges {
		first, last := netip.MustParseAddr(r.first), netip.MustParseAddr(r.last)
		for _, c := range []struct {
			addr netip.Addr
			want string
		}{{first, r.reason}, {last, r.reason}, {first.Prev(), r.before}, {last.Next(), r.after}} {
			reason, ok := Vet(c.addr)
			if reason != c.want || ok != (c.want == "") {
				t.Errorf("Vet(%v) = %q, %v; want %q", c.addr, reason, ok, c.want)
			}
		}
	}
}

func TestVetZone(t *testing.T) {
	if _, ok := Vet(netip.MustParseAddr("2606:4700::1111%eth0")); ok {
		t.Error("an address with a zone is allowed")
	}
}

func TestVetAllowsPublic(t *testing.T) {
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.0.1", "172.32.0.1", "2606:4700:4700::1111", "2a00:1450::1"} {
		if reason, ok := Vet(netip.MustParseAddr(a)); !ok {
			t.Errorf("%s is refused as %q", a, reason)
		}
	}
}

func TestEverySpecialRangeIsMaskedAndReached(t *testing.T) {
	for i, s := range specials {
		if s.prefix != s.prefix.Masked() {
			t.Errorf("%v has bits beyond its length", s.prefix)
		}
		if s.source == "" || s.reason == "" {
			t.Errorf("%v says neither why nor after what", s.prefix)
		}
		for _, before := range specials[:i] {
			if before.prefix.Overlaps(s.prefix) && before.prefix.Bits() <= s.prefix.Bits() {
				t.Errorf("%v stands behind %v, which hides it", s.prefix, before.prefix)
			}
		}
	}
}
