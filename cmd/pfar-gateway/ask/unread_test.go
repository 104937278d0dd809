package ask

import (
	"context"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/check"
	"github.com/pfar/pfar/policies/flow/form"
	"github.com/pfar/pfar/policies/flow/native"
	"github.com/pfar/pfar/policies/flow/node"
	"github.com/pfar/pfar/units/flows"
)

// TestUnreadDefinitions: a model that names a tool whose definition nobody has accepted is told no word of the
// definition, also in the mistakes of its plan.
func TestUnreadDefinitions(t *testing.T) {
	n := node.Of(node.Tool{Server: "notes", Version: "1", Pin: "p", Definition: []byte(
		`{"name":"find","inputSchema":{"type":
		"object","properties":{"EVIL_PORT":{"type":"string"},"to":{"enum":["EVIL value"]}},"required":["EVIL_PORT"]}}`)})
	offered, left := accepted(append(native.Nodes(), n))
	if left != 1 {
		t.Fatalf("%d nodes are left out", left)
	}
	p := planned{offered: offered, read: func(nodes []flow.Node, text string) (*flow.Plan, []flow.Problem) {
		cat := node.New(nodes, nil)
		f, problems := form.Read(form.Source{Form: form.JSON, Text: text}, cat)
		plan, more := check.Check(context.Background(), f, cat)
		return plan, append(problems, more...)
	}}
	problems := p.take(`{"nodes":[{"id":"a","node":"notes.find","params":{"to":"x"}}]}`, new(flows.Draft))
	if len(problems) == 0 || strings.Contains(repairOrders(problems), "EVIL") {
		t.Errorf("the model is told %q", repairOrders(problems))
	}
}
