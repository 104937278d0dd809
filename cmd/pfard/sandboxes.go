package main

import (
	"maps"
	"slices"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/plan"
)

// sandboxes are those of all servers, by each plan that counts: the declared one, which also a server has that does not
// run, for it may be started at any time and read what others have written; and the ones by which it runs.
func sandboxes(servers map[string]*server) []gate.Sandbox {
	all := []gate.Sandbox{}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		s := servers[name]
		for _, p := range []*plan.Plan{s.want, s.has.Started, s.has.Next} {
			if p == nil || p.Fault != "" { // which never runs
				continue
			}
			one := gate.Sandbox{
				Server: name, Declared: p.Gateway.Declared, Learns: s.learn != nil || p.Egress.Learn, Shared: s.status.Shared != "",
			}
			if !slices.ContainsFunc(all, one.Equal) {
				all = append(all, one)
			}
		}
	}
	return all
}
