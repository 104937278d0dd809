package serve

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
)

// session is one client's conversation in the revisions that have sessions.
type session struct {
	id        string  // 128 random bits
	handle    string  // of the label that is this connection's own; "": it has none
	bound     binding // who it belongs to, as authenticated
	endpoint  string  // the server's name, "" for all
	version   string  // of the protocol
	sub       *subscriber
	abilities []byte // capabilities, as it said in initialize
	ended     chan struct{}

	mu           sync.Mutex
	last         time.Time // used
	streams      int
	calls        map[string]context.CancelCauseFunc // in flight, by id as it came
	questions    map[string]question                // to the client, by their id
	lastQuestion int64
	owns         map[string]*process // of its own, by server
}

// capable reports whether the client says that it can be asked for that.
func (s *session) capable(capability string) bool {
	ms, err := jsonrpc.Object(s.abilities, nil)
	return err == nil && ms.Get(capability) != nil
}

// asClient is the session's client as a server may know it that can ask for no more than is allowed.
func (s *session) asClient(allowed []string) (registry.Client, error) {
	c := registry.Client{Protocol: s.version, Info: clientInfo(s.bound)}
	var err error
	if c.Capabilities, err = protocol.Allow(s.abilities, allowed); err != nil {
		return c, invalidParams("reading the client's capabilities: %v", err)
	}
	return c, nil
}

// clientInfo is who servers are told that a client is: what its owner calls it. What it says of itself could be
// anything, and no gate would see it.
func clientInfo(of binding) []byte {
	return fmt.Appendf(nil, `{"name":%s,"version":"1"}`, jsonrpc.Quote(of.Client))
}

// level is the one of the log messages that the client wants, "" for none.
func (s *session) level() string {
	s.sub.mu.Lock()
	defer s.sub.mu.Unlock()
	return levels[s.sub.level]
}

var (
	errFull      = errors.New("too many sessions are open")
	errCancelled = errors.New("the client cancelled it")
	errEnded     = errors.New("the session ended")
	errStopping  = errors.New("pfar is stopping")
)

// begin registers a request for cancellation. It reports false if one with the same id is in flight.
func (s *session) begin(id []byte, cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.calls[string(id)]; ok {
		return false
	}
	s.calls[string(id)] = cancel
	s.last = time.Now()
	return true
}

func (s *session) finish(id []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, string(id))
	s.last = time.Now()
}

func (s *session) cancel(id []byte) {
	s.mu.Lock()
	cancel := s.calls[string(id)]
	s.mu.Unlock()
	if cancel != nil {
		cancel(errCancelled)
	}
}

// open counts a stream in, unless there are limit of them.
func (s *session) open(limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == limit {
		return false
	}
	s.streams++
	return true
}

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
	s.last = time.Now()
}

// expiry returns when the session ends if nothing happens, and false if it is in use.
func (s *session) expiry(idle time.Duration) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Add(idle), s.streams == 0 && len(s.calls) == 0
}

// sessions are all that are open.
type sessions struct {
	limit  int
	idle   time.Duration
	closed func(*session)

	mu    sync.Mutex
	byID  map[string]*session
	timer *time.Timer // set while there are sessions
}

func newSessions(limit int, idle time.Duration, closed func(*session)) *sessions {
	return &sessions{limit: limit, idle: idle, closed: closed, byID: make(map[string]*session)}
}

// newSessionID returns an id that nobody guesses.
func newSessionID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crashes rather than fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// share is what one client may have of what all clients have together, up to a limit: an eighth is for others.
func share(limit int) int { return limit - limit/8 }

// open opens a session that has an id. When there are too many, the one that has been idle for longest gives way: of a
// client that has its share one of its own, else one of the client that has most.
func (t *sessions) open(s *session) error {
	s.ended, s.last = make(chan struct{}), time.Now()
	s.calls, s.questions, s.owns = make(map[string]context.CancelCauseFunc), make(map[string]question), make(map[string]*process)
	t.mu.Lock()
	var victim *session
	if of, full := t.crowded(s.bound.Client); full {
		if victim = t.idlest(of); victim == nil && of != s.bound.Client {
			victim = t.idlest("")
		}
		if victim == nil {
			t.mu.Unlock()
			return errFull
		}
		delete(t.byID, victim.id)
	}
	t.byID[s.id] = s
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
func (t *sessions) crowded(client string) (of string, full bool) {
	if len(t.byID) < share(t.limit) {
		return "", false
	}
	n := make(map[string]int)
	for _, s := range t.byID {
		n[s.bound.Client]++
	}
	if n[client] >= share(t.limit) {
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
func (t *sessions) idlest(of string) *session {
	var found *session
	var first time.Time
	for _, s := range t.byID {
		if of != "" && s.bound.Client != of {
			continue
		}
		if at, idle := s.expiry(0); idle && (found == nil || at.Before(first)) {
			found, first = s, at
		}
	}
	return found
}

// find returns the session if it is this client's on this endpoint: the id alone opens nothing (GC-54).
func (t *sessions) find(id string, bound binding, endpoint string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s == nil || s.bound != bound || s.endpoint != endpoint {
		return nil
	}
	return s
}

func (t *sessions) all() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.byID))
}

func (t *sessions) remove(s *session) {
	t.mu.Lock()
	_, open := t.byID[s.id]
	delete(t.byID, s.id)
	t.mu.Unlock()
	if open {
		t.end(s)
	}
}

// end is called once for a session, when it is in the table no more.
func (t *sessions) end(s *session) {
	close(s.ended)
	s.mu.Lock()
	calls, questions := s.calls, s.questions
	s.calls, s.questions = make(map[string]context.CancelCauseFunc), make(map[string]question)
	s.mu.Unlock()
	for _, cancel := range calls {
		cancel(errEnded)
	}
	for _, q := range questions {
		q.fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client's session ended"))
	}
	t.closed(s)
}

// sweep ends what has been idle for too long and comes back when the next is due.
func (t *sessions) sweep() {
	now := time.Now()
	next := now.Add(t.idle)
	var over []*session
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

func (t *sessions) close() {
	t.mu.Lock()
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Unlock()
}
