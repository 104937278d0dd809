package registry

// Facts are what an operator wants to see of a server now.
type Facts struct {
	Server   string
	Up       bool
	Tools    int // served
	Held     int // definitions that wait for the owner
	Queue    int // calls that wait for others to end
	InFlight int // requests that it has not answered
	Sessions int // processes that serve one client session alone
	Faults   map[string]uint64
	Leaks    map[string]uint64 // secrets that were replaced in what it said, by name
}

// Facts returns those of each server, in no order.
func (r *Registry) Facts() []Facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Facts, 0, len(r.entries))
	for name, e := range r.entries {
		f := Facts{Server: name, Up: e.served != nil, Faults: make(map[string]uint64)}
		if e.served != nil {
			f.Tools = len(e.served.listing[Tools])
			f.Held = e.served.waiting
		}
		f.Queue, f.InFlight = int(e.upstream.queued.Load()), len(e.upstream.slots)
		f.Leaks = e.upstream.Leaks()
		for kind, n := range e.upstream.Faults() {
			f.Faults[string(kind)] = uint64(n)
		}
		for _, o := range r.owned {
			if o.server == name {
				f.Sessions++
			}
		}
		list = append(list, f)
	}
	return list
}
