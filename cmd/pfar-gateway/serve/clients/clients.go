// Package clients knows which clients are let in, by which proof, and which server a request's path names for them.
package clients

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Sessions knows the handles that the operator has minted for clients. access.DefaultSession is known without.
type Sessions interface {
	Known(client, handle string) bool
	Declare(clients []string)
}

// Tasks begins sessions for clients whose programs may do that.
type Tasks interface {
	Begin(client, handle string) error
}

// Clients keeps the clients that are let in.
type Clients struct {
	changed func(*Table)          // is called with each new table
	minted  Sessions              // nil: there is no handle but the default one
	tasks   Tasks                 // nil: no client begins a session
	table   atomic.Pointer[Table] // nil: pfard has not said yet

	mu        sync.Mutex
	declared  []access.Client
	own       *access.Digest // of the endpoint's own token
	operators []uint32
	heard     chan struct{} // closed when there is a table
	awaited   bool          // and it comes from elsewhere
}

// New returns the clients, who are the built-in ones until Learn is called. Requests wait for that if await says so.
// minted knows handles, nil for none. changed is called whenever others are let in, or a handle is known no more.
func New(minted Sessions, await bool, changed func(*Table)) *Clients {
	c := &Clients{changed: changed, minted: minted, awaited: await, heard: make(chan struct{})}
	if !await {
		c.table.Store(newTable(nil, nil, nil, nil))
		close(c.heard)
	}
	return c
}

// BeginBy has tasks begin sessions for clients. It is called before any request.
func (c *Clients) BeginBy(tasks Tasks) { c.tasks = tasks }

// Unmint is called when handles are known no more.
func (c *Clients) Unmint() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.Table(); t != nil {
		c.changed(t)
	}
}

// Learn replaces the declared clients.
func (c *Clients) Learn(declared []access.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.declared, c.awaited = declared, false
	c.retable()
}

// let lets in a token and operators without a declaration.
func (c *Clients) let(own *access.Digest, operators []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own != nil {
		c.own = own
	}
	c.operators = append(c.operators, operators...)
	c.retable()
}

// retable makes the table anew. c.mu is held.
func (c *Clients) retable() {
	if c.awaited {
		return
	}
	t := newTable(c.declared, c.own, c.operators, c.Table())
	if c.minted != nil {
		c.minted.Declare(slices.Collect(maps.Keys(t.members)))
	}
	c.table.Store(t)
	select {
	case <-c.heard:
	default:
		close(c.heard)
	}
	c.changed(t)
}

// Table returns the clients that are let in now, nil if pfard has not said yet.
func (c *Clients) Table() *Table { return c.table.Load() }

// await is how long a request waits for the first table.
const await = 10 * time.Second

// admitted returns the clients that are let in now, nil if pfard does not say in time.
func (c *Clients) admitted(ctx context.Context) *Table {
	if t := c.Table(); t != nil {
		return t
	}
	wait, cancel := context.WithTimeout(ctx, await)
	defer cancel()
	select {
	case <-c.heard:
	case <-wait.Done():
	}
	return c.Table()
}

// knows reports whether a client has a session of that handle.
func (c *Clients) knows(client, handle string) bool {
	if handle == access.DefaultSession {
		return true
	}
	return access.ValidHandle(handle) && c.minted != nil && c.minted.Known(client, handle)
}

// Admits returns the client that a table lets in by a binding, under a handle that it has; nil for none any more.
func (c *Clients) Admits(t *Table, b Binding) *Member {
	if t == nil || !c.knows(b.Client, b.Handle) {
		return nil
	}
	return t.member(b)
}

// ErrDismissed is why what was open of a client has ended.
var ErrDismissed = errors.New("the client may not be here any more")

// Stays looks again whether a client is let in, and what it may do now. It is for the time after something of it has
// been entered where Learn finds it: in between the client may have been removed, or be another.
func (c *Clients) Stays(caller *Caller) error {
	m := c.Admits(c.Table(), caller.Bound)
	if m == nil {
		return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the request was given up: %v", ErrDismissed)
	}
	caller.Member = m
	return nil
}

// Now returns an identity with the client's rights as they are now. It does not check the proof: when a proof is void,
// settle ends all that was opened with it.
func (c *Clients) Now(who enforce.Identity) (enforce.Identity, bool) {
	t := c.Table()
	if t == nil || t.members[who.Client] == nil {
		return who, false
	}
	m := t.members[who.Client]
	who.Profile, who.Rights = m.Profile, m.Rights
	return who, true
}

// IdentityOf is who a binding is by now, for the gate: label is the handle of a label that the connection alone has, ""
// for none. It reports false if that client may not be here any more.
func (c *Clients) IdentityOf(b Binding, label string) (enforce.Identity, bool) {
	t := c.Table()
	if t == nil {
		return enforce.Identity{}, false
	}
	caller := Caller{Bound: b, Member: t.member(b)}
	if caller.Member == nil {
		return enforce.Identity{}, false
	}
	return caller.Identity(label), true
}

// Gone returns what reports whether a call that waits for an approval may not be made any more.
func (c *Clients) Gone(t *Table) func(*approval.Request) bool {
	return func(r *approval.Request) bool { return !t.allows(r) || !c.knows(r.Client, r.Session) }
}

// Flow returns a client as a run of a flow is it, in one of its sessions. proof is that of whoever began the run. It
// reports false if the client may not be here, or not by that proof any more, or has no such session. It waits for the
// first table.
func (c *Clients) Flow(ctx context.Context, client, handle, proof string) (Caller, bool) {
	b := Binding{Client: client, Handle: handle, Flow: true, Begun: proof}
	m := c.Admits(c.admitted(ctx), b)
	if m == nil || client == access.Operator {
		return Caller{}, false
	}
	return Caller{Bound: b, Member: m}, true
}

// Declared returns a client that is let in at all, nil for none.
func (t *Table) Declared(client string) *Member { return t.members[client] }
