package serve

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
)

// question is a request to a client with a session that waits for its answer.
type question struct {
	answer func(result []byte)
	fail   func(*jsonrpc.Error)
}

// maxQuestions bounds those of one session.
const maxQuestions = 64

// ask returns the request that puts a server's question to the client, nil if the client cannot be asked. The question
// came by a passage, and the answer passes the gate as well. Should the server give it up, say is called with what
// tells the client so.
func (s *session) ask(ctx context.Context, srv *Server, a *registry.Ask, pass *enforce.Passage, aggregate bool, say func(message []byte)) []byte {
	c := protocol.Capability(a.Method)
	if !s.capable(c) {
		a.Fail(jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: the client cannot be asked for %s", c))
		return nil
	}
	said, ok := pass.Said(ctx, a.Method, a.Params)
	if !ok {
		a.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client is not asked this"))
		return nil
	}
	id := s.expect(srv.answering(pass, a))
	if id == nil {
		a.Fail(jsonrpc.Errorf(registry.CodeBusy, "too many questions wait for the client"))
		return nil
	}
	a.Withdrawn(func() {
		s.drop(id)
		say(cancelled(id))
	})
	if a.Over() {
		return nil
	}
	if a.Method == string(mcp.MethodElicitationCreate) {
		s.sub.expects(a.Server, a.Params)
	}
	return questionTo(id, a.Method, attributed(a.Server, a.Method, said, aggregate))
}

// cancelled takes a question back.
func cancelled(id []byte) []byte {
	return jsonrpc.AppendNotification(nil, string(mcp.MethodNotificationCancelled), fmt.Appendf(nil, `{"requestId":%s}`, id))
}

func questionTo(id []byte, method string, params []byte) []byte {
	b := append(append([]byte(`{"jsonrpc":"2.0","id":`), id...), `,"method":`...)
	b = append(b, jsonrpc.Quote(method)...)
	if params != nil {
		b = append(append(b, `,"params":`...), params...)
	}
	return append(b, '}')
}

// attributed says in a question whose it is: never pfar's own. Where several servers answer behind one endpoint, its
// user must see it too.
func attributed(server, method string, params []byte, aggregate bool) []byte {
	params = paramsOr(params)
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return params
	}
	added := append([]byte(`"pfar/server":`), jsonrpc.Quote(server)...)
	var edits []jsonrpc.Edit
	if i := ms.Index("_meta"); i >= 0 {
		meta, _ := jsonrpc.Object(ms[i].Raw(), nil)
		edits = append(edits, ms.Replace(i, meta.Merge(nil, fenced.Theirs, added)))
	} else {
		edits = append(edits, ms.Prepend(params, slices.Concat([]byte(`"_meta":{`), added, []byte{'}'})))
	}
	if i := ms.Index("message"); aggregate && i >= 0 && method == string(mcp.MethodElicitationCreate) {
		if text, err := jsonrpc.String(ms[i].Raw()); err == nil {
			edits = append(edits, ms.Replace(i, jsonrpc.Quote("Server "+server+" asks: "+text)))
		}
	}
	slices.SortFunc(edits, func(a, b jsonrpc.Edit) int { return a.Start - b.Start })
	return jsonrpc.Splice(nil, params, edits...)
}

// expect enters a question, and returns the id to ask it with; nil if there are too many.
func (s *session) expect(q question) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.questions) >= maxQuestions {
		return nil
	}
	s.lastQuestion++
	id := strconv.AppendInt(nil, s.lastQuestion, 10)
	s.questions[string(id)] = q
	return id
}

// drop forgets a question. It reports whether it was still open.
func (s *session) drop(id []byte) (question, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, ok := s.questions[string(id)]
	delete(s.questions, string(id))
	return q, ok
}

