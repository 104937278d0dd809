package main

import (
	"context"
	"sync"
	"time"

	"github.com/pfar/pfar/units/page"
)

// consoleLink is a link to a console.
type consoleLink struct {
	url  string
	used <-chan struct{} // closed when it has let somebody in
	gone <-chan struct{} // closed when the console's process has ended
}

// entered waits until somebody has come in with the link, and reports whether that happened before the link was void,
// or ctx ended.
func (l consoleLink) entered(ctx context.Context) bool {
	void := time.NewTimer(page.LinkTime)
	defer void.Stop()
	select {
	case <-l.used:
		return true
	case <-l.gone:
	case <-void.C:
	case <-ctx.Done():
	}
	return false
}

// consoleLinks are the newest links of a console that nobody has used yet.
type consoleLinks struct {
	mu   sync.Mutex
	list []openLink
}

// openLink is one of them.
type openLink struct {
	nonce string
	used  chan struct{}
}

// maxOpenLinks is how many a console keeps, which is as many as are good at a time.
const maxOpenLinks = 8

// begin adds a link.
func (e *consoleLinks) begin(nonce, url string, gone <-chan struct{}) consoleLink {
	e.mu.Lock()
	defer e.mu.Unlock()
	used := make(chan struct{})
	if e.list = append(e.list, openLink{nonce, used}); len(e.list) > maxOpenLinks {
		e.list = e.list[1:]
	}
	return consoleLink{url, used, gone}
}

// enter notes that a link has let somebody in.
func (e *consoleLinks) enter(nonce string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, one := range e.list {
		if one.nonce == nonce {
			close(one.used)
			e.list = append(e.list[:i:i], e.list[i+1:]...)
			return
		}
	}
}
