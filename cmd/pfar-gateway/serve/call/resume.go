package call

import (
	"bytes"
	"context"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/seal"
	"github.com/pfar/pfar/units/jsonrpc"
)

// ComeBack acts on the state that a client of 2026-07-28 repeats a request with. A call that waits for the answers goes
// on, which is reported. Otherwise the server gets its own state back with the request.
func (a *Calls) ComeBack(v *Visit) (reply.Reply, bool, error) {
	raw := v.Parameters.Get("requestState")
	if raw == nil || !v.Modern {
		return reply.Reply{}, false, v.unasked()
	}
	state, err := jsonrpc.String(raw)
	if err != nil {
		return reply.Reply{}, false, invalidParams("the requestState is %v", err)
	}
	if seal.Is(state) {
		back, ok := a.Sealer.Open(state, v.scope())
		if !ok {
			return reply.Reply{}, false, errForeign
		}
		v.Back = &back
		return reply.Reply{}, false, nil
	}
	p := a.Parking.takeOf(state, v.scope())
	if p == nil {
		return reply.Reply{}, false, errForeign
	}
	c := &Call{Calls: a, Visit: v, Pass: p.pass}
	re, err := c.observed(c.Ctx, p.talk.up.Server().Name, p.talk.target.Item.Name, func(context.Context) (reply.Reply, error) {
		return c.recorded(func() (reply.Reply, error) { return c.resume(p) })
	})
	return re, true, err
}

// resume passes the gate with a client's answers, gives them to the server, and goes on with the call. What has no
// answer yet is asked for again.
func (c *Call) resume(p *parked) (reply.Reply, error) {
	answers, err := jsonrpc.Object(c.Parameters.Get("inputResponses"), nil)
	if err != nil && c.Parameters.Get("inputResponses") != nil {
		err = invalidParams("reading inputResponses: %v", err)
		p.talk.cancel(err)
		return reply.Reply{}, err
	}
	if len(answers) > 0 {
		sent, err := c.Pass.Enter(c.Ctx, c.Method, c.Parameters.Get("inputResponses"), false)
		if err == nil {
			answers, err = jsonrpc.Object(sent, nil)
		}
		if err != nil {
			p.talk.cancel(err)
			return c.refusal(p.talk.target, err)
		}
	}
	for key, a := range p.asks {
		raw := answers.Get(key)
		if raw == nil {
			continue
		}
		if raw[0] == '{' {
			a.Answer(bytes.Clone(raw))
		} else {
			a.Fail(jsonrpc.Errorf(mcp.INTERNAL_ERROR, "the client answered against the protocol"))
		}
		delete(p.asks, key)
	}
	if len(p.asks) > 0 {
		re, err := c.leave(p)
		if err != nil {
			p.talk.cancel(err)
		}
		return re, err
	}
	return c.goOn(p.talk)
}

// goOn attends a call that has waited. Its server asks by requests, so its result cannot be a question.
func (c *Call) goOn(talk *conversation) (reply.Reply, error) {
	back := &incoming{c, talk.up, talk.target}
	result, parked, err := c.attend(talk)
	switch {
	case err != nil:
		return reply.Reply{}, back.heard(err)
	case parked != nil:
		return *parked, nil
	}
	re, _, err := back.finish(result)
	return re, err
}
