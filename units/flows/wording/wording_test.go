package wording

import (
	"encoding/json"
	"testing"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// TestPlan: a plan is shown whole, and nothing in it is obeyed or hidden by a terminal.
func TestPlan(t *testing.T) {
	a := flows.Answer{
		Draft: &flows.Draft{
			Model: "main\x1b[2J", Reasoning: "It reads.\n\u202edone", LeftOut: 2,
			Flow: json.RawMessage(`{"edges":[{"from":"a","to":"b"},{"from":"a","to":"c","action":"timeout"}],` +
				`"mappings":{"b":{}}}`),
		},
		Steps: []flows.Judged{
			{
				Step: "a", Node: "tracker.read_issue", Arguments: json.RawMessage(`{"n":7,"a":"\u0007"}`),
				Verdict: gate.Allow, Reason: "reads",
			},
			{Step: "b", Node: "mail.send", From: []string{"body"}, Verdict: gate.Ask, Reason: "sends"},
		},
	}
	const want = `A plan by the model main\x1b[2J:
| It reads.
| \u202edone

1. a calls tracker.read_issue
     a = "\\u0007"
     n = 7
   [allow]: reads
   who sees it: unknown; effect: unknown; the session has seen at worst: unknown unknown

2. b calls mail.send
     body comes from an earlier step
   [ask]: sends
   who sees it: unknown; effect: unknown; the session has seen at worst: unknown unknown

After a, on default: b
After a, on timeout: c

Mappings: {"b":{}}

The model was not told of 2 tools whose definitions nobody has accepted: pfar pins
`
	if got := Plan(a, func(v gate.Verdict) string { return "[" + v.String() + "]" }); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestUnplanned(t *testing.T) {
	a := flows.Answer{
		Draft:    &flows.Draft{Model: "main"},
		Problems: []flow.Problem{{Text: "no such node\x07", Step: "a"}, {Text: "no steps"}},
	}
	const want = "the model main has written no plan that can run:\n  step a: no such node\\x07\n  no steps"
	if got := Unplanned(a); got != want {
		t.Errorf("got %q", got)
	}
}
