package call

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

var errUnanswered = errors.New("the client did not answer in time")

// Ask returns the request that puts a server's question to a session's client, nil if the client cannot be asked. The
// question came by a passage, and the answer passes the gate as well. Should the server give it up, say is called with
// the message that tells the client so.
func (a *Calls) Ask(ctx context.Context, s *session.Session, q *protocol.Ask, pass *enforce.Passage, say func(message []byte)) []byte {
	c := protocol.Capability(q.Method)
	if !s.Capable(c) {
		q.Fail(jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: the client cannot be asked for %s", c))
		return nil
	}
	said, ok := pass.Said(ctx, q.Method, q.Params)
	if !ok {
		q.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client is not asked this"))
		return nil
	}
	id := s.Questions.Enter(a.answering(pass, q))
	if id == nil {
		q.Fail(jsonrpc.Errorf(protocol.CodeBusy, "too many questions wait for the client"))
		return nil
	}
	q.Withdrawn(func() {
		s.Questions.Drop(id)
		say(cancelled(id))
	})
	if q.Over() {
		return nil
	}
	if q.Method == string(mcp.MethodElicitationCreate) {
		s.Sub.Expects(q.Server, q.Params)
	}
	return questionTo(id, q.Method, attributed(q.Server, q.Method, said, s.Endpoint() == ""))
}

// answering has a client's answer to a server's question pass the gate before the server gets it. It cannot be given
// again, so that it waits for its approval as long as the server waits for it, and the approval lives.
func (a *Calls) answering(pass *enforce.Passage, q *protocol.Ask) session.Question {
	through := func(b []byte, then func(sent []byte)) {
		go func() {
			ctx, cancel := context.WithCancel(a.Life)
			defer cancel()
			q.Withdrawn(cancel)
			sent, err := pass.Enter(ctx, q.Method, b, true)
			if err != nil {
				q.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client's answer may not be sent to this server"))
				return
			}
			then(sent)
		}()
	}
	return session.Question{
		Answer: func(result []byte) { through(result, q.Answer) },
		Fail: func(e *jsonrpc.Error) {
			if e.Raw == nil { // pfar's own
				q.Fail(e)
				return
			}
			through(e.Raw, func(sent []byte) { q.Fail(&jsonrpc.Error{Raw: sent}) })
		},
	}
}

// Put asks a session's client something that is not about a call, on the stream that it may have open. who is that
// client, if here says that it is still let in.
func (a *Calls) Put(s *session.Session, who enforce.Identity, here bool, q *protocol.Ask) {
	if a.Gate == nil || !here {
		q.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client may not be asked"))
		return
	}
	it := enforce.Item{Server: q.Server, Declared: q.Declared(), Kind: gate.Resource, Name: q.Method, Fits: true}
	pass, err := a.Gate.Enter(a.Life, who, it, enforce.Request{Method: q.Method, Arguments: []byte("{}"), Params: []byte("{}"), Answer: true})
	if err != nil {
		q.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client may not be asked"))
		return
	}
	if err := pass.End("asked", 0); err != nil {
		q.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client may not be asked: there is no record of it"))
		return
	}
	m := a.Ask(a.Life, s, q, pass, func(m []byte) { s.Sub.Push(m) })
	if m == nil {
		return
	}
	if !s.Sub.Push(m) {
		q.GiveUp(jsonrpc.Errorf(protocol.CodeBusy, "too much waits for the client"))
		return
	}
	time.AfterFunc(a.Human, func() { // of an answered one this does nothing
		q.GiveUp(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "%v", errUnanswered))
	})
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

// attributed says in a question which server asks: never pfar itself. Where several servers answer behind one endpoint,
// its user must see it too.
func attributed(server, method string, params []byte, aggregate bool) []byte {
	params = jsonrpc.OrEmpty(params)
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
