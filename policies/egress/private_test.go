package egress

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

// private builds a policy from "name prefix prefix ..." lines.
func private(t testing.TB, lines ...string) Policy {
	t.Helper()
	var p Policy
	for _, line := range lines {
		words := strings.Fields(line)
		e := policy(t, words[0]).Endpoints[0]
		entry := Private{Host: e.Host, Wildcard: e.Wildcard}
		for _, w := range words[1:] {
			prefix, err := ParsePrivate(w)
			if err != nil {
				t.Fatal(err)
			}
			entry.Prefixes = append(entry.Prefixes, prefix)
		}
		p.Private = append(p.Private, entry)
	}
	return p
}

func TestZeroPrivateAllowsNothing(t *testing.T) {
	everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for _, p := range []Policy{
		{}, {Private: []Private{{}}}, {Private: []Private{{Wildcard: true}}}, {Private: []Private{{Host: "x.example"}}},
		{Private: []Private{{Prefixes: everything}}}, {Private: []Private{{Wildcard: true, Prefixes: everything}}},
		{Private: []Private{{Host: "x.example", Prefixes: []netip.Prefix{{}}}}},
		{Private: []Private{{Host: "y.example", Prefixes: everything}}},
		policy(t, "x.example", "*.x.example", "10.0.0.0/8", "127.0.0.1"), // what is declared without an exception
	} {
		for _, name := range []string{"", "x.example", ".", ".x", "x", "x."} {
			for _, addr := range []string{"10.1.2.3", "127.0.0.1", "::1", "fd12::1", "169.254.169.254"} {
				a := netip.MustParseAddr(addr)
				if reason, ok := p.Vet(name, a); ok || reason == "" || p.Named(name, a) || p.NamedExactly(name, a) {
					t.Errorf("%+v lets %q lead to %s: %q", p, name, addr, reason)
				}
			}
		}
		if _, ok := p.Vet("x.example", netip.Addr{}); ok {
			t.Errorf("%+v lets a name lead to no address", p)
		}
	}
}

