package call

import (
	"context"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/jsonrpc"
)

// ErrNoGate is the error of all that would have to pass a gate that there is not.
var ErrNoGate = jsonrpc.Errorf(approval.Code, "nothing is called: there is no gate")

// Admit passes the gate with a request that is about t, and has do make it. It closes the record of the request: the
// client gets no result that is not recorded.
func (a *Calls) Admit(v *Visit, t Target, do func(*Call) (reply.Reply, error)) (reply.Reply, error) {
	c := &Call{Calls: a, Visit: v}
	var l heldLink
	if err := c.enter(t, &l); err != nil {
		return c.denied(t, err, &l)
	}
	return c.recorded(func() (reply.Reply, error) { return do(c) })
}

// enter passes the gate. It may take as long as people take to answer; meanwhile the client is shown the link.
func (c *Call) enter(t Target, l *heldLink) error {
	if c.Gate == nil {
		return ErrNoGate
	}
	it := t.Judged()
	r, bounded := c.shown()
	if !bounded {
		it.FreeText = nil
	}
	r.Held = l.shows(c, t)
	var err error
	c.Pass, err = c.Gate.Enter(c.Ctx, c.Identity(), it, r)
	if c.Step != nil {
		c.Step.Pass = c.Pass
	}
	l.settle(c)
	if table := c.Clients.Table(); err != nil && table != nil && c.Clients.Admits(table, c.Bound) == nil {
		// It may have been asked about since all was denied.
		c.Gate.Dismiss(c.Clients.Gone(table))
	}
	return err
}

// Missed records a request that leads to nothing, or is not as its target wants it.
func (a *Calls) Missed(v *Visit, t Target, why error) {
	if a.Gate == nil || !a.Misses.Allow(v.Bound.Client) {
		return
	}
	server, name := v.Endpoint, t.Name
	if t.Upstream != nil {
		server = t.server()
	}
	for _, member := range [...]string{"name", "uri"} {
		if name == "" {
			name, _ = jsonrpc.String(v.Parameters.Get(member))
		}
	}
	r, _ := v.shown()
	a.Gate.Missed(v.Identity(), server, name, r, why)
}

// denied answers a request that did not pass: a tool's error, which models read and act on, or one of the protocol. If
// the request waits, a client of 2026-07-28 is shown the link first.
func (c *Call) denied(t Target, err error, l *heldLink) (reply.Reply, error) {
	return c.observed(c.Ctx, t.server(), t.Item.Name, func(context.Context) (reply.Reply, error) {
		no, ok := errors.AsType[*enforce.Refused](err)
		if ok && no.State == approval.Pending && c.Modern && l.done != nil {
			return reply.Reply{Refused: true, Why: no, Result: l.required(heldKey)}, nil
		}
		return c.refusal(t, err)
	})
}

func (v *Visit) refusal(t Target, err error) (reply.Reply, error) {
	no, ok := errors.AsType[*enforce.Refused](err)
	if !ok {
		return reply.Reply{}, err
	}
	call := t.server() + "." + t.Name
	if mcp.MCPMethod(v.Method) != mcp.MethodToolsCall {
		return reply.Reply{}, no.Outcome.Error(call)
	}
	return reply.Reply{Refused: true, Why: no, Result: no.ToolError(call)}, nil
}

// recorded makes a call that has passed the gate, and closes its record unless the call waits for its client to come
// back.
func (c *Call) recorded(do func() (reply.Reply, error)) (reply.Reply, error) {
	defer c.lost()
	re, err := do()
	if c.Pass == nil {
		return re, err
	}
	outcome, _ := Judge(c.Ctx, re, err)
	c.Pass.Failed(failure.Of(err))
	if unrecorded := c.Pass.End(outcome.String(), re.Size()); unrecorded != nil {
		c.Log.Error("closing the record of a call; its result is withheld", "call", c.Pass.Call(), "error", unrecorded.Error())
		return reply.Reply{}, jsonrpc.Errorf(mcp.INTERNAL_ERROR, "the request was made, and its result is withheld: the "+
			"record of it could not be closed")
	}
	return re, err
}

// lost closes the record of a request that panics.
func (c *Call) lost() {
	if c.Pass != nil {
		_ = c.Pass.End("failed", 0)
	}
}
