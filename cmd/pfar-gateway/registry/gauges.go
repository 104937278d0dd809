package registry

import "github.com/pfar/pfar/cmd/pfar-gateway/telemetry"

// Gauges returns what is known of each server now, in no order.
func (r *Registry) Gauges() []telemetry.Gauge {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	list := make([]telemetry.Gauge, 0, len(r.table.entries))
	for name, e := range r.table.entries {
		g := telemetry.Gauge{Server: name, Up: e.served != nil, Faults: make(map[string]uint64)}
		if e.served != nil {
			g.Tools = len(e.served.listing[Tools])
			g.Held = e.served.waiting
		}
		g.Queue, g.InFlight = e.upstream.Load()
		g.Leaks = e.upstream.Leaks()
		for kind, n := range e.upstream.Faults() {
			g.Faults[string(kind)] = n
		}
		g.Sessions = r.sessions.count(func(o *owned) bool { return o.server == name })
		list = append(list, g)
	}
	return list
}
