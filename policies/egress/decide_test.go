package egress

import (
	"encoding/json"
	"testing"
)

func policy(t testing.TB, entries ...string) Policy {
	t.Helper()
	var p Policy
	for _, s := range entries {
		e, err := ParseEndpoint(s)
		if err != nil {
			t.Fatal(err)
		}
		p.Endpoints = append(p.Endpoints, e)
	}
	return p
}

func TestZeroValuesDeny(t *testing.T) {
	for _, p := range []Policy{{}, {Endpoints: []Endpoint{{}}}, {Endpoints: []Endpoint{{Wildcard: true}}}, {Endpoints: []Endpoint{{Port: 443}}}} {
		for _, host := range []string{"", "x.example", ".x.example", "x.", "192.0.2.7", "::1", "*"} {
			if d := p.Decide(host, 443); d.Verdict != Deny || d.Reason == "" {
				t.Errorf("%+v allows %q: %+v", p, host, d)
			}
		}
	}
	if Verdict(0) != Deny || Verdict(7).String() != "deny" || (Decision{}).Verdict != Deny {
		t.Error("the zero value does not deny")
	}
}

func TestDecide(t *testing.T) {
	p := policy(t, "api.allowed.test", "*.wild.allowed.test", "db.lan:5432", "bücher.allowed.test", "dual.test:8443", "dual.test:9443",
		"10.1.0.0/16:5432", "93.184.216.34", "169.254.169.254:80", "169.0.0.0/8", "2606:4700::/32", "64:ff9b::/96", "[fd00::/8]:443", "127.0.0.1:11434")
	for _, c := range []struct {
		host   string
		port   uint16
		reason string
		rule   string
	}{
		{"evil.test", 443, NameNotDeclared, ""},
		{"c2VjcmV0.evil.test", 443, NameNotDeclared, ""},
		{"api.allowed.test.evil.test", 443, NameNotDeclared, ""},
		{"evilapi.allowed.test", 443, NameNotDeclared, ""},
		{"www.allowed.test", 443, NameNotDeclared, ""},
		{"allowed.test", 443, NameNotDeclared, ""},
		{"x.api.allowed.test", 443, NameNotDeclared, ""},
		{"wild.allowed.test", 443, NameNotDeclared, ""},
		{"a.b.wild.allowed.test", 443, NameNotDeclared, ""},
		{"*.wild.allowed.test", 443, BadName, ""},
		{"xwild.allowed.test", 443, NameNotDeclared, ""},
		{"api.allowed.test", 22, PortNotDeclared, "api.allowed.test"},
		{"api.allowed.test", 0, PortNotDeclared, "api.allowed.test"},
		{"db.lan", 443, PortNotDeclared, "db.lan:5432"},
		{"dual.test", 443, PortNotDeclared, "dual.test:8443"},
		{"api..allowed.test", 443, BadName, ""},
		{"api.allowed.test..", 443, BadName, ""},
		{".wild.allowed.test", 443, BadName, ""},
		{".", 443, BadName, ""},
		{"", 443, BadName, ""},
		{"evil.test\x00.wild.allowed.test", 443, BadName, ""},
		{"api%2eallowed.test", 443, BadName, ""},
		{"evil.test#.wild.allowed.test", 443, BadName, ""},
		{"api.allowed.test@evil.test", 443, BadName, ""},
		{"api.allowed.test ", 443, BadName, ""},
		{"api.allowed.test\r", 443, BadName, ""},
		{"api_.wild.allowed.test", 443, BadName, ""},
		{"xn--.wild.allowed.test", 443, BadName, ""},
		{"xn--api.allowed.test", 443, BadName, ""},
		{"аpi.allowed.test", 443, NameNotDeclared, ""},            // Cyrillic
		{"evil.test。wild.allowed.test", 443, NameNotDeclared, ""}, // ideographic full stop: two labels
		{"localhost", 443, NameNotDeclared, ""},
		{"2130706433", 80, BadName, ""}, {"0x7f000001", 80, BadName, ""}, {"0177.0.0.1", 80, BadName, ""}, {"127.1", 80, BadName, ""},
		{"0", 80, BadName, ""}, {"2852039166", 80, BadName, ""}, {"127.0.0.1.", 80, BadName, ""}, {"１０.1.0.1", 5432, BadName, ""},
		{"127.0.0.1", 80, PortNotDeclared, "127.0.0.1:11434"},
		{"127.0.0.2", 11434, AddressLiteral, ""},
		{"::1", 80, AddressLiteral, ""}, {"[::1]", 80, BadName, ""},
		{"::ffff:127.0.0.1", 11434, AddressLiteral, ""}, {"::ffff:93.184.216.34", 443, AddressLiteral, ""},
		{"10.0.255.255", 5432, AddressLiteral, ""}, {"10.2.0.0", 5432, AddressLiteral, ""}, {"10.1.0.1", 443, PortNotDeclared, "10.1.0.0/16:5432"},
		{"169.254.0.1", 80, AddressLiteral, ""},    // within 169.0.0.0/8, which does not name it
		{"169.254.170.2", 80, AddressLiteral, ""},  // nor the other metadata service
		{"fd00:ec2::254", 443, AddressLiteral, ""}, // fd00::/8 names private networks, not the metadata service
		{"fd00::1%eth0", 443, AddressLiteral, ""},  // a zone
		{"2606:4700::1%eth0", 443, AddressLiteral, ""},
		{"0.0.0.0", 80, AddressLiteral, ""},

		{"api.allowed.test", 443, Declared, "api.allowed.test"},
		{"api.allowed.test", 80, Declared, "api.allowed.test"},
		{"API.Allowed.TEST", 443, Declared, "api.allowed.test"},
		{"api.allowed.test.", 443, Declared, "api.allowed.test"},
		{"x.wild.allowed.test", 443, Declared, "*.wild.allowed.test"},
		{"bücher.allowed.test", 443, Declared, "xn--bcher-kva.allowed.test"},
		{"xn--bcher-kva.allowed.test", 443, Declared, "xn--bcher-kva.allowed.test"},
		{"XN--BCHER-KVA.allowed.test", 443, Declared, "xn--bcher-kva.allowed.test"},
		{"api。allowed。test", 443, Declared, "api.allowed.test"},
		{"db.lan", 5432, Declared, "db.lan:5432"},
		{"dual.test", 9443, Declared, "dual.test:9443"},
		{"10.1.255.255", 5432, Declared, "10.1.0.0/16:5432"},
		{"93.184.216.34", 443, Declared, "93.184.216.34"},
		{"169.254.169.254", 80, Declared, "169.254.169.254:80"},
		{"169.1.2.3", 443, Declared, "169.0.0.0/8"},
		{"2606:4700::1111", 443, Declared, "2606:4700::/32"},
		{"2606:4700:0:0:0:0:0:1111", 443, Declared, "2606:4700::/32"},
		{"fd00::1", 443, Declared, "[fd00::/8]:443"},
		{"127.0.0.1", 11434, Declared, "127.0.0.1:11434"},
	} {
		d := p.Decide(c.host, c.port)
		if d.Reason != c.reason || d.Rule != c.rule || (d.Verdict == Allow) != (c.reason == Declared) {
			t.Errorf("Decide(%q, %d) = %v %q by %q; want %q by %q", c.host, c.port, d.Verdict, d.Reason, d.Rule, c.reason, c.rule)
		}
		if d.Verdict == Allow && d.Host == "" {
			t.Errorf("Decide(%q, %d) allows no host", c.host, c.port)
		}
	}
}

