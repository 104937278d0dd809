package flowdesk

import (
	"context"
	"fmt"
	"sync"

	"github.com/pfar/pfar/policies/flow/form"
	"github.com/pfar/pfar/units/flows"
)

// Bounds of what an order says, and of the orders that a client has at the same time.
const (
	maxInput     = 2 << 20 // bytes of standard input, as much as a value of a run's store has
	maxFlags     = 1 << 20 // bytes of all flags
	maxWord      = 256     // bytes of every other field
	mostWaiting  = 8       // orders of a client that wait while another one's flow is read
	mostFollowed = 64      // runs of a client that are followed
	mostAsked    = 4       // orders of a client for which models are asked
	mostRead     = 8       // orders of a client that read nodes or runs
)

// tooLarge says which field of an order is larger than it may be, "" for none.
func tooLarge(o *flows.Order) string {
	n := 0
	for _, f := range o.Flags {
		n += len(f)
	}
	input := 0
	if o.Input != nil {
		input = len(*o.Input)
	}
	for _, field := range []struct {
		name   string
		is, at int
	}{
		{"text", len(o.Text), form.MaxText}, {"flags", n, maxFlags},
		{"input", input, maxInput}, {"verb", len(o.Verb), maxWord},
		{"form", len(o.Form), maxWord}, {"name", len(o.Name), maxWord}, {"run", len(o.Run), maxWord},
		{"past", len(o.Past), maxWord},
	} {
		if field.is > field.at {
			return fmt.Sprintf("the %s of the order has %d bytes; the limit is %d", field.name, field.is, field.at)
		}
	}
	return ""
}

// places bound how many things of a client there are at the same time. The zero value has room.
type places struct {
	mu    sync.Mutex
	taken map[string]int
}

// take takes one of so many places of a client, which free gives back.
func (p *places) take(client string, most int) (free func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[client] >= most {
		return nil, false
	}
	if p.taken == nil {
		p.taken = make(map[string]int)
	}
	p.taken[client]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.taken[client]--; p.taken[client] == 0 {
			delete(p.taken, client)
		}
	}), true
}

// turns let one flow of a client be read, checked and judged at a time. The zero value is ready.
type turns struct {
	waiting places
	mu      sync.Mutex
	of      map[string]*turn
}

// turn is of one client.
type turn struct {
	held chan struct{} // has an element while a flow is read
	uses int           // orders that hold it or wait for it
}

// take waits until no flow of a client is read, and then holds that off until done is called. It returns false if too
// many orders wait already, or ctx is done.
func (t *turns) take(ctx context.Context, client string) (done func(), ok bool) {
	free, ok := t.waiting.take(client, 1+mostWaiting)
	if !ok {
		return nil, false
	}
	t.mu.Lock()
	mine := t.of[client]
	if mine == nil {
		mine = &turn{held: make(chan struct{}, 1)}
		if t.of == nil {
			t.of = make(map[string]*turn)
		}
		t.of[client] = mine
	}
	mine.uses++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.uses--; mine.uses == 0 {
			delete(t.of, client)
		}
		free()
	}
	select {
	case mine.held <- struct{}{}:
		return sync.OnceFunc(func() {
			<-mine.held
			leave()
		}), true
	case <-ctx.Done():
		leave()
		return nil, false
	}
}
