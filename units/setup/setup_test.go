package setup

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

var update = flag.Bool("update", false, "write testdata/table.txt")

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// secrets are two that a server must have, and one that it may.
func secrets(fates ...Fate) []Secret {
	list := []Secret{
		{Wanted: control.Wanted{Key: "first", Variable: "FIRST"}},
		{Wanted: control.Wanted{Key: "second", Variable: "SECOND", Optional: true}},
	}
	list = list[:len(fates)]
	for i, fate := range fates {
		list[i].Fate = fate
	}
	return list
}

// place is a flow in one of the states of the table.
type place struct {
	name string
	flow Flow
}

// places are all states and steps, with what makes a difference in them.
func places() []place {
	soon := noon.Add(time.Minute)
	spawning := func(s Step, f Flow) Flow {
		f.State, f.Step = control.FlowSpawning, s
		return f
	}
	one, two := secrets(Taken), secrets(Taken, Taken)
	asked := Flow{State: control.AwaitingCredential, Secrets: secrets("", ""), Deadline: soon, Package: "npm:x@1.0.0"}
	second := asked
	second.At, second.Secrets = 1, secrets(Taken, "")
	paged := asked
	paged.Page, paged.Consent = true, true
	signing := paged
	signing.Step = SignIn
	refused := Flow{
		State: control.CredentialRefused, Secrets: one, Attempts: 1, Deadline: soon, Asked: Asked{Again: true, Touched: true},
	}
	many := refused
	many.Secrets = two
	anew := refused
	anew.Step = SignIn
	again := refused
	again.Deadline = time.Time{}
	verifying := Flow{
		State: control.FlowVerifying, Secrets: one, Deadline: soon, Asked: Asked{Touched: true}, Result: Result{Tools: 3},
	}
	last, none := verifying, verifying
	last.Attempts, last.Again, none.Secrets = 2, true, nil
	touched := Asked{Touched: true}
	return []place{
		{"start, nothing asked", Flow{State: control.FlowStart, Secrets: secrets("", "")}},
		{"start, no secrets", Flow{State: control.FlowStart, Package: "npm:x@1.0.0"}},
		{"start, from a client", Flow{
			State: control.FlowStart, Secrets: secrets(""), Asked: Asked{Page: true, Consent: true},
		}},
		{"awaiting FIRST", asked},
		{"awaiting FIRST, by a page", paged},
		{"awaiting FIRST, by a page, where a person signs in", signing},
		{"awaiting SECOND, which is optional", second},
		{"awaiting consent, by a page", Flow{
			State: control.AwaitingCredential, Step: AwaitingConsent, Deadline: soon, Asked: Asked{Page: true, Consent: true},
		}},
		{"storing FIRST", spawning(Storing, Flow{Secrets: secrets("", "")})},
		{"storing another FIRST", spawning(Storing, again)},
		{"installing", spawning(Installing, Flow{Secrets: one, At: 1, Package: "npm:x@1.0.0", Deadline: soon})},
		{"writing", spawning(Writing, Flow{Secrets: one, At: 1, Asked: touched})},
		{"starting", spawning(Starting, Flow{Secrets: one, At: 1, Deadline: soon, Asked: touched})},
		{"verifying", verifying},
		{"verifying the third", last},
		{"verifying, no secrets", none},
		{"refused", refused},
		{"refused, one of two", many},
		{"refused, and a person signs in", anew},
		{"complete", Flow{State: control.FlowComplete, Secrets: one, Asked: touched}},
		{"failed before anything was done", Flow{State: control.FlowFailed, Secrets: one}},
		{"failed", Flow{State: control.FlowFailed, Secrets: one, Asked: touched}},
	}
}

