package serve

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/request"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/stream"
	"github.com/pfar/pfar/cmd/pfar-gateway/telemetry"
	"github.com/pfar/pfar/units/jsonrpc"
)

// headerRequestID names the response header that has the id under which the log speaks of a request.
const headerRequestID = "X-Request-Id"

// Loopback returns the endpoint for a TCP listener on loopback (clients.Loopback).
func (s *Server) Loopback(token []byte, port int) (http.Handler, error) {
	door, err := s.Clients.Loopback(token, port)
	if err != nil {
		return nil, err
	}
	return s.behind(door), nil
}

// Local returns the endpoint for a Unix listener (clients.Local).
func (s *Server) Local(operators ...uint32) http.Handler {
	return s.behind(s.Clients.Local(operators...))
}

// behind returns the endpoint for those whom a door lets in.
func (s *Server) behind(door clients.Door) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		visitor, refusal := door(r)
		if refusal != nil {
			if name := refusal.Header[0]; name != "" {
				w.Header().Set(name, refusal.Header[1])
			}
			reply.Refuse(w, refusal.Status, refusal.Text)
			return
		}
		if s.flows != nil && isFlows(r.URL.Path) {
			s.flows.Serve(w, r, visitor)
			return
		}
		s.serve(w, r, visitor)
	})
}

// isFlows reports whether a path is one of flows.
func isFlows(path string) bool {
	return path == clients.FlowPath || strings.HasPrefix(path, clients.FlowPath+"/")
}

// serve answers a request of a client that is let in.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, visitor clients.Visitor) {
	x := &exchange{Server: s, w: w, r: r, id: telemetry.RequestID()}
	w.Header()[headerRequestID] = []string{x.id}
	path, ok := clients.Segments(r.URL.Path, r.URL.RawPath)
	if !ok {
		reply.Refuse(w, http.StatusNotFound, "there is nothing here; the endpoints are /mcp, /mcp/SERVER and /mcp/CLIENT/SESSION/SERVER")
		return
	}
	for _, key := range request.Singleton {
		if len(r.Header[key]) > 1 {
			reply.Refuse(w, http.StatusBadRequest, "header "+key+" comes twice")
			return
		}
	}
	caller, known, wrong := visitor.Route(s.calls.Registry, path, r.Header)
	if x.caller = caller; !known {
		reply.Refuse(w, http.StatusForbidden, "uid "+strconv.FormatUint(uint64(caller.Bound.UID), 10)+" is not a client")
		return
	}
	if wrong != nil {
		x.misplaced(wrong)
		return
	}
	switch r.Method {
	case http.MethodPost:
		x.post()
	case http.MethodGet:
		x.get()
	case http.MethodDelete:
		x.delete()
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		reply.Refuse(w, http.StatusMethodNotAllowed, "the methods are GET, POST and DELETE")
	}
}

// exchange is one HTTP request and its answer.
type exchange struct {
	*Server
	w      http.ResponseWriter
	r      *http.Request
	caller clients.Caller
	id     string // of this request, for the log
	events bool   // the client would rather have an event stream
}

// misplaced answers a request whose path leads nowhere: in the protocol's own words, if it is a message at all.
func (x *exchange) misplaced(e *jsonrpc.Error) {
	req := x.request()
	if x.r.Method == http.MethodPost {
		body, ok := x.body()
		if !ok {
			return
		}
		_ = req.Parse(body) // for its id, if it has one
	}
	reply.WriteError(x.w, http.StatusNotFound, req.ID, e)
}

// request is one of the exchange's messages, before it is parsed.
func (x *exchange) request() *request.Request {
	return &request.Request{LogID: x.id, Header: x.r.Header, Local: x.caller.Local}
}

// visit is a message of the exchange's.
func (x *exchange) visit(req *request.Request, s *session.Session) *call.Visit {
	return &call.Visit{Caller: x.caller, Request: req, Session: s, Ctx: x.r.Context()}
}

// post answers a message, or several of them.
func (x *exchange) post() {
	body, ok := x.body()
	if !ok {
		return
	}
	if b := bytes.TrimLeft(body, " \t\r\n"); len(b) > 0 && b[0] == '[' {
		x.batch(body)
		return
	}
	req := x.request()
	if e := req.Parse(body); e != nil {
		reply.WriteError(x.w, http.StatusBadRequest, req.ID, e)
		return
	}
	var s *session.Session
	if !req.Modern && req.Method != string(mcp.MethodInitialize) {
		if s = x.find(); s == nil {
			return
		}
	}
	v := x.visit(req, s)
	v.Response = stream.NewResponse(x.w, x.limits.Write)
	v.Response.First = x.events
	if !x.answer(v) {
		x.w.WriteHeader(http.StatusAccepted)
	}
}