func TestPolicyVet(t *testing.T) {
	const outside, within, exact = 0, 1, 2 // what NamedExactly and Named say
	p := private(t, "db.lan 10.1.2.3", "*.corp.example 10.0.0.0/8 fd12:3456::/32", "git.corp.example 10.9.9.9 192.168.0.0/16",
		"bücher.example 192.168.1.1", "here.lan 127.0.0.1", "loop.lan 127.0.0.0/8", "six.lan ::1 fe80::/10", "meta.lan 169.254.0.0/16 fd00::/8 100.64.0.0/10",
		"imds.lan 169.254.169.254", "wide.lan 172.0.0.0/8 169.0.0.0/8 255.0.0.0/8", "nat64.lan 64:ff9b::/96", "nat64ten.lan 64:ff9b::a00:0/104", "public.lan 93.184.216.34")
	for _, c := range []struct {
		name, addr, reason string
		named              int
	}{
		// Another name, however alike.
		{"db.lan.evil.example", "10.1.2.3", "private", outside}, {"xdb.lan", "10.1.2.3", "private", outside}, {"x.db.lan", "10.1.2.3", "private", outside},
		{"lan", "10.1.2.3", "private", outside}, {"", "10.1.2.3", "private", outside}, {"db.lan.", "10.1.2.3", "private", outside}, {"DB.LAN", "10.1.2.3", "private", outside},
		{"corp.example", "10.1.2.3", "private", outside}, {"a.b.corp.example", "10.1.2.3", "private", outside}, {".corp.example", "10.1.2.3", "private", outside},
		{"xcorp.example", "10.1.2.3", "private", outside}, {"*.corp.example.x", "10.1.2.3", "private", outside},
		// Another address: the name's owner rebinds it.
		{"db.lan", "10.1.2.4", "private", outside}, {"db.lan", "192.168.1.1", "private", outside}, {"db.lan", "127.0.0.1", "loopback", outside},
		{"db.lan", "169.254.169.254", "metadata", outside}, {"db.lan", "fd12:3456::1", "private", outside}, {"db.lan", "::1", "loopback", outside},
		{"x.corp.example", "192.168.0.1", "private", outside}, {"x.corp.example", "fd12:3457::1", "private", outside}, {"x.corp.example", "127.0.0.1", "loopback", outside},
		// An exact entry stands for its name alone.
		{"git.corp.example", "10.1.2.3", "private", outside}, {"git.corp.example", "fd12:3456::1", "private", outside},
		// Another form of the address.
		{"db.lan", "::ffff:10.1.2.3", "ipv4-embedded", outside}, {"db.lan", "::10.1.2.3", "ipv4-embedded", outside}, {"db.lan", "64:ff9b::a01:203", "ipv4-embedded", outside},
		{"db.lan", "64:ff9b:1::a01:203", "ipv4-embedded", outside}, {"db.lan", "2002:a01:203::1", "ipv4-embedded", outside}, {"db.lan", "::ffff:0:a01:203", "ipv4-embedded", outside},
		{"here.lan", "::ffff:127.0.0.1", "ipv4-embedded", outside}, {"x.corp.example", "::ffff:10.1.2.3", "ipv4-embedded", outside},
		{"x.corp.example", "fd12:3456::1%eth0", "not-an-address", outside}, {"six.lan", "fe80::1%eth0", "not-an-address", outside}, {"six.lan", "::1%lo", "not-an-address", outside},
		// Loopback only where it is written.
		{"here.lan", "127.0.0.2", "loopback", outside}, {"here.lan", "::1", "loopback", outside}, {"here.lan", "0.0.0.0", "unspecified", outside},
		{"loop.lan", "::1", "loopback", outside}, {"six.lan", "127.0.0.1", "loopback", outside}, {"six.lan", "::", "unspecified", outside},
		// A range names no metadata service within it.
		{"meta.lan", "169.254.169.254", "metadata", outside}, {"meta.lan", "169.254.170.2", "metadata", outside}, {"meta.lan", "fd00:ec2::254", "metadata", outside},
		{"meta.lan", "fd20:ce::254", "metadata", outside}, {"meta.lan", "100.100.100.200", "metadata", outside}, {"imds.lan", "169.254.169.253", "link-local", outside},
		{"imds.lan", "169.254.170.2", "metadata", outside},
		// What is wider than a special range does not name it, and some is no destination at all.
		{"wide.lan", "172.16.0.1", "private", outside}, {"wide.lan", "169.254.1.1", "link-local", outside}, {"wide.lan", "255.255.255.255", "broadcast", outside},
		{"wide.lan", "224.0.0.1", "multicast", outside}, {"wide.lan", "0.0.0.0", "unspecified", outside},
		// What NAT64 leads to counts like the address itself.
		{"nat64.lan", "64:ff9b::7f00:1", "ipv4-embedded", outside}, {"nat64.lan", "64:ff9b::a00:5", "ipv4-embedded", outside}, {"nat64.lan", "64:ff9b::a9fe:a9fe", "ipv4-embedded", outside},
		{"nat64.lan", "64:ff9b::", "ipv4-embedded", outside}, {"nat64.lan", "64:ff9b::e000:1", "ipv4-embedded", outside}, {"nat64.lan", "64:ff9b:1::808:808", "ipv4-embedded", outside},
		{"nat64ten.lan", "64:ff9b::7f00:1", "ipv4-embedded", outside}, {"nat64ten.lan", "64:ff9b::808:808", "ipv4-embedded", outside},

		{"db.lan", "10.1.2.3", "", exact}, {"x.corp.example", "10.1.2.3", "", within}, {"x.corp.example", "fd12:3456::1", "", within},
		{"git.corp.example", "10.9.9.9", "", exact}, {"git.corp.example", "192.168.7.7", "", within}, {"xn--bcher-kva.example", "192.168.1.1", "", exact},
		{"here.lan", "127.0.0.1", "", exact}, {"loop.lan", "127.3.2.1", "", exact}, {"six.lan", "::1", "", exact}, {"six.lan", "fe80::1", "", within},
		{"meta.lan", "169.254.1.1", "", within}, {"meta.lan", "fd12::1", "", within}, {"meta.lan", "100.64.0.1", "", within}, {"imds.lan", "169.254.169.254", "", exact},
		{"nat64.lan", "64:ff9b::808:808", "", within}, {"nat64ten.lan", "64:ff9b::a00:5", "", within}, {"public.lan", "93.184.216.34", "", exact},
		// What Vet allows needs no entry, and has none.
		{"db.lan", "93.184.216.34", "", outside}, {"other.example", "2606:4700::1111", "", outside}, {"", "1.1.1.1", "", outside},
	} {
		a := netip.MustParseAddr(c.addr)
		if reason, ok := p.Vet(c.name, a); reason != c.reason || ok != (c.reason == "") {
			t.Errorf("Vet(%q, %s) = %q, %v; want %q", c.name, c.addr, reason, ok, c.reason)
		}
		if p.Named(c.name, a) != (c.named >= within) || p.NamedExactly(c.name, a) != (c.named == exact) {
			t.Errorf("%q, %s: Named %v, NamedExactly %v", c.name, c.addr, p.Named(c.name, a), p.NamedExactly(c.name, a))
		}
	}
}

