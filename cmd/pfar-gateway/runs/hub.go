package runs

import "sync"

// hub tells watchers that their run has changed.
type hub struct {
	over Hearer // nil: nobody

	mu       sync.Mutex
	watchers map[string]map[chan struct{}]bool // by the run's id
}

func newHub(over Hearer) *hub {
	return &hub{over: over, watchers: make(map[string]map[chan struct{}]bool)}
}

// watch returns a channel that has an element if the run has changed since it was last read.
func (h *hub) watch(id string) (changed chan struct{}, stop func()) {
	changed = make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers[id] == nil {
		h.watchers[id] = make(map[chan struct{}]bool)
	}
	h.watchers[id][changed] = true
	return changed, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.watchers[id], changed); len(h.watchers[id]) == 0 {
			delete(h.watchers, id)
		}
	}
}

func (h *hub) change(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.watchers[id] {
		select {
		case c <- struct{}{}:
		default: // it has not read of the change before
		}
	}
}
