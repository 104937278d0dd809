package hub

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Interest says who wants to be told, and what.
type Interest struct {
	Bound    clients.Binding
	Endpoint string         // the server's name, "" for all
	Session  string         // its id; "" for subscriptions/listen
	Tag      []byte         // id of subscriptions/listen, which marks all that is sent on it
	Kinds    registry.Kinds // lists whose changes are told
}

// State is what a client has asked to hear. The next gateway takes it over.
type State struct {
	Level        int               // of log messages, 0 for none
	URIs         map[string]string // resources watched, and their server
	Kept         map[string]string // those watched no more whose server has not been told
	Elicitations []string          // that are answered out of band, by server and id
}

// Subscriber is one client's interest in what happens, and the messages that wait for it. Changed lists are a set and
// the rest a bounded queue, so a client that reads nothing costs no more than that.
type Subscriber struct {
	Interest
	Wake chan struct{} // a message waits

	rights atomic.Pointer[access.Rights] // nil: not known yet, and the client is told nothing
	limit  int

	mu      sync.Mutex
	changed registry.Kinds
	queue   []Told
	state   State

	over chan struct{} // of subscriptions/listen: closed when its client may listen no more
	once sync.Once
}

// Told is a message for a client.
type Told struct {
	message  []byte
	Says     string // the server whose notification it is instead, which has to pass the gate; "" for none's
	Declared []byte // what the owner says of that server
	Method   string
	Params   []byte
}

// NewSubscriber returns one whose client has asked for nothing yet but the changes of lists. Up to limit messages wait
// for it.
func NewSubscriber(of Interest, limit int) *Subscriber {
	return &Subscriber{
		Interest: of, over: make(chan struct{}), limit: limit, Wake: make(chan struct{}, 1), state: State{URIs: make(map[string]string)},
	}
}

// Dismiss ends the stream.
func (s *Subscriber) Dismiss() { s.once.Do(func() { close(s.over) }) }

// Over is closed when the client may listen no more.
func (s *Subscriber) Over() <-chan struct{} { return s.over }

// Allow sets what the client may see.
func (s *Subscriber) Allow(rights *access.Rights) { s.rights.Store(rights) }

// Turn changes what the client may see, and reports whether it was something else: the client is told that all lists
// may have changed, and hears no more of the resources that it may not read any more, which are returned.
func (s *Subscriber) Turn(rights *access.Rights) (lost map[string]string, changed bool) {
	before := s.rights.Swap(rights)
	if before == rights {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri, server := range s.state.URIs {
		if !rights.Server(server) {
			if lost == nil {
				lost = make(map[string]string)
			}
			lost[uri] = server
			delete(s.state.URIs, uri)
		}
	}
	if before != nil {
		s.changed |= s.Kinds
		s.Poke()
	}
	return lost, true
}

// sees reports whether what a server does is this client's business.
func (s *Subscriber) sees(server string) bool {
	rights := s.rights.Load()
	return rights != nil && rights.Server(server) && (s.Endpoint == "" || s.Endpoint == server)
}

// State returns a copy of what the client has asked to hear.
func (s *Subscriber) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.state
	c.URIs, c.Kept, c.Elicitations = maps.Clone(c.URIs), maps.Clone(c.Kept), slices.Clone(c.Elicitations)
	return c
}

// GoOn takes over what the client has asked the gateway before this one. It is told that each resource and each of
// these lists may have changed meanwhile. It is for the time before anybody else knows the subscriber.
func (s *Subscriber) GoOn(state State, changed registry.Kinds) {
	watched := state.URIs
	s.state, s.changed = state, changed
	s.state.Level = min(max(state.Level, 0), len(Levels)-1)
	s.state.URIs = make(map[string]string)
	for uri, server := range watched {
		s.state.URIs[uri] = server
		about := Subject{uri: uri}
		s.Push(jsonrpc.AppendNotification(nil, mcp.MethodNotificationResourceUpdated, about.only(mcp.MethodNotificationResourceUpdated, nil)))
	}
}

// Level is the least severe one of the log messages that the client wants, 0 for none.
func (s *Subscriber) Level() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Level
}

// SetLevel sets it.
func (s *Subscriber) SetLevel(level int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Level = level
}

// Next takes out one message, false if none waits. What has to pass the gate, which may take its time, comes behind all
// others.
func (s *Subscriber) Next() (Told, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, method := range s.changed.Notifications() {
		s.queue = slices.Insert(s.queue, i, Told{message: s.message(method, nil)})
	}
	s.changed = 0
	if len(s.queue) == 0 {
		return Told{}, false
	}
	i := max(0, slices.IndexFunc(s.queue, func(t Told) bool { return t.Says == "" }))
	m := s.queue[i]
	if s.queue = slices.Delete(s.queue, i, i+1); len(s.queue) > 0 {
		s.Poke()
	}
	return m, true
}

