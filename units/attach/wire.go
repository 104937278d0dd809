package attach

import (
	"context"
	"sync"
)

// Wire is how far a bridge is with putting on the wire what it has been sent. Whoever changes a secret may wait for it: when
// that is said to be done, no request goes out with the value before. The zero value has nothing to do.
type Wire struct {
	mu   sync.Mutex
	due  uint64        // changes so far
	sent []uint64      // what was due at each sending that the bridge has not answered
	done uint64        // changes that are on the wire
	turn chan struct{} // closed when done has grown; nil: nobody waits
}

// Due says that there is something else to be sent.
func (w *Wire) Due() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due++
}

// Reading is called before what is to be sent is read: that has all that is due by now, as is to be said of it later.
func (w *Wire) Reading() (due uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.due
}

// Begin has another bridge be spoken of, which is being sent what was read; what the one before has not answered never will be.
func (w *Wire) Begin(due uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = []uint64{due}
}

// Sending is called before the bridge is sent what was read.
func (w *Wire) Sending(due uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, due)
}

// Nothing says that of what was read nothing goes on a wire.
func (w *Wire) Nothing(due uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finish(due)
}

// Sent says that the bridge has what was sent first of all that it has not answered.
func (w *Wire) Sent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sent) > 0 { // a bridge that was taken over says what it likes
		w.finish(w.sent[0])
		w.sent = w.sent[1:]
	}
}

// Gone says that the bridge has hung up: one that comes reads all anew.
func (w *Wire) Gone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = nil
	w.finish(w.due)
}

// finish is called with w.mu held.
func (w *Wire) finish(done uint64) {
	w.done = max(w.done, done)
	if w.turn != nil {
		close(w.turn)
		w.turn = nil
	}
}

// Wait returns when all that is due now is on the wire, or with the error of ctx.
func (w *Wire) Wait(ctx context.Context) error {
	w.mu.Lock()
	for want := w.due; w.done < want; {
		if w.turn == nil {
			w.turn = make(chan struct{})
		}
		turn := w.turn
		w.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			return ctx.Err()
		}
		w.mu.Lock()
	}
	w.mu.Unlock()
	return nil
}
