package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Replay is the event stream that answers one call. The gateway keeps its events, so that a client whose connection
// broke reads on with GET and Last-Event-ID: since 2025-11-25 a broken connection does not cancel a call. Replays.mu
// guards it.
type Replay struct {
	all    *Replays
	id     string // cannot be guessed; the ids of its events begin with it
	owner  Owner
	About  About
	cancel context.CancelCauseFunc // of the call

	events  [][]byte // that are kept
	first   int      // number of the oldest of them
	size    int
	over    bool          // the answer has come
	dropped bool          // nobody can come back for it
	reader  chan struct{} // of the connection that gets the events, closed when another takes over; nil: there is none
	more    chan struct{} // closed when there is more to read
	timer   *time.Timer   // set while it waits for its client
}

// About says on which server, tool ("" for a prompt or a resource) and profile the right to an answer depends.
type About struct{ Server, Tool, Profile string }

// Owner is the session that an answer is for.
type Owner struct {
	Session, Client string
	Ended           <-chan struct{} // closed when the session is over
}

// What an event and a stream cost beside their bytes.
const (
	eventCost  = 64
	replayCost = 4096
)

var errUnread = errors.New("the client did not come back for the answer")

// Replays are those of all clients, within bounds for each call, for each client and for all.
type Replays struct {
	limits Limits

	mu       sync.Mutex
	byID     map[string]*Replay
	size     int
	ofClient map[string]int
	answered []*Replay // that make room for others, the oldest first
}

// Limits bound what is kept for clients whose connections broke.
type Limits struct {
	Replay  int           // bytes of one call's event stream that are kept
	Replays int           // bytes of all that are kept, of one client a quarter
	Resume  time.Duration // for a client to come back for one
}

// NewReplays returns an empty store.
func NewReplays(limits Limits) *Replays {
	return &Replays{limits: limits, byID: make(map[string]*Replay), ofClient: make(map[string]int)}
}

// open begins the stream of a call for the connection that has asked. It returns nil if there is no room.
func (t *Replays) open(r *Replay) *Replay {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.all, r.id, r.more = t, newID(), make(chan struct{})
	if !t.room(r, replayCost) {
		return nil
	}
	select {
	case <-r.owner.Ended: // forget has been here
		return nil
	default:
	}
	t.byID[r.id], r.reader = r, make(chan struct{})
	t.count(r, replayCost)
	return r
}

// count adds to what is kept. t.mu is held.
func (t *Replays) count(r *Replay, n int) {
	client := r.owner.Client
	r.size, t.size, t.ofClient[client] = r.size+n, t.size+n, t.ofClient[client]+n
	if t.ofClient[client] == 0 {
		delete(t.ofClient, client)
	}
}

// room makes room for n more bytes of a stream: its own oldest events give way, or streams whose answers have come. It
// reports whether there is room. t.mu is held.
func (t *Replays) room(r *Replay, n int) bool {
	client := r.owner.Client
	for {
		own, crowded := r.size+n > t.limits.Replay, t.ofClient[client]+n > t.limits.Replays/4
		if !own && !crowded && t.size+n <= t.limits.Replays {
			return true
		}
		victim := -1
		if !own {
			victim = slices.IndexFunc(t.answered, func(o *Replay) bool {
				return o != r && (!crowded || o.owner.Client == client)
			})
		}
		switch {
		case victim >= 0:
			t.drop(t.answered[victim])
		case len(r.events) > 0:
			t.count(r, -len(r.events[0])-eventCost)
			r.events[0] = nil
			r.events, r.first = r.events[1:], r.first+1
		default:
			return false
		}
	}
}

// drop forgets a stream. t.mu is held.
func (t *Replays) drop(r *Replay) {
	if r.dropped {
		return
	}
	r.dropped = true
	delete(t.byID, r.id)
	t.count(r, -r.size)
	r.events = nil
	if r.timer != nil {
		r.timer.Stop()
	}
	if i := slices.Index(t.answered, r); i >= 0 {
		t.answered = slices.Delete(t.answered, i, i+1)
	}
	r.poke()
}

// Forget drops the streams of a session that is over.
func (t *Replays) Forget(session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.byID {
		if r.owner.Session == session {
			t.drop(r)
		}
	}
}

