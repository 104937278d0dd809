package call

import (
	"crypto/rand"
	"encoding/base64"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/seal"
)

// parked is a call to a server with sessions that waits until its client, of 2026-07-28, comes back with answers.
type parked struct {
	talk   *conversation
	asks   map[string]*protocol.Ask
	scope  seal.Scope
	bound  clients.Binding
	pass   *enforce.Passage
	expiry *time.Timer
	state  string        // that its client comes back with; under the parking's lock
	left   chan struct{} // closed when it waits no more
	freed  time.Time     // when its place was, as the call had ended; under the parking's lock
}

// Parking keeps the calls that wait, by the state that their clients come back with.
type Parking struct {
	human time.Duration // for a client to come back
	room  chan struct{}

	mu      sync.Mutex
	byState map[string]*parked
}

// NewParking returns a parking for limit calls, which wait for their clients as long as human says.
func NewParking(limit int, human time.Duration) *Parking {
	return &Parking{human: human, room: make(chan struct{}, limit), byState: make(map[string]*parked)}
}

// maxOutcomes bounds the results that are kept for clients that may not come back: each may be as long as a server's
// line.
const maxOutcomes = 16

const parkedPrefix = "pfar-call-"

// add leaves a call waiting, and returns the state for its client; "" if there is no room.
func (k *Parking) add(p *parked) string {
	if !k.enter(p) {
		return ""
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // crashes rather than fails
	state := parkedPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byState[state] = p
	p.state, p.left = state, make(chan struct{})
	go k.watch(p, p.left)
	p.expiry = time.AfterFunc(k.human, func() {
		if k.take(state) == p {
			p.pass.Expire()
			p.talk.cancel(errUnanswered)
		}
	})
	return state
}

// enter takes a place for a waiting call: there are so many in all, and of one server no more than it may ask at once.
func (k *Parking) enter(p *parked) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, other := range k.byState {
		if other.talk.up == p.talk.up && other.freed.IsZero() {
			n++
		}
	}
	if n >= maxAsks {
		return false
	}
	select {
	case k.room <- struct{}{}:
		p.freed = time.Time{}
		return true
	default:
		return false
	}
}

// watch gives a waiting call's place back as soon as the call ends. Then only its outcome is kept, and the oldest
// outcome goes if there are too many.
func (k *Parking) watch(p *parked, left <-chan struct{}) {
	select {
	case <-left:
		return
	case <-p.talk.over:
	}
	k.mu.Lock()
	k.free(p)
	oldest, state, n := p, p.state, 0
	for _, other := range k.byState {
		if other.freed.IsZero() {
			continue
		}
		if n++; other.freed.Before(oldest.freed) {
			oldest, state = other, other.state
		}
	}
	k.mu.Unlock()
	if n > maxOutcomes && k.take(state) == oldest {
		oldest.pass.Expire()
	}
}

// free gives the place back. k.mu is held.
func (k *Parking) free(p *parked) {
	if p.freed.IsZero() {
		p.freed = time.Now()
		<-k.room
	}
}

// take removes a call and returns it, nil for an unknown state: each state can be used once.
func (k *Parking) take(state string) *parked {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.byState[state]
	if p == nil {
		return nil
	}
	delete(k.byState, state)
	p.expiry.Stop()
	close(p.left)
	k.free(p)
	return p
}

// takeOf takes a call out if it is of this scope.
func (k *Parking) takeOf(state string, scope seal.Scope) *parked {
	k.mu.Lock()
	p := k.byState[state]
	mine := p != nil && p.scope == scope
	k.mu.Unlock()
	if !mine || k.take(state) != p {
		return nil
	}
	return p
}

// Abandon ends the calls that wait when the gateway stops: no client finds them again, and their records are to be
// closed.
func (k *Parking) Abandon(cause error) {
	k.each(func(*parked) bool { return true }, func(p *parked) {
		p.pass.Expire()
		p.talk.cancel(cause)
	})
}

// Dismiss gives up the calls of clients who may not come back, or not to those servers.
func (k *Parking) Dismiss(gone func(by clients.Binding, server string) bool) {
	k.each(func(p *parked) bool { return gone(p.bound, p.talk.target.server()) }, func(p *parked) {
		p.pass.Deny()
		p.talk.cancel(clients.ErrDismissed)
	})
}

// each takes those out that are meant, and gives them up.
func (k *Parking) each(meant func(*parked) bool, giveUp func(*parked)) {
	k.mu.Lock()
	all := maps.Clone(k.byState)
	maps.DeleteFunc(all, func(_ string, p *parked) bool { return !meant(p) })
	k.mu.Unlock()
	for _, state := range slices.Collect(maps.Keys(all)) {
		if p := k.take(state); p != nil {
			giveUp(p)
		}
	}
}

// Len returns how many calls wait, and how many places they take.
func (k *Parking) Len() (calls, places int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.byState), len(k.room)
}