// The order of the entries says nothing, and nothing is lost on the way to the bridge.
func TestPolicyVetAfterJSON(t *testing.T) {
	for _, lines := range [][]string{{"*.x.example 10.0.0.0/8", "a.x.example 10.1.2.3"}, {"a.x.example 10.1.2.3", "*.x.example 10.0.0.0/8"}} {
		b, err := json.Marshal(private(t, lines...))
		if err != nil {
			t.Fatal(err)
		}
		var p Policy
		if err := json.Unmarshal(b, &p); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"a.x.example": false, "b.x.example": true, "x.example": false} {
			if _, ok := p.Vet(name, netip.MustParseAddr("10.9.9.9")); ok != want {
				t.Errorf("%s: %s leads to 10.9.9.9: %v", b, name, ok)
			}
		}
	}
}

func TestParsePrivateRefuses(t *testing.T) {
	for _, c := range []struct{ entry, says string }{
		{"", "write an address"}, {"*", "neither an address nor a prefix"}, {"10.*", "neither an address nor a prefix"}, {".", "neither an address nor a prefix"}, {" 10.1.2.3", "neither an address nor a prefix"},
		{"http://10.1.2.3", "neither an address nor a prefix"}, {"u@10.1.2.3", "neither an address nor a prefix"}, {"10.1.2.3\n", "neither an address nor a prefix"}, {"10.1.2.3-9", "is a name"},
		{"10.1.2.3-10.1.2.9", "neither an address nor a prefix"}, {"10.1.2", "neither an address nor a prefix"}, {"010.1.2.3", "neither an address nor a prefix"}, {"0x0a.1", "neither an address nor a prefix"},
		{"167837955", "neither an address nor a prefix"}, {"10.0.0.0/33", "neither an address nor a prefix"}, {"10.0.0.0/", "neither an address nor a prefix"}, {"10.0.0.0/08", "neither an address nor a prefix"},
		{"fd12::/129", "neither an address nor a prefix"}, {"fd12", "is a name"}, {"fd12:3456:/32", "neither an address nor a prefix"}, {strings.Repeat("1.", 5<<10), "neither an address nor a prefix"},
		{"db.lan", "is a name"}, {"db.lan/24", "is a name"}, {"localhost", "is a name"}, {"private", "is a name"}, {"any", "is a name"},
		{"10.1.2.3:5432", `write "10.1.2.3"`}, {"10.0.0.0/8:5432", `write "10.0.0.0/8"`}, {"10.0.0.1/8:5432", `write "10.0.0.0/8"`}, {"[::1]:80", `write "::1"`}, {"[::1]", `write "::1"`},
		{"[fd12::/32]", `write "fd12::/32"`}, {"[::1", `write "10.1.2.3"`}, {"10.1.2.3:0", `write "10.1.2.3"`}, {"db.lan:5432", `write "10.1.2.3"`},
		{"10.0.0.0/255.0.0.0", `"10.0.0.0/8"`}, {"10.1.2.3/255.255.254.0", `"10.1.2.0/23"`}, {"10.0.0.0/0.0.0.255", `"10.1.0.0/16"`}, {"fd12::/ffff::", `"10.1.0.0/16"`},
		{"10.0.0.1/8", `write "10.0.0.0/8"`}, {"fd12:3456::1/32", `write "fd12:3456::/32"`}, {"::ffff:10.1.2.3", `write "10.1.2.3"`}, {"::ffff:10.0.0.0/104", "IPv4 address within IPv6"},
		{"fe80::1%eth0", "zone"}, {"fe80::%eth0/64", "zone"},
		{"0.0.0.0", "cannot be the address of a connection"}, {"0.0.0.0/0", `"10.0.0.0/8"`}, {"0.1.2.3", "cannot be the address of a connection"}, {"::", "cannot be the address of a connection"},
		{"::/0", `"fd00::/8"`}, {"::10.1.2.3", "cannot be the address of a connection"}, {"224.0.0.251", "cannot be the address of a connection"}, {"239.0.0.0/8", "cannot be the address of a connection"},
		{"255.255.255.255", "cannot be the address of a connection"}, {"ff02::1", "cannot be the address of a connection"}, {"ff00::/8", "cannot be the address of a connection"},
		{"8.0.0.0/7", "/8 or longer"}, {"128.0.0.0/1", "/8 or longer"}, {"fc00::/7", "/8 or longer"}, {"2000::/3", "/8 or longer"},
	} {
		p, err := ParsePrivate(c.entry)
		if err == nil {
			t.Errorf("%.80q is accepted as %v", c.entry, p)
		} else if !strings.Contains(err.Error(), c.says) || len(err.Error()) > 300 {
			t.Errorf("%.80q: %v; want it to say %q", c.entry, err, c.says)
		} else if p.IsValid() {
			t.Errorf("%.80q is refused and yet %v", c.entry, p)
		}
	}
}

