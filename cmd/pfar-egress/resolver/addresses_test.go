package resolver

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/policies/egress"
)

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

func TestAddressesRefuse(t *testing.T) {
	p := policy(t, declaredHere...)
	for _, learn := range []bool{false, true} {
		p.Learn = learn
		a := newAddresses(t, p, filepath.Join(t.TempDir(), "leases"))
		for _, name := range []string{
			"", ".", "api.example.com.", "API.example.com", "*.wild.example.org", ".wild.example.org", "A.wild.example.org",
			"a.wild.example.org.", "a b.wild.example.org", "a\n.wild.example.org", "a_b.wild.example.org", "bücher.example", "xn--a.example",
			"192.0.2.7", "10.1.2.3", "127.0.0.1", "2001:db8::1", "2001:db8::1%lo", "1", "0x7f000001",
			"localhost", "a.localhost", "1.1.18.198.in-addr.arpa", "in-addr.arpa", "x.ip6.arpa", longest + "t",
		} {
			if v4, v6, err := a.Of(name); !errors.Is(err, ErrNotDeclared) || v4.IsValid() || v6.IsValid() {
				t.Errorf("%q, learn %t: %v, %v, %v", name, learn, v4, v6, err)
			}
		}
		for _, name := range []string{"evil.test", "wild.example.org", "a.b.wild.example.org", "example.com"} {
			if v4, _, err := a.Of(name); (err == nil) != learn || v4.IsValid() != learn {
				t.Errorf("%q, learn %t: %v, %v", name, learn, v4, err)
			}
		}
	}
	var zero egress.Policy
	if _, _, err := newAddresses(t, zero, "").Of("api.example.com"); !errors.Is(err, ErrNotDeclared) {
		t.Error(err)
	}
}

func TestNameRefuses(t *testing.T) {
	a := newAddresses(t, policy(t, declaredHere...), "")
	if _, _, err := a.Of("a.wild.example.org"); err != nil {
		t.Fatal(err)
	}
	for _, addr := range append(addrs(
		"0.0.0.0", "127.0.0.1", "192.0.2.7", "255.255.255.255",
		"198.18.0.0", "198.18.0.1", "198.18.1.0", // before the first
		"198.18.1.3",                                            // a wildcard's position
		"198.18.1.4",                                            // the second port of a name
		"198.18.1.6", "198.18.1.7", "198.18.1.8", "198.18.1.11", // of literals, and behind the last
		"198.18.255.255", "198.19.0.0", "198.19.0.2", "198.19.16.0", "198.19.16.1", "198.19.255.255", "198.20.0.1", "198.17.255.255",
		"::", "::1", "2001:2::", "2001:2::1", "2001:2::c612:100", "2001:2::1:c612:101", "2001:2:0:0:1::c612:101", "2001:2:1::c612:101",
		"2001:3::c612:101", "::c612:101", "64:ff9b::c612:101", "::ffff:198.18.1.0", "2001:2::c612:101%lo", "::ffff:198.18.1.1%lo",
	), netip.Addr{}) {
		if name, ok := a.Name(addr); ok || name != "" {
			t.Errorf("%v is %q", addr, name)
		}
	}
}

func TestAddresses(t *testing.T) {
	a := newAddresses(t, policy(t, declaredHere...), "")
	for range 2 {
		for _, c := range []struct{ name, v4, v6 string }{
			{"api.example.com", "198.18.1.1", "2001:2::c612:101"},
			{"db.lan", "198.18.1.2", "2001:2::c612:102"},
			{"xn--bcher-kva.example", "198.18.1.5", "2001:2::c612:105"},
			{"printer", "198.18.1.9", "2001:2::c612:109"},
			{"b.wild.example.org", "198.19.0.1", "2001:2::c613:1"},
			{"a.wild.example.org", "198.19.0.2", "2001:2::c613:2"},
		} {
			v4, v6, err := a.Of(c.name)
			if err != nil || v4.String() != c.v4 || v6.String() != c.v6 {
				t.Errorf("%q: %v, %v, %v", c.name, v4, v6, err)
			}
			if !egress.SyntheticIPv4().Contains(v4) || !egress.SyntheticIPv6().Contains(v6) {
				t.Errorf("%q: %v, %v", c.name, v4, v6)
			}
			for _, addr := range []netip.Addr{v4, v6, netip.AddrFrom16(v4.As16())} {
				if name, ok := a.Name(addr); !ok || name != c.name {
					t.Errorf("%v: %q, %t", addr, name, ok)
				}
			}
		}
	}
}

func TestAddressesEnd(t *testing.T) {
	var p egress.Policy
	for i := range lastExact - firstExact + 1 {
		p.Endpoints = append(p.Endpoints, egress.Endpoint{Host: fmt.Sprintf("n%d.test", i)})
	}
	v4, _, err := newAddresses(t, p, "").Of("n65278.test")
	if err != nil || v4.String() != "198.18.255.255" {
		t.Errorf("%v, %v", v4, err)
	}
	p.Endpoints = append(p.Endpoints, egress.Endpoint{Host: "n0.test", Port: 22}, egress.Endpoint{Host: "one-more.test", Wildcard: true})
	if _, err := NewAddresses(p, ""); err != nil { // neither needs an address of its own
		t.Error(err)
	}
	p.Endpoints = append(p.Endpoints, egress.Endpoint{Host: "one-more.test"})
	if _, err := NewAddresses(p, ""); err == nil || !strings.Contains(err.Error(), `"one-more.test" is entry 65282`) {
		t.Error(err)
	}
}

// A file is there only for who needs it.
func TestNoFileWithoutWildcard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	newAddresses(t, policy(t, "api.example.com", "10.0.0.0/8"), path)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestAddressesConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	p := policy(t, declaredHere...)
	p.Learn = true
	a := newAddresses(t, p, path)
	const clients, names = 8, 300
	got := make([][names]netip.Addr, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range names {
				name := fmt.Sprintf("n%d.test", (i*7+c*31)%names)
				v4, v6, err := a.Of(name)
				if err != nil {
					t.Error(err)
					return
				}
				got[c][(i*7+c*31)%names] = v4
				if back, ok := a.Name(v6); !ok || back != name {
					t.Errorf("%v: %q, want %q", v6, back, name)
				}
				if v4, _, err := a.Of("api.example.com"); err != nil || v4.String() != "198.18.1.1" {
					t.Errorf("%v, %v", v4, err)
				}
			}
		})
	}
	wg.Wait()
	one := map[netip.Addr]bool{}
	for c := range clients {
		if got[c] != got[0] {
			t.Errorf("client %d was told other addresses", c)
		}
	}
	for _, addr := range got[0] {
		one[addr] = true
	}
	if len(one) != names {
		t.Errorf("%d addresses for %d names", len(one), names)
	}
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), "\n") != names {
		t.Errorf("%d lines for %d names, %v", strings.Count(string(b), "\n"), names, err)
	}
}