// answered takes a response of the client's; one that nobody waits for is nothing.
func (s *session) answered(m jsonrpc.Message) {
	q, ok := s.drop(m.ID)
	switch {
	case !ok:
	case m.Result != nil && m.Error == nil && m.Result[0] == '{':
		q.answer(slices.Clone(m.Result))
	case m.Error != nil && m.Result == nil && jsonrpc.ValidError(m.Error):
		q.fail(&jsonrpc.Error{Raw: slices.Clone(m.Error)})
	default:
		q.fail(jsonrpc.Errorf(mcp.INTERNAL_ERROR, "the client answered against the protocol"))
	}
}

// maxRounds bounds how often a server of 2026-07-28 may ask in the course of one call.
const maxRounds = 16

// inputRequired acts on a result that is a question of a server of 2026-07-28. A client of that revision gets it as it
// is, but for whose it is, and the state, which becomes one that only this client can come back with; one that has a
// session is asked here, and the call repeated with its answers.
func (x *exchange) inputRequired(ctx context.Context, up *registry.Upstream, t target, call registry.Call, result []byte, ms jsonrpc.Members) (reply, error) {
	requests, err := jsonrpc.Object(ms.Get("inputRequests"), nil)
	if ms.Get("inputRequests") == nil {
		requests, err = nil, nil
	}
	if err != nil {
		return reply{}, x.unread(up, fmt.Errorf("reading inputRequests: %w", err))
	}
	if len(requests) > maxQuestions {
		return reply{}, against(up, "it has %d questions, at most %d are asked", len(requests), maxQuestions)
	}
	asked := make([]jsonrpc.Members, len(requests))
	var edits []jsonrpc.Edit
	for i := range requests {
		if asked[i], err = jsonrpc.Object(requests[i].Raw(), nil); err == nil {
			err = asked[i].LookAlike("method", "params")
		}
		if err == nil {
			err = protocol.Plain(asked[i].Get("params"))
		}
		if err != nil {
			return reply{}, x.unread(up, fmt.Errorf("reading inputRequests: %w", err))
		}
		method, _ := jsonrpc.String(asked[i].Get("method"))
		if protocol.Capability(method) == "" {
			return reply{}, x.unread(up, fmt.Errorf("it asks its client for %q, which no server may", method))
		}
		if err := mayNot(up, method); err != nil {
			return reply{}, err
		}
		if c := protocol.Capability(method); !x.capable(c) {
			return reply{}, incapable(up.Server().Name, c)
		}
	}
	if !x.modern {
		return x.round(ctx, up, t, call, ms.Get("requestState"), requests, asked)
	}
	if i := ms.Index("inputRequests"); i >= 0 {
		edits = append(edits, ms.Replace(i, attributedAll(up.Server().Name, requests, asked, x.endpoint == "")))
	}
	edit, err := x.sealed(up, ms)
	if err != nil {
		return reply{}, err
	}
	edits = append(edits, edit...)
	slices.SortFunc(edits, func(a, b jsonrpc.Edit) int { return a.Start - b.Start })
	result = jsonrpc.Splice(nil, result, edits...)
	if ms, err = jsonrpc.Object(result, nil); err != nil {
		return reply{}, x.unread(up, err)
	}
	return x.received(ctx, up, t, reply{result: result, members: ms})
}

// mayNot is the error of a server that asks its client for what its declaration does not allow; nil if it does.
func mayNot(up *registry.Upstream, method string) error {
	e := up.Refusal(method)
	if e == nil {
		return nil
	}
	return jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q asks its client for what it may not: %s", up.Server().Name, strings.TrimPrefix(e.Text, "method not found: "))
}

// incapable is the error of a client that does not say that it can be asked for what the server needs.
func incapable(server, capability string) *jsonrpc.Error {
	e := jsonrpc.Errorf(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, "server %q needs %s of its client, which this one is not capable of", server, capability)
	e.Data = fmt.Appendf(nil, `{"requiredCapabilities":{%q:{}}}`, capability)
	return e
}

