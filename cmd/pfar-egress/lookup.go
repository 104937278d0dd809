package main

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	longestTTL = time.Minute // that an answer is kept, whatever its records say
	aheadFor   = time.Second // that an answer which may not be kept waits for its connection
	maxLookups = 256         // answers that are kept, and lookups that are made ahead
)

// lookups is what stands between connections and the host's resolver. An answer is kept as long as its records say,
// and vetted at each use. A name is looked up as soon as the program has asked the resolver inside, while it is still
// about to connect: outside the answer takes as long, and the program would wait for both.
type lookups struct {
	ask func(ctx context.Context, name string) ([]netip.Addr, error)

	mu      sync.Mutex
	answers map[string]*answer // by fully qualified name
}

type answer struct {
	done  chan struct{} // closed when the rest is there
	until time.Time     // it is good
	once  bool          // it is for one connection only
	addrs []netip.Addr
	err   error
}

func newLookups(ask func(context.Context, string) ([]netip.Addr, error)) *lookups {
	return &lookups{ask: ask, answers: map[string]*answer{}}
}

// ahead looks name up unless its answer is there or under way.
func (l *lookups) ahead(ctx context.Context, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	if l.answers[name] != nil || len(l.answers) >= maxLookups {
		return
	}
	a := &answer{done: make(chan struct{}), until: time.Now().Add(aheadFor)}
	l.answers[name] = a
	go func() {
		defer close(a.done)
		ctx, cancel := context.WithTimeout(ctx, aheadFor)
		defer cancel()
		addrs, ttl, err := l.query(ctx, name)
		l.mu.Lock()
		defer l.mu.Unlock()
		a.addrs, a.err, a.once = addrs, err, ttl == 0
		a.until = time.Now().Add(max(ttl, aheadFor))
	}()
}

// expire forgets what is not good any more. The lock is held.
func (l *lookups) expire() {
	now := time.Now()
	for name, a := range l.answers {
		if now.After(a.until) {
			delete(l.answers, name)
		}
	}
}

// lookup returns a good answer that is there or under way, or asks.
func (l *lookups) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	if addrs := l.kept(ctx, name); addrs != nil {
		return addrs, nil
	}
	addrs, ttl, err := l.query(ctx, name)
	if err == nil && ttl > 0 {
		done := make(chan struct{})
		close(done)
		l.mu.Lock()
		if l.expire(); len(l.answers) < maxLookups {
			l.answers[name] = &answer{done: done, until: time.Now().Add(ttl), addrs: addrs}
		}
		l.mu.Unlock()
	}
	return addrs, err
}

func (l *lookups) kept(ctx context.Context, name string) []netip.Addr {
	l.mu.Lock()
	a := l.answers[name]
	l.mu.Unlock()
	if a == nil {
		return nil
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers[name] != a { // another connection took it
		return nil
	}
	if a.once || a.err != nil || time.Now().After(a.until) {
		delete(l.answers, name)
	}
	if a.err != nil || time.Now().After(a.until) {
		return nil
	}
	return a.addrs
}

// forget drops an answer whose addresses did not serve.
func (l *lookups) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.answers, name)
}

// query asks, and finds out how long the answer is good: 0 if that is not known.
func (l *lookups) query(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	var seen ttl
	addrs, err := l.ask(context.WithValue(ctx, ttlKey{}, &seen), name)
	return addrs, seen.get(), err
}

// ttl is the shortest time to live among the records of a lookup's answers, which package net does not tell.
type ttl struct {
	mu       sync.Mutex
	known    bool
	shortest time.Duration
}

type ttlKey struct{} // of the context's *ttl

func (t *ttl) get() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		return 0
	}
	return min(t.shortest, longestTTL)
}

// read takes note of a message. One that is not the answer, because somebody else sent it, can only have an answer
// kept for a time that is bounded anyway.
func (t *ttl) read(message []byte) {
	var p dnsmessage.Parser
	if _, err := p.Start(message); err != nil || p.SkipAllQuestions() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		h, err := p.AnswerHeader()
		if err != nil || p.SkipAnswer() != nil {
			return
		}
		if d := time.Duration(h.TTL) * time.Second; !t.known || d < t.shortest {
			t.known, t.shortest = true, d
		}
	}
}

// observed returns a connection to a name server from which the context's *ttl learns. Answers by TCP are long and
// rare: they are not kept.
func observed(ctx context.Context, c net.Conn) net.Conn {
	u, ok := c.(*net.UDPConn)
	t, found := ctx.Value(ttlKey{}).(*ttl)
	if !ok || !found {
		return c
	}
	return &observedUDP{u, t}
}

// observedUDP stays a net.PacketConn, by which package net knows UDP.
type observedUDP struct {
	*net.UDPConn
	ttl *ttl
}

func (o *observedUDP) Read(b []byte) (int, error) {
	n, err := o.UDPConn.Read(b)
	if err == nil {
		o.ttl.read(b[:n])
	}
	return n, err
}
