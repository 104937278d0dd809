package protocol

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Terms are what the owner declares of a server, as of now: an edit changes them while the server runs.
type Terms struct {
	standard time.Duration // of a call, where the declaration says nothing
	now      atomic.Pointer[declared]
}

// declared is one declaration of the server. It does not change.
type declared struct {
	server  handover.Server
	timeout time.Duration // of a call
}

func newTerms(server handover.Server, standard time.Duration) *Terms {
	t := &Terms{standard: standard}
	t.Declare(server)
	return t
}

// Declare sets them.
func (t *Terms) Declare(server handover.Server) {
	d := &declared{server: server, timeout: server.Timeout}
	if d.timeout <= 0 {
		d.timeout = t.standard
	}
	t.now.Store(d)
}

// Server returns the declaration.
func (t *Terms) Server() handover.Server { return t.now.Load().server }

// Declared returns the facts that the owner declares, for the gate. The identity changes with each edit and each
// process, so that facts cached by it are never stale.
func (t *Terms) Declared() (identity any, word []byte) {
	d := t.now.Load()
	return d, d.server.Declared
}

func (t *Terms) name() string { return t.now.Load().server.Name }

func (t *Terms) timeout() time.Duration { return t.now.Load().timeout }

// asksUntil returns until when the server may ask about a call that is given up now; zero: it may not ask.
func (t *Terms) asksUntil() time.Time {
	d := t.now.Load()
	if len(d.server.Capabilities) == 0 {
		return time.Time{}
	}
	return time.Now().Add(d.timeout)
}

// Refusal says why a server may not ask for the method, nil if it may.
func (t *Terms) Refusal(method string) *jsonrpc.Error {
	c := Capability(method)
	if c == "" {
		return jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: %.100q", method)
	}
	if server := t.Server(); !slices.Contains(server.Capabilities, c) {
		return jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: the declaration of %q does not let it ask clients for %s "+
			"(client_capabilities)", server.Name, c)
	}
	return nil
}
