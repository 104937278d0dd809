package runs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// answers are what nodes of TestWholeRuns say, by a word.
var answers = map[string]Result{
	"ok":             good(`"value"`),
	"number":         good(`1`),
	"broken":         good(`{`),
	"rate_limited":   bad(failure.RateLimited, true),
	"not_found":      bad(failure.NotFound, true),
	"timeout":        bad(failure.Timeout, true),
	"timeout_unsent": bad(failure.Timeout, false),
	"tls":            bad(failure.TLS, false),
	"schema":         bad(failure.Schema, true),
	"unknown":        bad("", true),
	"denied":         {Denied: true},
	"never":          {Denied: true, Error: "never"},
	"denied_timeout": {Denied: true, Error: "never", Failed: failure.Failure{Class: failure.Timeout}},
}

// TestWholeRuns runs flows against a script of answers: which steps are called, how the run ends, and why.
func TestWholeRuns(t *testing.T) {
	for name, c := range map[string]struct {
		plan   string // as planned reads it
		says   string // a step, and what it says to each call; the last word also to all later ones
		calls  string
		state  flows.State
		reason string // contained
		trace  string // actions
	}{
		"three in a row":             {"a wb c", "", "a wb c", flows.Done, "", "default default default"},
		"one alone":                  {"a", "", "a", flows.Done, "", "default"},
		"a value goes on":            {"a b<a", "", "a b", flows.Done, "", "default default"},
		"a step sets it for another": {"a=x b<x", "", "a b", flows.Done, "", "default default"},
		"a failed step has set it":   {"a=x b<x; a timeout> b", "a timeout", "a b", flows.Done, "", "timeout default"},
		"an input that nothing gives": {"a b<x", "", "a",
			flows.Failed, `step "b": Missing required 'x' in shared store`, "default"},
		"an unfit result": {"a! b", "a number", "a",
			flows.Failed, `step "a": reading its result: the result does not have the form of a tool result`, "default"},
		"no JSON": {"a b", "a broken", "a", flows.Failed, `step "a": the result is not JSON`, "default"},

		"denied":                {"a b", "a never", "a", flows.Failed, `step "a": never`, "denied"},
		"denied without words":  {"a b", "a denied", "a", flows.Failed, "the gate denied the call", "denied"},
		"denied, with an edge":  {"a b; a denied> b", "a denied", "a", flows.Failed, "denied", "denied"},
		"denied, with any edge": {"a b; a timeout> b", "a denied_timeout", "a", flows.Failed, "never", "denied"},

		"failed without an edge": {"a b", "a not_found", "a",
			flows.Failed, `step "a": Resource not found`, "resource_missing"},
		"failed with an edge": {"a b c; a resource_missing> c", "a not_found", "a c",
			flows.Done, "", "resource_missing default"},
		"an edge of another action": {"a b c; a timeout> c", "a not_found", "a",
			flows.Failed, "not found", "resource_missing"},
		"an unknown class": {"a b", "a unknown", "a", flows.Failed, "MCP error: it failed", "failed"},
		"back off and again": {"a b back; a rate_limited> back; b -; back default> a", "a rate_limited ok", "a back a b",
			flows.Done, "", "rate_limited default default default"},
		"a read that timed out": {"a b; a timeout> a", "a timeout ok", "a a b",
			flows.Done, "", "timeout default default"},

		"a write that was refused": {"wa b; wa rate_limited> wa", "wa rate_limited ok", "wa wa b",
			flows.Done, "", "rate_limited default default"},
		"a write that was not sent": {"wa b; wa timeout> wa", "wa timeout_unsent ok", "wa wa b",
			flows.Done, "", "timeout default default"},
		"a write that timed out": {"wa b", "wa timeout", "wa", flows.Failed, "may have been carried out", "timeout"},
		"a write that timed out, and again": {"wa b; wa timeout> wa", "wa timeout ok", "wa",
			flows.Failed, `The edge of "timeout" leads back to this step`, "timeout"},
		"a write that timed out, and again by a way round": {"wa b back; wa timeout> back; b -; back default> wa",
			"wa timeout ok", "wa", flows.Failed, "leads back to this step", "timeout"},
		"a write that timed out, and on": {"wa b c; wa timeout> c", "wa timeout", "wa c",
			flows.Done, "", "timeout default"},
		"a write of an unknown class": {"wa b; wa failed> wa", "wa unknown ok", "wa",
			flows.Failed, "leads back to this step", "failed"},
		"TLS, and again": {"a b; a tls_failed> a", "a tls ok", "a",
			flows.Failed, "leads back to this step", "tls_failed"},
		"TLS, and on": {"a b c; a tls_failed> c", "a tls", "a c", flows.Done, "", "tls_failed default"},
		"schema, and again": {"a b back; a schema_mismatch> back; b -; back default> a", "a schema ok", "a",
			flows.Failed, "leads back to this step", "schema_mismatch"},

		"a loop without an end": {"a b; b default> a", "", strings.TrimSpace(strings.Repeat("a b ", 32)), flows.Failed,
			"the run has made 64 calls, as many as its flow may", strings.TrimSpace(strings.Repeat("default ", 64))},
	} {
		t.Run(name, func(t *testing.T) {
			says := strings.Fields(c.says)
			s := said(func(_ context.Context, call Call) (Result, error) {
				if len(says) == 0 || call.Plan.Steps[call.Step].ID != says[0] {
					return answers["ok"], nil
				}
				answer, ok := answers[says[1]]
				if !ok {
					return Result{}, errors.New("no such answer: " + says[1])
				}
				if len(says) > 2 {
					says = slices.Delete(says, 1, 2)
				}
				return answer, nil
			})
			b := s.bed(t, t.TempDir(), Limits{})
			b.Start()
			got := b.rest(t, b.begin(t, planned(strings.Split(c.plan, ";")...)))
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
	failed := errors.New("the caller has failed")
	for name, answer := range map[string]func() (Result, error){
		"the caller has failed":               func() (Result, error) { return Result{Waits: "x"}, failed },
		"the gateway has a fault in the code": func() (Result, error) { panic("hostile") },
	} {
		s := said(func(context.Context, Call) (Result, error) { return answer() })
		b := s.bed(t, t.TempDir(), Limits{})
		b.Start()
		got := b.rest(t, b.begin(t, planned("a b", "a failed> b")))
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
	sensitive := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}
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
		"what it read":                {labelled(raw), raw.Join(sensitive)},
		"less than before":            {labelled(gate.Start), sensitive},
		"a failure":                   {failed, secret},
		"no label":                    {labelled(gate.Label{}), worst},
		"half a label":                {labelled(gate.Label{Confidentiality: gate.Public}), worst},
		"a failure that was not sent": {bad(failure.NotFound, false), sensitive},
	} {
		s := said(func(_ context.Context, call Call) (Result, error) {
			if call.Turn == 0 {
				return c.first, nil
			}
			return good(`2`), nil
		})
		b := s.bed(t, t.TempDir(), Limits{})
		b.Start()
		id, err := b.Begin(New{Client: me.Client, Session: me.Session, Plan: planned("a b", "a resource_missing> b"),
			Label: sensitive})
		if err != nil {
			t.Fatal(err)
		}
		if got := b.rest(t, id); got.Label != c.want || got.Trace[1].Label != c.want {
			t.Errorf("%s: the run is %s, want %s", name, got.Label, c.want)
		}
		if first := s.calls[0].Floor; first != sensitive {
			t.Errorf("%s: the first floor is %s", name, first)
		}
		if floor := s.calls[1].Floor; floor != c.want {
			t.Errorf("%s: the second floor is %s, want %s", name, floor, c.want)
		}
	}
}
