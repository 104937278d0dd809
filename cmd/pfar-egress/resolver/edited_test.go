package resolver

import (
	"errors"
	"testing"

	"github.com/pfar/pfar/policies/egress"
)

// TestEditedPolicy: while a server runs, an address that it has looked up never becomes another name's.
func TestEditedPolicy(t *testing.T) {
	policy := func(before *egress.Policy, names ...string) *egress.Policy {
		p := new(egress.Policy)
		for _, n := range names {
			e, err := egress.ParseEndpoint(n)
			if err != nil {
				t.Fatal(err)
			}
			p.Endpoints = append(p.Endpoints, e)
		}
		if before != nil {
			p.Names = p.NamesAfter(*before)
		}
		return p
	}
	of := func(p *egress.Policy) *Addresses {
		a, err := NewAddresses(*p, "")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := policy(nil, "10.0.0.1:99", "a.example", "b.example")
	gone, _, _ := of(first).Of("a.example")
	stays, _, _ := of(first).Of("b.example")

	for _, c := range []struct{ declared []string }{
		{[]string{"b.example"}}, {[]string{"c.example", "b.example"}}, {[]string{"c.example", "10.0.0.1:99", "b.example", "d.example"}},
	} {
		p := policy(first, c.declared...)
		for range 2 { // an edit after that makes no difference
			a := of(p)
			if name, ok := a.Name(gone); ok {
				t.Errorf("%q: the address of a name that is gone is that of %q", c.declared, name)
			}
			if _, _, err := a.Of("a.example"); !errors.Is(err, ErrNotDeclared) {
				t.Errorf("%q: a name that is gone: %v", c.declared, err)
			}
			if name, _ := a.Name(stays); name != "b.example" {
				t.Errorf("%q: the address of b.example is that of %q", c.declared, name)
			}
			for _, e := range p.Endpoints {
				if e.Host == "" {
					continue
				}
				v4, _, err := a.Of(e.Host)
				if name, ok := a.Name(v4); err != nil || !ok || name != e.Host {
					t.Errorf("%q: %s has %v, which is that of %q, %v", c.declared, e.Host, v4, name, err)
				}
			}
			p = policy(p, append([]string{"z.example"}, c.declared...)...)
		}
		if name, _ := of(policy(p, "a.example")).Name(gone); name != "a.example" {
			t.Errorf("%q: once it is declared again, its address is that of %q", c.declared, name)
		}
	}
}
