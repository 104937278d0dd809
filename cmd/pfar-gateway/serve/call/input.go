package call

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/seal"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/units/jsonrpc"
)

// maxRounds bounds how often a server of 2026-07-28 may ask in the course of one call.
const maxRounds = 16

// maxState bounds a server's state, in bytes: the client has to come back with it.
const maxState = 64 << 10

// asked is a result that asks the client for input.
type asked struct {
	result   []byte
	members  jsonrpc.Members   // of result
	requests jsonrpc.Members   // the questions by their keys
	each     []jsonrpc.Members // of each question
}

// method is that of a question.
func (q *asked) method(i int) string {
	method, _ := jsonrpc.String(q.each[i].Get("method"))
	return method
}

// questions reads a result that is a question of a server of 2026-07-28, which the server must be allowed to put, and
// the client be capable of answering.
func (n *incoming) questions(result []byte, ms jsonrpc.Members) (*asked, error) {
	switch {
	case !n.up.Modern():
		return nil, against(n.up, "an input_required result is not of protocol %s", n.up.Agreed().Protocol)
	case !mayAsk(n.Method):
		return nil, against(n.up, "a server must not answer %s with input_required", n.Method)
	}
	q := &asked{result: result, members: ms}
	var err error
	if raw := ms.Get("inputRequests"); raw != nil {
		if q.requests, err = jsonrpc.Object(raw, nil); err != nil {
			return nil, n.unread(fmt.Errorf("reading inputRequests: %w", err))
		}
	}
	if len(q.requests) > session.MaxQuestions {
		return nil, against(n.up, "it has %d questions, at most %d are asked", len(q.requests), session.MaxQuestions)
	}
	q.each = make([]jsonrpc.Members, len(q.requests))
	for i := range q.requests {
		if q.each[i], err = jsonrpc.Object(q.requests[i].Raw(), nil); err == nil {
			err = q.each[i].LookAlike("method", "params")
		}
		if err == nil {
			err = protocol.Plain(q.each[i].Get("params"))
		}
		if err != nil {
			return nil, n.unread(fmt.Errorf("reading inputRequests: %w", err))
		}
		method := q.method(i)
		if protocol.Capability(method) == "" {
			return nil, n.unread(fmt.Errorf("it asks its client for %q, which no server may", method))
		}
		if err := mayNot(n.up, method); err != nil {
			return nil, err
		}
		if capability := protocol.Capability(method); !n.capable(capability) {
			return nil, incapable(n.up.Server().Name, capability)
		}
	}
	return q, nil
}

// passOn asks a client of 2026-07-28. It gets the result as it is, but for the name of the server, and the state, which
// becomes one that only this client can come back with.
func (n *incoming) passOn(q *asked) (reply.Reply, error) {
	var edits []jsonrpc.Edit
	if i := q.members.Index("inputRequests"); i >= 0 {
		edits = append(edits, q.members.Replace(i, q.attributed(n.up.Server().Name, n.Endpoint == "")))
	}
	edit, err := n.sealed(q.members)
	if err != nil {
		return reply.Reply{}, err
	}
	edits = append(edits, edit...)
	slices.SortFunc(edits, func(a, b jsonrpc.Edit) int { return a.Start - b.Start })
	re := reply.Reply{Result: jsonrpc.Splice(nil, q.result, edits...)}
	if re.Members, err = jsonrpc.Object(re.Result, nil); err != nil {
		return reply.Reply{}, n.unread(err)
	}
	return n.received(re)
}

// attributed returns the questions with the name of their server in each.
func (q *asked) attributed(server string, aggregate bool) []byte {
	b := []byte{'{'}
	for i, one := range q.requests {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, jsonrpc.Quote(string(one.Name))...), ':')
		raw := one.Raw()
		if at := q.each[i].Index("params"); at >= 0 {
			raw = jsonrpc.Splice(nil, raw, q.each[i].Replace(at, attributed(server, q.method(i), q.each[i][at].Raw(), aggregate)))
		}
		b = append(b, raw...)
	}
	return append(b, '}')
}

