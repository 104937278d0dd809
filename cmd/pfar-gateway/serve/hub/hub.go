// Package hub tells clients what happens: changed lists, resources that they watch, log messages.
package hub

import (
	"bytes"
	"maps"
	"slices"
	"sync"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/units/handover"
)

// Hub keeps all subscribers.
type Hub struct {
	mu          sync.Mutex
	subscribers map[*Subscriber]struct{}
	declared    map[string][]byte              // declarations of servers, when a process last came up
	left        map[string]map[string]struct{} // resources of clients that left, by server, which has not been told
}

// New returns a hub without subscribers.
func New() *Hub {
	return &Hub{
		subscribers: make(map[*Subscriber]struct{}), declared: make(map[string][]byte), left: make(map[string]map[string]struct{}),
	}
}

// Add adds a session's subscriber.
func (h *Hub) Add(s *Subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers[s] = struct{}{}
}

// Remove takes a subscriber out.
func (h *Hub) Remove(s *Subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subscribers, s)
}

// Len is how many subscribers there are.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subscribers)
}

// Listening returns the subscribers of subscriptions/listen.
func (h *Hub) Listening() []*Subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(h.subscribers)), func(s *Subscriber) bool { return s.Tag == nil })
}

// Listen adds a subscriber of subscriptions/listen, unless there are limit of those, or its client has its share of
// them.
func (h *Hub) Listen(s *Subscriber, limit int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, own := 0, 0
	for other := range h.subscribers {
		if other.Tag == nil {
			continue
		}
		all++
		if other.Bound.Client == s.Bound.Client {
			own++
		}
	}
	if all >= limit || own >= clients.Share(limit) {
		return false
	}
	h.subscribers[s] = struct{}{}
	return true
}

// Event tells all subscribers what happens in the registry. It does not block.
func (h *Hub) Event(e registry.Event) {
	about := SubjectOf(e.Method, e.Params)
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscribers {
		if s.sees(e.Server) {
			s.Event(e, about)
		}
	}
}

// Renewed is called when a process of a server has come up. If its owner says something else of the server than before,
// no subscription there has passed the gate with the new declaration, so all are forgotten.
func (h *Hub) Renewed(server string, declared []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known := h.declared[server]
	h.declared[server] = declared
	if !known || bytes.Equal(before, declared) {
		return
	}
	delete(h.left, server)
	for s := range h.subscribers {
		s.forget(server)
	}
}

// Declared returns the declaration of a server when its last process came up, nil for none.
func (h *Hub) Declared(server string) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.declared[server]
}

// Watched returns the resources of a server's shared process that somebody watches.
func (h *Hub) Watched(server handover.Server) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	uris := make(map[string]struct{})
	for s := range h.subscribers {
		if server.Sessions.Own && s.Tag == nil {
			continue
		}
		for _, uri := range s.WatchedOf(server.Name) {
			uris[uri] = struct{}{}
		}
	}
	maps.Copy(uris, h.left[server.Name])
	return slices.Collect(maps.Keys(uris))
}

// Lowest returns the most verbose level of log messages that a client of a server wants, 0 for none. A client whose
// rights are not known yet counts: they are checked when there is a message for it.
func (h *Hub) Lowest(server string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	least := 0
	for s := range h.subscribers {
		level := s.Level()
		if (s.rights.Load() == nil || s.sees(server)) && level > 0 && (least == 0 || level < least) {
			least = level
		}
	}
	return least
}

// Leave notes resources of a client that has left, whose server has not been told. Their number is bounded for each
// server.
func (h *Hub) Leave(uris map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uri, server := range uris {
		if h.left[server] == nil {
			h.left[server] = make(map[string]struct{})
		}
		if len(h.left[server]) < protocol.MaxWatched {
			h.left[server][uri] = struct{}{}
		}
	}
}

// WatchesAny reports whether anybody watches a resource of the server's.
func (h *Hub) WatchesAny(server string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscribers {
		if len(s.WatchedOf(server)) > 0 {
			return true
		}
	}
	return false
}

// Watches reports whether anybody watches a server's resource, for all that the server may know.
func (h *Hub) Watches(server, uri string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.left[server][uri]; ok {
		return true
	}
	for s := range h.subscribers {
		if s.watches(server, uri) {
			return true
		}
	}
	return false
}
