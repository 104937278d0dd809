package policies

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/policies/gate"
)

func shippedPolicy(t testing.TB) *gate.Policy {
	t.Helper()
	s := Load(nil, "")
	if s.Policy == nil {
		t.Fatal(s.Diags)
	}
	return s.Policy
}

// situation is a point of all that a decision depends on, its coordinates as numbers, so that each can be raised by a
// step. In each the larger is the more tainted, the less known, or the graver.
type situation [12]int

const (
	secrecy   = iota // of the session
	integrity        // of the session
	arguments        // how secret they are known to be
	narrow           // how far the audience is from secret
	effect
	source // integrity of the tool's output
	free
	pattern
	vault
	unpinned
	unchecked
	unrecorded
)

var steps = situation{5, 3, 6, 5, 3, 3, 2, 2, 2, 2, 2, 2}

func situations() iter.Seq[situation] {
	return func(yield func(situation) bool) {
		var at situation
		for {
			if !yield(at) {
				return
			}
			i := 0
			for ; i < len(at); i++ {
				if at[i]++; at[i] < steps[i] {
					break
				}
				at[i] = 0
			}
			if i == len(at) {
				return
			}
		}
	}
}

func (at situation) ask(profile string) (gate.Session, gate.Call) {
	s := gate.Session{Profile: profile, Label: gate.Label{
		Confidentiality: gate.Public + gate.Confidentiality(at[secrecy]), Integrity: gate.Clean + gate.Integrity(at[integrity]),
	}}
	c := gate.Call{
		Client: "c", Server: "s", Name: "t", Method: "tools/call",
		Pinned: at[unpinned] == 0, Schema: at[unchecked] == 0, Audit: at[unrecorded] == 0,
	}
	c.Facts = gate.Facts{
		Output:   gate.Label{Confidentiality: gate.Public, Integrity: gate.Clean + gate.Integrity(at[source])},
		Audience: gate.Secret - gate.Confidentiality(at[narrow]), Effect: gate.None + gate.Effect(at[effect]),
	}
	c.Arguments = gate.Arguments{FreeText: at[free] == 1, Confidentiality: gate.Confidentiality(at[arguments])}
	if at[vault] == 1 {
		c.Arguments.Vault = "key"
	}
	if at[pattern] == 1 {
		c.Arguments.Pattern = "token"
	}
	return s, c
}

// The reference speaks in numbers of its own: 0 denies, 1 asks and forgets, 2 asks, 3 inspects, 4 allows.
const (
	deny = iota
	askOnce
	ask
	inspect
	allow
)

// reference is the decision table as the gate's specification has it, written from there.
func reference(at situation, profile string) int {
	carried := max(at[secrecy], at[arguments]-1) // 0 public … 4 secret
	audience := 4 - at[narrow]
	verdict := allow
	add := func(v int) { verdict = min(verdict, v) }
	if at[vault]+at[unpinned]+at[unchecked]+at[unrecorded] > 0 {
		add(deny)
	}
	if profile == "operator" { // a person has typed the call: nobody is asked
		if carried > audience && carried >= 3 {
			add(deny)
		}
		return verdict
	}
	if at[pattern] == 1 {
		add(ask)
	}
	if profile == "clean-room" && at[source] > 0 {
		add(deny)
	}
	if carried <= audience {
		switch at[integrity] {
		case 0:
			add([]int{allow, allow, ask}[at[effect]])
		case 1:
			add([][]int{{allow, allow, ask}, {allow, inspect, ask}}[at[free]][at[effect]])
		case 2:
			add([]int{allow, inspect, ask}[at[effect]])
		}
	} else {
		switch {
		case carried >= 3:
			add(deny)
		case carried == 2 && at[integrity] == 0 && at[effect] == 0 && profile == "everyday":
			add(inspect)
		case carried == 2 && at[integrity] == 0:
			add(ask)
		case carried == 2:
			add(askOnce)
		case at[integrity] == 0:
			add([]int{inspect, inspect, ask}[at[effect]])
		case profile == "balanced" || profile == "everyday":
			add(ask)
		default:
			add([]int{inspect, inspect, ask}[at[effect]])
		}
	}
	if verdict == inspect && profile != "balanced" && profile != "everyday" {
		verdict = ask
	}
	return verdict
}

