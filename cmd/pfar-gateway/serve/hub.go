package serve

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/handover"
)

// subscriber is one client's interest in what happens, and what waits to be told to it. Changed lists are a set and
// the rest a bounded queue, so a client that reads nothing costs no more than that.
type subscriber struct {
	bound    binding
	rights   atomic.Pointer[access.Rights] // nil: nobody has said yet, and nothing is told
	endpoint string
	session  string // that it is of; "" for subscriptions/listen
	kinds    registry.Kinds
	tag      []byte        // id of subscriptions/listen, which marks all that is sent on it
	wake     chan struct{} // something waits
	limit    int

	mu      sync.Mutex
	changed registry.Kinds
	queue   []told
	level   int               // of log messages, 0 for none
	uris    map[string]string // resources watched, and their server
	kept    map[string]string // those watched no more whose server has not been told

	elicitations []string // that are answered out of band, by server and id

	over chan struct{} // of subscriptions/listen: closed when its client may listen no more
	once sync.Once
}

// told is a message for a client.
type told struct {
	message  []byte
	says     string // the server whose notification it is instead, which has to pass the gate; "" for none's
	declared []byte // of that: what the owner says of it
	method   string
	params   []byte
}

// dismiss ends the stream.
func (s *subscriber) dismiss() { s.once.Do(func() { close(s.over) }) }

// sees reports whether what a server does is this client's business.
func (s *subscriber) sees(server string) bool {
	rights := s.rights.Load()
	return rights != nil && rights.Server(server) && (s.endpoint == "" || s.endpoint == server)
}

func newSubscriber(bound binding, endpoint string, kinds registry.Kinds, limit int) *subscriber {
	return &subscriber{bound: bound, over: make(chan struct{}), endpoint: endpoint, kinds: kinds, limit: limit, wake: make(chan struct{}, 1), uris: make(map[string]string)}
}

// next takes out one message, false if none waits. What has to pass the gate, which may take its time, comes behind all
// others.
func (s *subscriber) next() (told, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, method := range s.changed.Notifications() {
		s.queue = slices.Insert(s.queue, i, told{message: s.message(method, nil)})
	}
	s.changed = 0
	if len(s.queue) == 0 {
		return told{}, false
	}
	i := max(0, slices.IndexFunc(s.queue, func(t told) bool { return t.says == "" }))
	m := s.queue[i]
	if s.queue = slices.Delete(s.queue, i, i+1); len(s.queue) > 0 {
		s.poke()
	}
	return m, true
}

// message returns a notification, marked with the request that asked for it.
func (s *subscriber) message(method string, params []byte) []byte {
	if s.tag != nil {
		params = tagged(params, s.tag)
	}
	return jsonrpc.AppendNotification(nil, method, params)
}

func tagged(params, id []byte) []byte {
	mark := append([]byte(`"`+mcp.MetaKeySubscriptionID+`":`), id...)
	keep := func(name []byte) bool { return string(name) != mcp.MetaKeySubscriptionID }
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		params, ms = []byte("{}"), nil
	}
	if i := ms.Index("_meta"); i >= 0 {
		meta, _ := jsonrpc.Object(ms[i].Raw(), nil)
		return jsonrpc.Splice(nil, params, ms.Replace(i, meta.Merge(nil, keep, mark)))
	}
	meta := append([]byte(`"_meta":`), jsonrpc.Members(nil).Merge(nil, keep, mark)...)
	return jsonrpc.Splice(nil, params, ms.Prepend(params, meta))
}

func (s *subscriber) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) event(e registry.Event, about subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := false
	if k := e.Changed & s.kinds; k != 0 {
		s.changed |= k
		waits = true
	}
	apart := e.Shared && s.tag == nil || e.To != "" && e.To != s.session // a session has a process of its own, and hears of that; it is another's call
	if e.Method != "" && !apart && s.hasRoom(e.Server) && s.wants(e, about) {
		s.queue = append(s.queue, told{says: e.Server, declared: e.Declared, method: e.Method, params: about.only(e.Method, e.Params)})
		waits = true
	}
	if waits {
		s.poke()
	}
}

// hasRoom reports whether there is room for what a server says: of each server for some, and of all of them for half of
// what may wait, as the other half is for questions. s.mu is held.
func (s *subscriber) hasRoom(server string) bool {
	all, same := 0, 0
	for _, t := range s.queue {
		if t.says != "" {
			all++
		}
		if t.says == server {
			same++
		}
	}
	return all < s.limit/2 && same < s.limit/8
}

// push queues a message for the client, and reports false if there is no room.
func (s *subscriber) push(message []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= s.limit {
		return false
	}
	s.queue = append(s.queue, told{message: message})
	s.poke()
	return true
}

// watchedOf returns the resources of a server that the client watches, for all that the server may know.
func (s *subscriber) watchedOf(server string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for uri, of := range s.uris {
		if of == server {
			list = append(list, uri)
		}
	}
	for uri, of := range s.kept {
		if _, again := s.uris[uri]; of == server && !again {
			list = append(list, uri)
		}
	}
	return list
}

// subject is what a server's notification is about, read once for all clients.
type subject struct {
	level       int
	uri         string
	elicitation string
}

