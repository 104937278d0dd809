package generator

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// TestApart wants no package to be certain whose program another server may write to.
func TestApart(t *testing.T) {
	of := func(d gate.Declared) plan.Plan {
		b, _ := json.Marshal(d)
		return plan.Plan{Name: d.Server, Gateway: handover.Server{Declared: b}}
	}
	exa := gate.Declared{Server: "exa", Packages: []string{"exa-mcp-server"}, Rests: []string{"/srv/links/exa", "/srv/n/node_modules"}}
	for name, c := range map[string]struct {
		other gate.Declared
		want  bool // it stays certain
	}{
		"its folder":          {gate.Declared{Server: "files", Holds: []gate.Place{{Name: "/srv/n/node_modules", Writes: true}}}, false},
		"above it":            {gate.Declared{Server: "files", Holds: []gate.Place{{Name: "/srv/n", Writes: true}}}, false},
		"a part of it":        {gate.Declared{Server: "files", Holds: []gate.Place{{Name: "/srv/n/node_modules/exa-mcp-server/x", Writes: true}}}, false},
		"the link to it":      {gate.Declared{Server: "files", Holds: []gate.Place{{Name: "/srv/links", Writes: true}}}, false},
		"reading":             {gate.Declared{Server: "files", Holds: []gate.Place{{Name: "/srv/n"}}}, true},
		"another folder":      {gate.Declared{Server: "files", Holds: []gate.Place{{Name: "/srv/n/node", Writes: true}}}, true},
		"itself, as compiled": {gate.Declared{Server: "exa", Holds: []gate.Place{{Name: "/srv/n", Writes: true}}}, true},
	} {
		p := of(exa)
		got, _ := Apart(p, slices.Values([]plan.Plan{p, of(c.other)})).Declared()
		if certain := len(got.Packages) == 1; certain != c.want || certain == (got.Doubt != nil) {
			t.Errorf("%s: %+v", name, got)
		}
		if before, _ := p.Declared(); len(before.Packages) != 1 {
			t.Errorf("%s: the plan itself was changed", name)
		}
	}
}