// sealed returns the edit that seals the state of a question: only this client can come back with it, in the same
// request and to the same server. Where several servers answer, a question without a state gets one, which leads the
// answer to its server.
func (n *incoming) sealed(ms jsonrpc.Members) ([]jsonrpc.Edit, error) {
	i := ms.Index("requestState")
	if i < 0 && n.Endpoint != "" {
		return nil, nil
	}
	state := seal.State{Server: n.up.Server().Name, Given: i >= 0}
	if state.Given {
		var err error
		if state.Text, err = jsonrpc.String(ms[i].Raw()); err != nil {
			return nil, against(n.up, "requestState is %v", err)
		}
		if len(state.Text) > maxState {
			return nil, against(n.up, "requestState has %d bytes, at most %d are passed on", len(state.Text), maxState)
		}
	}
	text := jsonrpc.Quote(n.Sealer.Seal(state, n.scope(), time.Now().Add(n.Human)))
	if i >= 0 {
		return []jsonrpc.Edit{ms.Replace(i, text)}, nil
	}
	return []jsonrpc.Edit{ms.Prepend([]byte("{"), append([]byte(`"requestState":`), text...))}, nil
}

// round asks a client with a session all that a server wants to know, and returns the parameters to call the server
// again with the answers, which pass the gate.
func (c *Call) round(ctx context.Context, up *registry.Upstream, params []byte, q *asked) ([]byte, error) {
	answers, err := c.inquire(ctx, up.Server().Name, q)
	if err != nil {
		return nil, err
	}
	if answers, err = c.Pass.Enter(ctx, c.Method, answers, false); err != nil {
		return nil, err
	}
	if _, err := c.still(); err != nil { // it is called once more, and people take their time
		return nil, err
	}
	ms, err := jsonrpc.Object(jsonrpc.OrEmpty(params), nil)
	if err != nil {
		return nil, err
	}
	edits := set(ms, nil, "inputResponses", answers)
	if state := q.members.Get("requestState"); state != nil {
		edits = set(ms, edits, "requestState", state)
	}
	return jsonrpc.Splice(nil, jsonrpc.OrEmpty(params), edits...), nil
}

// set adds the edit that gives a member a value.
func set(ms jsonrpc.Members, edits []jsonrpc.Edit, name string, value []byte) []jsonrpc.Edit {
	if i := ms.Index(name); i >= 0 {
		edits = append(edits, ms.Replace(i, value))
	} else {
		edits = append(edits, ms.Prepend([]byte("{}"), slices.Concat(jsonrpc.Quote(name), []byte{':'}, value)))
	}
	slices.SortStableFunc(edits, func(a, b jsonrpc.Edit) int { return a.Start - b.Start })
	return edits
}

// inquire asks the client several things at once and returns the object of its answers.
func (c *Call) inquire(ctx context.Context, server string, q *asked) ([]byte, error) {
	type answer struct {
		i      int
		result []byte
		err    *jsonrpc.Error
	}
	answers := make(chan answer, len(q.requests))
	open := make(map[string]bool)
	defer func() {
		for id := range open {
			if _, unanswered := c.Session.Questions.Drop([]byte(id)); unanswered {
				_ = c.Response.Stream().Send(cancelled([]byte(id))) // the client may have hung up
			}
		}
	}()
	for i := range q.requests {
		if c.Response == nil {
			return nil, jsonrpc.Errorf(mcp.INVALID_REQUEST, "server %q asks its client something, which cannot be in a batch", server)
		}
		method := q.method(i)
		said, ok := c.Pass.Said(ctx, method, q.each[i].Get("params"))
		if !ok {
			return nil, jsonrpc.Errorf(approval.Code, "server %q asks its client what inspectors found suspicious", server)
		}
		id := c.Session.Questions.Enter(session.Question{
			Answer: func(result []byte) { answers <- answer{i, result, nil} },
			Fail:   func(e *jsonrpc.Error) { answers <- answer{i, nil, e} },
		})
		if id == nil {
			return nil, jsonrpc.Errorf(protocol.CodeBusy, "too many questions wait for the client")
		}
		open[string(id)] = true
		if err := c.Response.Stream().Send(questionTo(id, method, attributed(server, method, said, c.Endpoint == ""))); err != nil {
			return nil, jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client hung up")
		}
	}
	results := make([][]byte, len(q.requests))
	for range q.requests {
		select {
		case a := <-answers:
			if a.err != nil {
				return nil, jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q asked its client, which refused: %v", server, a.err)
			}
			results[a.i] = a.result
		case <-ctx.Done():
			return nil, jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "waiting for the client's answer: %v", context.Cause(ctx))
		}
	}
	b := []byte{'{'}
	for i := range q.requests {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, jsonrpc.Quote(string(q.requests[i].Name))...), ':'), results[i]...)
	}
	return append(b, '}'), nil
}