// happenings are all events, with what makes a difference in them.
func happenings() (names []string, all map[string]Event) {
	all = map[string]Event{}
	add := func(name string, e Event) { names = append(names, name); all[name] = e }
	for _, k := range []Kind{
		Begun, Resumed, Confirmed, Value, Skipped, SigningIn, NotSignedIn, Arrived, Cancelled, Superseded, PageLost, Late,
		Stored, NotStored, Installed, NotInstalled, Written, NotWritten, Listed, NoneListed, NotStarted, Ended, Verified,
		Unverified, Refused, Broken,
	} {
		e := Event{Kind: k, Now: noon, Words: "why", Tools: 3, Tool: "get_me"}
		switch k {
		case Begun, Resumed:
			stored := e
			stored.Stored = []string{"first"}
			add(string(k)+" with FIRST in the vault", stored)
		case Value, Skipped, SigningIn, Arrived:
			other := e
			other.Key = "other"
			add(string(k)+" for another secret", other)
			if k == Arrived {
				e.Key = "first"
			}
		case Late:
			add("late, before its time", e)
			e.Now = noon.Add(time.Hour)
		}
		add(string(k), e)
		if k == Resumed {
			e.Now = noon.Add(time.Hour)
			add("resumed after the deadline", e)
		}
	}
	add("an unknown event", Event{Kind: "?", Now: noon})
	return names, all
}

// told is what becomes of a flow, for the table.
func told(before, f Flow, actions []Action, err error) string {
	if err != nil {
		return "! " + err.Error()
	}
	if reflect.DeepEqual(before, f) && len(actions) == 0 {
		return "-"
	}
	words := string(f.State)
	if f.Step != "" {
		words += " (" + string(f.Step) + ")"
	}
	if w := f.View().Wants; w != nil {
		words += " of " + w.Variable
	}
	if f.Attempts != before.Attempts {
		words += fmt.Sprintf(", refused: %d", f.Attempts)
	}
	if f.Over() {
		words += strings.TrimSuffix(" "+string(f.Reason), " ") + ", " + fmt.Sprintf("%q", f.Detail)
	}
	for i, a := range actions {
		words += map[bool]string{true: "; ", false: ", "}[i == 0] + string(a.Do)
		if a.Again {
			words += " again"
		}
		if a.Key != "" {
			words += " " + a.Key
		}
	}
	return words
}

