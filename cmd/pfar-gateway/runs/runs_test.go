package runs

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// TestWholeRuns runs flows against a script of answers: which steps are called, how the run ends, and why.
func TestWholeRuns(t *testing.T) {
	type step map[string][]Result // of a step, by its call of the same step before; the last one is for all later ones
	ok := good(`"value"`)
	once := func(r Result, then ...Result) []Result { return append([]Result{r}, then...) }
	for name, c := range map[string]struct {
		plan   []string
		says   step
		calls  string
		state  flows.State
		reason string // contained
		trace  string // actions
	}{
		"three in a row":                     {[]string{"a wb c"}, nil, "a wb c", flows.Done, "", "default default default"},
		"one alone":                          {[]string{"a"}, nil, "a", flows.Done, "", "default"},
		"a value goes on":                    {[]string{"a b<a"}, nil, "a b", flows.Done, "", "default default"},
		"a step sets what a later one reads": {[]string{"a=x b<x"}, nil, "a b", flows.Done, "", "default default"},
		"a step that failed has set it": {[]string{"a=x b<x", "a timeout> b"}, step{"a": {bad(failure.Timeout, true)}},
			"a b", flows.Done, "", "timeout default"},
		"an input that nothing gives": {[]string{"a b<x"}, nil, "a", flows.Failed, `step "b": missing required "x" in shared store`, "default"},
		"an unfit result":             {[]string{"a b"}, step{"a": {good(`"unfit"`)}}, "a", flows.Failed, `step "a": reading its result: it has no output`, "default"},
		"no JSON":                     {[]string{"a b"}, step{"a": {good(`{`)}}, "a", flows.Failed, `step "a": its result is no JSON`, "default"},

		"denied":                {[]string{"a b"}, step{"a": {{Denied: true, Error: "never"}}}, "a", flows.Failed, `step "a": never`, "denied"},
		"denied without words":  {[]string{"a b"}, step{"a": {{Denied: true}}}, "a", flows.Failed, "the gate denied the call", "denied"},
		"denied, with an edge":  {[]string{"a b", "a denied> b"}, step{"a": {{Denied: true}}}, "a", flows.Failed, "denied", "denied"},
		"denied, with any edge": {[]string{"a b", "a timeout> b"}, step{"a": {{Denied: true, Error: "x", Failed: failure.Failure{Class: failure.Timeout}}}}, "a", flows.Failed, "x", "denied"},

		"failed without an edge": {[]string{"a b"}, step{"a": {bad(failure.NotFound, true)}}, "a", flows.Failed, `step "a": Resource not found`, "resource_missing"},
		"failed with an edge":    {[]string{"a b c", "a resource_missing> c"}, step{"a": {bad(failure.NotFound, true)}}, "a c", flows.Done, "", "resource_missing default"},
		"an edge of another action": {[]string{"a b c", "a timeout> c"}, step{"a": {bad(failure.NotFound, true)}}, "a",
			flows.Failed, "not found", "resource_missing"},
		"an unknown class": {[]string{"a b"}, step{"a": {bad("", true)}}, "a", flows.Failed, "MCP error: it failed", "failed"},
		"back off and again": {[]string{"a b back", "a rate_limited> back", "b -", "back default> a"},
			step{"a": once(bad(failure.RateLimited, true), ok)}, "a back a b", flows.Done, "", "rate_limited default default default"},
		"a read that timed out": {[]string{"a b", "a timeout> a"}, step{"a": once(bad(failure.Timeout, true), ok)},
			"a a b", flows.Done, "", "timeout default default"},

		"a write that was refused": {[]string{"wa b", "wa rate_limited> wa"}, step{"wa": once(bad(failure.RateLimited, true), ok)},
			"wa wa b", flows.Done, "", "rate_limited default default"},
		"a write that was not sent": {[]string{"wa b", "wa timeout> wa"}, step{"wa": once(bad(failure.Timeout, false), ok)},
			"wa wa b", flows.Done, "", "timeout default default"},
		"a write that timed out": {[]string{"wa b"}, step{"wa": {bad(failure.Timeout, true)}}, "wa", flows.Failed,
			"may have been carried out", "timeout"},
		"a write that timed out, and again": {[]string{"wa b", "wa timeout> wa"}, step{"wa": {bad(failure.Timeout, true)}},
			"wa", flows.Failed, "The edge of \"timeout\" leads back to this step", "timeout"},
		"a write that timed out, and again by a way round": {[]string{"wa b back", "wa timeout> back", "b -", "back default> wa"},
			step{"wa": {bad(failure.Timeout, true)}}, "wa", flows.Failed, "leads back to this step", "timeout"},
		"a write that timed out, and on": {[]string{"wa b c", "wa timeout> c"}, step{"wa": {bad(failure.Timeout, true)}},
			"wa c", flows.Done, "", "timeout default"},
		"a write of an unknown class": {[]string{"wa b", "wa failed> wa"}, step{"wa": {bad("", true)}}, "wa", flows.Failed, "leads back", "failed"},
		"TLS, and again":              {[]string{"a b", "a tls_failed> a"}, step{"a": {bad(failure.TLS, false)}}, "a", flows.Failed, "leads back", "tls_failed"},
		"TLS, and on":                 {[]string{"a b c", "a tls_failed> c"}, step{"a": {bad(failure.TLS, false)}}, "a c", flows.Done, "", "tls_failed default"},
		"schema, and again": {[]string{"a b back", "a schema_mismatch> back", "b -", "back default> a"}, step{"a": {bad(failure.Schema, true)}},
			"a", flows.Failed, "leads back", "schema_mismatch"},

		"a loop without an end": {[]string{"a b", "b default> a"}, nil, strings.TrimSpace(strings.Repeat("a b ", 32)), flows.Failed,
			"the run has made 64 calls, as many as its flow may", strings.TrimSpace(strings.Repeat("default ", 64))},
	} {
		t.Run(name, func(t *testing.T) {
			before := make(map[string]int)
			s := said(func(_ context.Context, call Call) (Result, error) {
				id := call.Plan.Steps[call.Step].ID
				says := c.says[id]
				n := before[id]
				before[id]++
				if len(says) == 0 {
					return ok, nil
				}
				return says[min(n, len(says)-1)], nil
			})
			b := s.bed(t, t.TempDir(), Limits{})
			b.Start()
			got := b.rest(t, b.begin(t, planned(t, c.plan...)))
			if got.State != c.state || !strings.Contains(got.Reason, c.reason) || c.reason == "" && got.Reason != "" {
				t.Errorf("it is %s: %q, want %s: %q", got.State, got.Reason, c.state, c.reason)
			}
			if calls := s.called(); calls != c.calls {
				t.Errorf("it calls %q, want %q", calls, c.calls)
			}
			var actions []string
			for i, step := range got.Trace {
				actions = append(actions, step.Action)
				if s.calls[i].Turn != i {
					t.Errorf("call %d is of turn %d", i, s.calls[i].Turn)
				}
			}
			if trace := strings.Join(actions, " "); trace != c.trace {
				t.Errorf("its trace is %q, want %q", trace, c.trace)
			}
			if (got.State == flows.Done) != (string(got.Result) == `"value"`) {
				t.Errorf("its result is %s", got.Result)
			}
			if got.At != "" || got.Approval != "" {
				t.Errorf("it is over, and at %q, %q", got.At, got.Approval)
			}
		})
	}
}

