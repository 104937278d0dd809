package converge

import (
	"testing"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// TestDecide: each step follows from what there is and what is wanted alone.
func TestDecide(t *testing.T) {
	by := func(program, host string) plan.Plan {
		return plan.Plan{
			Name: "a", Sandbox: sandbox.Sandbox{Command: program},
			Egress: egress.Policy{Endpoints: []egress.Endpoint{{Host: host, Port: 443}}},
		}
	}
	one, two, host := by("one", "x.example"), by("two", "x.example"), by("one", "y.example")
	run := func(p plan.Plan) *Server { return &Server{Plan: p, Run: true} }
	for _, tt := range []struct {
		name string
		have Have
		want *Server
		step Step
	}{
		{"nothing runs, nothing is wanted", Have{}, nil, Forget},
		{"it is to run", Have{}, run(one), Start},
		{"it need not run", Have{}, &Server{Plan: one}, Rest},
		{"it need not run, and never as before", Have{}, &Server{Plan: one, Again: true}, Rest},
		{"it runs", Have{Started: &one}, run(one), Keep},
		{"it runs with sessions", Have{Started: &one, Sessions: 2}, run(one), Keep},
		{"another process", Have{Started: &one}, &Server{Plan: one, Run: true, Again: true}, Replace},
		{"another program", Have{Started: &one}, run(two), Replace},
		{"another host", Have{Started: &one}, run(host), Adjust},
		{"another host and process", Have{Started: &one}, &Server{Plan: host, Run: true, Again: true}, Replace},
		{"it is stopped", Have{Started: &one}, &Server{Plan: one}, Stop},
		{"its file is removed", Have{Started: &one}, nil, Stop},
		{"a stop is under way", Have{Started: &one, Busy: true}, run(two), Wait},
		{"a stop is under way, and nothing is wanted", Have{Started: &one, Busy: true}, nil, Wait},
		{"a session is left", Have{Sessions: 1}, run(one), Wait},
		{"a session is left of what nobody wants", Have{Sessions: 1}, nil, Wait},
		{"a session is left of what rests", Have{Sessions: 1}, &Server{Plan: one}, Wait},
	} {
		if step := Decide(tt.have, tt.want); step != tt.step {
			t.Errorf("%s: %s, want %s", tt.name, step, tt.step)
		}
	}
}
