package approval

import (
	"encoding/json"
	"slices"
	"time"
)

func (s *Store) shown(e *entry) Shown {
	left := max(0, int((e.deadline-s.clock()).Round(time.Second)/time.Second))
	shown := Shown{ID: e.id, Digest: e.binding.String(), State: e.state, Reason: e.reason, Asked: e.asked.UTC(),
		Left: left, Link: linkOf(s, e.id), By: e.by, Request: e.Request}
	if shown.Arguments == nil {
		shown.Arguments = json.RawMessage("null")
	}
	return shown
}

// linkOf opens the call of an id at the remote console; "": there is none.
func linkOf(s *Store, id string) string {
	if s.Console == nil {
		return ""
	}
	return s.Console.Link(id)
}

// List is all that are open, the oldest first.
func (s *Store) List() []Shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

func (s *Store) list() []Shown {
	list := []Shown{}
	for _, e := range s.byID {
		if e.open() && !s.expire(e) {
			list = append(list, s.shown(e))
		}
	}
	slices.SortFunc(list, func(a, b Shown) int { return a.Asked.Compare(b.Asked) })
	return list
}

// Show is the call of an id that is open.
func (s *Store) Show(id string) (Shown, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil || !e.open() || s.expire(e) {
		return Shown{}, ErrUnknown
	}
	return s.shown(e), nil
}

// behind is how many events may wait for a watcher.
const behind = 256

// Watch returns what is open, and a channel with each change after that, which is closed for a watcher that is too
// slow: it watches again. stop ends it.
func (s *Store) Watch() (now []Shown, changes <-chan Event, stop func()) {
	c := make(chan Event, behind)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[c] = struct{}{}
	return s.list(), c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(c)
	}
}

func (s *Store) unwatch(c chan Event) {
	if _, ok := s.watchers[c]; ok {
		delete(s.watchers, c)
		close(c)
	}
}

// tell does not block. The lock is held.
func (s *Store) tell(e Event) {
	for c := range s.watchers {
		select {
		case c <- e:
		default:
			s.unwatch(c)
		}
	}
}
