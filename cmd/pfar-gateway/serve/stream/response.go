package stream

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Response is the answer to one HTTP request: one JSON text, or an event stream once something comes before the result.
type Response struct {
	First bool // the client would rather have an event stream

	w      http.ResponseWriter
	write  time.Duration // for a client to take an event
	events *Events       // nil: no event has been sent
	resume *resumption   // nil: the client cannot come back for the answer
}

// resumption is how a client whose connection broke can come back for an answer.
type resumption struct {
	all    *Replays
	owner  Owner
	about  *About                  // nil: no server has been called
	cancel context.CancelCauseFunc // of the call
	primed atomic.Pointer[Events]  // set once the client can come back
}

// NewResponse returns the response to a request. The client has write to take each event.
func NewResponse(w http.ResponseWriter, write time.Duration) *Response {
	return &Response{w: w, write: write}
}

// Header is that of the response.
func (p *Response) Header() http.Header { return p.w.Header() }

// Lasting returns a request's context for a client that may come back for the answer: it does not end with the
// connection once the client has the id of an event, but with stopping.
func (p *Response) Lasting(ctx, stopping context.Context, all *Replays, owner Owner) (context.Context,
	context.CancelCauseFunc, func() bool) {
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p.resume = &resumption{all: all, owner: owner, cancel: cancel}
	return lasting, cancel, context.AfterFunc(ctx, func() {
		if stopping.Err() != nil {
			cancel(context.Cause(stopping))
			return
		}
		if e := p.resume.primed.Load(); e == nil || !e.replay.leave(e.reader) {
			cancel(context.Cause(ctx))
		}
	})
}

// Call says that the answer is that of a call. A client that knows how to come back gets an event stream before the
// call takes its time. In a stream that is open already it can come back from here on.
func (p *Response) Call(about About) {
	if p == nil || p.resume == nil {
		return
	}
	p.resume.about = &about
	switch {
	case p.events != nil && p.events.replay == nil:
		p.prime()
	case p.First:
		p.Stream()
	}
}

// Stream makes the answer an event stream.
func (p *Response) Stream() *Events {
	if p.events == nil {
		h := p.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h["X-Content-Type-Options"] = reply.NoSniff
		p.w.WriteHeader(http.StatusOK)
		p.events = &Events{w: p.w, rc: http.NewResponseController(p.w), write: p.write, retry: p.First}
		p.prime()
	}
	return p.events
}

// prime gives the client of a call the id with which it can come back.
func (p *Response) prime() {
	if p.resume == nil || p.resume.about == nil {
		return
	}
	r := p.resume.all.open(&Replay{owner: p.resume.owner, About: *p.resume.about, cancel: p.resume.cancel})
	if r == nil {
		return
	}
	e := p.events
	e.replay, e.reader, e.retry = r, r.reader, false
	p.resume.primed.Store(e)
	_ = e.put(func(id string) []byte {
		if id == "" {
			return open
		}
		return []byte("id: " + id + "\nretry: 1000\ndata: \n\n") // milliseconds
	})
}

// End writes the answer to a request: the error with its status, or the result if there is none.
func (p *Response) End(id []byte, re reply.Reply, e *jsonrpc.Error, status int) {
	if p.First && e == nil {
		p.Stream()
	}
	switch {
	case p.events != nil:
		_ = p.events.Send(re.Bytes(id, e)) // the client may have hung up
	case e != nil:
		reply.WriteError(p.w, status, id, e)
	default:
		re.Write(p.w, id)
	}
}

// Close says that there is nothing more to come in the answer.
func (p *Response) Close() {
	if p.resume == nil {
		return
	}
	if e := p.resume.primed.Load(); e != nil {
		e.replay.end()
	}
}
