package registry

import (
	"sync"

	"github.com/pfar/pfar/units"
)

// trial is what is known of one server's secrets.
type trial struct {
	again   chan struct{} // there is something to be done, or to be shown
	calling sync.Mutex    // held during a call

	mu    sync.Mutex
	proof string // which secrets it has; "": none
	due   bool   // they are to be verified
	is    units.Verification
}

func newTrial() *trial { return &trial{again: make(chan struct{}, 1)} }

// now returns which secrets there are, and what is known of secrets: these, or those before them.
func (t *trial) now() (proof string, is units.Verification) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.proof, t.is
}

// has takes it that the server has these secrets, and had others perhaps. What is known of those counts until these are
// verified.
func (t *trial) has(proof string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.proof = proof
}

// take takes what was found out, unless the secrets are others by now.
func (t *trial) take(v units.Verification) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.For == t.proof {
		t.is = v
	}
}

// request has the secrets verified soon.
func (t *trial) request() {
	t.mu.Lock()
	t.due = true
	t.mu.Unlock()
	t.wake()
}

func (t *trial) wake() {
	select {
	case t.again <- struct{}{}:
	default:
	}
}

// taken reports whether the secrets are to be verified, and takes it that they are.
func (t *trial) taken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.due
	t.due = false
	return due
}

// hides reports whether no client sees what the server offers.
func (t *trial) hides() bool {
	_, is := t.now()
	return is.Result == units.Invalid
}

// verification is what a launcher is told, nil of a server without secrets.
func (t *trial) verification() *units.Verification {
	proof, is := t.now()
	if proof == "" && is.Result == "" {
		return nil
	}
	return &is
}
