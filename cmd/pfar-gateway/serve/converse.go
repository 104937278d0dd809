package serve

import (
	"context"
	"math"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/policies/gate"
)

// conversation is a call in the course of which the server may have something to say: progress, log messages, and
// requests to the client.
type conversation struct {
	up     *registry.Upstream
	pass   *enforce.Passage
	target target
	call   registry.Call
	notes  chan note
	asks   chan *registry.Ask
	done   chan outcome
	over   chan struct{} // closed when done has the outcome
	cancel context.CancelCauseFunc
	told   atomic.Pointer[[]byte] // progress, the last
}

// note is a message for the client.
type note struct {
	message []byte
	method  string // of a notification of the server's instead, which the client may not have to get
	params  []byte
}

type outcome struct {
	result []byte
	err    error
}

// backlog bounds the progress and the log messages that wait for a slow client; what does not fit is dropped: the next
// progress says more anyway.
const backlog = 32

// maxAsks bounds the questions of a server that wait for their client's turn.
const maxAsks = 16

// converse calls, and turns the answer into an event stream with the first thing that comes before the result.
func (x *exchange) converse(ctx context.Context, up *registry.Upstream, t target, call registry.Call) (reply, error) {
	logs, asks := x.wantsLog(up), x.answers(up)
	if x.called = (called{server: up.Server().Name, profile: x.member.Profile}); t.kind == gate.Tool {
		x.called.tool = t.Name
	}
	if x.sse && x.lasts { // the client knows how to come back before the call takes its time
		x.stream()
	}
	if call.Token == 0 && !logs && !asks {
		result, err := up.Call(ctx, call)
		if err != nil {
			return reply{}, x.heard(up, err)
		}
		return x.finish(ctx, up, t, call, result)
	}
	c := &conversation{
		up: up, pass: x.pass, target: t, notes: make(chan note, backlog), asks: make(chan *registry.Ask, maxAsks), done: make(chan outcome, 1), over: make(chan struct{}),
	}
	if call.Token != 0 {
		call.Progress = c.progress(x.before)
		x.before = c
	}
	if logs {
		least := x.leastLevel(up)
		call.Log = func(params []byte) {
			if method := string(mcp.MethodNotificationMessage); subjectOf(method, params).level >= least {
				c.note(method, params)
			}
		}
	}
	if asks {
		call.Ask = c.ask
	}
	c.call = call
	if x.modern { // it may outlive this request: the client answers in the next
		ctx, c.cancel = context.WithCancelCause(x.srv.calls)
	} else {
		ctx, c.cancel = context.WithCancelCause(ctx)
	}
	go func() {
		result, err := up.Call(ctx, call)
		c.done <- outcome{result, err}
		close(c.over)
	}()
	return x.attend(c)
}

// progress returns what passes progress on. A call that is made once more begins anew; of that the client is told only
// what goes further than what it has been told: the protocol wants each progress to be more than the one before.
func (c *conversation) progress(before *conversation) func(params []byte) {
	method, least := string(mcp.MethodNotificationProgress), math.Inf(-1)
	if before != nil {
		if told := before.told.Load(); told != nil {
			least = progressOf(*told)
			c.told.Store(told)
		}
	}
	return func(params []byte) {
		if !math.IsInf(least, -1) && progressOf(params) <= least {
			return
		}
		before := c.told.Swap(&params) // the call may be made once more as soon as the client has it
		if !c.note(method, params) {
			c.told.Store(before)
		}
	}
}

// progressOf is how far a call is; -Inf: it does not say.
func progressOf(params []byte) float64 {
	members, err := jsonrpc.Object(params, nil)
	if err == nil {
		if n, err := strconv.ParseFloat(string(members.Get("progress")), 64); err == nil {
			return n
		}
	}
	return math.Inf(-1)
}

// note queues a notification for the client and reports whether there was room.
func (c *conversation) note(method string, params []byte) bool {
	select {
	case c.notes <- note{method: method, params: params}:
		return true
	default:
		return false
	}
}

// said is a note as the client may have it, nil if it may not.
func (c *conversation) said(ctx context.Context, n note) []byte {
	if n.method == "" {
		return n.message
	}
	params, ok := c.pass.Said(ctx, n.method, n.params)
	if !ok {
		return nil
	}
	return jsonrpc.AppendNotification(nil, n.method, params)
}

func (c *conversation) ask(a *registry.Ask) bool {
	select {
	case c.asks <- a:
		return true
	default:
		return false
	}
}

// attend serves a conversation until the result is there, or the client has to answer by another request.
func (x *exchange) attend(c *conversation) (reply, error) {
	parked := false
	defer func() {
		if !parked {
			c.cancel(nil)
		}
	}()
	send := func(message []byte) {
		if message != nil && x.stream().send(message) != nil {
			c.cancel(errHungUp)
		}
	}
	ended := x.ctx.Done()
	for {
		select {
		case n := <-c.notes:
			send(c.said(x.ctx, n))
		case a := <-c.asks:
			if a.Over() {
				continue
			}
			if x.modern {
				re, err := x.park(c, a)
				parked = err == nil
				return re, err
			}
			if m := x.session.ask(x.ctx, x.srv, a, x.pass, x.endpoint == "", c.later); m != nil {
				send(m)
			}
		case <-ended:
			c.cancel(context.Cause(x.ctx))
			ended = nil // the call ends by that
		case o := <-c.done:
			for len(c.notes) > 0 { // it came before the answer
				send(c.said(x.ctx, <-c.notes))
			}
			if o.err != nil {
				return reply{}, x.heard(c.up, o.err)
			}
			return x.finish(x.ctx, c.up, c.target, c.call, o.result)
		}
	}
}

// later sends a message that must not block whoever has it.
func (c *conversation) later(message []byte) {
	select {
	case c.notes <- note{message: message}:
	default:
	}
}

// answers reports whether the client can be asked something in the course of a call by a server that does so by
// requests.
func (x *exchange) answers(up *registry.Upstream) bool {
	if up.Modern() || x.plain {
		return false
	}
	if x.modern && !mayAsk(x.msg.Method) {
		return false
	}
	return slices.ContainsFunc(up.Server().Capabilities, x.capable)
}

// capable reports whether the client says that it can be asked for that.
func (x *exchange) capable(capability string) bool {
	if !x.modern {
		return x.session != nil && x.session.capable(capability)
	}
	ms, err := jsonrpc.Object(x.meta.Get(mcp.MetaKeyClientCapabilities), nil)
	return err == nil && ms.Get(capability) != nil
}
