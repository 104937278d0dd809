package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/monitor"
)

// bridges watches the egress bridges of servers that come and go. All but events belongs to the goroutine that reads
// events.
type bridges struct {
	ctx     context.Context
	dirs    control.Dirs
	events  chan bridgeEvent
	state   map[string]control.State
	watched map[string]attempt // by server
	reports int                // that there have been
	running sync.WaitGroup
}

// attempt is a connection to a bridge, or one under way.
type attempt struct {
	since   time.Time
	reports int // before it
}

// bridgeEvent is a message of a bridge, or the end of the connection to it.
type bridgeEvent struct {
	server  string
	message monitor.Message
	end     error
}

func newBridges(ctx context.Context, dirs control.Dirs) *bridges {
	return &bridges{ctx: ctx, dirs: dirs, events: make(chan bridgeEvent), state: map[string]control.State{}, watched: map[string]attempt{}}
}

// wait returns when nothing of it runs any more. The context must have ended.
func (b *bridges) wait() { b.running.Wait() }

// watch connects to the bridges of the servers that are up and not watched yet. A report is what there is to wait for:
// pfard tells of each step of a server's start.
func (b *bridges) watch(servers []control.Server) {
	b.reports++
	clear(b.state)
	for _, s := range servers {
		b.state[s.Name] = s.State
		if _, watched := b.watched[s.Name]; !watched && up(s.State) {
			b.connect(s.Name, 0)
		}
	}
}

func (b *bridges) connect(name string, pause time.Duration) {
	b.watched[name] = attempt{time.Now().Add(pause), b.reports}
	b.running.Go(func() {
		select {
		case <-time.After(pause):
		case <-b.ctx.Done():
			return
		}
		end := monitor.Follow(b.ctx, b.dirs.Egress(name), func(m monitor.Message) error {
			if !b.tell(bridgeEvent{server: name, message: m}) {
				return b.ctx.Err()
			}
			return nil
		})
		b.tell(bridgeEvent{server: name, end: end})
	})
}

// connected reports whether a bridge is listened to, or may answer at any moment.
func (b *bridges) connected() bool {
	for _, a := range b.watched {
		if !a.since.After(time.Now()) {
			return true
		}
	}
	return false
}

func (b *bridges) tell(e bridgeEvent) bool {
	select {
	case b.events <- e:
		return true
	case <-b.ctx.Done():
		return false
	}
}

// take notes the end of a connection. A bridge that has ended is connected to again, which starts it; if none listens,
// the next report is waited for. What it returns is worth telling.
func (b *bridges) take(e bridgeEvent) error {
	if e.end == nil {
		return nil
	}
	a := b.watched[e.server]
	delete(b.watched, e.server)
	switch {
	case b.ctx.Err() != nil:
		return nil
	case errors.Is(e.end, control.ErrNotRunning):
		if a.reports < b.reports && up(b.state[e.server]) { // what was to be waited for came before this answer
			b.connect(e.server, 0)
		}
		return nil
	case !errors.Is(e.end, io.EOF):
		return e.end
	}
	if up(b.state[e.server]) {
		// One that ends at once may do so without end, and there is no event that says that it is sound again.
		b.connect(e.server, max(0, reconnectPause-time.Since(a.since)))
	}
	return nil
}
