package fold

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/gate"
)

func shipped(t testing.TB) *gate.Policy {
	t.Helper()
	set := policies.Load(nil, "")
	if set.Policy == nil {
		t.Fatal(set.Diags)
	}
	return set.Policy
}

func label(c gate.Confidentiality, i gate.Integrity) gate.Label {
	return gate.Label{Confidentiality: c, Integrity: i}
}

// fact is what a tool's facts are that nobody has to say where they are from.
func fact(output gate.Label, audience gate.Confidentiality, effect gate.Effect) gate.Facts {
	return gate.Facts{Output: output, Audience: audience, Effect: effect}
}

// odd is a policy whose tables are not monotone, with rules and flows: whatever an owner may write.
func odd(t testing.TB, random *rand.Rand) *gate.Policy {
	t.Helper()
	p := &gate.Policy{Profiles: map[string]gate.Profile{}}
	words := gate.OutcomeWords()
	for _, name := range []string{"odd", "odd and clean"} {
		profile := gate.Profile{At: name, Inspect: gate.Inspect, Clean: name != "odd"}
		for s := gate.Clean; s <= gate.Raw; s++ {
			for d := gate.Fits; d < gate.SecretPattern; d++ {
				row := gate.Row{Sessions: []gate.Integrity{s}, Data: d, At: name}
				for i := range row.Outcomes {
					if err := row.Outcomes[i].UnmarshalText([]byte(words[random.IntN(len(words))])); err != nil {
						t.Fatal(err)
					}
				}
				profile.Rows = append(profile.Rows, row)
			}
		}
		p.Profiles[name] = profile
	}
	p.Rules = []gate.Rule{{Verdict: gate.Ask, Name: "b", Reason: "b.", Servers: []gate.Pattern{"b"}, At: "odd"}}
	p.Flows = []gate.Flow{{From: "a", To: "b", Reason: "r", At: "odd"}, {From: "c", To: "a", Reason: "r", At: "odd"}}
	if err := p.Compile(); err != nil {
		t.Fatal(err)
	}
	return p
}

// plan is a plan that anybody might write, of servers a, b and c.
func plan(random *rand.Rand, n int) []Step {
	steps := make([]Step, n)
	for i := range steps {
		server := string(rune('a' + random.IntN(3)))
		facts := gate.Facts{
			Output:   label(gate.Public+gate.Confidentiality(random.IntN(4)), gate.Clean+gate.Integrity(random.IntN(3))),
			Audience: gate.Public + gate.Confidentiality(random.IntN(5)), Effect: gate.None + gate.Effect(random.IntN(3)),
			Extract: random.IntN(3) == 0, Remembers: random.IntN(4) == 0,
		}
		steps[i] = Step{
			Call: gate.Call{
				Client: "editor", Server: server, Name: "tool", Method: "tools/call",
				Pinned: true, Schema: true, Audit: true, Facts: facts, Arguments: gate.Arguments{FreeText: random.IntN(2) == 0},
			},
			Whole: random.IntN(2) == 0, Foreign: gate.Confidentiality(random.IntN(4)),
		}
		if random.IntN(3) == 0 {
			opens := facts
			opens.Audience = gate.Public
			steps[i].Opens = &opens
		}
		if random.IntN(3) == 0 {
			steps[i].Holds = []gate.Place{{Name: "/shared", Writes: random.IntN(2) == 0}}
		}
		if i+1 < n {
			steps[i].Next = []int{i + 1}
		}
		for range random.IntN(3) {
			steps[i].Next = append(steps[i].Next, random.IntN(n))
		}
	}
	return steps
}

// runs calls a plan's steps as the gate and the sessions do it, along one path, until a call is denied.
type run struct {
	session gate.Session
	sources map[string]gate.Label
	stains  map[string]gate.Label
}

func (r *run) call(random *rand.Rand, p *gate.Policy, steps []Step, i int) gate.Decision {
	step := steps[i]
	call := step.Call
	if step.Opens != nil && r.session.Label.Integrity != gate.Clean && random.IntN(2) == 0 {
		call.Facts = *step.Opens
	}
	if !step.Whole {
		call.Arguments.FreeText = random.IntN(2) == 0
	}
	call.Facts = call.Facts.Stained(r.stains[call.Server])
	r.session.Sources = []gate.Source{}
	for server, l := range r.sources {
		r.session.Sources = append(r.session.Sources, gate.Source{Server: server, Label: l})
	}
	d := p.Decide(r.session, call)
	before := r.session.Label
	if random.IntN(2) == 0 { // the result is more than typed values
		call.Facts.Extract = false
	}
	output := gate.Joined(gate.Session{Label: gate.Start}, call.Facts)
	r.session.Label = before.Join(output)
	r.sources[call.Server] = r.sources[call.Server].Join(gate.Start).Join(output)
	foreign := label(max(gate.Public, min(step.Foreign, output.Confidentiality)), gate.Clean)
	r.sources[""] = r.sources[""].Join(foreign)
	if effect := step.Call.Facts.Effect; effect == gate.None {
		if !step.Call.Facts.Remembers {
			return d
		}
		before.Integrity = gate.Clean
	}
	for _, to := range steps {
		reads := slices.ContainsFunc(step.Holds, func(p gate.Place) bool {
			return p.Writes && slices.ContainsFunc(to.Holds, p.Reaches)
		})
		if to.Call.Server == call.Server || reads {
			r.stains[to.Call.Server] = r.stains[to.Call.Server].Join(before)
		}
	}
	return d
}

