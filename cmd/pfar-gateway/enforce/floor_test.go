package enforce_test

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/policies/gate"
)

// TestGrantNotForARun: a grant covers no call of a run that may hold data past the audience. The session does not know
// after a reset what the run has read before.
func TestGrantNotForARun(t *testing.T) {
	for name, tt := range map[string]struct {
		run  *enforce.Run
		want bool
	}{
		"of no run":                     {nil, true},
		"a run that holds nothing":      {&enforce.Run{ID: "run1", Step: "s", Floor: gate.Start}, true},
		"a run that holds private data": {&enforce.Run{ID: "run1", Step: "s", Floor: private}, false},
		"a run that holds nobody knows": {&enforce.Run{ID: "run1", Step: "s"}, false},
	} {
		h := newHeist(t, "balanced")
		h.reads(private, minutes)
		it := search(t, "web", "search")
		if err := h.granted(it, bounds); err != nil {
			t.Fatal(err)
		}
		arguments := quoted("the weather")
		params := []byte(`{"arguments":` + string(arguments) + `}`)
		r := enforce.Request{Method: "tools/call", Arguments: arguments, Params: params, Run: tt.run}
		pass, err := h.Enter(t.Context(), h.who, it, r)
		if (err == nil) != tt.want || err == nil && !pass.Approved() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPlanTooLongToShow: nobody is asked about a plan that is too long to be read, and one that needs nobody may begin.
func TestPlanTooLongToShow(t *testing.T) {
	b := newFlowBench(t, t.TempDir())
	plans := enforce.Plans{Point: b.Point}
	plan := searchAndPost(t)
	plan.Steps[0].Known = []byte(`{"query":"` + strings.Repeat("x", 64<<10) + `"}`)
	_, _, err := plans.Decide(t.Context(), b.who, plan)
	if err == nil || !strings.Contains(err.Error(), "of at most 65536") || len(b.Approvals.List()) != 0 {
		t.Errorf("%v", err)
	}
	plan.Steps = plan.Steps[:1]
	plan.Steps[0].Next = nil
	if f := plans.Fold(t.Context(), b.who, plan); f.Denied() != "" || f.Asks() {
		t.Errorf("%s", f.Denied())
	}
}
