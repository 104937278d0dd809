package call

import (
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/jsonrpc"
)

// heldKey is the key of pfar's own question in the result of a call that waits (2026-07-28).
const heldKey = "pfar/approval"

// heldLink is the link of a call that waits, as its client is shown it (elicitation in URL mode). What the client
// answers decides nothing: the call waits on until somebody who is signed in answers it. The zero value: it is shown
// nothing.
type heldLink struct {
	Link
	done     <-chan struct{} // closed when the call does not wait any more
	question []byte          // its id in the client's session; nil: none is open there
}

// shows returns what shows the client the link of a call that waits; nil: the client cannot show one, or the call is
// the answer to another question.
func (l *heldLink) shows(c *Call, t Target) func(approval.Held) approval.Showing {
	answers := c.Back != nil || c.Parameters.Index("inputResponses") >= 0
	if !c.opens() || answers || c.Modern && !mayAsk(c.Method) {
		return nil
	}
	return func(h approval.Held) approval.Showing {
		const words = "pfar holds a call of %s until a person approves it. The page shows it to those who may answer it."
		l.Link = Link{ID: h.ID, URL: h.Link, Message: fmt.Sprintf(words, plainly(t))}
		l.done = h.Done
		switch {
		case c.Modern: // the result shows it, and the client comes back
			return approval.Leaves
		case l.ask(c):
			return approval.Stays
		}
		return approval.NotShown
	}
}

// plainly names what is called, without a word of a stranger's that reads as more than a name.
func plainly(t Target) string {
	name := inspector.PlainName(t.Name)
	if t.Kind != gate.Tool || name == "" {
		return t.server()
	}
	return t.server() + "." + name
}

// ask asks a client with a session, and reports whether the question went out. Nothing waits for the answer.
func (l *heldLink) ask(c *Call) bool {
	id := c.Session.Questions.Enter(session.Question{Answer: func([]byte) {}, Fail: func(*jsonrpc.Error) {}})
	if id == nil {
		return false
	}
	if c.Response.Stream().Send(questionTo(id, string(mcp.MethodElicitationCreate), l.params())) != nil {
		c.Session.Questions.Drop(id)
		return false
	}
	l.question = id
	return true
}

// settle tells the client, once, that the call does not wait any more: in the answer to the call if that is still to
// come, else on the stream that the session may have open.
func (l *heldLink) settle(c *Call) {
	if l.question == nil {
		return
	}
	select {
	case <-l.done:
		l.complete(c.Session, func(m []byte) { _ = c.Response.Stream().Send(m) }) // the client may have hung up
		return
	default:
	}
	s, life := c.Session, c.Life
	go func() {
		select {
		case <-l.done:
			l.complete(s, func(m []byte) { s.Sub.Push(m) })
		case <-s.Ended():
		case <-life.Done():
		}
	}()
}

// complete takes the question back if the client has not answered it, and says that there is nothing left to do.
func (l *heldLink) complete(s *session.Session, say func(message []byte)) {
	if _, unanswered := s.Questions.Drop(l.question); unanswered {
		say(cancelled(l.question))
	}
	params := fmt.Appendf(nil, `{"elicitationId":%s}`, jsonrpc.Quote(l.ID))
	say(jsonrpc.AppendNotification(nil, string(mcp.MethodNotificationElicitationComplete), params))
}

// unasked takes the answer to pfar's own question out of a request: no server has asked it.
func (v *Visit) unasked() error {
	i := v.Parameters.Index("inputResponses")
	if i < 0 || !v.Modern {
		return nil
	}
	answers, err := jsonrpc.Object(v.Parameters[i].Raw(), nil)
	if err != nil || len(answers) != 1 || string(answers[0].Name) != heldKey {
		return nil // whoever has asked reads it
	}
	bare := *v.Request
	bare.Params = jsonrpc.Splice(nil, v.Params, v.Parameters.Remove(i))
	if bare.Parameters, err = jsonrpc.Object(bare.Params, nil); err != nil {
		return invalidParams("reading params: %v", err)
	}
	v.Request = &bare
	return nil
}