// TestNoCallIsStricter runs plans along their paths: no call gets a stricter verdict than the fold gave for its step,
// and no session has seen more.
func TestNoCallIsStricter(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	ours := shipped(t)
	profiles := slices.Sorted(maps.Keys(ours.Profiles))
	asked, laxer := 0, 0
	for n := range 3000 {
		p, profile := ours, profiles[n%len(profiles)]
		if n%3 == 0 {
			p, profile = odd(t, random), []string{"odd", "odd and clean"}[n%2]
		}
		steps := plan(random, 1+random.IntN(5))
		s := gate.Session{Profile: profile}
		s.Label = label(gate.Public+gate.Confidentiality(random.IntN(3)), gate.Clean+gate.Integrity(random.IntN(3)))
		sources := map[string]gate.Label{}
		if random.IntN(2) == 0 && s.Label != gate.Start {
			sources["c"] = s.Label
		}
		s.Sources = []gate.Source{}
		for server, l := range sources {
			s.Sources = append(s.Sources, gate.Source{Server: server, Label: l})
		}
		judged := Steps(t.Context(), p, s, steps)
		for range 8 {
			r := run{session: s, sources: maps.Clone(sources), stains: map[string]gate.Label{}}
			for i, turn := 0, 0; turn < 12; turn++ {
				if !judged[i].Reached() || !r.session.Label.Below(judged[i].Before) {
					t.Fatalf("plan %d, step %d: the session has %s, not %s", n, i, r.session.Label, judged[i].Before)
				}
				d := r.call(random, p, steps, i)
				if outcome(d).Stricter(outcome(judged[i].Decision)) {
					t.Fatalf("plan %d (%s), step %d, turn %d: %v by %s, and the fold said %v by %s\n%+v",
						n, profile, i, turn, d.Verdict, d.Rule, judged[i].Decision.Verdict, judged[i].Decision.Rule, steps)
				}
				if !noWorse(d.Facts, judged[i].Decision.Facts) && steps[i].Opens == nil {
					t.Fatalf("plan %d, step %d: facts %+v, and the fold said %+v", n, i, d.Facts, judged[i].Decision.Facts)
				}
				if d.Verdict > judged[i].Decision.Verdict {
					laxer++
				} else if d.Verdict == gate.Ask {
					asked++
				}
				if d.Verdict == gate.Deny || len(steps[i].Next) == 0 {
					break
				}
				i = steps[i].Next[random.IntN(len(steps[i].Next))]
			}
		}
	}
	if asked < 1000 || laxer < 1000 {
		t.Errorf("%d calls were asked about as the fold said, %d were judged laxer", asked, laxer)
	}
}

// chain is a plan whose steps follow each other.
func chain(facts ...gate.Facts) []Step {
	steps := make([]Step, len(facts))
	for i, f := range facts {
		steps[i] = Step{Call: gate.Call{
			Client: "editor", Server: fmt.Sprint("s", i), Name: "tool", Method: "tools/call",
			Pinned: true, Schema: true, Audit: true, Facts: f, Arguments: gate.Arguments{FreeText: true},
		}, Whole: true}
		if i+1 < len(facts) {
			steps[i].Next = []int{i + 1}
		}
	}
	return steps
}

