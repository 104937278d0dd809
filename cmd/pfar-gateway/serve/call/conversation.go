package call

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/units/jsonrpc"
)

// conversation is a call in the course of which the server may have something to say: progress, log messages, and
// requests to the client.
type conversation struct {
	up     *registry.Upstream
	pass   *enforce.Passage
	target Target
	call   protocol.Call
	notes  chan note
	asks   chan *protocol.Ask
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

// outcome is a server's answer.
type outcome struct {
	result []byte
	err    error
}

// backlog bounds the progress and the log messages that wait for a slow client; what does not fit is dropped: the next
// progress says more anyway.
const backlog = 32

// maxAsks bounds the questions of a server that wait for their client's turn.
const maxAsks = 16

func newConversation(up *registry.Upstream, pass *enforce.Passage, t Target) *conversation {
	return &conversation{
		up: up, pass: pass, target: t, notes: make(chan note, backlog), asks: make(chan *protocol.Ask, maxAsks),
		done: make(chan outcome, 1), over: make(chan struct{}),
	}
}

// begin makes the call.
func (c *conversation) begin(ctx context.Context, call protocol.Call) {
	c.call = call
	ctx, c.cancel = context.WithCancelCause(ctx)
	go func() {
		result, err := c.up.Call(ctx, call)
		c.done <- outcome{result, err}
		close(c.over)
	}()
}

// progress returns the function that passes progress on. A call that is made once more begins anew, but the protocol
// wants each progress to be more than the one before: the client is told only of further progress.
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

// logs returns what passes log messages on, from a level.
func (c *conversation) logs(least int) func(params []byte) {
	return func(params []byte) {
		if method := string(mcp.MethodNotificationMessage); hub.SubjectOf(method, params).Level >= least {
			c.note(method, params)
		}
	}
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

// ask queues a question for the client and reports whether there was room.
func (c *conversation) ask(a *protocol.Ask) bool {
	select {
	case c.asks <- a:
		return true
	default:
		return false
	}
}

// later queues a message, and drops it if there is no room: its sender must not block.
func (c *conversation) later(message []byte) {
	select {
	case c.notes <- note{message: message}:
	default:
	}
}
