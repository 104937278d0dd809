package serve

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/units/handover"
)

// kept is where what the next gateway needs to know of clients is written.
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

// memory is what is written.
type memory struct {
	Sessions []keptSession
	// How states that clients come back with were sealed, and which have been used. There is none of a gateway that was
	// killed: a state might have been used in its last moment.
	Key   []byte               `json:",omitempty"`
	Spent map[string]time.Time `json:",omitempty"`
}

// keptSession is a session as the next gateway needs it.
type keptSession struct {
	ID, Endpoint, Version string
	Handle                string
	Bound                 binding
	Abilities             []byte
	Level                 int
	URIs, Kept            map[string]string
	Elicitations          []string
	Owns                  map[string]string // handles of its own processes by server
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
	c := memory{Sessions: s.sessions.state()}
	if last {
		c.Key, c.Spent = s.sealKey, s.spent.all()
	}
	if err := s.kept.memory.Write(c); err != nil {
		s.log.Warn("writing the sessions down for the next gateway, ignoring", "error", err.Error())
	}
}

func (t *sessions) state() []keptSession {
	t.mu.Lock()
	open := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	list := make([]keptSession, 0, len(open))
	for _, s := range open {
		k := keptSession{ID: s.id, Handle: s.handle, Bound: s.bound, Endpoint: s.endpoint, Version: s.version, Abilities: s.abilities, Owns: s.handles()}
		s.sub.mu.Lock()
		k.Level, k.URIs, k.Elicitations = s.sub.level, maps.Clone(s.sub.uris), slices.Clone(s.sub.elicitations)
		k.Kept = maps.Clone(s.sub.kept)
		s.sub.mu.Unlock()
		list = append(list, k)
	}
	return list
}

// handles are those of the session's own processes, by server.
func (s *session) handles() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]string)
	for server, p := range s.owns {
		if p.up != nil && p.up.Alive() {
			all[server] = p.own.Handle()
		}
	}
	return all
}

func (s *spent) all() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.until)
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
	if len(before.Key) == sealKeySize {
		s.sealKey, s.sealer, s.spent.until = before.Key, newSealer(before.Key), before.Spent
		if s.spent.until == nil {
			s.spent.until = make(map[string]time.Time)
		}
	}
	for _, up := range s.registry.Catalogue().Upstreams() {
		if up.Alive() {
			go s.restore(up)
		}
	}
	s.kept.memory = m
	s.write(false)
	m.Settled()
}

// resume opens a session again. Whether its client is still let in, Learn sees.
func (s *Server) resume(ctx context.Context, k keptSession) {
	t := &session{id: k.ID, handle: k.Handle, bound: k.Bound, endpoint: k.Endpoint, version: k.Version, abilities: k.Abilities}
	t.sub = newSubscriber(t.bound, t.endpoint, registry.AllKinds, s.limits.Queue)
	t.sub.session = k.ID
	t.sub.level = min(max(k.Level, 0), len(levels)-1)
	if view, err := s.registry.Catalogue().View(k.Endpoint); err == nil {
		for kind, list := range view.Lists {
			if list.Len() > 0 {
				t.sub.changed |= registry.Kind(kind).Set()
			}
		}
	}
	for uri, server := range k.URIs {
		t.sub.uris[uri] = server
		t.sub.push(jsonrpc.AppendNotification(nil, mcp.MethodNotificationResourceUpdated, fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(uri))))
	}
	t.sub.kept = k.Kept
	t.sub.elicitations = k.Elicitations
	if s.sessions.open(t) != nil {
		return
	}
	s.hub.add(t.sub)
	if table := s.clients.table.Load(); table != nil {
		if m := s.admits(table, t.bound); m != nil {
			t.sub.rights.Store(m.rights)
		}
	}
	for server, handle := range k.Owns {
		own, up, ok := s.registry.Claim(ctx, server, handle, func(h handover.Server) (registry.SessionClient, error) { return s.clientOf(t, h) })
		if !ok {
			continue // its client's next call starts another
		}
		t.owns[server] = &process{turn: make(chan struct{}, 1), own: own, up: up}
		go s.watchAgain(t, server, up)
	}
}

// watchAgain tells a session's process what its client watches.
func (s *Server) watchAgain(t *session, server string, up *registry.Upstream) {
	uris := t.sub.watchedOf(server)
	if len(uris) == 0 {
		return
	}
	if err := up.Watch(s.calls, uris...); err != nil {
		s.log.Warn("subscribing again in a process of a session, ignoring", "server", server, "error", err.Error())
	}
}

// sealKeySize is the length of the key that states are sealed with, in bytes.
const sealKeySize = 32

func newSealKey() []byte {
	key := make([]byte, sealKeySize)
	_, _ = rand.Read(key) // crashes rather than fails
	return key
}
