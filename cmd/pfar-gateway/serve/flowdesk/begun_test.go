package flowdesk_test

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/runs"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
)

// TestNotBegun: a step that its run has not begun passes the gate at most. Neither a server nor a node of pfar's own
// gets the request.
func TestNotBegun(t *testing.T) {
	b := newBench(t)
	b.server(t, "web", public, "search")
	digest := access.DigestOf([]byte(tokens["laptop"]))
	for _, n := range []flow.Node{
		{ID: "web.search", Server: "web", Tool: "search"}, {ID: "write-file"},
	} {
		r, err := b.desk.Call(t.Context(), runs.Call{
			Run: "r", Client: "laptop", Session: "default", Proof: "token " + hex.EncodeToString(digest[:4]),
			Plan: &flow.Plan{Steps: []flow.Planned{{Step: flow.Step{ID: "a", Node: n.ID}, Node: &n}}}, Turn: 1,
			Arguments: json.RawMessage(`{"says":"x","path":"f","content":"y"}`), Floor: gate.Start,
		})
		if err != nil || r.Sent || r.Value != nil || r.ID == "" || !strings.Contains(r.Error, "has not begun") {
			t.Errorf("%s: %+v, %v", n.ID, r, err)
		}
	}
	if got := b.calls(); len(got) != 0 {
		t.Errorf("called: %q", got)
	}
}
