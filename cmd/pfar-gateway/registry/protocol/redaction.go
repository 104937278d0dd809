package protocol

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/policies/redact"
)

// Redaction has the secrets that nothing may hold which comes from a server: every line of one passes it before anybody
// looks at it. Until Learn is called nothing of any server is read. A nil Redaction lets all pass.
type Redaction struct {
	set atomic.Pointer[redact.Set]

	mu   sync.Mutex
	turn chan struct{} // closed when there is another set
	told chan struct{} // closed when there is one
}

// NewRedaction returns one that knows no secrets yet.
func NewRedaction() *Redaction {
	return &Redaction{turn: make(chan struct{}), told: make(chan struct{})}
}

// Known reports whether it has been said which secrets there are.
func (r *Redaction) Known() bool { return r.set.Load() != nil }

// Told returns a channel that is closed when that has been said.
func (r *Redaction) Told() <-chan struct{} { return r.told }

// Learn takes the secrets that there are from now on.
func (r *Redaction) Learn(set *redact.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set.Swap(set) == nil {
		close(r.told)
	}
	close(r.turn)
	r.turn = make(chan struct{})
}

// knows reports whether the set of a serial is known, or a later one. If not, the channel is closed when there is
// another.
func (r *Redaction) knows(serial int64) (bool, <-chan struct{}) {
	if set := r.set.Load(); set != nil && set.Serial() >= serial {
		return true, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	set := r.set.Load()
	return set != nil && set.Serial() >= serial, r.turn
}

// Names are the secrets whose values a text holds, in any of their forms.
func (r *Redaction) Names(text []byte) []string { return r.set.Load().Names(text) }

// Text is a text of the gateway's own without secrets in it.
func (r *Redaction) Text(text string) string { return redact.Strip(r.set.Load().String(text)) }

// JSON is a JSON text without secrets in it, and the names of those that were.
func (r *Redaction) JSON(text []byte) ([]byte, []string) {
	text, hits := r.set.Load().ReplaceJSON(text)
	var names []string
	for _, h := range hits {
		if !slices.Contains(names, h.Name) {
			names = append(names, h.Name)
		}
	}
	return text, names
}

// leaks counts the secrets that were replaced in what one server said, and logs the first time of each and then at most
// one a minute.
type leaks struct {
	mu     sync.Mutex
	counts map[string]uint64
	logged map[string]time.Time
}

func (l *leaks) add(log *slog.Logger, hits []redact.Hit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts, l.logged = make(map[string]uint64), make(map[string]time.Time)
	}
	for _, h := range hits {
		l.counts[h.Name]++
	}
	for name := range l.counts {
		hit := slices.ContainsFunc(hits, func(h redact.Hit) bool { return h.Name == name })
		if !hit || time.Since(l.logged[name]) < time.Minute {
			continue
		}
		l.logged[name] = time.Now()
		log.Warn("a secret in what the server says is replaced", "secret", name, "place", "message", "count", l.counts[name])
	}
}

// all returns the counts by the secrets' names.
func (l *leaks) all() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}
