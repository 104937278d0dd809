package serve

import (
	"context"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/method"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/stream"
	"github.com/pfar/pfar/units/jsonrpc"
)

// answer acts on a message and writes the answer. It reports false if there is nothing to say.
func (s *Server) answer(v *call.Visit) bool {
	if v.Method == "" || v.ID == nil {
		s.methods.Notified(v)
		return false
	}
	defer v.Response.Close()
	re, err := s.run(v)
	e := reply.ErrorOf(err, v.Identity().Person)
	v.Response.End(v.ID, re, e, status(v, e))
	return true
}

// run does what a request asks, so that its client can cancel it.
func (s *Server) run(v *call.Visit) (reply.Reply, error) {
	if v.Session != nil {
		ctx, cancel, stop := s.lasting(v)
		defer cancel(nil)
		defer stop()
		if !v.Session.Begin(v.ID, cancel) {
			return reply.Reply{}, jsonrpc.Errorf(mcp.INVALID_REQUEST, "a request with this id is in flight")
		}
		defer v.Session.Finish(v.ID)
		v.Ctx = ctx
	} else if v.Modern {
		ctx, cancel := context.WithCancelCause(v.Ctx)
		defer cancel(nil)
		defer s.requests.Add(v.Bound, cancel)()
		v.Ctx = ctx
		if err := s.Stays(&v.Caller); err != nil {
			return reply.Reply{}, err
		}
	}
	if err := method.Unfold(v); err != nil {
		return reply.Reply{}, err
	}
	re, back, err := s.calls.ComeBack(v)
	if err == nil && !back {
		re, err = s.methods.Run(v)
	}
	if err == nil && v.Modern {
		re, err = re.Complete(v.Method)
	}
	return re, err
}

// lasting is a request's context. If the client may come back, it does not end with the connection once the client has
// the id of an event.
func (s *Server) lasting(v *call.Visit) (context.Context, context.CancelCauseFunc, func() bool) {
	if !resumable(v) {
		ctx, cancel := context.WithCancelCause(v.Ctx)
		return ctx, cancel, func() bool { return false }
	}
	owner := stream.Owner{Session: v.Session.ID, Client: v.Bound.Client, Ended: v.Session.Ended()}
	return v.Response.Lasting(v.Ctx, s.calls.Life, s.replays, owner)
}

// resumable reports whether the client may come back for the answer to this request. Older revisions have no empty
// events, and the newer one has no sessions. An answer that can only be plain JSON has no events, and costs nothing
// here.
func resumable(v *call.Visit) bool {
	s := v.Session
	if v.Response == nil || s.Version < mcp.ProtocolVersion20251125 {
		return false
	}
	return v.Response.First || v.Meta.Get("progressToken") != nil || len(s.Abilities) > len("{}") || s.Level() != ""
}

// mayRead reports whether the client may have an answer now: its rights or its session may have changed since it asked.
func (s *Server) mayRead(v *call.Visit, about stream.About) bool {
	select {
	case <-v.Session.Ended():
		return false
	default:
	}
	m := s.Admits(s.Table(), v.Bound)
	switch {
	case m == nil, s.calls.Gate == nil, m.Profile != about.Profile, !m.Rights.Server(about.Server):
		return false
	case about.Tool != "" && !m.Rights.Tool(about.Server, about.Tool):
		return false
	}
	who := v.Identity()
	_, err := s.calls.Gate.Sessions.Label(who.Client, who.Handle)
	return err == nil
}

// status is the HTTP status of an error: the newer generation gives some of them one of their own.
func status(v *call.Visit, e *jsonrpc.Error) int {
	if e == nil {
		return http.StatusOK
	}
	if !v.Modern {
		if e.Raw == nil && e.Code == mcp.INVALID_REQUEST {
			return http.StatusBadRequest
		}
		return http.StatusOK
	}
	switch code := e.Number(); {
	case code == mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case (code == mcp.UNSUPPORTED_PROTOCOL_VERSION || code == mcp.HEADER_MISMATCH) && e.Raw == nil,
		code == mcp.MISSING_REQUIRED_CLIENT_CAPABILITY,
		code == mcp.INVALID_REQUEST, code == mcp.INVALID_PARAMS && e.Raw == nil:
		return http.StatusBadRequest
	}
	return http.StatusOK
}