func number(d gate.Decision) int {
	switch {
	case d.Verdict == gate.Ask && d.Once:
		return askOnce
	case d.Verdict == gate.Ask:
		return ask
	case d.Verdict == gate.Inspect:
		return inspect
	case d.Verdict == gate.Allow:
		return allow
	}
	return deny
}

// pfar is PFAR's rule, as built: what is raw asks before each write, what is extracted before writes with free text,
// and nothing goes to where it may not be seen, in a write, without the owner.
func pfar(at situation) int {
	carried, audience := max(at[secrecy], at[arguments]-1), 4-at[narrow]
	if at[effect] == 0 {
		return allow
	}
	if at[integrity] == 2 || at[integrity] == 1 && at[free] == 1 || carried > audience {
		return ask
	}
	return allow
}

// pynchy is its matrix for writes, a row each: corrupted, secret, public sink, dangerous; and whether the Cop looks,
// and whether a human is asked.
var pynchy = map[[4]bool]struct{ cop, human bool }{
	{false, false, false, false}: {false, false},
	{false, true, false, false}:  {false, false},
	{false, false, false, true}:  {false, true},
	{false, true, false, true}:   {false, true},
	{false, false, true, false}:  {false, false},
	{false, true, true, false}:   {false, false},
	{false, false, true, true}:   {false, true},
	{false, true, true, true}:    {false, true},
	{true, false, false, false}:  {true, false},
	{true, false, false, true}:   {true, true},
	{true, false, true, false}:   {true, false},
	{true, false, true, true}:    {true, true},
	{true, true, false, false}:   {true, false},
	{true, true, false, true}:    {true, true},
	{true, true, true, false}:    {true, true},
	{true, true, true, true}:     {true, true},
}

// profiles are those that are shipped.
var profiles = []string{"strict", "balanced", "everyday", "clean-room", "operator"}

// TestProfiles: what is enumerated below is all that there is.
func TestProfiles(t *testing.T) {
	if got := slices.Sorted(maps.Keys(shippedPolicy(t).Profiles)); !slices.Equal(got, slices.Sorted(slices.Values(profiles))) {
		t.Errorf("the profiles %q are shipped, and %q are tried", got, profiles)
	}
}

// TestEveryCase compares every decision of every shipped profile with the reference, and with those whom it must not be
// laxer than.
func TestEveryCase(t *testing.T) {
	p := shippedPolicy(t)
	count := 0
	for at := range situations() {
		for _, profile := range profiles {
			count++
			d := p.Decide(at.ask(profile))
			got := number(d)
			if want := reference(at, profile); got != want {
				t.Fatalf("%s %v: %d, want %d: %+v", profile, at, got, want, d)
			}
			if d.Rule == "" || d.Reason == "" || len(d.Fired) == 0 || d.Fired[0] != d.Rule || d.Profile != profile || d.Policy != p.Digest {
				t.Fatalf("%s %v: %+v", profile, at, d)
			}
			if looked := d.Verdict == gate.Inspect || d.Verdict == gate.Ask && at[integrity] > 0; looked && !d.Inspect ||
				d.Inspect && (got == deny || got == allow) {
				t.Fatalf("%s %v: inspection is %t: %+v", profile, at, d.Inspect, d)
			}
			if profile == "operator" {
				continue // the person who types is whom those would ask
			}
			if profile != "balanced" && profile != "everyday" && got > pfar(at) {
				t.Fatalf("%s %v is laxer than PFAR: %+v", profile, at, d)
			}
			if at[effect] > 0 {
				row := pynchy[[4]bool{at[integrity] == 2, max(at[secrecy], at[arguments]-1) >= 2, at[narrow] == 4, at[effect] == 2}]
				if row.human && got > ask || row.cop && got != deny && !d.Inspect || at[pattern] == 1 && got > ask {
					t.Fatalf("%s %v is laxer than pynchy: %+v", profile, at, d)
				}
			}
		}
	}
	if count < 1_000_000 {
		t.Errorf("only %d cases", count)
	}
}

