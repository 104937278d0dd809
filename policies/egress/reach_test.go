package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAdmit(t *testing.T) {
	p := policy(t, "api.example.com", "*.example.org", "db.lan:5432", "10.1.0.0/16:22", "127.0.0.1:11434",
		"127.0.0.1:19275", "127.0.0.0/8:*", "[::1]:*", "dev.test:*", "198.51.100.1:443", "203.0.113.0/24")
	all := netip.MustParsePrefix
	p.Private = []Private{
		{Host: "db.lan", Prefixes: []netip.Prefix{all("10.2.0.0/16")}},
		{Host: "dev.test", Prefixes: []netip.Prefix{all("127.0.0.0/8"), all("::1/128")}},
	}
	proxies := []Proxy{{"proxy.corp", 3128}, {"10.9.9.9", 8080}, {}}
	own := func(a netip.Addr) bool {
		return strings.HasPrefix(a.String(), "127.") || a == netip.MustParseAddr("10.1.0.5") || a == netip.MustParseAddr("93.184.216.99")
	}
	for _, c := range []struct {
		name  string
		port  uint16
		addrs string
		why   string // "": admitted
	}{
		{"api.example.com", 443, "93.184.216.34 2606:2800:220::1", ""},
		{"api.example.com", 80, "93.184.216.34", ""},
		{"x.example.org", 443, "93.184.216.34", ""},
		{"db.lan", 5432, "10.2.3.4 93.184.216.34", ""},
		{"10.1.2.3", 22, "10.1.2.3", ""},
		{"127.0.0.1", 11434, "127.0.0.1", ""},
		{"127.0.0.1", 19274, "127.0.0.1", ""},
		{"127.0.0.1", 19339, "127.0.0.1", ""},
		{"::1", 19274, "::1", ""},
		{"dev.test", 19274, "127.0.0.1 ::1", ""},
		{"dev.test", 19300, "93.184.216.34", ""},
		{"proxy.corp", 3128, "10.0.0.1 93.184.216.34 127.0.0.1 fd00::1", ""},
		{"Proxy.Corp", 3128, "10.0.0.1", ""},
		{"10.9.9.9", 8080, "10.9.9.9", ""},

		{"127.0.0.1", 19275, "127.0.0.1", "page"},
		{"127.0.0.1", 19338, "127.0.0.1", "page"},
		{"127.1.2.3", 19300, "127.1.2.3", "page"},
		{"::1", 19275, "::1", "page"},
		{"dev.test", 19300, "127.0.0.1", "page"},
		{"dev.test", 19300, "93.184.216.34 ::1", "page"},
		{"api.example.com", 443, "", "without an address"},
		{"", 443, "93.184.216.34", BadName},
		{"", 0, "93.184.216.34", BadName},
		{"api.example.com", 8443, "93.184.216.34", PortNotDeclared},
		{"other.example.com", 443, "93.184.216.34", NameNotDeclared},
		{"example.org", 443, "93.184.216.34", NameNotDeclared},
		{"api.example.com", 443, "93.184.216.34 169.254.169.254", "metadata"},
		{"api.example.com", 443, "10.2.3.4", "private"},
		{"api.example.com", 443, "::ffff:93.184.216.34", "ipv4-embedded"},
		{"api.example.com", 443, "fe80::1%eth0", "not-an-address"},
		{"api.example.com", 443, "93.184.216.99", "own"},
		{"db.lan", 5432, "10.3.3.4", "private"},
		{"10.1.2.3", 22, "10.1.2.4", "another-address"},
		{"10.1.2.3", 22, "10.1.2.3 93.184.216.34", "another-address"},
		{"10.1.0.5", 22, "10.1.0.5", "own"},
		{"10.1.2.3", 443, "10.1.2.3", PortNotDeclared},
		{"93.184.216.34", 443, "93.184.216.34", AddressLiteral},
		{"proxy.corp", 443, "10.0.0.1", NameNotDeclared},
		{"proxy.corp", 3128, "169.254.169.254", "not the address of a proxy"},
		{"proxy.corp", 3128, "224.0.0.1", "not the address of a proxy"},
		{"proxy.corp", 3128, "fe80::1%eth0", "not the address of a proxy"},
		{"10.9.9.9", 8080, "10.9.9.8", "not the address of the proxy"},
	} {
		var addrs []netip.Addr
		for _, s := range strings.Fields(c.addrs) {
			addrs = append(addrs, netip.MustParseAddr(s))
		}
		err := p.Admit(c.name, c.port, addrs, proxies, own)
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%q, port %d, at %s: %v, want %q", c.name, c.port, c.addrs, err, c.why)
		}
		if err := (Policy{Learn: true}).Admit(c.name, c.port, addrs, nil, own); err == nil {
			t.Errorf("who only learns is let to %q, port %d, at %s", c.name, c.port, c.addrs)
		}
	}
}

func TestReachNeedsADecisionThatAllows(t *testing.T) {
	nowhere := func(netip.Addr) bool { return false }
	if reason, ok := (Policy{}).Reach(Decision{Host: "api.example.com", Reason: NameNotDeclared}, 443, netip.MustParseAddr("93.184.216.34"), nowhere); ok || reason != NameNotDeclared {
		t.Errorf("what is denied reaches: %q, %v", reason, ok)
	}
}