func subjectOf(method string, params []byte) (about subject) {
	if method == "" {
		return about
	}
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return about
	}
	level, _ := jsonrpc.String(ms.Get("level"))
	about.level = severity(level)
	about.uri, _ = jsonrpc.String(ms.Get("uri"))
	about.elicitation, _ = jsonrpc.String(ms.Get("elicitationId"))
	return about
}

// only is what of a notification's parameters clients have use for.
func (about subject) only(method string, params []byte) []byte {
	switch method {
	case mcp.MethodNotificationResourceUpdated:
		return fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(about.uri))
	case string(mcp.MethodNotificationElicitationComplete):
		return fmt.Appendf(nil, `{"elicitationId":%s}`, jsonrpc.Quote(about.elicitation))
	}
	return params
}

// wants reports whether a server's notification is for this client: log messages only if it asked for them, since a
// server that several clients share does not say whose call they are about.
func (s *subscriber) wants(e registry.Event, about subject) bool {
	switch e.Method {
	case string(mcp.MethodNotificationMessage):
		return s.level > 0 && about.level >= s.level
	case mcp.MethodNotificationResourceUpdated:
		for watched, server := range s.uris {
			if server == e.Server && (about.uri == watched || strings.HasPrefix(about.uri, strings.TrimSuffix(watched, "/")+"/")) {
				return true
			}
		}
	case string(mcp.MethodNotificationElicitationComplete):
		if i := slices.Index(s.elicitations, e.Server+" "+about.elicitation); i >= 0 {
			s.elicitations = slices.Delete(s.elicitations, i, i+1)
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

// expects notes that a client has been sent to an address, so that it hears when it is done there. Not all users go:
// the oldest one makes room.
func (s *subscriber) expects(server string, params []byte) {
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
	if slices.Contains(s.elicitations, server+" "+id) {
		return
	}
	s.elicitations = append(s.elicitations, server+" "+id)
	s.elicitations = s.elicitations[max(0, len(s.elicitations)-maxElicitations):]
}

// expectsAll does so for those in a server's error.
func (s *subscriber) expectsAll(server string, raw []byte) {
	e, _ := jsonrpc.Object(raw, nil)
	data, _ := jsonrpc.Object(e.Get("data"), nil)
	list, _ := jsonrpc.Array(data.Get("elicitations"), nil, maxElicitations)
	for _, params := range list {
		s.expects(server, params)
	}
}

// severity numbers the levels of RFC 5424 from 1, debug; 0 is none of them.
func severity(level string) int { return slices.Index(levels[:], level) }

var levels = [...]string{"", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// hub is everybody who is to be told.
type hub struct {
	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
	declared    map[string][]byte // what the owner says of each server of which a process has come up

	left map[string]map[string]struct{} // by server, resources that a client watched who is gone, and the server has not been told
}

func (h *hub) add(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers[s] = struct{}{}
}

func (h *hub) remove(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subscribers, s)
}

// listening returns those of subscriptions/listen.
func (h *hub) listening() []*subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(h.subscribers)), func(s *subscriber) bool { return s.tag == nil })
}

// listen adds who wants to be told by subscriptions/listen, unless there are limit of those, or its client has its
// share of them.
func (h *hub) listen(s *subscriber, limit int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, own := 0, 0
	for other := range h.subscribers {
		if other.tag == nil {
			continue
		}
		all++
		if other.bound.Client == s.bound.Client {
			own++
		}
	}
	if all >= limit || own >= share(limit) {
		return false
	}
	h.subscribers[s] = struct{}{}
	return true
}

func (h *hub) event(e registry.Event) {
	about := subjectOf(e.Method, e.Params)
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscribers {
		if s.sees(e.Server) {
			s.event(e, about)
		}
	}
}

// renewed takes it that a process of a server has come up. If its owner says something else of the server than before,
// no address that is watched there has passed the gate to what it is now: they are forgotten.
func (h *hub) renewed(server string, declared []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known := h.declared[server]
	h.declared[server] = declared
	if !known || bytes.Equal(before, declared) {
		return
	}
	delete(h.left, server)
	for s := range h.subscribers {
		s.mu.Lock()
		maps.DeleteFunc(s.uris, func(_, of string) bool { return of == server })
		maps.DeleteFunc(s.kept, func(_, of string) bool { return of == server })
		s.mu.Unlock()
	}
}

// watched returns the resources of a server's shared process that somebody watches.
func (h *hub) watched(server handover.Server) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	uris := make(map[string]struct{})
	for s := range h.subscribers {
		if server.Sessions.Own && s.tag == nil {
			continue
		}
		for _, uri := range s.watchedOf(server.Name) {
			uris[uri] = struct{}{}
		}
	}
	maps.Copy(uris, h.left[server.Name])
	return slices.Collect(maps.Keys(uris))
}

// lowest returns the level of log messages that some client of a server wants, 0 for none. Clients of whom nobody has
// said yet what they may see count: what they are told is decided when there is something to tell.
func (h *hub) lowest(server string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	least := 0
	for s := range h.subscribers {
		s.mu.Lock()
		if (s.rights.Load() == nil || s.sees(server)) && s.level > 0 && (least == 0 || s.level < least) {
			least = s.level
		}
		s.mu.Unlock()
	}
	return least
}
