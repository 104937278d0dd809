package registry

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
)

// lists is what is known of the lists of one server beside their items.
type lists struct {
	stale chan struct{} // a list changed

	mu      sync.Mutex
	said    Kinds // changed since the last discovery, as the server says
	unheard Kinds // may have changed while nobody listened
	found   findings
	rounds
}

// rounds counts discoveries, for those who wait for one.
type rounds struct {
	begun, over int
	failed      error         // of the last
	turned      chan struct{} // closed when the next is over; nil: nobody waits
}

// next is the first discovery that begins after this.
func (l *lists) next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun + 1
}

// finished takes it that a discovery is over.
func (l *lists) finished(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over, l.failed = l.begun, err
	if l.turned != nil {
		close(l.turned)
		l.turned = nil
	}
}

// await waits until a discovery is over.
func (l *lists) await(ctx context.Context, round int, ended <-chan struct{}) error {
	for {
		l.mu.Lock()
		if l.over >= round {
			defer l.mu.Unlock()
			return l.failed
		}
		if l.turned == nil {
			l.turned = make(chan struct{})
		}
		turned := l.turned
		l.mu.Unlock()
		select {
		case <-turned:
		case <-ended:
			return errStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// findings are what discovery found of the lists beside their items.
type findings struct {
	Hints   [Templates + 1]Hint
	Dropped [Templates + 1]dropped
}

// again has lists discovered again: those that the server says have changed, and those that may have.
func (l *lists) again(said, unheard Kinds) {
	l.mu.Lock()
	l.said |= said
	l.unheard |= unheard
	l.mu.Unlock()
	select {
	case l.stale <- struct{}{}:
	default:
	}
}

// changes returns which lists are to be looked at again, and of which the server said so, and forgets it.
func (l *lists) changes() (all, said Kinds) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, said = l.said|l.unheard, l.said
	l.said, l.unheard = 0, 0
	if all != 0 {
		l.begun++
	}
	return all, said
}

// now returns the findings.
func (l *lists) now() findings {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found
}

// find edits them.
func (l *lists) find(edit func(*findings)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	edit(&l.found)
}

// maxTold bounds the items of a list of which the owner is told why they are not served.
const maxTold = 8

// dropped is what of one list is not served, for the server's owner.
type dropped struct {
	Count int
	Why   []string // of the first few
}

func (d *dropped) add(k Kind, name string, err error) {
	d.Count++
	if d.Count <= maxTold {
		what := strings.TrimSuffix(k.form().member, "s")
		d.Why = append(d.Why, fmt.Sprintf("%s %s: %.300s", what, protocol.Quote(name), err))
	}
}

// dropped returns what is not served of all lists.
func (f *findings) dropped() dropped {
	var all dropped
	for _, d := range f.Dropped {
		all.Count += d.Count
		all.Why = append(all.Why, d.Why...)
	}
	return all
}