// TestSteps: what the shipped profiles make of plans that people write.
func TestSteps(t *testing.T) {
	search := fact(label(gate.Public, gate.Raw), gate.Public, gate.None)
	mail := fact(label(gate.Sensitive, gate.Raw), gate.Sensitive, gate.None)
	post := fact(label(gate.Public, gate.Clean), gate.Public, gate.Irreversible)
	vault := fact(label(gate.Regulated, gate.Clean), gate.Regulated, gate.None)
	ours := shipped(t)
	start := gate.Session{Profile: "balanced", Label: gate.Start, Sources: []gate.Source{}}
	for name, tt := range map[string]struct {
		steps []Step
		want  string
	}{
		"none":                         {nil, ""},
		"one read":                     {chain(search), "allow public clean, "},
		"search, then post":            {chain(search, post), "allow public clean, ask public raw, "},
		"mail, then post":              {chain(mail, post), "allow public clean, ask once sensitive raw, "},
		"mail, then search":            {chain(mail, search), "allow public clean, ask once sensitive raw, "},
		"what is regulated never goes": {chain(vault, search), "allow public clean, deny regulated clean, "},
		"and makes no read before it worse": {
			chain(search, vault), "allow public clean, allow public raw, "},
	} {
		got := ""
		for _, j := range Steps(t.Context(), ours, start, tt.steps) {
			got += fmt.Sprintf("%s %s, ", outcome(j.Decision), j.Before)
		}
		if got != tt.want {
			t.Errorf("%s: %s\nwant: %s", name, got, tt.want)
		}
	}
	for name, s := range map[string]gate.Session{"no label": {Profile: "balanced"}, "no profile": {Label: gate.Start}} {
		for _, j := range Steps(t.Context(), ours, s, chain(search)) {
			if j.Decision.Verdict != gate.Deny {
				t.Errorf("%s: %+v", name, j)
			}
		}
	}
	for _, j := range Steps(t.Context(), nil, start, chain(search)) {
		if j.Decision.Verdict != gate.Deny {
			t.Errorf("without a policy: %+v", j)
		}
	}
}

// TestLoops: a plan in circles is folded to its end, and each step of a circle is judged by all that the circle reads.
func TestLoops(t *testing.T) {
	mail := fact(label(gate.Sensitive, gate.Raw), gate.Sensitive, gate.None)
	post := fact(label(gate.Public, gate.Clean), gate.Public, gate.Reversible)
	steps := chain(post, mail)
	steps[1].Next = []int{0, 1, 7, -1} // places that there are not lead nowhere
	s := gate.Session{Profile: "balanced", Label: gate.Start, Sources: []gate.Source{}}
	for i, j := range Steps(t.Context(), shipped(t), s, steps) {
		if want := (label(gate.Sensitive, gate.Raw)); j.Before != want {
			t.Errorf("step %d: %s, want %s", i, j.Before, want)
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	most := plan(random, 256)
	for i := range most {
		most[i].Call.Server = fmt.Sprint("s", i)
		most[i].Holds = []gate.Place{{Name: "/shared", Writes: true}}
		most[i].Next = nil
		for n := range most {
			most[i].Next = append(most[i].Next, n)
		}
	}
	for i, j := range Steps(t.Context(), shipped(t), s, most) {
		if !j.Reached() {
			t.Fatalf("step %d is not reached", i)
		}
	}
	most[0].Next = nil
	for i, j := range Steps(t.Context(), shipped(t), s, most) {
		if j.Reached() != (i == 0) || i > 0 && j.Decision.Verdict != gate.Deny {
			t.Fatalf("step %d: %+v", i, j)
		}
	}
}

// TestFlows: the owner's flow counts in a plan that is clean and leads one way, and not where it may have read more.
func TestFlows(t *testing.T) {
	p := shipped(t)
	p.Flows = []gate.Flow{{From: "s0", To: "s1", Reason: "r", At: "local.hcl:1"}}
	if err := p.Compile(); err != nil {
		t.Fatal(err)
	}
	read := fact(label(gate.Sensitive, gate.Clean), gate.Sensitive, gate.None)
	post := fact(label(gate.Public, gate.Clean), gate.Public, gate.Reversible)
	s := gate.Session{Profile: "balanced", Label: gate.Start, Sources: []gate.Source{}}
	steps := chain(read, post)
	if d := Steps(t.Context(), p, s, steps)[1].Decision; d.Verdict != gate.Allow || len(d.Flows) != 1 {
		t.Errorf("a flow: %+v", d)
	}
	more := chain(read, post, read)
	more[0].Next = []int{1, 2}
	more[2].Next = []int{1}
	if d := Steps(t.Context(), p, s, more)[1].Decision; d.Verdict != gate.Ask {
		t.Errorf("what a third server may have added: %+v", d)
	}
	write := fact(gate.Start, gate.Sensitive, gate.Reversible)
	look := fact(gate.Start, gate.Sensitive, gate.None)
	through := chain(read, write, look, post)
	through[1].Call.Server, through[2].Call.Server, through[3].Call.Server = "s2", "s2", "s1"
	if d := Steps(t.Context(), p, s, through)[3].Decision; d.Verdict != gate.Ask {
		t.Errorf("what comes through a third server: %+v", d)
	}
	steps[0].Foreign = gate.Sensitive
	if d := Steps(t.Context(), p, s, steps)[1].Decision; d.Verdict != gate.Ask {
		t.Errorf("what was written to it from elsewhere: %+v", d)
	}
	s.Sources = nil
	if d := Steps(t.Context(), p, s, chain(read, post))[1].Decision; d.Verdict != gate.Ask {
		t.Errorf("sources that nobody knows: %+v", d)
	}
}
