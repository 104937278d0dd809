package main

import (
	"context"
	"sync"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/operator/ask"
)

// entrance asks pfard for the page where a person enters a server's secrets. A process of its own serves that page, so
// that the secrets do not come here.
type entrance struct {
	asks func(server string) error // asks pfard for a page

	mu      sync.Mutex
	allowed bool                // the person may store secrets
	waits   chan attach.Entered // gets pfard's answer; nil: nobody has asked
}

func (e *entrance) allow(is bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowed = is
}

// mayStore reports whether the person may store secrets.
func (e *entrance) mayStore() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.allowed
}

// answer passes on what pfard says.
func (e *entrance) answer(a attach.Entered) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waits != nil {
		e.waits <- a // it holds one
		e.waits = nil
	}
}

var (
	errOpening   error = &ask.Refusal{Reason: "another page is being opened; try again"}
	errNoEntries error = &ask.Refusal{Reason: "only the user who runs pfard, and root, store secrets"}
)

// link returns the link of a page for a server's secrets.
func (e *entrance) link(ctx context.Context, server string) (string, error) {
	waits := make(chan attach.Entered, 1)
	e.mu.Lock()
	allowed, busy := e.allowed, e.waits != nil
	if allowed && !busy {
		e.waits = waits
	}
	e.mu.Unlock()
	switch {
	case !allowed:
		return "", errNoEntries
	case busy:
		return "", errOpening
	}
	if err := e.asks(server); err != nil {
		e.answer(attach.Entered{})
		return "", &ask.Refusal{Reason: "pfard does not answer"}
	}
	select {
	case a := <-waits:
		if a.Error != "" || a.Link == "" {
			return "", &ask.Refusal{Reason: a.Error}
		}
		return a.Link, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
