package protocol

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/jsonrpc"
)

// places are those for calls in flight.
type places struct {
	slots  chan struct{}
	queued atomic.Int64
	most   int // calls that wait for one
}

// few calls in flight are written each for itself: to wait for others would cost them more than it saves.
const few = 4

func (p *places) crowded() bool { return len(p.slots) > few }

// request is a call on its way.
type request struct {
	c       *Conversation
	id      int64
	w       *waiting
	written *transport.Sending
}

// Call sends a request and returns the result as the server wrote it. Every error is or wraps a *jsonrpc.Error. When
// ctx ends or time is up, the server is told that the answer is not wanted any more, unless the call's Withdraw forbids
// it.
func (c *Conversation) Call(ctx context.Context, call Call) ([]byte, error) {
	if err := c.secrets.known(ctx, c); err != nil {
		return nil, err
	}
	r := request{c: c, w: c.flights.spare()}
	r.w.call = &call
	r.w.timer.Reset(r.timeout())
	if !call.Own {
		if err := r.enter(ctx); err != nil {
			r.w.timer.Stop()
			return nil, err
		}
	}
	r.w.since = time.Now()
	if err := r.send(ctx); err != nil {
		r.over(false)
		return nil, err
	}
	result, end, err := r.await(ctx)
	if end == runsOn {
		held := c.Idle().Hold() // before the caller's own hold ends
		go r.runOut(held)
		return nil, err
	}
	r.over(end == answered)
	return result, err
}

// enter takes one of the places for calls in flight, waiting for it if not too many wait already.
func (r *request) enter(ctx context.Context) error {
	c, p := r.c, &r.c.places
	select {
	case p.slots <- struct{}{}:
		return nil
	default:
	}
	defer p.queued.Add(-1)
	if p.queued.Add(1) > int64(p.most) {
		return classed(failure.RateLimited, c.name(), CodeBusy, "server %q is busy: %d calls run and %d wait",
			c.name(), cap(p.slots), p.most)
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-c.Done():
		return c.gone(false)
	case <-ctx.Done():
		return Interrupted(ctx)
	case <-r.w.timer.C:
		return classed(failure.Timeout, c.name(), mcp.REQUEST_INTERRUPTED,
			"server %q did not get to the call within %v: %d others run", c.name(), c.timeout(), cap(p.slots))
	}
}

// send enters the call and writes it, or has it written.
func (r *request) send(ctx context.Context) (err error) {
	c, call := r.c, r.w.call
	r.id = c.flights.memory.Next()
	if why := c.flights.begin(r.id, r.w); why != "" {
		return gone(c.name(), why, false)
	}
	if !call.Meta && c.Modern() {
		call.Params = withMeta(call.Params, c.Agreed().meta)
	}
	line := jsonrpc.AppendRequest(make([]byte, 0, 64+len(call.Method)+len(call.Params)), r.id, call.Method, call.Params)
	if r.written, err = c.conn.Send(ctx, line, c.places.crowded()); err != nil {
		return c.unsent(ctx, r.id, err)
	}
	return nil
}

// How waiting for a call's answer ends.
type ending int

const (
	failed ending = iota
	answered
	runsOn // the server still works on it, and may not hear that nobody waits
)

// await waits for the answer to a call that has been sent.
func (r *request) await(ctx context.Context) ([]byte, ending, error) {
	c, call := r.c, r.w.call
	for {
		select {
		case a := <-r.w.answer:
			result, err := judge(c, a, call.Method)
			return result, answered, err
		case <-c.Done():
			select {
			case a := <-r.w.answer: // it came before the end
				result, err := judge(c, a, call.Method)
				return result, failed, err
			default:
				return nil, failed, c.gone(true)
			}
		case <-r.written.Failed():
			return nil, failed, c.unsent(ctx, r.id, r.written.Err())
		case <-ctx.Done():
			if call.Withdraw != nil && !call.Withdraw(context.Cause(ctx)) {
				return nil, runsOn, Interrupted(ctx)
			}
			c.abandon(r.id, "cancelled")
			return nil, failed, Interrupted(ctx)
		case <-r.w.timer.C:
			if err := r.expired(); err != nil {
				return nil, failed, err
			}
		}
	}
}