// TestCallerFails: an error of the caller, or a panic, ends the run and takes no edge.
func TestCallerFails(t *testing.T) {
	for name, answer := range map[string]func() (Result, error){
		"the caller has failed":               func() (Result, error) { return Result{Waits: "approval"}, errors.New("the caller has failed") },
		"the gateway has a fault in the code": func() (Result, error) { panic("hostile") },
	} {
		s := said(func(context.Context, Call) (Result, error) { return answer() })
		b := s.bed(t, t.TempDir(), Limits{})
		b.Start()
		got := b.rest(t, b.begin(t, planned(t, "a b", "a failed> b")))
		if got.State != flows.Failed || !strings.Contains(got.Reason, name) || strings.Contains(got.Reason, "hostile") {
			t.Errorf("%s: it is %s: %q", name, got.State, got.Reason)
		}
		if calls := s.called(); calls != "a" {
			t.Errorf("%s: it calls %q", name, calls)
		}
	}
}

// TestLabel: the floor of each call is the join of all that the run's store has had before, whatever becomes of it.
func TestLabel(t *testing.T) {
	raw := gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw}
	secret := gate.Label{Confidentiality: gate.Secret, Integrity: gate.Clean}
	worst := gate.Label{Confidentiality: gate.Secret, Integrity: gate.Raw}
	labelled := func(l gate.Label) Result { r := good(`1`); r.Label = l; return r }
	failed := bad(failure.NotFound, true)
	failed.Label = secret
	for name, c := range map[string]struct {
		first Result
		want  gate.Label
	}{
		"what it read":                {labelled(raw), raw.Join(gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean})},
		"less than before":            {labelled(gate.Start), gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}},
		"a failure":                   {failed, secret},
		"no label":                    {labelled(gate.Label{}), worst},
		"half a label":                {labelled(gate.Label{Confidentiality: gate.Public}), worst},
		"a failure that was not sent": {bad(failure.NotFound, false), gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}},
	} {
		s := said(func(_ context.Context, call Call) (Result, error) {
			if call.Turn == 0 {
				return c.first, nil
			}
			return good(`2`), nil
		})
		b := s.bed(t, t.TempDir(), Limits{})
		b.Start()
		id, err := b.Begin(New{Client: me.Client, Session: me.Session, Plan: planned(t, "a b", "a resource_missing> b"),
			Label: gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}})
		if err != nil {
			t.Fatal(err)
		}
		if got := b.rest(t, id); got.Label != c.want || got.Trace[1].Label != c.want {
			t.Errorf("%s: the run is %s, want %s", name, got.Label, c.want)
		}
		if first := s.calls[0].Floor; first != (gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}) {
			t.Errorf("%s: the first floor is %s", name, first)
		}
		if floor := s.calls[1].Floor; floor != c.want {
			t.Errorf("%s: the second floor is %s, want %s", name, floor, c.want)
		}
	}
}
