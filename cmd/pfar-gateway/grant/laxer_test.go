package grant

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/operator"
)

// means are all that may make a decision laxer: what the sandbox says of a server, that its writes can be taken back,
// the profile everyday in place of balanced, and a grant.
type means struct {
	bound   gate.Confinement
	kept    bool
	profile string
	granted bool
}

// laxness orders what becomes of a call, strictest first.
type laxness int

const (
	denied    laxness = iota
	askedOnce         // the trifecta row
	asked
	granted // a person is asked once for many
	inspected
	allowed
)

func laxnessOf(d gate.Decision) laxness {
	switch {
	case d.Verdict == gate.Ask && d.Once:
		return askedOnce
	case d.Verdict == gate.Ask:
		return asked
	case d.Verdict == gate.Inspect:
		return inspected
	case d.Verdict == gate.Allow:
		return allowed
	}
	return denied
}

// worded is a policy with the shipped profiles, and with a service for each combination of facts.
func worded(t *testing.T) *gate.Policy {
	p := policies.Load(nil, "").Policy
	if p == nil {
		t.Fatal("there is no policy")
	}
	p.Services = map[string]gate.Service{}
	for w := range facts {
		w.From = "service: x"
		p.Services[serviceOf(w)] = gate.Service{Words: []gate.Word{w}}
	}
	return p
}

func serviceOf(w gate.Word) string { return fmt.Sprint(w.Confidentiality, w.Audience, w.Effect) }

// facts yields words with all combinations of facts; 0 is not said.
func facts(yield func(gate.Word) bool) {
	for label := gate.Public; label <= gate.Secret; label++ {
		for audience := gate.Confidentiality(0); audience <= gate.Sensitive; audience++ {
			for effect := gate.Effect(0); effect <= gate.Irreversible; effect++ {
				if !yield(gate.Word{Confidentiality: label, Audience: audience, Effect: effect}) {
					return
				}
			}
		}
	}
}

// offers yields tools. The owner or a service declares all or some of their facts; for the others there are the
// server's own hints, or nothing.
func offers(yield func(gate.Offer) bool) {
	yes, no := true, false
	for w := range facts {
		w.From = "owner: x"
		owner := gate.Declared{Server: "s", Service: "none", Words: []gate.Word{w}}
		for _, by := range []gate.Declared{owner, {Server: "s", Service: serviceOf(w)}} {
			for _, hints := range []*gate.Hints{nil, {ReadOnly: &yes}, {OpenWorld: &no}, {ReadOnly: &yes, OpenWorld: &no}} {
				hinted := hints != nil && (hints.ReadOnly != nil && w.Effect != 0 || hints.OpenWorld != nil && w.Audience != 0)
				if !hinted && !yield(gate.Offer{Server: by, Name: "x", Hints: hints}) {
					return
				}
			}
		}
	}
}

// sessions are all that a session can have seen, with and without free text and something like a secret.
func sessions(yield func(gate.Label, gate.Arguments) bool) {
	for c := gate.Public; c <= gate.Secret; c++ {
		for i := gate.Clean; i <= gate.Raw; i++ {
			for _, a := range []gate.Arguments{{}, {FreeText: true}, {Pattern: "token"}} {
				if !yield(gate.Label{Confidentiality: c, Integrity: i}, a) {
					return
				}
			}
		}
	}
}

// call is a call of a tool by these means, decided.
func (m means) call(p *gate.Policy, o gate.Offer, l gate.Label, a gate.Arguments) *operator.Request {
	o.Confined, o.Server.Kept = m.bound, m.kept
	f := p.Resolve(o)
	c := gate.Call{Client: "laptop", Server: "s", Name: "x", Method: "tools/call", Facts: f, Arguments: a}
	c.Pinned, c.Schema, c.Audit = true, true, true
	return with(func(r *operator.Request) {
		r.Server, r.Name, r.Policy, r.Facts, r.Plain = "s", "x", p.Digest, f, f
		r.Decision = p.Decide(gate.Session{Profile: m.profile, Label: l}, c)
	})
}