func TestDecideAfterJSON(t *testing.T) {
	b, err := json.Marshal(policy(t, "*.x.example:8443", "10.1.0.0/16", "y.example"))
	if err != nil {
		t.Fatal(err)
	}
	var p Policy
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	for host, port := range map[string]uint16{"a.x.example": 8443, "10.1.2.3": 443, "y.example": 80} {
		if d := p.Decide(host, port); d.Verdict != Allow {
			t.Errorf("%s:%d is refused after %s: %+v", host, port, b, d)
		}
	}
}

func TestSameHost(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"x.example", "X.example.", true}, {"bücher.example", "xn--bcher-kva.example", true}, {"192.0.2.7", "192.0.2.7", true}, {"2001:db8::1", "2001:DB8:0::1", true},
		{"x.example", "y.example", false}, {"", "", false}, {"a b", "a b", false}, {"192.0.2.7", "::ffff:192.0.2.7", false}, {"x.example", "192.0.2.7", false}, {"192.0.2.7", "x", false},
	} {
		if SameHost(c.a, c.b) != c.same {
			t.Errorf("SameHost(%q, %q) is %v", c.a, c.b, !c.same)
		}
	}
}

func FuzzDecide(f *testing.F) {
	p := policy(f, "api.allowed.test", "*.wild.allowed.test", "bücher.allowed.test")
	for _, s := range []string{"api.allowed.test", "API.allowed.test.", "bücher.allowed.test", "evil.test\x00.wild.allowed.test", "a。wild.allowed.test", "xn--a.wild.allowed.test"} {
		f.Add(s, uint16(443))
	}
	f.Fuzz(func(t *testing.T, host string, port uint16) {
		d := p.Decide(host, port)
		if d.Verdict != Allow {
			return
		}
		if port != 443 && port != 80 {
			t.Fatalf("port %d is allowed", port)
		}
		if err := checkName(d.Host); err != nil { // what goes to the resolver is what any resolver reads alike
			t.Fatalf("%q is allowed as %q, which %v", host, d.Host, err)
		}
		if again := p.Decide(d.Host, port); again != d {
			t.Fatalf("%q is allowed as %q, which is %+v", host, d.Host, again)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	p := policy(b, "a.example", "b.example", "*.c.example", "10.0.0.0/8:5432", "api.notion.com")
	b.ReportAllocs()
	for b.Loop() {
		if d := p.Decide("api.notion.com", 443); d.Verdict != Allow {
			b.Fatal(d)
		}
	}
}

func BenchmarkDecideRefused(b *testing.B) {
	p := policy(b, "a.example", "b.example", "*.c.example", "10.0.0.0/8:5432", "api.notion.com")
	b.ReportAllocs()
	for b.Loop() {
		if d := p.Decide("c2VjcmV0.evil.example", 443); d.Verdict != Deny {
			b.Fatal(d)
		}
	}
}

func BenchmarkVet(b *testing.B) {
	a := policy(b, "93.184.216.34").Endpoints[0].Prefix.Addr()
	for b.Loop() {
		if _, ok := Vet(a); !ok {
			b.Fatal()
		}
	}
}

// TestBlocked: what is blocked is refused whatever allows it, and the rest is not.
func TestBlocked(t *testing.T) {
	p := policy(t, "example.com", "*.example.com", "api.example.com:8443", "192.0.2.7")
	p.Blocked = policy(t, "ads.example.com", "api.example.com:80", "*.cdn.example.com").Endpoints
	for _, c := range []struct {
		host   string
		port   uint16
		reason string
	}{
		{"ads.example.com", 443, NameBlocked}, {"ADS.example.com.", 80, NameBlocked}, {"ads.example.com", 0, NameBlocked}, {"ads.example.com", 8443, NameBlocked},
		{"api.example.com", 80, NameBlocked}, {"x.cdn.example.com", 443, NameBlocked}, {"a.b.cdn.example.com", 443, NameBlocked},
		{"api.example.com", 443, Declared}, {"api.example.com", 8443, Declared}, {"api.example.com", 0, PortNotDeclared}, {"cdn.example.com", 443, Declared}, {"xads.example.com", 443, Declared},
		{"xcdn.example.com", 443, Declared}, {"example.com", 443, Declared}, {"192.0.2.7", 443, Declared}, {"evil.test", 443, NameNotDeclared},
	} {
		if d := p.Decide(c.host, c.port); d.Reason != c.reason || (d.Verdict == Allow) != (c.reason == Declared) {
			t.Errorf("%s:%d is %s (%s), want %s", c.host, c.port, d.Verdict, d.Reason, c.reason)
		}
	}
	if !(&Endpoint{Host: "a.test"}).blocks("a.test", 1) || (&Endpoint{}).blocks("", 0) {
		t.Error("an entry without a port blocks all, and the empty one nothing")
	}
}