// Message returns a message as it is sent, with the parameters that the gate has let through.
func (s *Subscriber) Message(m Told, params []byte) []byte {
	if m.Says == "" {
		return m.message
	}
	return s.message(m.Method, params)
}

// message returns a notification, marked with the request that asked for it.
func (s *Subscriber) message(method string, params []byte) []byte {
	if s.Tag != nil {
		params = tagged(params, s.Tag)
	}
	return jsonrpc.AppendNotification(nil, method, params)
}

// Acknowledge returns the first message of subscriptions/listen.
func (s *Subscriber) Acknowledge(params []byte) []byte {
	return s.message(string(mcp.MethodNotificationSubscriptionsAcknowledged), params)
}

// Poke wakes who waits for a message.
func (s *Subscriber) Poke() {
	select {
	case s.Wake <- struct{}{}:
	default:
	}
}

// Event queues what happens in the registry, if the client wants to hear it.
func (s *Subscriber) Event(e registry.Event, about Subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := false
	if k := e.Changed & s.Kinds; k != 0 {
		s.changed |= k
		waits = true
	}
	// A session hears from the process of its own, and not of the calls of others.
	apart := e.Shared && s.Tag == nil || e.To != "" && e.To != s.Session
	if e.Method != "" && !apart && s.hasRoom(e.Server) && s.wants(e, about) {
		s.queue = append(s.queue, Told{
			Says: e.Server, Declared: e.Declared, Method: e.Method, Params: about.only(e.Method, e.Params),
		})
		waits = true
	}
	if waits {
		s.Poke()
	}
}

// hasRoom reports whether there is room for what a server says: of each server for some, and of all of them for half of
// what may wait, as the other half is for questions. s.mu is held.
func (s *Subscriber) hasRoom(server string) bool {
	all, same := 0, 0
	for _, t := range s.queue {
		if t.Says != "" {
			all++
		}
		if t.Says == server {
			same++
		}
	}
	return all < s.limit/2 && same < s.limit/8
}

// Push queues a message for the client, and reports false if there is no room.
func (s *Subscriber) Push(message []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= s.limit {
		return false
	}
	s.queue = append(s.queue, Told{message: message})
	s.Poke()
	return true
}

// wants reports whether a server's notification is for this client: log messages only if it asked for them, since a
// server that several clients share does not say whose call they are about. s.mu is held.
func (s *Subscriber) wants(e registry.Event, about Subject) bool {
	switch e.Method {
	case string(mcp.MethodNotificationMessage):
		return s.state.Level > 0 && about.Level >= s.state.Level
	case mcp.MethodNotificationResourceUpdated:
		for watched, server := range s.state.URIs {
			if server == e.Server && (about.uri == watched || strings.HasPrefix(about.uri, strings.TrimSuffix(watched, "/")+"/")) {
				return true
			}
		}
	case string(mcp.MethodNotificationElicitationComplete):
		if i := slices.Index(s.state.Elicitations, e.Server+" "+about.elicitation); i >= 0 {
			s.state.Elicitations = slices.Delete(s.state.Elicitations, i, i+1)
			return true
		}
	}
	return false
}

// What is remembered of questions that are answered elsewhere, for each client, and the longest id of one, which its
// server has chosen.
const (
	maxElicitations  = 64
	maxElicitationID = 256 // bytes
)

// Expects notes that a client has been sent to an address, so that it hears when it is done there. Not all users go:
// the oldest one makes room.
func (s *Subscriber) Expects(server string, params []byte) {
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return
	}
	id, err := jsonrpc.String(ms.Get("elicitationId"))
	if err != nil || len(id) > maxElicitationID {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.state.Elicitations, server+" "+id) {
		return
	}
	list := append(s.state.Elicitations, server+" "+id)
	s.state.Elicitations = list[max(0, len(list)-maxElicitations):]
}

// ExpectsAll does so for those in a server's error.
func (s *Subscriber) ExpectsAll(server string, raw []byte) {
	e, _ := jsonrpc.Object(raw, nil)
	data, _ := jsonrpc.Object(e.Get("data"), nil)
	list, _ := jsonrpc.Array(data.Get("elicitations"), nil, maxElicitations)
	for _, params := range list {
		s.Expects(server, params)
	}
}
