package call

import (
	"context"
	"errors"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Own passes the gate with a call of one of pfar's own tools, and has do make it. The client gets no result that is not
// recorded.
func (a *Calls) Own(v *Visit, it enforce.Item, do func(*Call) (reply.Reply, error)) (reply.Reply, error) {
	c := &Call{Calls: a, Visit: v}
	if a.Gate == nil {
		return reply.Reply{}, ErrNoGate
	}
	r, _ := v.shown()
	var err error
	if c.Pass, err = a.Gate.Enter(v.Ctx, v.Identity(), it, r); err != nil {
		return c.observed(v.Ctx, it.Server, it.Name, func(context.Context) (reply.Reply, error) {
			no, ok := errors.AsType[*enforce.Refused](err)
			if !ok {
				return reply.Reply{}, err
			}
			return reply.Reply{Refused: true, Why: no, Result: no.ToolError(it.Server + "." + it.Name)}, nil
		})
	}
	if v.Step != nil {
		v.Step.Pass = c.Pass
	}
	return c.recorded(func() (reply.Reply, error) {
		return c.observed(v.Ctx, it.Server, it.Name, func(ctx context.Context) (reply.Reply, error) {
			if err := c.givenUp(ctx); err != nil {
				return reply.Reply{}, err
			}
			if err := c.begins(); err != nil {
				return reply.Reply{}, err
			}
			return do(c)
		})
	})
}

// Unfit records a call of one of pfar's own tools that is not as it has to be, without what was in it.
func (a *Calls) Unfit(v *Visit, server, name string, why error) {
	if a.Gate != nil && a.Misses.Allow(v.Bound.Client) {
		a.Gate.Missed(v.Identity(), server, name, enforce.Request{Method: v.Method, Arguments: []byte("{}")}, why)
	}
}

// Link is a URL for a client's person, and for no model.
type Link struct{ ID, URL, Message string }

// Opened says what has become of a link.
type Opened uint8

const (
	Unable   Opened = iota // the client cannot show it apart from what its model reads
	Accepted               // the person has it
	Declined
)

// params are those of the question that shows a link.
func (l Link) params() []byte {
	const format = `{"mode":"url","message":%s,"url":%s,"elicitationId":%s,"_meta":{"pfar/server":"pfar"}}`
	return fmt.Appendf(nil, format, jsonrpc.Quote(l.Message), jsonrpc.Quote(l.URL), jsonrpc.Quote(l.ID))
}

// required is the result that has a client of 2026-07-28 show a link. It comes back with the answer under the key.
func (l Link) required(key string) []byte {
	const format = `{"resultType":"input_required","inputRequests":{%s:{"method":"elicitation/create","params":%s}}}`
	return fmt.Appendf(nil, format, jsonrpc.Quote(key), l.params())
}

// Open has the client show a link to its person, if it can (elicitation in URL mode, MCP 2025-11-25). A client of
// 2026-07-28 is asked by the reply, and comes back with the same call.
func (c *Call) Open(l Link) (*reply.Reply, Opened, error) {
	switch {
	case !c.opens():
		return nil, Unable, nil
	case c.Modern && c.Parameters.Index("inputResponses") >= 0:
		how, err := responded(c.Parameters.Get("inputResponses"))
		return nil, how, err
	case c.Modern:
		return &reply.Reply{Result: l.required("open")}, Unable, nil
	}
	how, err := c.openNow(l.params())
	return nil, how, err
}

// opens reports whether the client can show a link.
func (c *Call) opens() bool {
	abilities := c.Meta.Get(mcp.MetaKeyClientCapabilities)
	if !c.Modern {
		if c.Session == nil || c.Session.Version < mcp.ProtocolVersion20251125 || c.Response == nil {
			return false
		}
		abilities = c.Session.Abilities
	}
	all, err := jsonrpc.Object(jsonrpc.OrEmpty(abilities), nil)
	if err != nil {
		return false
	}
	of, err := jsonrpc.Object(jsonrpc.OrEmpty(all.Get("elicitation")), nil)
	return err == nil && of.Get(mcp.ElicitationModeURL) != nil
}

// openNow asks a client with a session, and waits for its person.
func (c *Call) openNow(params []byte) (Opened, error) {
	type answer struct {
		result []byte
		err    *jsonrpc.Error
	}
	answers := make(chan answer, 1)
	id := c.Session.Questions.Enter(session.Question{
		Answer: func(result []byte) { answers <- answer{result: result} },
		Fail:   func(e *jsonrpc.Error) { answers <- answer{err: e} },
	})
	if id == nil {
		return Unable, jsonrpc.Errorf(protocol.CodeBusy, "too many questions wait for the client")
	}
	stream := c.Response.Stream()
	if err := stream.Send(questionTo(id, string(mcp.MethodElicitationCreate), params)); err != nil {
		c.Session.Questions.Drop(id)
		return Unable, jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client hung up")
	}
	ctx, cancel := context.WithTimeoutCause(c.Ctx, c.Human, errUnanswered)
	defer cancel()
	select {
	case a := <-answers:
		if a.err != nil {
			return Unable, nil
		}
		return action(a.result), nil
	case <-ctx.Done():
		if _, unanswered := c.Session.Questions.Drop(id); unanswered {
			_ = stream.Send(cancelled(id)) // the client may have hung up
		}
		return Unable, jsonrpc.Errorf(
			mcp.REQUEST_INTERRUPTED,
			"waiting for the client's answer: %v",
			context.Cause(ctx),
		)
	}
}

// responded reads the answer that a client of 2026-07-28 has come back with.
func responded(raw []byte) (Opened, error) {
	answers, err := jsonrpc.Object(raw, nil)
	if err != nil {
		return Unable, invalidParams("reading inputResponses: %v", err)
	}
	if answers.Get("open") == nil {
		return Unable, invalidParams(`inputResponses has no answer to "open"`)
	}
	return action(answers.Get("open")), nil
}

// action is what a person has said to a link. What is no yes is none.
func action(result []byte) Opened {
	ms, err := jsonrpc.Object(result, nil)
	if err != nil {
		return Declined
	}
	if said, err := jsonrpc.String(ms.Get("action")); err != nil || said != "accept" {
		return Declined
	}
	return Accepted
}
