package call

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

// replayWait bounds how long a call waits for a server that ended to come up again. The launcher's back-off begins with
// 1 s and 5 s.
const replayWait = 15 * time.Second

// Reach passes the gate with a request to what find finds, sends it, and returns the result as the client may have it.
// Before it has passed, no server is woken for it.
func (a *Calls) Reach(v *Visit, find Find) (reply.Reply, error) {
	t, err := a.sought(v.Ctx, find)
	if err != nil {
		a.Missed(v, t, err)
		return reply.Reply{}, err
	}
	return a.Admit(v, t, func(c *Call) (reply.Reply, error) {
		if err := c.givenUp(v.Ctx); err != nil {
			return reply.Reply{}, err
		}
		if re, err := reused(c, t); re != nil || err != nil {
			return *cmp.Or(re, new(reply.Reply)), err
		}
		c.still = t.Still(find, c.Pass.Declared())
		return c.attempt()
	})
}

// sought finds a target. It waits for a server that is starting, as after a crash, and for the try of one that is
// offline.
func (a *Calls) sought(ctx context.Context, find Find) (Target, error) {
	var wait context.Context // nil: there was nothing to wait for
	for {
		t, err := find()
		down, ok := errors.AsType[*registry.Down](err)
		if !ok {
			return t, err
		}
		if wait == nil {
			var cancel context.CancelFunc
			wait, cancel = context.WithTimeout(ctx, replayWait)
			defer cancel()
		}
		if !a.Registry.Back(wait, down.Server) {
			return find() // what is known of it may be newer
		}
	}
}

// Hold finds a request's target and keeps its server awake until release; one that sleeps is woken.
func (a *Calls) Hold(ctx context.Context, find Find) (t Target, release func(), err error) {
	for {
		if t, err = a.sought(ctx, find); err != nil {
			return t, nil, err
		}
		if t.Upstream.Hold() {
			return t, t.Upstream.Release, nil
		}
		if err = a.Registry.Wake(ctx, t.Upstream); err != nil {
			return t, nil, err
		}
	}
}

// once sends the request, and returns the result. Should the server's process end, the next one is asked once more if
// the first has not had the request, or if it only reads. The target has no Upstream if there was none to send it to.
func (c *Call) once() (reply.Reply, Target, error) {
	t, release, err := c.Hold(c.Ctx, c.still)
	if err != nil {
		return reply.Reply{}, Target{}, err
	}
	defer release()
	re, err := c.Forward(t)
	gone, ok := errors.AsType[*protocol.Gone](err)
	if !ok {
		return re, t, err
	}
	own := c.Session.Owns(t.Upstream)
	// Not again if the server has had a part of it, or what one yes was for.
	again := (!gone.Sent || t.Reads && !c.Pass.Approved()) && c.rounds == 0
	if own && again && !gone.Sent { // it was about to end: the session gets another
		c.tries--
		re, err = c.Forward(t)
		return re, t, err
	}
	if again && !own {
		wait, cancel := context.WithTimeout(c.Ctx, replayWait)
		defer cancel()
		if c.Registry.Next(wait, t.Upstream) && c.repeats(gone) {
			next, done, err := c.Hold(c.Ctx, c.still)
			if err != nil {
				return reply.Reply{}, Target{}, err
			}
			defer done()
			re, err = c.Forward(next)
			return re, next, err
		}
	}
	if gone.Sent && !t.Reads {
		unsure := jsonrpc.Errorf(protocol.CodeUnavailable, "%v; whether it had done what was asked is not known", err)
		return reply.Reply{}, t, failure.As(failure.Died, t.server(), unsure)
	}
	return reply.Reply{}, t, err
}

// Forward sends the request once.
func (c *Call) Forward(t Target) (reply.Reply, error) {
	c.tries++
	return c.observed(c.Ctx, t.server(), t.Item.Name, func(ctx context.Context) (reply.Reply, error) {
		re, err := c.send(ctx, t)
		if t.Kind == gate.Tool {
			t.Upstream.Called(t.Item.Name, err)
		}
		return re, err
	})
}

// send calls the server, and again with the client's answers as long as the server asks. A client of 2026-07-28 answers
// by another request.
func (c *Call) send(ctx context.Context, t Target) (reply.Reply, error) {
	up, err := c.Starter.Process(ctx, c.Session, t.Upstream)
	if err != nil {
		return reply.Reply{}, err
	}
	call, err := c.outgoing(up, t)
	if err != nil {
		return reply.Reply{}, err
	}
	back := &incoming{c, up, t}
	if err := c.Pass.Stands(); err != nil { // it may have waited for its server
		return c.refusal(t, err)
	}
	if err := c.givenUp(ctx); err != nil {
		return reply.Reply{}, err
	}
	if err := c.begins(); err != nil {
		return reply.Reply{}, err
	}
	for {
		result, parked, err := c.converse(ctx, up, t, call)
		c.sent(err)
		if err != nil {
			return reply.Reply{}, back.heard(err)
		}
		if parked != nil {
			return *parked, nil
		}
		re, asked, err := back.finish(result)
		switch {
		case err != nil || asked == nil:
			return re, err
		case c.Modern:
			return back.passOn(asked)
		}
		if c.rounds++; c.rounds > maxRounds {
			return reply.Reply{}, jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q has asked %d times in the course of this call", up.Server().Name, maxRounds)
		}
		if c.rounds == 1 { // the client has so long for all questions together
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, c.Human, errUnanswered)
			defer cancel()
		}
		if call.Params, err = c.round(ctx, up, call.Params, asked); err != nil {
			return c.refusal(t, err)
		}
	}
}

// givenUp returns an error if the request is a step of a run that was cancelled meanwhile: that sends nothing any more.
func (c *Call) givenUp(ctx context.Context) error {
	if c.Step == nil || ctx.Err() == nil {
		return nil
	}
	return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the run was given up: %v", context.Cause(ctx))
}

// sent notes that the server has had the request, or may have had it.
func (c *Call) sent(err error) {
	if gone, ok := errors.AsType[*protocol.Gone](err); c.Step != nil && (!ok || gone.Sent) {
		c.Step.Sent = true
	}
}