// differs returns where the rows of a profile say something else than those of another one. What allows more has to
// have a reason.
func differs(t *testing.T, p *gate.Policy, profile, than string) (lines []string) {
	t.Helper()
	for c := range gate.Cases() {
		before, _ := p.Profiles[than].Says(c)
		after, by := p.Profiles[profile].Says(c)
		if before == after {
			continue
		}
		if before.Stricter(after) && (by.Relax == "" || c.Session != gate.Clean || c.Pattern || c.Data >= gate.Regulated) {
			t.Errorf("%+v is %s by %s", c, after, by.At)
		}
		lines = append(lines, fmt.Sprintf("%s, %s, %s: %s, not %s", c.Session, by.Data, c.Effect, after, before))
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// TestBalanced: the rows of balanced are those of strict but for the stricter one that its file and the manual list.
func TestBalanced(t *testing.T) {
	want := []string{
		"extracted, internal to public, none: ask, not inspect",
		"extracted, internal to public, reversible: ask, not inspect",
		"raw, internal to public, none: ask, not inspect",
		"raw, internal to public, reversible: ask, not inspect",
	}
	if got := differs(t, shippedPolicy(t), "balanced", "strict"); !slices.Equal(got, want) {
		t.Errorf("balanced differs from strict in %q, want %q", got, want)
	}
}

// TestEveryday: everyday is as balanced but for the rows that its file and the manual list, each with a reason.
func TestEveryday(t *testing.T) {
	p := shippedPolicy(t)
	want := []string{"clean, sensitive to lower, none: inspect, not ask"}
	if got := differs(t, p, "everyday", "balanced"); !slices.Equal(got, want) {
		t.Errorf("everyday differs from balanced in %q, want %q", got, want)
	}
	if !p.Looser("everyday", "balanced") || !p.Looser("everyday", "strict") || p.Looser("balanced", "everyday") {
		t.Error("everyday is not as lax as it is")
	}
}

// TestMonotone raises every coordinate of every situation by a step: more taint, or less known, never loosens.
func TestMonotone(t *testing.T) {
	p := shippedPolicy(t)
	for _, profile := range profiles {
		var verdicts []int // in the order of situations
		for at := range situations() {
			verdicts = append(verdicts, number(p.Decide(at.ask(profile))))
		}
		nth := -1
		for at := range situations() {
			nth++
			before, stride := verdicts[nth], 1
			for i := range at {
				if at[i]+1 < steps[i] && verdicts[nth+stride] > before {
					worse := at
					worse[i]++
					t.Fatalf("%s: %v gives %d, and %v gives %d", profile, at, before, worse, verdicts[nth+stride])
				}
				stride *= steps[i]
			}
			if before == deny {
				continue
			}
			for _, unknown := range []func(*gate.Session, *gate.Call){
				func(s *gate.Session, _ *gate.Call) { s.Label.Confidentiality = 0 },
				func(s *gate.Session, _ *gate.Call) { s.Label.Integrity = 0 },
				func(_ *gate.Session, c *gate.Call) { c.Facts.Audience = 0 },
				func(_ *gate.Session, c *gate.Call) { c.Facts.Effect = 0 },
				func(_ *gate.Session, c *gate.Call) { c.Facts.Output.Integrity = 0 },
			} {
				s, c := at.ask(profile)
				if unknown(&s, &c); p.Decide(s, c).Verdict != gate.Deny {
					t.Fatalf("%s: %v with something that is not known: %+v", profile, at, p.Decide(s, c))
				}
			}
		}
	}
}

// TestEveryTier has every tool of the browser called in every session, by clients of the shipped profiles and of ones
// that have a tier each: browser.hcl denies the tools of a tier to whoever does not name it, and what is in none to
// everybody; else the reference says.
func TestEveryTier(t *testing.T) {
	var local strings.Builder
	tiers := []string{"network", "vision", "pdf", "testing", "upload", "storage", "mocking", "devtools"}
	all := slices.Clone(profiles)
	for _, tier := range tiers {
		fmt.Fprintf(&local, "profile %q {\n  base = \"balanced\"\n  tiers = [\"browser/%s\"]\n  relax = \"a test\"\n}\n", tier, tier)
		all = append(all, tier)
	}
	s := Load(fstest.MapFS{"tiers.hcl": {Data: []byte(local.String())}}, "policies.d")
	if s.Policy == nil {
		t.Fatal(s.Diags)
	}
	p := s.Policy
	wants := maps.Clone(packages["playwright-mcp"])
	const nowhere = "public raw, to public, irreversible, nowhere"
	wants[nowhere] = "browser_new_in_next_version"
	effects := map[string]int{"none": 0, "reversible": 1, "irreversible": 2}
	met := map[string]int{}
	for words, tools := range wants {
		said := strings.Split(words, ", ") // "public raw", "to public", "none", "in browser/vision"
		tier := ""
		if len(said) > 3 {
			tier = strings.TrimPrefix(said[3], "in browser/")
		}
		for _, tool := range strings.Fields(tools) {
			server := gate.Declared{Server: "x", Packages: []string{"@playwright/mcp"}, Kept: true}
			f := p.Resolve(gate.Offer{Server: server, Name: tool})
			for at := range situations() {
				if at[narrow]+at[effect]+at[source]+at[unpinned]+at[unchecked]+at[unrecorded] > 0 {
					continue
				}
				at[narrow], at[effect], at[source] = 4, effects[said[2]], 2
				for _, profile := range all {
					base := profile
					if slices.Contains(tiers, profile) {
						base = "balanced"
					}
					want := reference(at, base)
					if words == nowhere || tier != "" && tier != profile {
						want = deny
					}
					session, call := at.ask(profile)
					call.Facts = f
					d := p.Decide(session, call)
					if got := number(d); got != want {
						t.Fatalf("%s %s %v: %d, want %d: %+v", profile, tool, at, got, want, d)
					}
					if want != deny {
						met[profile+" "+tier]++
					}
				}
			}
		}
	}
	for _, tier := range tiers {
		if met[tier+" "+tier] == 0 || met[tier+" "] == 0 {
			t.Errorf("nothing of %s is ever allowed to whoever names it", tier)
		}
	}
}

// TestTypedOutput has a session of each label read each output, of a tool that is typed or not and of a server that is
// stained or not, and then write: strict is never laxer than PFAR, which takes for extracted what is typed, and for raw
// what a raw session has written to.
func TestTypedOutput(t *testing.T) {
	p := shippedPolicy(t)
	for at := range situations() {
		if at[source]+at[vault]+at[unpinned]+at[unchecked]+at[unrecorded]+at[pattern] > 0 { // of the call that writes
			continue
		}
		for output := gate.Clean; output <= gate.Raw; output++ {
			for stain := gate.Integrity(0); stain <= gate.Raw; stain++ {
				for _, typed := range []bool{false, true} {
					s, c := at.ask("strict")
					read := gate.Facts{Output: gate.Label{Confidentiality: s.Label.Confidentiality, Integrity: output}, Extract: typed}
					read = read.Stained(gate.Label{Confidentiality: gate.Public, Integrity: stain})
					s.Label = gate.Joined(s, read)
					is := output
					if typed && output == gate.Raw {
						is = gate.Extracted
					}
					after := at
					after[integrity] = max(at[integrity], int(max(is, stain)-gate.Clean))
					if got := int(s.Label.Integrity - gate.Clean); got != after[integrity] {
						t.Fatalf("%v, output %s, stain %s, typed %t: the session is %s", at, output, stain, typed, s.Label)
					}
					if d := p.Decide(s, c); number(d) > pfar(after) || number(d) != reference(after, "strict") {
						t.Fatalf("%v, output %s, stain %s, typed %t is laxer than PFAR: %+v", at, output, stain, typed, d)
					}
				}
			}
		}
	}
}
