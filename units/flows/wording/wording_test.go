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
				`"mappings":{"b":{}},"store":{"later":"hidden\u001b"}}`),
		},
		Steps: []flows.Judged{
			{
				Step: "a", Node: "tracker.read_issue", Arguments: json.RawMessage(`{"n":7,"a":"\u0007"}`),
				Verdict: gate.Allow, Reason: "reads",
			},
			{
				Step: "b", Node: "mail.send", From: []string{"body"}, Verdict: gate.Ask, Reason: "sends",
				Or: map[string][]json.RawMessage{"body": {json.RawMessage(`"EVIL"`)}, "to": {json.RawMessage(`"x"`)}},
			},
		},
	}
	const want = `A plan by the model main\x1b[2J:
| It reads.
| \u202edone

1. a calls tracker.read_issue
     a = "\\u0007"
     n = 7
   [allow]: reads
   seen by: unknown; effect: unknown; the session at worst: unknown unknown

2. b calls mail.send
     body from an earlier step, or "EVIL"
     to = "x"
   [ask]: sends
   seen by: unknown; effect: unknown; the session at worst: unknown unknown

after a, on default: b
after a, on timeout: c
mappings: {"b":{}}
in the store before the first step: later = "hidden\\u001b"

pfar hid 2 tools from the model: nobody has accepted their definitions (pfar pins)
`
	if got := Plan(a, func(v gate.Verdict) string { return "[" + v.String() + "]" }); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestUnplanned(t *testing.T) {
	a := flows.Answer{
		Draft:    &flows.Draft{Model: "main"},
		Problems: []flow.Problem{{Text: "no such node\x07", Step: "a\nb"}, {Text: "no steps\npfar: done"}},
	}
	const want = "the plan of the model main cannot run:\n| step a\n| b: no such node\\x07\n| no steps\n| pfar: done"
	if got := Unplanned(a); got != want {
		t.Errorf("got %q", got)
	}
}
