package generator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units/plan"
)

// Terms are what a declaration says that decides where a secret goes which its server is given: what runs, whom it
// reaches, and whether the secret enters the sandbox. What was given on some terms is not given on others before the
// owner agrees.
type Terms struct {
	Command []string `json:"command"`           // with its arguments
	Env     string   `json:"env,omitempty"`     // digest of the declared variables
	Allowed []string `json:"allowed,omitempty"` // allowed_domains
	Blocked []string `json:"blocked,omitempty"` // blocked_domains
	Private []string `json:"private,omitempty"` // allow_private: NAME at PREFIX
	Names   []string `json:"names,omitempty"`   // of the credentials that the secret is
	Wire    []string `json:"wire,omitempty"`    // where its bridge puts the secret, which is nowhere else; none: the sandbox has it
	CA      string   `json:"ca,omitempty"`      // digest of the authorities that its bridge takes, if not the system's
	Pins    []string `json:"pins,omitempty"`    // HOST PIN: the keys that its bridge takes of these hosts (tls_pins)
}

// Terms are those on which the server gets what the vault has under a key.
func TermsOf(p plan.Plan, key string) Terms {
	t := Terms{Command: append([]string{p.Sandbox.Command}, p.Sandbox.Args...), Env: p.Setting}
	for _, e := range p.Egress.Endpoints {
		t.Allowed = append(t.Allowed, e.String())
	}
	for _, e := range p.Egress.Blocked {
		t.Blocked = append(t.Blocked, e.String())
	}
	for _, x := range p.Egress.Private {
		name := x.Host
		if x.Wildcard {
			name = "*." + name
		}
		for _, prefix := range x.Prefixes {
			t.Private = append(t.Private, name+" at "+prefix.String())
		}
	}
	inside := false
	for _, c := range p.Credentials {
		if c.Key != key {
			continue
		}
		t.Names = append(t.Names, c.Name)
		inside = inside || c.Deliver != broker.OnWire
		for _, h := range c.Hosts {
			for _, place := range c.Places {
				t.Wire = append(t.Wire, strings.TrimSuffix(string(place.Part)+" "+place.Name, " ")+" of "+h.String())
			}
			if own := p.CA[h.Host]; own != "" {
				t.CA = digest(own)
			}
			for _, pin := range p.TLSPins[h.Host] {
				t.Pins = append(t.Pins, h.Host+" "+pin.String())
			}
		}
	}
	if inside {
		t.Wire = nil
	}
	return t
}

// Beyond says in words what of t goes beyond what was agreed to, each with the declaration's key that says it; nothing:
// t are the same terms, or narrower ones.
func (t Terms) Beyond(agreed Terms) []Excess {
	var list []Excess
	if !slices.Equal(t.Command, agreed.Command) {
		list = append(list, Excess{"command", fmt.Sprintf("the command was %s and is %s", words(agreed.Command), words(t.Command))})
	}
	if t.Env != agreed.Env {
		list = append(list, Excess{"env", "env is another one"})
	}
	more := func(key, what string, now, before []string) {
		if now = without(now, before); len(now) > 0 {
			list = append(list, Excess{key, what + " " + words(now)})
		}
	}
	more("allowed_domains", "it also reaches", t.Allowed, agreed.Allowed)
	more("blocked_domains", "it no longer blocks", agreed.Blocked, t.Blocked)
	more("allow_private", "it also reaches", t.Private, agreed.Private)
	more("auth", "the secret is also", t.Names, agreed.Names)
	if t.CA != agreed.CA {
		list = append(list, Excess{"ca", "its bridge trusts other authorities"})
	}
	more("tls_pins", "its bridge no longer wants a certain key of", pinned(agreed.Pins), pinned(t.Pins))
	more("tls_pins", "its bridge also takes", without(t.Pins, agreed.Pins), unpinned(t.Pins, agreed.Pins))
	switch {
	case len(agreed.Wire) == 0: // the sandbox had it, and nothing is closer
	case len(t.Wire) == 0:
		list = append(list, Excess{"auth", "the secret enters the sandbox, and its bridge alone had it"})
	default:
		more("auth", "its bridge also puts the secret into", t.Wire, agreed.Wire)
	}
	return list
}

// pinned are the hosts of pins.
func pinned(pins []string) (hosts []string) {
	for _, p := range pins {
		host, _, _ := strings.Cut(p, " ")
		hosts = append(hosts, host)
	}
	return slices.Compact(hosts)
}

// unpinned are those of pins whose hosts had none before: they narrow.
func unpinned(pins, before []string) []string {
	return slices.DeleteFunc(slices.Clone(pins), func(p string) bool {
		host, _, _ := strings.Cut(p, " ")
		return slices.Contains(pinned(before), host)
	})
}

// String says in words what t are, for who has not agreed to any.
func (t Terms) String() string {
	s := "runs " + words(t.Command)
	if len(t.Allowed) > 0 {
		s += ", reaches " + words(t.Allowed)
	}
	if len(t.Wire) > 0 {
		s += ", and its bridge puts the secret into " + words(t.Wire)
	}
	return s
}

// Excess is one thing that was not agreed to.
type Excess struct {
	Key  string // of the declaration: "command"
	What string // in words
}

func words(list []string) string {
	quoted := make([]string, len(list))
	for i, w := range list {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}

func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(others, s) })
}
