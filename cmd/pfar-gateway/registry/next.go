package registry

import (
	"context"
	"time"
)

// Next waits until another process of a server has come up than the one whose end is given, and reports false if the
// server is not to come up again, or ctx ends first.
func (d *demand) Next(ctx context.Context, gone *Upstream) bool {
	return d.wait(ctx, gone.Server().Name, gone)
}

// Back waits until a server is up that is being started again, and reports false if it is not, or ctx ends first. One
// that is offline is tried at once, unless its service has said that it wants to be asked later.
func (d *demand) Back(ctx context.Context, server string) bool {
	d.mu.Lock()
	var trying chan struct{}
	if e := d.entries[server]; e != nil && e.offline && !e.asksLater && !d.closed && d.waker != nil {
		if e.trying == nil {
			e.trying = make(chan struct{})
			go d.try(server, e.trying, e.next)
		}
		trying = e.trying
	}
	d.mu.Unlock()
	if trying != nil {
		select {
		case <-trying:
		case <-ctx.Done():
		}
	}
	return d.wait(ctx, server, nil)
}

// try has a server tried that is offline, and returns when something has come of that: it is up, or next is another
// time. All requests for it wait for the same try, and its launcher bounds how soon one follows another.
func (d *demand) try(server string, done chan struct{}, next time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), d.limits.Wake)
	defer cancel()
	again := time.NewTicker(time.Second) // a launcher that has just ended does not hear it
	defer again.Stop()
	_ = d.waker.Wake(ctx, server)
	for {
		d.mu.Lock()
		e, now := d.entries[server], d.views.Catalogue()
		pending := e != nil && !d.closed && now.find(server) == nil &&
			(e.returns || e.offline && e.next.Equal(next)) && ctx.Err() == nil
		if !pending && e != nil {
			e.trying = nil
		}
		d.mu.Unlock()
		if !pending {
			close(done)
			return
		}
		select {
		case <-now.replaced:
		case <-again.C:
			_ = d.waker.Wake(ctx, server)
		case <-ctx.Done():
		}
	}
}

// wait waits for another process of a server than gone; nil: for any.
func (d *demand) wait(ctx context.Context, server string, gone *Upstream) bool {
	for {
		d.mu.Lock()
		closed, now := d.closed, d.views.Catalogue()
		s := now.find(server)
		word, returns := d.returning(server)
		d.mu.Unlock()
		switch {
		case s != nil && s.upstream != gone:
			return true
		case closed, !returns && (gone == nil || gone.Stopping()):
			return false
		}
		var silent <-chan time.Time
		if word > 0 {
			silent = time.After(word)
		}
		select {
		case <-now.replaced:
		case <-silent:
		case <-ctx.Done():
			return false
		}
	}
}

// returning reports whether a server that is down may come up again without anybody's doing, and how long pfard may
// still take to say so; 0: it has. d.mu is held.
func (d *demand) returning(server string) (word time.Duration, returns bool) {
	e := d.entries[server]
	switch {
	case e == nil:
		return 0, false
	case e.returns:
		return 0, true
	case e.stays:
		return 0, false
	case e.state.Stopped && d.waker != nil:
		word = d.limits.Word - time.Since(e.state.Since)
	}
	return max(word, 0), word > 0
}
