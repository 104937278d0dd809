package serve

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/telemetry"
	"github.com/pfar/pfar/policies/access"
)

// serve answers a request of a client that is let in, by what it shows: m, or nil if that is none before the path says
// who.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, t *table, m *member, bound binding) {
	id := telemetry.RequestID()
	w.Header()[headerRequestID] = []string{id}
	path, ok := segments(r.URL.Path, r.URL.RawPath)
	if !ok {
		refuse(w, http.StatusNotFound, "there is nothing here; the endpoints are /mcp, /mcp/SERVER and /mcp/CLIENT/SESSION/SERVER")
		return
	}
	for _, key := range singleton {
		if len(r.Header[key]) > 1 {
			refuse(w, http.StatusBadRequest, "header "+key+" comes twice")
			return
		}
	}
	x := &exchange{srv: s, w: w, r: r, bound: bound, member: m, request: id, local: bound.Token == access.Digest{}}
	if x.act(t, path); x.member == nil {
		refuse(w, http.StatusForbidden, "uid "+strconv.FormatUint(uint64(bound.UID), 10)+" is no client")
		return
	}
	if e := x.route(path); e != nil {
		x.misplaced(e)
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
		refuse(w, http.StatusMethodNotAllowed, "the methods are GET, POST and DELETE")
	}
}

// refuse answers a request that never became a message.
func refuse(w http.ResponseWriter, status int, text string) {
	writeError(w, status, nil, jsonrpc.Errorf(mcp.INVALID_REQUEST, "%s", text))
}

func writeError(w http.ResponseWriter, status int, id []byte, e *jsonrpc.Error) {
	body := append(append(jsonrpc.AppendHead(nil, id, "error"), e.JSON()...), '}')
	write(w, status, body)
}

// write answers with parts of one JSON text, so that a long one is not copied to be put between brackets.
func write(w http.ResponseWriter, status int, parts ...[]byte) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	h := w.Header()
	h["Content-Type"] = contentJSON
	h["X-Content-Type-Options"] = noSniff
	h["Content-Length"] = []string{strconv.Itoa(n)}
	w.WriteHeader(status)
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return // the client hung up
		}
	}
}

var (
	contentJSON = []string{"application/json"}
	noSniff     = []string{"nosniff"}
)

// acceptable checks the headers of a POST and reports whether an event stream may be the answer.
func (x *exchange) acceptable() bool {
	content := x.header("Content-Type")
	if content != "application/json" {
		if media, _, err := mime.ParseMediaType(content); err != nil || media != "application/json" {
			refuse(x.w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
			return false
		}
	}
	if e := x.header("Content-Encoding"); e != "" && e != "identity" {
		refuse(x.w, http.StatusUnsupportedMediaType, "a request body is not to be compressed")
		return false
	}
	json, events, first := accepts(x.r.Header["Accept"])
	x.sse = first
	if !json || !events {
		refuse(x.w, http.StatusNotAcceptable, "Accept must have application/json and text/event-stream")
		return false
	}
	return true
}

// accepts reports which of the two forms of an answer the client takes, and whether it names the event stream first.
// Without the header it takes any (RFC 9110 section 12.5.1).
func accepts(values []string) (json, events, first bool) {
	if len(values) == 0 || len(values) == 1 && values[0] == "application/json, text/event-stream" { // as the protocol has it
		return true, true, false
	}
	for _, v := range values {
		for kind := range strings.SplitSeq(v, ",") {
			kind, parameters, _ := strings.Cut(kind, ";")
			if q := strings.ReplaceAll(parameters, " ", ""); q == "q=0" {
				continue
			}
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "*/*":
				json, events = true, true
			case "application/json", "application/*":
				json = true
			case "text/event-stream", "text/*":
				events, first = true, first || !json
			}
		}
	}
	return json, events, first
}