// becomes says what becomes of a call for which a person gives the widest grant there can be, if one is to be given. No
// word of the call is known to be private.
func (m means) becomes(b *bench, q *operator.Request) laxness {
	without := laxnessOf(q.Decision)
	if !m.granted {
		return without
	}
	b.RevokeAll()
	for _, public := range []bool{false, true} {
		if d, err := b.Draft(q, operator.GrantTerms{Public: public}, ann); err == nil {
			if err := b.Add(d); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	if !b.covers(q) {
		return without
	}
	return max(without, granted)
}

// TestLaxerByNothingElse decides every call by every profile, with and without each means, alone and together. What is
// laxer than before is so by a means that may make it so: a sandbox by its audience, undo for a server that reaches
// nothing, everyday where a clean session reads, a grant where the gate asks and may ask less often. Nothing makes a
// call of regulated data towards less, or one of the trifecta that its sandbox does not end, any laxer.
func TestLaxerByNothingElse(t *testing.T) {
	p := worded(t)
	b := newBench(t)
	bounds := []gate.Confinement{{}, {Bound: gate.NamedHosts, Hosts: []string{"a.test"}}, {Bound: gate.Inside}}
	laxer, by := map[string]int{}, map[string]int{}
	for o := range offers {
		for l, a := range sessions {
			for _, profile := range []string{"strict", "balanced", "everyday"} {
				base := profile
				if base == "everyday" {
					base = "balanced"
				}
				var without [2]*operator.Request // by whether undo keeps: a shipped word that a write is reversible needs that
				for kept := range without {
					without[kept] = means{profile: base, kept: kept == 1}.call(p, o, l, a)
				}
				for n := range len(bounds) * 2 * 2 {
					m := means{bounds[n/4], n/2%2 == 1, profile, n%2 == 1}
					before, q := without[n/2%2], m.call(p, o, l, a)
					now, was := m.becomes(b, q), laxnessOf(before.Decision)
					if why := m.unfit(before, q, was, now); why != "" {
						t.Fatalf("%+v, %+v, %+v, %+v: from %d to %d: %s", m, o.Server.Words, l, a, was, now, why)
					}
					if now > was {
						laxer[m.names(before, q)]++
						by[from(before.Facts.From.Audience)+from(before.Facts.From.Effect)]++
					}
				}
			}
		}
	}
	for _, alone := range []string{"sandbox ", "everyday ", "grant ", "sandbox undo ", "sandbox undo everyday grant "} {
		if laxer[alone] == 0 {
			t.Errorf("nothing is laxer by %q, so nothing is tested: %v", alone, laxer)
		}
	}
	for _, origin := range []string{"owner", "service", "hint", "unknown"} {
		for _, other := range []string{"owner", "service", "hint", "unknown"} {
			apart := origin+other == "ownerservice" || origin+other == "serviceowner"
			if n := by[origin+other]; (n == 0) != apart {
				t.Errorf("%d are laxer of an audience by %s and an effect by %s", n, origin, other)
			}
		}
	}
	if laxer[""] != 0 {
		t.Errorf("%d decisions are laxer by nothing", laxer[""])
	}
}

// names are the means that have an effect on a call, as far as facts and verdict show it.
func (m means) names(before, q *operator.Request) (list string) {
	if m.bound.Bound != gate.Everywhere {
		list = "sandbox "
	}
	if q.Facts.Effect < before.Facts.Effect {
		list += "undo "
	}
	if m.profile == "everyday" {
		list += "everyday "
	}
	if m.granted {
		list += "grant "
	}
	return list
}

// unfit says why what became of a call is not what these means may make of it.
func (m means) unfit(before, q *operator.Request, was, now laxness) string {
	sandbox := m.bound.Bound != gate.Everywhere
	data, audience := q.Decision.Data, q.Facts.Audience
	verdict := laxnessOf(q.Decision)
	down, undone := data.Confidentiality > audience, q.Facts.Effect != before.Facts.Effect
	plainer := verdict > was && q.Facts == before.Facts // not by what is known of the tool
	by, told := before.Facts.From, audience > before.Facts.Audience
	vouched := q.Facts.Effect == gate.None && (from(by.Effect) == "owner" || from(by.Effect) == "service")
	switch {
	case now > was && !sandbox && m.profile != "everyday" && !m.granted:
		return "no means is there"
	case !sandbox && q.Facts != before.Facts:
		return "facts change without a sandbox"
	case undone && (m.bound.Bound != gate.Inside || !m.kept || q.Facts.Effect != gate.Reversible):
		return "it is not undo that makes the effect another"
	case undone && from(by.Effect) == "owner", told && from(by.Audience) == "owner":
		return "the owner has said otherwise"
	case told && m.bound.Bound == gate.NamedHosts && !vouched:
		return "the owners of hosts see what nobody but the server calls a read"
	case down && data.Confidentiality >= gate.Regulated && now != denied:
		return "regulated data goes to who may not see it"
	case down && data.Confidentiality >= gate.Sensitive && data.Integrity > gate.Clean && now > askedOnce:
		return "the trifecta is not asked about each time"
	case now != verdict && (now != granted || verdict != asked):
		return "a grant answers something else than a question"
	case plainer && m.profile != "everyday":
		return "the same facts are decided otherwise"
	case plainer && (data.Integrity > gate.Clean || q.Facts.Effect != gate.None || verdict != inspected):
		return "everyday is laxer than where a clean session reads"
	}
	return ""
}

// from is who says a fact.
func from(said string) string {
	who, _, _ := strings.Cut(said, ":")
	return who
}

// TestGrantOfAnyQuestion gives a grant in each situation and tries it in each other one: it answers the same question
// of the same row, after no more has been seen.
func TestGrantOfAnyQuestion(t *testing.T) {
	p := worded(t)
	b := newBench(t)
	given := 0
	for o := range offers {
		for _, profile := range []string{"strict", "balanced", "everyday"} {
			m := means{profile: profile}
			var all []*operator.Request
			for l, a := range sessions {
				all = append(all, m.call(p, o, l, a))
			}
			for _, of := range all {
				d, err := b.Draft(of, operator.GrantTerms{Calls: 200}, ann)
				if (err == nil) != (laxnessOf(of.Decision) == asked) {
					t.Fatalf("%+v can be granted: %v", of.Decision, err)
				}
				if err != nil {
					continue
				}
				given++
				for _, q := range all {
					b.RevokeAll()
					if err := b.Add(d); err != nil {
						t.Fatal(err)
					}
					now, then := q.Decision, of.Decision
					like := laxnessOf(now) == asked && now.Rule == then.Rule && now.Data.Below(then.Data)
					if b.covers(q) && !like {
						t.Fatalf("a grant of %+v covers %+v", then, now)
					}
				}
			}
		}
	}
	if given < 1000 {
		t.Errorf("only %d grants", given)
	}
}