// expired gives a call up whose time is over, unless the server waits for a client's answer.
func (r *request) expired() error {
	c, method := r.c, r.w.call.Method
	if why := c.flights.unread(r.w); why != "" {
		c.abandon(r.id, "the answer could not be read")
		return classed(failure.Schema, c.name(), mcp.INTERNAL_ERROR,
			"server %q answered %s with a line that cannot be read: %s", c.name(), method, why)
	}
	if rest := min(c.flights.asking(r.w, r.timeout()), c.limits.Human-time.Since(r.w.since)); rest > 0 {
		r.w.timer.Reset(rest)
		return nil
	}
	c.abandon(r.id, "timed out")
	doubt := ""
	if method == string(mcp.MethodToolsCall) {
		doubt = "; whether it has done what was asked is not known"
	}
	return classed(failure.Timeout, c.name(), mcp.REQUEST_INTERRUPTED, "server %q did not answer %s within %v%s",
		c.name(), method, r.timeout(), doubt)
}

// timeout is how long the call may take. A server whose calls take a second may take longer to start and to list what
// it offers.
func (r *request) timeout() time.Duration {
	if r.w.call.Own {
		return r.c.standard // or until its context ends
	}
	return r.c.timeout()
}

// runOut waits in place of a caller who has left. The call keeps its place and its time, so that the server cannot
// tell.
func (r request) runOut(held bool) {
	if held {
		defer r.c.Release()
	}
	_, end, _ := r.await(context.Background())
	r.over(end == answered)
}

// over gives back what a call has taken. An answered one is used again.
func (r *request) over(answered bool) {
	call := r.w.call
	r.w.timer.Stop()
	if call.Ask != nil { // whoever is asked need not answer any more
		for _, a := range r.c.flights.about(r.w) {
			a.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the call that this is about is over"))
			a.takeBack()
		}
	}
	if !call.Own {
		<-r.c.places.slots
		if r.c.flights.only != nil {
			r.c.Idle().Touch()
		}
	}
	if answered && call.Ask == nil { // and so nobody else has it any more
		r.w.call, r.w.unread = nil, ""
		r.c.flights.spares.Put(r.w)
	}
}

// abandon forgets a call and tells the server so.
func (c *Conversation) abandon(id int64, reason string) {
	if c.flights.giveUp(id, c.asksUntil()) { // else it is answered in this moment
		c.outbox.tell(cancellation(id, reason))
	}
}

// judge turns an answer into a result or an error; a wrong shape is an error.
func judge(c *Conversation, a answer, method string) ([]byte, error) {
	wrong := ""
	switch {
	case a.err != nil:
		wrong = a.err.Error()
	case !a.Version:
		wrong = `the answer is not marked "jsonrpc":"2.0"`
	case a.Result != nil && a.Error != nil:
		wrong = "the answer has both a result and an error"
	case a.Error != nil && jsonrpc.ValidError(a.Error):
		return nil, reported(c.Server(), redact.StripJSON(a.Error))
	case a.Error != nil:
		wrong = "the error is not an object with code and message"
	case a.Result == nil:
		wrong = "the answer has neither a result nor an error"
	case a.Result[0] != '{':
		wrong = "the result is not an object"
	case a.Depth > c.limits.Depth && method != string(mcp.MethodToolsList): // tools are judged one by one
		wrong = fmt.Sprintf("the answer nests %d levels deep, and pfar passes on at most %d", a.Depth, c.limits.Depth)
	default:
		return a.Result, nil
	}
	return nil, classed(failure.Schema, c.name(), mcp.INTERNAL_ERROR, "server %q answered %s against the protocol: %s",
		c.name(), method, wrong)
}

// unsent takes a call off the books that could not be written, or whose caller has not waited for that.
func (c *Conversation) unsent(ctx context.Context, id int64, err error) error {
	w := c.flights.of(id)
	if ctx.Err() != nil && w != nil && (w.call.Withdraw == nil || w.call.Withdraw(context.Cause(ctx))) {
		c.abandon(id, "cancelled") // it may have been, or will be
	}
	c.flights.forget(id)
	return c.writeError(ctx, err)
}

func (c *Conversation) writeError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return Interrupted(ctx)
	case errors.Is(err, transport.ErrStuck):
		return classed(failure.Timeout, c.name(), CodeUnavailable, "server %q: %v", c.name(), err)
	}
	return c.gone(true) // some of it may have got there
}

// Interrupted is the error of a request whose context has ended.
func Interrupted(ctx context.Context) error {
	return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the request was given up: %v", context.Cause(ctx))
}

// gone says that the server ended, and why.
func (c *Conversation) gone(sent bool) error { return gone(c.name(), c.flights.why(), sent) }

func gone(name, why string, sent bool) error {
	refusal := jsonrpc.Errorf(CodeUnavailable, "server %q went away: %s", name, why)
	return &Gone{failure.As(failure.Died, name, refusal), sent}
}

// Release ends what Idle.Hold has begun: the server's idle_timeout counts from here.
func (c *Conversation) Release() {
	if c.Server().OnDemand {
		c.Idle().Touch()
	}
	c.Idle().hold.give()
}
