package protocol

import (
	"slices"
	"sync"
	"sync/atomic"

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
