package main

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/processes"
)

// running is what pfard said last of what runs.
type running struct {
	mu      sync.Mutex
	last    *control.Report // nil: it has said nothing yet
	changed chan struct{}   // closed, and another made, when it says more
	samples map[string]sample
}

// spent is how much processor time a server had used up at a time.
type spent struct {
	at   time.Time
	used time.Duration
}

// sample is what a server had used up when it was last measured, and at the measurement before that.
type sample struct{ last, before spent }

// A share of processors is of the time since another measurement: not just before, when ticks count, nor long ago.
const (
	minApart = time.Second
	maxApart = time.Minute
)

func newRunning() *running {
	return &running{changed: make(chan struct{}), samples: map[string]sample{}}
}

func (r *running) set(now *control.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.last, r.changed = now, make(chan struct{})
	maps.DeleteFunc(r.samples, func(server string, _ sample) bool {
		return !slices.ContainsFunc(now.Servers, func(s control.Server) bool { return s.Name == server })
	})
}

// share returns how many processors a server kept busy since it was measured before; known: it was, and goes on.
func (r *running) share(server string, now spent) (share float64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.samples[server]
	if now.at.Sub(s.last.at) >= minApart {
		s.last, s.before = now, s.last
		r.samples[server] = s
	}
	passed := now.at.Sub(s.before.at)
	known = passed >= minApart && passed <= maxApart && now.used >= s.before.used
	return processes.Share(now.used-s.before.used, passed), known
}

// now returns the last report, which is not to be changed, and a channel that closes when pfard sends the next one.
func (r *running) now() (*control.Report, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.changed
}