// batch answers several messages at once, which one revision has and all others refuse.
func (x *exchange) batch(body []byte) {
	const version = mcp.ProtocolVersion20250326
	if v := x.r.Header.Get(mcp.HeaderProtocolVersion); v != "" && v != version || x.r.Header.Get(mcp.HeaderSessionID) == "" {
		reply.Refuse(x.w, http.StatusBadRequest, "a batch is not a message")
		return
	}
	s := x.find()
	if s == nil {
		return
	}
	if s.Version != version {
		reply.Refuse(x.w, http.StatusBadRequest, "a batch is not a message in protocol "+s.Version)
		return
	}
	messages, err := jsonrpc.Array(body, nil, x.limits.Batch)
	if err != nil || len(messages) == 0 {
		reply.WriteError(x.w, http.StatusBadRequest, nil, jsonrpc.Errorf(mcp.PARSE_ERROR, "reading the batch: it is empty, "+
			"broken or longer than %d", x.limits.Batch))
		return
	}
	all := []byte{'['}
	for _, m := range messages {
		if b := x.single(m, s); b != nil {
			if len(all) > 1 {
				all = append(all, ',')
			}
			all = append(all, b...)
		}
	}
	if len(all) == 1 {
		x.w.WriteHeader(http.StatusAccepted)
		return
	}
	reply.Write(x.w, http.StatusOK, append(all, ']'))
}

// single answers one message of a batch, nil if there is nothing to say.
func (x *exchange) single(message []byte, s *session.Session) []byte {
	req := x.request()
	e := req.Parse(message)
	if e == nil && (req.Modern || req.Method == string(mcp.MethodInitialize)) {
		e = jsonrpc.Errorf(mcp.INVALID_REQUEST, "not in a batch")
	}
	if e != nil {
		return reply.Reply{}.Bytes(req.ID, e)
	}
	v := x.visit(req, s)
	if v.Method == "" || v.ID == nil {
		x.methods.Notified(v)
		return nil
	}
	re, err := x.run(v)
	return re.Bytes(v.ID, reply.ErrorOf(err, v.Identity().Person))
}

// get opens the stream on which a session is told what happens.
func (x *exchange) get() {
	if mcp.IsModernProtocol(x.r.Header.Get(mcp.HeaderProtocolVersion)) {
		x.w.Header().Set("Allow", "POST")
		reply.Refuse(x.w, http.StatusMethodNotAllowed, "since 2026-07-28 notifications come on subscriptions/listen")
		return
	}
	if _, events, _ := accepts(x.r.Header["Accept"]); !events {
		reply.Refuse(x.w, http.StatusNotAcceptable, "Accept must have text/event-stream")
		return
	}
	s := x.find()
	if s == nil {
		return
	}
	v := x.visit(x.request(), s)
	v.Response = stream.NewResponse(x.w, x.limits.Write)
	if event := v.One(request.KeyEvent); event != "" {
		x.readOn(v, event)
		return
	}
	if !s.Open(x.limits.Streams) {
		reply.Refuse(x.w, http.StatusConflict, "the session has "+strconv.Itoa(x.limits.Streams)+" streams already")
		return
	}
	defer s.Close()
	x.methods.Listens.Follow(v, s.Sub, s.Ended())
}

// readOn answers GET with Last-Event-ID: the client gets the events after that one, and those still to come.
func (x *exchange) readOn(v *call.Visit, event string) {
	r, after := x.replays.Find(v.Session.ID, event)
	if r == nil || !x.mayRead(v, r.About) {
		reply.Refuse(x.w, http.StatusBadRequest, "there is no such event in this session, or its stream is no longer kept: "+
			"the call may have run, so look before you repeat it")
		return
	}
	r.ReadOn(v.Ctx, v.Response.Stream(), after, x.limits.Alive, func() bool { return x.mayRead(v, r.About) })
}

// delete ends the session.
func (x *exchange) delete() {
	if mcp.IsModernProtocol(x.r.Header.Get(mcp.HeaderProtocolVersion)) {
		x.w.Header().Set("Allow", "POST")
		reply.Refuse(x.w, http.StatusMethodNotAllowed, "since 2026-07-28 there are no sessions")
		return
	}
	if s := x.find(); s != nil {
		x.sessions.Remove(s)
		x.w.WriteHeader(http.StatusNoContent)
	}
}

// find looks the request's session up, or refuses the request: a guessed id, another client's and one of another
// endpoint are all not there.
func (x *exchange) find() *session.Session {
	id := x.r.Header.Get(request.KeySession)
	if id == "" {
		reply.Refuse(x.w, http.StatusBadRequest, "header Mcp-Session-Id is missing: initialize first, or say in "+
			"MCP-Protocol-Version that the request is of "+mcp.ProtocolVersion20260728)
		return nil
	}
	s := x.sessions.Find(id, x.caller.Bound, x.caller.Endpoint)
	if s == nil {
		reply.Refuse(x.w, http.StatusNotFound, "there is no such session: initialize again")
		return nil
	}
	if v := x.r.Header.Get(request.KeyVersion); v != "" && !mcp.IsValidProtocolVersion(v) {
		reply.WriteError(x.w, http.StatusBadRequest, nil, request.Unsupported(v))
		return nil
	}
	return s
}
