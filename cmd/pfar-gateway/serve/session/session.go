// Package session keeps clients' sessions, in the revisions of the protocol that have them.
package session

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Why requests and calls end before their time.
var (
	ErrStopping  = errors.New("pfar is stopping")
	errFull      = errors.New("too many sessions are open")
	errCancelled = errors.New("the client cancelled it")
	errEnded     = errors.New("the session ended")
)

// Session is one client's conversation.
type Session struct {
	ID        string // 128 random bits
	Label     string // handle of the label that is this connection's own; "": it has none
	Version   string // of the protocol
	Sub       *hub.Subscriber
	Abilities []byte // capabilities, as the client said in initialize
	Questions Questions
	Own       Processes

	ended chan struct{}

	mu      sync.Mutex
	last    time.Time // used
	streams int
	calls   map[string]context.CancelCauseFunc // in flight, by id as it came
}

// New returns a session of a client that asks an endpoint. Up to limit messages wait for it.
func New(bound clients.Binding, endpoint, version string, limit int) *Session {
	return of(NewID(), bound, endpoint, version, limit)
}

func of(id string, bound clients.Binding, endpoint, version string, limit int) *Session {
	sub := hub.NewSubscriber(hub.Interest{Bound: bound, Endpoint: endpoint, Session: id, Kinds: registry.AllKinds}, limit)
	return &Session{
		ID: id, Version: version, Abilities: []byte("{}"), Sub: sub, ended: make(chan struct{}), last: time.Now(),
		calls: make(map[string]context.CancelCauseFunc), Questions: newQuestions(),
		Own: Processes{byServer: make(map[string]*process)},
	}
}

// NewID returns an id that cannot be guessed.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crashes rather than fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Bound is who the session belongs to, as authenticated.
func (s *Session) Bound() clients.Binding { return s.Sub.Bound }

// Endpoint is the server's name, "" for all.
func (s *Session) Endpoint() string { return s.Sub.Endpoint }

// Ended is closed when the session is over.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// Identity is who a request of the caller's is from, for the gate. The session is nil for one without.
func (s *Session) Identity(caller *clients.Caller) enforce.Identity {
	if s == nil {
		return caller.Identity("")
	}
	return caller.Identity(s.Label)
}

// Capable reports whether the client says that it can be asked for that.
func (s *Session) Capable(capability string) bool {
	ms, err := jsonrpc.Object(s.Abilities, nil)
	return err == nil && ms.Get(capability) != nil
}

// AsClient is the session's client as a server may know it that can ask for no more than is allowed.
func (s *Session) AsClient(allowed []string) (protocol.Client, error) {
	c := protocol.Client{Protocol: s.Version, Info: ClientInfo(s.Bound())}
	var err error
	if c.Capabilities, err = protocol.Allow(s.Abilities, allowed); err != nil {
		return c, jsonrpc.Errorf(mcp.INVALID_PARAMS, "reading the client's capabilities: %v", err)
	}
	return c, nil
}

// ClientInfo is who servers are told that a client is: what its owner calls it. What it says of itself could be
// anything, and no gate would see it.
func ClientInfo(of clients.Binding) []byte {
	return fmt.Appendf(nil, `{"name":%s,"version":"1"}`, jsonrpc.Quote(of.Client))
}

// Level is the one of the log messages that the client wants, "" for none.
func (s *Session) Level() string { return hub.Levels[s.Sub.Level()] }

// Begin registers a request for cancellation. It reports false if one with the same id is in flight.
func (s *Session) Begin(id []byte, cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.calls[string(id)]; ok {
		return false
	}
	s.calls[string(id)] = cancel
	s.last = time.Now()
	return true
}

// Finish takes a request out.
func (s *Session) Finish(id []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, string(id))
	s.last = time.Now()
}

// Cancel cancels a request, if it is in flight.
func (s *Session) Cancel(id []byte) {
	s.mu.Lock()
	cancel := s.calls[string(id)]
	s.mu.Unlock()
	if cancel != nil {
		cancel(errCancelled)
	}
}

// Open counts a stream in, unless there are limit of them.
func (s *Session) Open(limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == limit {
		return false
	}
	s.streams++
	return true
}

// Close counts a stream out.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
	s.last = time.Now()
}

// Streams is how many are open.
func (s *Session) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams
}

// expiry returns when the session ends if nothing happens, and false if it is in use.
func (s *Session) expiry(idle time.Duration) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Add(idle), s.streams == 0 && len(s.calls) == 0
}

// end cancels the calls and questions of a session that has left the table.
func (s *Session) end() {
	close(s.ended)
	s.mu.Lock()
	calls := s.calls
	s.calls = make(map[string]context.CancelCauseFunc)
	s.mu.Unlock()
	for _, cancel := range calls {
		cancel(errEnded)
	}
	s.Questions.fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client's session ended"))
}
