package serve

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
)

// kept writes down what the next gateway needs to know of clients.
type kept struct {
	memory *keep.Memory // nil: nowhere
	due    atomic.Bool  // it will be written soon
	pause  atomic.Int64 // until then, in nanoseconds

	mu   sync.Mutex // held while it is written
	over bool       // for the last time
}

// writePause is how long a change of the sessions may wait to be written down with others, or longer if writing takes
// more than a twentieth of the time. A gateway that is killed meanwhile has not made it: a session that is not there
// any more is begun again by its client.
const writePause = 100 * time.Millisecond

// memory is the file's content.
type memory struct {
	Sessions []session.Kept
	// Key and Spent are the sealer's. A killed gateway writes neither: a state might have been used in its last moment.
	Key   []byte               `json:",omitempty"`
	Spent map[string]time.Time `json:",omitempty"`
}

// noted has the sessions written down, for they have changed.
func (s *Server) noted() {
	if s.kept.memory == nil || !s.kept.due.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(max(writePause, time.Duration(s.kept.pause.Load())), func() {
		s.kept.due.Store(false)
		s.write(false)
	})
}

// write writes them down; last says that no request comes any more.
func (s *Server) write(last bool) {
	if s.kept.memory == nil {
		return
	}
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	if s.kept.over { // what has been closed since is not closed for the next gateway
		return
	}
	s.kept.over = last
	begun := time.Now()
	defer func() { s.kept.pause.Store(20 * int64(time.Since(begun))) }()
	c := memory{Sessions: s.sessions.Kept()}
	if last {
		c.Key, c.Spent = s.calls.Sealer.Kept()
	}
	if err := s.kept.memory.Write(c); err != nil {
		s.log.Warn("writing the sessions down for the next gateway, ignoring", "error", err.Error())
	}
}

// Keep has the sessions written down for the next gateway, from before the first client is served. Those of the gateway
// before this one, if the memory has any, go on; what that one had still to tell them is made up for.
func (s *Server) Keep(ctx context.Context, m *keep.Memory) {
	var before memory
	if m.Read(&before) == nil {
		for _, k := range before.Sessions {
			s.resume(ctx, k)
		}
		s.log.Info("sessions go on", "count", len(before.Sessions))
	}
	s.calls.Sealer.GoOn(before.Key, before.Spent)
	for _, up := range s.calls.Registry.Catalogue().Upstreams() {
		if up.Alive() {
			go s.restore(up)
		}
	}
	s.kept.memory = m
	s.write(false)
	m.Settled()
}

// resume opens a session again. Whether its client is still let in, Learn sees.
func (s *Server) resume(ctx context.Context, k session.Kept) {
	var changed registry.Kinds
	if view, err := s.calls.Registry.Catalogue().View(k.Endpoint); err == nil {
		for kind, list := range view.Lists {
			if list.Len() > 0 {
				changed |= registry.Kind(kind).Set()
			}
		}
	}
	t, err := s.sessions.GoOn(k, changed, s.limits.Queue)
	if err != nil {
		return
	}
	s.hub.Add(t.Sub)
	if m := s.Admits(s.Table(), t.Bound()); m != nil {
		t.Sub.Allow(m.Rights)
	}
	s.calls.Starter.Claim(ctx, s.calls.Life, t, k.Owns)
}
