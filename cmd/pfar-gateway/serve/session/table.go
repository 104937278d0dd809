package session

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
)

// Table keeps all open sessions.
type Table struct {
	limit  int
	idle   time.Duration
	closed func(*Session)

	mu    sync.Mutex
	byID  map[string]*Session
	timer *time.Timer // set while there are sessions
}

// NewTable returns a table for limit sessions, which end when nobody has used them for a while. closed is called for
// each that is over.
func NewTable(limit int, idle time.Duration, closed func(*Session)) *Table {
	return &Table{limit: limit, idle: idle, closed: closed, byID: make(map[string]*Session)}
}

// Open enters a session. When there are too many, the one that has been idle for longest gives way: of a client that
// has its share one of its own, else one of the client that has most.
func (t *Table) Open(s *Session) error {
	t.mu.Lock()
	var victim *Session
	if of, full := t.crowded(s.Bound().Client); full {
		if victim = t.idlest(of); victim == nil && of != s.Bound().Client {
			victim = t.idlest("")
		}
		if victim == nil {
			t.mu.Unlock()
			return errFull
		}
		delete(t.byID, victim.ID)
	}
	t.byID[s.ID] = s
	if t.timer == nil {
		t.timer = time.AfterFunc(t.idle, t.sweep)
	}
	t.mu.Unlock()
	if victim != nil {
		t.end(victim)
	}
	return nil
}

// crowded reports whether there is no room for one more session of a client's, and whose is to give way.
func (t *Table) crowded(client string) (of string, full bool) {
	if len(t.byID) < clients.Share(t.limit) {
		return "", false
	}
	n := make(map[string]int)
	for _, s := range t.byID {
		n[s.Bound().Client]++
	}
	if n[client] >= clients.Share(t.limit) {
		return client, true
	}
	for name := range n {
		if of == "" || n[name] > n[of] {
			of = name
		}
	}
	return of, len(t.byID) >= t.limit
}

// idlest returns the session that has been idle for longest, of one client or, for "", of all; nil if each is in use.
func (t *Table) idlest(of string) *Session {
	var found *Session
	var first time.Time
	for _, s := range t.byID {
		if of != "" && s.Bound().Client != of {
			continue
		}
		if at, idle := s.expiry(0); idle && (found == nil || at.Before(first)) {
			found, first = s, at
		}
	}
	return found
}

// Find returns the session if it is this client's on this endpoint: the id alone opens nothing.
func (t *Table) Find(id string, bound clients.Binding, endpoint string) *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s == nil || s.Bound() != bound || s.Endpoint() != endpoint {
		return nil
	}
	return s
}

// All returns the sessions that are open.
func (t *Table) All() []*Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byID))
}

// Remove ends a session.
func (t *Table) Remove(s *Session) {
	t.mu.Lock()
	_, open := t.byID[s.ID]
	delete(t.byID, s.ID)
	t.mu.Unlock()
	if open {
		t.end(s)
	}
}

// end is called once for a session, when it is in the table no more.
func (t *Table) end(s *Session) {
	s.end()
	t.closed(s)
}

// sweep ends what has been idle for too long and comes back when the next is due.
func (t *Table) sweep() {
	now := time.Now()
	next := now.Add(t.idle)
	var over []*Session
	t.mu.Lock()
	for id, s := range t.byID {
		at, idle := s.expiry(t.idle)
		switch {
		case idle && !at.After(now):
			delete(t.byID, id)
			over = append(over, s)
		case idle && at.Before(next):
			next = at
		}
	}
	if len(t.byID) == 0 {
		t.timer = nil
	} else {
		t.timer = time.AfterFunc(next.Sub(now), t.sweep)
	}
	t.mu.Unlock()
	for _, s := range over {
		t.end(s)
	}
}

// Close ends the sweeping. The sessions stay, for the next gateway.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
}

// Requests are those in flight that belong to no session (2026-07-28).
type Requests struct {
	mu  sync.Mutex
	all map[*request]struct{}
}

type request struct {
	bound  clients.Binding
	cancel context.CancelCauseFunc
}

// Add enters a request until done.
func (r *Requests) Add(bound clients.Binding, cancel context.CancelCauseFunc) (done func()) {
	one := &request{bound, cancel}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[*request]struct{})
	}
	r.all[one] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, one)
	}
}

// Dismiss cancels the requests of clients that gone reports.
func (r *Requests) Dismiss(gone func(clients.Binding) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.all {
		if gone(one.bound) {
			one.cancel(clients.ErrDismissed)
		}
	}
}

// Len is how many there are.
func (r *Requests) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}
