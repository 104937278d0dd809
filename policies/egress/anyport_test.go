package egress

import "testing"

// TestAnyPort wants "host:*" to allow every port of that host, and nothing of others, and blocked ports to win.
func TestAnyPort(t *testing.T) {
	p := policy(t, "docs.test:*", "*.wild.test:*", "10.1.0.0/16:*")
	p.Blocked = policy(t, "docs.test:22", "gone.wild.test:*").Endpoints
	for _, c := range []struct {
		host  string
		port  uint16
		allow bool
	}{
		{"docs.test", 0, false}, {"docs.test", 22, false}, {"evil.test", 8443, false}, {"wild.test", 1, false}, {"10.2.0.1", 1, false}, {"gone.wild.test", 443, false},
		{"docs.test", 80, true}, {"docs.test", 443, true}, {"docs.test", 65535, true}, {"a.wild.test", 1, true}, {"10.1.2.3", 5432, true},
	} {
		if d := p.Decide(c.host, c.port); (d.Verdict == Allow) != c.allow {
			t.Errorf("%s:%d: %+v", c.host, c.port, d)
		}
	}
	for _, r := range (Policy{Endpoints: policy(t, "10.1.0.0/16:*").Endpoints}).literals() {
		if r.Port != 0 || r.Protocol != "tcp" || r.Action != Redirect {
			t.Errorf("an address with every port: %+v", r)
		}
	}
	if (Endpoint{AnyPort: true}).String() != "" {
		t.Error("the zero value has a name")
	}
	if d := (Policy{Endpoints: []Endpoint{{AnyPort: true}}}).Decide("x.test", 443); d.Verdict != Deny {
		t.Errorf("the zero value allows: %+v", d)
	}
}
