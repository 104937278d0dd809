package main

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

const (
	aheadFor = time.Second // that an answer waits for its connection
	maxAhead = 64          // names that are looked up ahead at once
)

// ahead looks declared names up while the program that asked for one is still about to connect: outside the answer takes
// as long as inside, and the program would wait for both. It is no cache: an answer is for one connection, the next one
// looks up again.
type ahead struct {
	ask func(ctx context.Context, name string) ([]netip.Addr, error)

	mu      sync.Mutex
	answers map[string]*answer // by fully qualified name
}

type answer struct {
	began time.Time
	done  chan struct{} // closed when addrs and err are there
	addrs []netip.Addr
	err   error
}

func newAhead(ask func(context.Context, string) ([]netip.Addr, error)) *ahead {
	return &ahead{ask: ask, answers: map[string]*answer{}}
}

// start looks name up unless that is under way already.
func (a *ahead) start(ctx context.Context, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for n, old := range a.answers {
		if now.Sub(old.began) > aheadFor {
			delete(a.answers, n)
		}
	}
	if a.answers[name] != nil || len(a.answers) >= maxAhead {
		return
	}
	new := &answer{began: now, done: make(chan struct{})}
	a.answers[name] = new
	go func() {
		defer close(new.done)
		ctx, cancel := context.WithTimeout(ctx, aheadFor)
		defer cancel()
		new.addrs, new.err = a.ask(ctx, name)
	}()
}

// lookup returns the answer that was asked for ahead, if there is one and it is good, and else asks.
func (a *ahead) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	a.mu.Lock()
	early := a.answers[name]
	delete(a.answers, name)
	a.mu.Unlock()
	if early != nil && time.Since(early.began) <= aheadFor {
		select {
		case <-early.done:
			if early.err == nil {
				return early.addrs, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return a.ask(ctx, name)
}

// expect is told of a name that the server has just been given an address for.
func (p *proxy) expect(name string) {
	d := p.policy.Decide(name, 443)
	declared := d.Verdict == egress.Allow || d.Reason == egress.PortNotDeclared
	if !declared || d.Host == "" || p.out.upstream != nil { // no query leaves for what is not declared
		return
	}
	p.ahead.start(context.Background(), d.Host+".")
}