// against is the error of an answer that the protocol does not have. What the server has chosen the words of is for
// unread.
func against(up *registry.Upstream, format string, args ...any) error {
	return jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q answered against the protocol: %s", up.Server().Name, fmt.Sprintf(format, args...))
}

func attributedAll(server string, requests jsonrpc.Members, asked []jsonrpc.Members, aggregate bool) []byte {
	b := []byte{'{'}
	for i := range requests {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, jsonrpc.Quote(string(requests[i].Name))...), ':')
		raw := requests[i].Raw()
		if at := asked[i].Index("params"); at >= 0 {
			method, _ := jsonrpc.String(asked[i].Get("method"))
			raw = jsonrpc.Splice(nil, raw, asked[i].Replace(at, attributed(server, method, asked[i][at].Raw(), aggregate)))
		}
		b = append(b, raw...)
	}
	return append(b, '}')
}

// round asks a client with a session all that a server wants to know, and calls again with the answers.
func (x *exchange) round(ctx context.Context, up *registry.Upstream, t target, call registry.Call, state []byte, requests jsonrpc.Members, asked []jsonrpc.Members) (reply, error) {
	if x.rounds++; x.rounds > maxRounds {
		return reply{}, jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q has asked %d times in the course of this call", up.Server().Name, maxRounds)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, x.srv.limits.Human, errUnanswered)
	defer cancel()
	answers, err := x.inquire(ctx, up.Server().Name, requests, asked)
	if err != nil {
		return reply{}, err
	}
	if answers, err = x.pass.Enter(ctx, call.Method, answers, false); err != nil {
		return x.refusal(t, err)
	}
	if _, err := x.still(); err != nil { // it is called once more, and people take their time
		return reply{}, err
	}
	ms, err := jsonrpc.Object(paramsOr(call.Params), nil)
	if err != nil {
		return reply{}, err
	}
	edits := set(ms, nil, "inputResponses", answers)
	if state != nil {
		edits = set(ms, edits, "requestState", state)
	}
	call.Params = jsonrpc.Splice(nil, paramsOr(call.Params), edits...)
	return x.converse(ctx, up, t, call)
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
func (x *exchange) inquire(ctx context.Context, server string, requests jsonrpc.Members, asked []jsonrpc.Members) ([]byte, error) {
	type answer struct {
		i      int
		result []byte
		err    *jsonrpc.Error
	}
	answers := make(chan answer, len(requests))
	open := make(map[string]bool)
	defer func() {
		for id := range open {
			if _, unanswered := x.session.drop([]byte(id)); unanswered {
				_ = x.stream().send(cancelled([]byte(id))) // the client may have hung up
			}
		}
	}()
	for i := range requests {
		method, _ := jsonrpc.String(asked[i].Get("method"))
		if x.plain {
			return nil, jsonrpc.Errorf(mcp.INVALID_REQUEST, "server %q asks its client something, which cannot be in a batch", server)
		}
		said, ok := x.pass.Said(ctx, method, asked[i].Get("params"))
		if !ok {
			return nil, jsonrpc.Errorf(approval.Code, "server %q asks its client what inspectors found suspicious", server)
		}
		id := x.session.expect(question{
			func(result []byte) { answers <- answer{i, result, nil} },
			func(e *jsonrpc.Error) { answers <- answer{i, nil, e} },
		})
		if id == nil {
			return nil, jsonrpc.Errorf(registry.CodeBusy, "too many questions wait for the client")
		}
		open[string(id)] = true
		if err := x.stream().send(questionTo(id, method, attributed(server, method, said, x.endpoint == ""))); err != nil {
			return nil, jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client hung up")
		}
	}
	results := make([][]byte, len(requests))
	for range requests {
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
	for i := range requests {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, jsonrpc.Quote(string(requests[i].Name))...), ':'), results[i]...)
	}
	return append(b, '}'), nil
}
