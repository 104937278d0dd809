package attach

import (
	"context"
	"errors"
	"sync"
)

// Wire is how far a bridge is with putting on the wire what it has been sent. Whoever changes a secret may wait for it:
// when that is said to be done, no request that comes from then on goes out with the value before. The zero value has
// nothing to do.
type Wire struct {
	mu      sync.Mutex
	due     uint64        // changes so far
	sent    []uint64      // what was due at each sending that the bridge has not answered
	done    uint64        // changes that are on the wire
	refused uint64        // changes that the bridge could not take
	turn    chan struct{} // closed when done or refused has grown; nil: nobody waits
}

// ErrUnwired is the error of a bridge that could not take what it was sent.
var ErrUnwired = errors.New("the bridge goes on with the value before")

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

// Begin has another bridge be spoken of, which is being sent what was read; what the one before has not answered never
// will be.
func (w *Wire) Begin(due uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent, w.refused = []uint64{due}, 0
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

// Answered says that the bridge has put on the wire what was sent first of all that it has not answered, or could not.
func (w *Wire) Answered(wired bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sent) == 0 { // a bridge that was taken over says what it likes
		return
	}
	if wired {
		w.finish(w.sent[0])
	} else {
		w.refused = max(w.refused, w.sent[0])
		w.wake()
	}
	w.sent = w.sent[1:]
}

// Gone says that there is nobody to wait for at this end: the bridge has hung up, and one that comes reads all anew.
// Whether it still runs is for others to find out.
func (w *Wire) Gone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = nil
	w.finish(w.due)
}

// finish is called with w.mu held.
func (w *Wire) finish(done uint64) {
	w.done = max(w.done, done)
	w.wake()
}

// wake is called with w.mu held.
func (w *Wire) wake() {
	if w.turn != nil {
		close(w.turn)
		w.turn = nil
	}
}

// Wait returns when all that is due now is on the wire, with ErrUnwired when the bridge could not take it, or with the
// error of ctx.
func (w *Wire) Wait(ctx context.Context) error {
	w.mu.Lock()
	for want := w.due; w.done < want; {
		if w.refused >= want {
			w.mu.Unlock()
			return ErrUnwired
		}
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