// GiveUp cancels every call whose client may still come back.
func (t *Replays) GiveUp(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.byID {
		r.cancel(cause)
	}
}

// Find returns a session's stream and the number of the event after which its client reads on; nil for an id that the
// gateway has not given to this session.
func (t *Replays) Find(session, event string) (r *Replay, after int) {
	id, number, _ := strings.Cut(event, ".")
	after, err := strconv.Atoi(number)
	t.mu.Lock()
	defer t.mu.Unlock()
	r = t.byID[id]
	if r == nil || err != nil || r.owner.Session != session || after < 0 || after >= r.first+len(r.events) {
		return nil, 0
	}
	return r, after
}

// poke wakes the reader. t.mu is held.
func (r *Replay) poke() {
	close(r.more)
	r.more = make(chan struct{})
}

// add keeps one event, and returns it as it is written. attached says that the connection which asked still gets the
// events, kept that a client can come back for this one.
func (r *Replay) add(own chan struct{}, encode func(id string) []byte) (event []byte, attached, kept bool) {
	t := r.all
	t.mu.Lock()
	defer t.mu.Unlock()
	attached = r.reader == own
	if !r.dropped {
		event = encode(r.id + "." + strconv.Itoa(r.first+len(r.events)))
		if n := len(event) + eventCost; t.room(r, n) {
			r.events = append(r.events, event)
			t.count(r, n)
			r.poke()
			return event, attached, true
		}
		t.drop(r)
	}
	return encode(""), attached, false
}

// end says that the answer has come. It is kept for a while, for a client that did not get all of it.
func (r *Replay) end() {
	t := r.all
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.over = true; r.dropped {
		return
	}
	t.answered = append(t.answered, r)
	r.expire()
	r.poke()
}

// expire gives the client some time to come back. t.mu is held.
func (r *Replay) expire() {
	if r.timer != nil {
		r.timer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(r.all.limits.Resume, func() {
		r.all.mu.Lock()
		defer r.all.mu.Unlock()
		if r.timer == timer {
			r.all.drop(r)
			r.cancel(errUnread)
		}
	})
	r.timer = timer
}

// attach has a connection get the events from now on, in the place of the one before.
func (r *Replay) attach() chan struct{} {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if r.reader != nil {
		close(r.reader)
	}
	if r.timer != nil && !r.over {
		r.timer.Stop()
		r.timer = nil
	}
	r.reader = make(chan struct{})
	return r.reader
}

// leave says that a connection is gone. It reports whether the call goes on for a client that may come back.
func (r *Replay) leave(own chan struct{}) bool {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if r.reader == own {
		if r.reader = nil; !r.over && !r.dropped {
			r.expire()
		}
	}
	return !r.dropped
}

// next returns the event after a number, or nil and what tells that there is more.
func (r *Replay) next(after int) (event []byte, number int, more chan struct{}, over bool) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	number = max(after+1, r.first)
	if i := number - r.first; i < len(r.events) {
		return r.events[i], number, nil, false
	}
	return nil, after, r.more, r.over || r.dropped
}

// ReadOn writes the events after one, and those still to come, as long as may reports that the client may have them. In
// between, it writes signs of life.
func (r *Replay) ReadOn(ctx context.Context, e *Events, after int, often time.Duration, may func() bool) {
	own := r.attach()
	defer r.leave(own)
	if e.Open() != nil {
		return
	}
	life := time.NewTicker(often)
	defer life.Stop()
	for may() {
		b, number, more, over := r.next(after)
		if after = number; b == nil && over {
			return
		}
		if b != nil {
			if e.raw(b) != nil {
				return
			}
			continue
		}
		select {
		case <-more:
		case <-life.C:
			if e.Alive() != nil {
				return
			}
		case <-own:
			return
		case <-ctx.Done():
			return
		case <-r.owner.Ended:
			return
		}
	}
}

// Len returns how many bytes are kept, and how many connections read on.
func (t *Replays) Len() (bytes, readers int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.byID {
		if r.reader != nil {
			readers++
		}
	}
	return t.size, readers
}

// newID returns an id that cannot be guessed.
func newID() string { return rand.Text() }