// TestTable: each event in each state. The table groups the events of a state by what they lead to; "-" is nothing, and
// "!" an error for the person who caused it. Each failure has one of the known reasons, and each reason is one.
func TestTable(t *testing.T) {
	var table strings.Builder
	failed := map[control.FlowReason]bool{}
	names, all := happenings()
	for _, p := range places() {
		fmt.Fprintf(&table, "\n%s\n", p.name)
		by, order := map[string][]string{}, []string{}
		for _, name := range names {
			kept, _ := json.Marshal(p.flow)
			f, actions, err := Next(p.flow, all[name])
			if after, _ := json.Marshal(p.flow); string(after) != string(kept) {
				t.Errorf("%s, %s: the flow before was changed", p.name, name)
			}
			if !p.flow.Over() {
				failed[f.Reason] = true
				if known := slices.Contains(control.FlowReasons(), f.Reason); known != (f.State == control.FlowFailed) {
					t.Errorf("%s, %s: it is %s for the reason %q", p.name, name, f.State, f.Reason)
				}
				want := f.Reason
				if f.Ended && f.State == control.CredentialRefused {
					want = control.FlowNotStarted
				}
				if v := f.View(); v.Reason != want {
					t.Errorf("%s, %s: the reason told is %q, not %q", p.name, name, v.Reason, want)
				}
			}
			words := told(p.flow, f, actions, err)
			if by[words] == nil {
				order = append(order, words)
			}
			by[words] = append(by[words], name)
		}
		for _, words := range order {
			fmt.Fprintf(&table, "  %s\n", words)
			line := "    <-"
			for i, name := range by[words] {
				if i > 0 {
					line += ","
				}
				if len(line)+len(name) > 110 {
					fmt.Fprintln(&table, line)
					line = "      "
				}
				line += " " + name
			}
			fmt.Fprintln(&table, line)
		}
	}
	for _, why := range control.FlowReasons() {
		if !failed[why] {
			t.Errorf("nothing fails for the reason %q", why)
		}
	}
	const file = "testdata/table.txt"
	if *update {
		if err := os.WriteFile(file, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != table.String() {
		t.Errorf("%s is not what is so (%v); run the test with -update and read the difference:\n%s", file, err, &table)
	}
}

// TestWalk: whatever comes in whatever order, a flow ends, nothing is done before its time, and a value is stored only
// where one is waited for.
func TestWalk(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	names, all := happenings()
	starts := places()[:3]
	ended := map[control.FlowState]int{}
	for range 3000 {
		f := starts[r.IntN(len(starts))].flow
		client, used, begun := f.Consent, false, false
		for step := 0; !f.Over() && step < 400; step++ {
			name := names[r.IntN(len(names))]
			e := all[name]
			if e.Kind == Cancelled || e.Kind == Superseded || e.Kind == Broken || e.Now.After(noon) {
				if r.IntN(8) > 0 { // or hardly any would come far
					continue
				}
			}
			before := f
			next, actions, err := Next(f, e)
			f = next
			said := e.Kind == Value || e.Kind == Confirmed || e.Kind == Skipped || e.Kind == Arrived && before.Step == SignIn
			used = used || err == nil && said
			begun = begun || e.Kind == Begun || e.Kind == Resumed
			if err != nil && (!reflect.DeepEqual(before, f) || len(actions) > 0) {
				t.Fatalf("%s: an error, and all the same %+v %+v", name, f, actions)
			}
			for _, a := range actions {
				works := a.Do == Install || a.Do == Write || a.Do == Start || a.Do == Verify
				switch {
				case works && (!begun || client && !used):
					t.Fatalf("%s: %+v before anybody said so", name, a)
				case a.Do == Store && (e.Kind != Value || before.wants() == nil || before.wants().Key != a.Key):
					t.Fatalf("%s: %+v of %+v", name, a, before)
				case a.Do == Stop && !f.Touched:
					t.Fatalf("%s: it stops what it has not touched", name)
				}
			}
			if f.Over() != slices.ContainsFunc(actions, func(a Action) bool { return a.Do == End }) {
				t.Fatalf("%s: %+v with %+v", name, f, actions)
			}
			if f.Attempts > MaxRefused || f.Attempts == MaxRefused && !f.Over() {
				t.Fatalf("%s: %d refused, and it is %s", name, f.Attempts, f.State)
			}
			if v := f.View(); (v.Wants != nil || f.Step == AwaitingConsent) && v.Deadline.IsZero() {
				t.Fatalf("%s: it waits for ever: %+v", name, v)
			}
		}
		ended[f.State]++
	}
	if ended[control.FlowComplete] < 20 || ended[control.FlowFailed] < 20 {
		t.Errorf("the walk does not come far: %v", ended)
	}
}

// TestWhole: the way that most go, with two secrets, of which the first is refused once.
func TestWhole(t *testing.T) {
	f := Flow{ID: "X", Server: "notion", Principal: "uid 1000", State: control.FlowStart, Secrets: secrets("", "")}
	var all []string
	for _, e := range []Event{
		{Kind: Begun}, {Kind: Value}, {Kind: Stored}, {Kind: Skipped}, {Kind: Written}, {Kind: Listed, Tools: 7},
		{Kind: Refused, Words: "API token is invalid"}, {Kind: Value}, {Kind: NotStored, Words: "the disk is full"},
		{Kind: Value}, {Kind: Stored}, {Kind: Written}, {Kind: Listed, Tools: 7}, {Kind: Verified, Tool: "get_me"},
	} {
		e.Now = noon
		next, actions, err := Next(f, e)
		if err != nil {
			t.Fatalf("%s: %v", e.Kind, err)
		}
		all = append(all, told(f, next, actions, err)+" | "+next.Detail)
		if retry := e.Kind == Refused || e.Kind == NotStored; next.View().Retry != retry {
			t.Errorf("%s: it waits once more: %v", e.Kind, !retry)
		}
		f = next
	}
	want := []string{
		"awaiting-credential of FIRST; ask | waiting for FIRST", "spawning (store); store first | storing first",
		"awaiting-credential of SECOND; ask | waiting for SECOND", "spawning (write); write | writing the declaration",
		"spawning (start); start | starting the server", "verifying; verify | calling a tool that only reads",
		"credential-invalid of FIRST, refused: 1; ask | API token is invalid",
		"spawning (store); store first | storing first",
		"credential-invalid of FIRST; ask | the disk is full", "spawning (store); store first | storing first",
		"spawning (write); write | writing the declaration", "spawning (start); start again | starting the server",
		"verifying; verify | calling a tool that only reads", `complete, ""; end | `,
	}
	if !slices.Equal(all, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(all, "\n"), strings.Join(want, "\n"))
	}
	v := f.View()
	if v.Tools != 7 || v.Verified != "get_me" || v.Attempts != 1 || !slices.Equal(f.Omitted(), []string{"SECOND"}) {
		t.Errorf("it ends as %+v", v)
	}
	if _, _, err := Next(f, Event{Kind: Value}); !errors.Is(err, ErrNotWaiting) {
		t.Errorf("a value after the end: %v", err)
	}
}

// TestSignIn: a token that comes by a sign-in leads on as a value does, and is the person's word; one that comes in
// another way leads on, and is none. A sign-in that fails costs no attempt, and leaves the person the whole time.
func TestSignIn(t *testing.T) {
	asked := Flow{State: control.FlowStart, Secrets: secrets(""), Asked: Asked{Page: true, Consent: true}}
	next := func(f Flow, e Event) Flow {
		t.Helper()
		if e.Now.IsZero() {
			e.Now = noon
		}
		f, _, err := Next(f, e)
		if err != nil {
			t.Fatalf("%s: %v", e.Kind, err)
		}
		return f
	}
	asked = next(asked, Event{Kind: Begun})
	came := next(asked, Event{Kind: Arrived, Key: "first"})
	if came.Step != AwaitingConsent || len(came.Taken()) != 0 || came.Secrets[0].Fate != Had {
		t.Errorf("somebody stored it: %+v", came)
	}
	own := asked
	own.Consent = false
	if came := next(own, Event{Kind: Arrived, Key: "first"}); !slices.Equal(came.Taken(), []string{"first"}) {
		t.Errorf("somebody stored it for the operator's own set-up: %+v", came)
	}
	signing := next(asked, Event{Kind: SigningIn, Key: "first"})
	if v := signing.View(); v.Wants == nil || v.Deadline.Before(noon.Add(PersonTime+time.Minute)) {
		t.Errorf("a person signs in: %+v", v)
	}
	if got := next(signing, Event{Kind: Late, Now: noon.Add(PersonTime)}); got.Over() {
		t.Errorf("the set-up ends before the sign-in: %+v", got)
	}
	failed := next(signing, Event{Kind: NotSignedIn, Words: "denied", Now: noon.Add(9 * time.Minute)})
	if v := failed.View(); v.Attempts != 0 || v.Wants == nil || v.Detail != "denied" || !v.Retry ||
		!v.Deadline.Equal(noon.Add(9*time.Minute+PersonTime)) || !failed.Consent {
		t.Errorf("it fails: %+v", v)
	}
	if got := next(signing, Event{Kind: NotSignedIn}); got.Detail != "waiting for FIRST" || got.Retry {
		t.Errorf("the person gave up: %+v", got)
	}
	if done := next(signing, Event{Kind: Arrived, Key: "first"}); done.Step != Writing || done.Consent ||
		!slices.Equal(done.Taken(), []string{"first"}) {
		t.Errorf("the token is there: %+v", done)
	}
	many := asked
	for range MaxSignIns {
		many = next(next(many, Event{Kind: SigningIn}), Event{Kind: NotSignedIn})
	}
	if _, _, err := Next(many, Event{Kind: SigningIn, Now: noon}); !errors.Is(err, ErrNotWaiting) {
		t.Errorf("one sign-in after another: %v", err)
	}
	_, _, err := Next(asked, Event{Kind: Value, Key: "second", Now: noon})
	if !errors.Is(err, ErrNotWaiting) || !strings.Contains(err.Error(), "nothing was stored") {
		t.Errorf("a late value for another secret: %v", err)
	}
}