func TestParsePrivate(t *testing.T) {
	for entry, want := range map[string]string{
		"10.1.2.3": "10.1.2.3/32", "10.1.2.3/32": "10.1.2.3/32", "10.0.0.0/8": "10.0.0.0/8", "127.0.0.1": "127.0.0.1/32", "169.254.169.254": "169.254.169.254/32",
		"::1": "::1/128", "FD12:3456::/32": "fd12:3456::/32", "fd12:3456:0:0::/64": "fd12:3456::/64", "fe80::/10": "fe80::/10", "64:ff9b::/96": "64:ff9b::/96",
	} {
		if p, err := ParsePrivate(entry); err != nil || p.String() != want {
			t.Errorf("%q is read as %v, %v; want %s", entry, p, err, want)
		}
	}
}

func TestFutile(t *testing.T) {
	for prefix, want := range map[string]string{
		"93.184.216.34/32": "is public", "93.0.0.0/8": "is public", "2606:4700::/32": "is public", "2600::/8": "is public",
		"172.0.0.0/8": "172.16.0.0/12", "192.168.0.0/15": "192.168.0.0/16", "169.0.0.0/8": "169.254.0.0/16", "100.0.0.0/8": "100.64.0.0/10", "2001::/16": "2001::/23",
		"10.0.0.0/8": "", "10.1.2.3/32": "", "172.16.0.0/12": "", "127.0.0.0/8": "", "169.254.169.254/32": "", "169.254.0.0/16": "", "fd00::/8": "", "::1/128": "", "4000::/8": "", "64:ff9b::/96": "", "255.0.0.0/8": "",
	} {
		p := netip.MustParsePrefix(prefix)
		why, part := Futile(p)
		if (why == "") != (want == "") || !strings.Contains(why, want) || part.IsValid() != strings.Contains(want, "/") {
			t.Errorf("Futile(%s) = %q, %v; want %q", prefix, why, part, want)
		}
		// What is said to be of no use allows nothing at the edges of any special range, and the rest something.
		policy := Policy{Private: []Private{{Host: "x.example", Prefixes: []netip.Prefix{p}}}}
		used := false
		for _, s := range append(specials[:], special{prefix: p}, special{prefix: netip.MustParsePrefix("64:ff9b::808:0/112")}) {
			for _, a := range []netip.Addr{s.prefix.Addr(), s.prefix.Addr().Next()} {
				if _, ok := Vet(a); !ok && policy.Named("x.example", a) {
					used = true
				}
			}
		}
		if used != (want == "") {
			t.Errorf("%s: of use %v, Futile says %q", prefix, used, why)
		}
	}
}

func FuzzParsePrivate(f *testing.F) {
	for _, s := range []string{"10.1.2.3", "10.0.0.0/8", "fd12:3456::/32", "[::1]:80", "10.0.0.0/255.0.0.0", "db.lan:5432", "fe80::1%eth0", "::ffff:10.1.2.3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePrivate(s)
		if err != nil {
			if p.IsValid() || len(err.Error()) > 600 {
				t.Fatalf("%q: %v, %v", s, p, err)
			}
			return
		}
		if again, err := ParsePrivate(p.String()); err != nil || again != p {
			t.Fatalf("%q is %v, which is read as %v, %v", s, p, again, err)
		}
		if p.Masked() != p || p.Bits() < minPrefix || p.Addr().Is4In6() || neverADestination(p.Addr()) {
			t.Fatalf("%q is accepted as %v", s, p)
		}
		policy := Policy{Private: []Private{{Host: "x.example", Prefixes: []netip.Prefix{p}}}}
		if policy.Named("y.example", p.Addr()) || policy.Named("x.example", netip.MustParseAddr("::ffff:127.0.0.1")) {
			t.Fatalf("%v allows too much", p)
		}
	})
}

func BenchmarkPolicyVet(b *testing.B) {
	p := private(b, "a.example 10.1.2.3", "*.corp.example 10.0.0.0/8", "db.lan 192.168.1.1")
	a := netip.MustParseAddr("192.168.1.1")
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := p.Vet("db.lan", a); !ok {
			b.Fatal()
		}
	}
}
