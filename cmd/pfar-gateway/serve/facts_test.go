package serve

import (
	"encoding/json"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// TestFacts wants what the gate goes by for a tool to be what is declared of it, and else the worst. Nobody has reviewed
// the definitions, and of one the owner has written the description.
func TestFacts(t *testing.T) {
	g := start(t, DefaultLimits())
	said, err := json.Marshal(gate.Declared{Server: "one", Words: []gate.Word{{Tool: "a", Effect: gate.None, Audience: gate.Internal, From: "owner: one.hcl"}}})
	if err != nil {
		t.Fatal(err)
	}
	list := `{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"type":"object"}}]}`
	declared := handover.Server{Name: "one", Declared: said, Tools: map[string]handover.Tool{"b": {Description: "My own"}}}
	g.Launch(t, declared, registrytest.Script{Lists: map[string]string{"tools/list": list}}).Ready(t)
	want := map[string]gate.Facts{
		"a": {Output: gate.Worst.Output, Audience: gate.Internal, Effect: gate.None, From: gate.From{Confidentiality: "unknown", Integrity: "unknown", Audience: "owner: one.hcl", Effect: "owner: one.hcl"}},
		"b": gate.Worst,
	}
	for _, k := range g.srv.Facts() {
		if k.Server != "one" || k.Facts != want[k.Tool] || k.Pin != "unreviewed" || k.Described != (k.Tool == "b") {
			t.Errorf("%s.%s: %+v, want %+v", k.Server, k.Tool, k, want[k.Tool])
		}
		delete(want, k.Tool)
	}
	if len(want) > 0 {
		t.Errorf("nothing is said of %v", want)
	}
}
