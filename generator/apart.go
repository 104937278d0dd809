package generator

import (
	"encoding/json"
	"iter"
	"slices"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/plan"
)

// Apart is the plan of a server, among those of others. If one of these may write to the server's program, it is not
// certain which package the server runs.
func Apart(p plan.Plan, others iter.Seq[plan.Plan]) plan.Plan {
	d, ok := p.Declared()
	if !ok || len(d.Packages) == 0 {
		return p
	}
	for q := range others {
		other, _ := q.Declared()
		for _, h := range other.Holds {
			reaches := func(rest string) bool { return h.Writes && h.Reaches(gate.Place{Name: rest}) }
			if q.Name == p.Name || !slices.ContainsFunc(d.Rests, reaches) {
				continue
			}
			origin := uncertain(d.Packages[0], "the server "+q.Name+" may write to "+quote(h.Name)+", where its program lies")
			d.Packages, d.Rests = nil, nil
			origin.declare(&d)
			p.Gateway.Declared, _ = json.Marshal(d) // strings
			return p
		}
	}
	return p
}
