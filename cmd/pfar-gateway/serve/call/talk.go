package call

import (
	"context"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/stream"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

// converse calls, and turns the answer into an event stream with the first thing that comes before the result. It
// returns a reply instead of the result if the call waits for its client to come back.
func (c *Call) converse(ctx context.Context, up *registry.Upstream, t Target, call protocol.Call) (result []byte,
	parked *reply.Reply, err error) {
	logs, asks := c.wantsLog(up), c.answers(up)
	about := stream.About{Server: up.Server().Name, Profile: c.Member.Profile}
	if t.Kind == gate.Tool {
		about.Tool = t.Name
	}
	c.Response.Call(about)
	if call.Token == 0 && !logs && !asks {
		result, err = up.Call(ctx, call)
		return result, nil, err
	}
	talk := newConversation(up, c.Pass, t)
	if call.Token != 0 {
		call.Progress = talk.progress(c.before)
		c.before = talk
	}
	if logs {
		call.Log = talk.logs(c.leastLevel(up))
	}
	if asks {
		call.Ask = talk.ask
	}
	if c.Modern { // it may outlive this request: the client answers in the next
		ctx = c.Life
	}
	talk.begin(ctx, call)
	return c.attend(talk)
}

// attend serves a conversation until the result is there, or the client has to answer by another request.
func (c *Call) attend(talk *conversation) (result []byte, parked *reply.Reply, err error) {
	defer func() {
		if parked == nil {
			talk.cancel(nil)
		}
	}()
	send := func(message []byte) {
		if message != nil && c.Response.Stream().Send(message) != nil {
			talk.cancel(stream.ErrHungUp)
		}
	}
	ended := c.Ctx.Done()
	for {
		select {
		case n := <-talk.notes:
			send(talk.said(c.Ctx, n))
		case a := <-talk.asks:
			if a.Over() {
				continue
			}
			if c.Modern {
				re, err := c.park(talk, a)
				if err != nil {
					return nil, nil, err
				}
				return nil, &re, nil
			}
			if m := c.Ask(c.Ctx, c.Session, a, c.Pass, talk.later); m != nil {
				send(m)
			}
		case <-ended:
			talk.cancel(context.Cause(c.Ctx))
			ended = nil // the call ends by that
		case o := <-talk.done:
			for len(talk.notes) > 0 { // it came before the answer
				send(talk.said(c.Ctx, <-talk.notes))
			}
			return o.result, nil, o.err
		}
	}
}

// wantsLog reports whether log messages of the server's are to reach the client with this call.
func (v *Visit) wantsLog(up *registry.Upstream) bool {
	switch {
	case v.Response == nil:
		return false
	case v.Modern:
		return v.Meta.Get(mcp.MetaKeyLogLevel) != nil
	}
	return up.Modern() && v.Session.Level() != "" // others send them to the session
}

// leastLevel is the one from which a client of 2026-07-28 wants messages, where the server does not heed it itself.
func (v *Visit) leastLevel(up *registry.Upstream) int {
	if up.Modern() {
		return -1
	}
	name, _ := jsonrpc.String(v.Meta.Get(mcp.MetaKeyLogLevel))
	return hub.Severity(name)
}

// answers reports whether the client can be asked something in the course of a call by a server that does so by
// requests.
func (v *Visit) answers(up *registry.Upstream) bool {
	if up.Modern() || v.Response == nil {
		return false
	}
	if v.Modern && !mayAsk(v.Method) {
		return false
	}
	return slices.ContainsFunc(up.Server().Capabilities, v.capable)
}
