package native

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/toolname"
)

// TestNodes: no two native nodes have one name, each has a pin of its own, a whole result, at most one piped input, and
// schemas that are JSON.
func TestNodes(t *testing.T) {
	names, pins := []string{}, map[string]bool{}
	for _, n := range Nodes() {
		for _, name := range append([]string{n.ID}, n.Aliases...) {
			if slices.ContainsFunc(names, func(o string) bool { return toolname.Alike(o, name) }) {
				t.Errorf("%q is the name of two", name)
			}
			names = append(names, name)
		}
		if n.Server != "" || n.Held != "" || n.Pin == "" || pins[n.Pin] || n.Actions[0] != flow.Default {
			t.Errorf("%+v", n)
		}
		pins[n.Pin] = true
		if len(n.Outputs) != 2 || n.Outputs[1].Name != n.ID {
			t.Errorf("%s has the outputs %+v", n.ID, n.Outputs)
		}
		piped := 0
		for _, p := range slices.Concat(n.Inputs, n.Params, n.Outputs) {
			if p.Piped {
				piped++
			}
			if p.Schema != nil && !json.Valid(p.Schema) || p.Default != nil && !json.Valid(p.Default) {
				t.Errorf("%s.%s: %s, %s", n.ID, p.Name, p.Schema, p.Default)
			}
		}
		if piped > 1 {
			t.Errorf("%s has %d piped inputs", n.ID, piped)
		}
	}
	first, again := Nodes(), Nodes()
	for i := range first {
		if first[i].Pin != again[i].Pin {
			t.Errorf("the pin of %s changes", first[i].ID)
		}
	}
}