// body reads the request's body in bounded time and space, whatever length it claims.
func (x *exchange) body() ([]byte, bool) {
	limit := x.srv.limits.Body
	if x.r.ContentLength > int64(limit) {
		x.w.Header().Set("Connection", "close")
		refuse(x.w, http.StatusRequestEntityTooLarge, "the body is larger than "+strconv.Itoa(limit)+" bytes")
		return nil, false
	}
	b, err := readAll(x.r.Body, x.r.ContentLength, limit)
	if err == nil {
		// The server's ReadTimeout is over: from now on the connection is watched for the client's hanging up.
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
		return b, true
	}
	x.w.Header().Set("Connection", "close") // or net/http would wait for the rest
	switch {
	case errors.Is(err, errLarge):
		refuse(x.w, http.StatusRequestEntityTooLarge, "the body is larger than "+strconv.Itoa(limit)+" bytes")
	case errors.Is(err, os.ErrDeadlineExceeded):
		refuse(x.w, http.StatusRequestTimeout, "the body did not arrive in time")
	default:
		refuse(x.w, http.StatusBadRequest, "the body is broken")
	}
	return nil, false
}

var errLarge = errors.New("body too large")

// readAll trusts a claimed length only as far as 64 KiB.
func readAll(r io.Reader, claimed int64, limit int) ([]byte, error) {
	const trusted = 64 << 10
	size := min(max(claimed, 512), trusted)
	b := make([]byte, 0, size)
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
		if len(b) > limit {
			return nil, errLarge
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// get opens the stream on which a session is told what happens.
func (x *exchange) get() {
	if mcp.IsModernProtocol(x.r.Header.Get(mcp.HeaderProtocolVersion)) {
		x.w.Header().Set("Allow", "POST")
		refuse(x.w, http.StatusMethodNotAllowed, "since 2026-07-28 notifications come on subscriptions/listen")
		return
	}
	if _, events, _ := accepts(x.r.Header["Accept"]); !events {
		refuse(x.w, http.StatusNotAcceptable, "Accept must have text/event-stream")
		return
	}
	if !x.find() {
		return
	}
	if event := x.header(keyEvent); event != "" {
		x.readOn(event)
		return
	}
	if !x.session.open(x.srv.limits.Streams) {
		refuse(x.w, http.StatusConflict, "the session has "+strconv.Itoa(x.srv.limits.Streams)+" streams already")
		return
	}
	defer x.session.close()
	x.follow(x.r.Context(), x.session.sub, x.session.ended)
}

// delete ends the session.
func (x *exchange) delete() {
	if mcp.IsModernProtocol(x.r.Header.Get(mcp.HeaderProtocolVersion)) {
		x.w.Header().Set("Allow", "POST")
		refuse(x.w, http.StatusMethodNotAllowed, "since 2026-07-28 there are no sessions")
		return
	}
	if x.find() {
		x.srv.sessions.remove(x.session)
		x.w.WriteHeader(http.StatusNoContent)
	}
}

// find looks the request's session up, or refuses the request: a guessed id, another client's and one of another
// endpoint are all not there.
func (x *exchange) find() bool {
	id := x.header(keySession)
	if id == "" {
		refuse(x.w, http.StatusBadRequest, "header Mcp-Session-Id is missing: initialize first, or say in MCP-Protocol-Version that the request is of "+mcp.ProtocolVersion20260728)
		return false
	}
	if x.session = x.srv.sessions.find(id, x.bound, x.endpoint); x.session == nil {
		refuse(x.w, http.StatusNotFound, "there is no such session: initialize again")
		return false
	}
	if v := x.header(keyVersion); v != "" && !mcp.IsValidProtocolVersion(v) {
		writeError(x.w, http.StatusBadRequest, nil, unsupported(v))
		return false
	}
	return true
}

// closed tidies up behind a session that is over.
func (s *Server) closed(t *session) {
	for _, p := range t.processes() {
		s.registry.End(p.own)
	}
	s.hub.remove(t.sub)
	s.replays.forget(t)
	s.leaves(t)
	if t.handle != "" {
		s.gate.Approvals.Forget(t.bound.Client, t.handle)
		if err := s.gate.Sessions.End(t.bound.Client, t.handle); err != nil {
			s.log.Warn("forgetting what a connection has seen, ignoring", "error", err.Error())
		}
	}
	s.noted()
}

// view returns what the exchange's endpoint shows.
func (x *exchange) view() (*registry.View, error) {
	return x.catalogue().View(x.endpoint)
}

// catalogue is what there is for the exchange's client: nothing else leads from a request to a server. A person sees
// what no profile could call as well.
func (x *exchange) catalogue() *registry.Catalogue {
	if x.identity().Person {
		return x.srv.registry.For(x.member.rights, "")
	}
	return x.srv.registry.For(x.member.rights, x.member.Profile)
}
