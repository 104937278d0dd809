package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
)

// exchange is one HTTP request and its answer.
type exchange struct {
	srv      *Server
	w        http.ResponseWriter
	r        *http.Request
	bound    binding
	member   *member // who it is bound to
	local    bool    // on the Unix socket
	endpoint string  // the server's name, "" for all
	session  *session
	modern   bool // 2026-07-28: no session, everything is in the request

	request     string // id of this request, for the log
	traceparent string // for the server
	tracestate  string
	ctx         context.Context // ends when the client is gone, or cancels

	msg    jsonrpc.Message
	params jsonrpc.Members
	meta   jsonrpc.Members
	events *events                // set once the answer has become an event stream
	plain  bool                   // one of a batch: no event stream
	sse    bool                   // the client would rather have an event stream
	primed atomic.Pointer[events] // set once the client can come back for the answer
	cancel context.CancelCauseFunc
	called called
	lasts  bool                   // the call outlives the connection once the client can come back
	back   *returned              // what the client came back with
	before *conversation          // that came to nothing, or to a question
	rounds int                    // of questions in the course of it
	still  func() (target, error) // finds once more what has passed the gate, if it is the same

	pass *enforce.Passage // through the gate; nil: it has not passed, or waits for its client to come back
}

// reply is a result: the object that came or was made, and members to put before the others in it, each with a comma
// behind it.
type reply struct {
	result []byte
	edits  []jsonrpc.Edit // of result, that are made as it is written, and leave it one member at least
	added  []byte
	closed bool // the byte behind result is the bracket that ends the message: lists are kept like that

	members jsonrpc.Members // of result before it is edited, nil if nobody has looked
	hint    registry.Hint   // for lists, which say nothing of it themselves

	toolError bool  // the tool says that it failed
	refused   bool  // pfar has not called it
	why       error // it has not
}

func (x *exchange) post() {
	if !x.acceptable() {
		return
	}
	body, ok := x.body()
	if !ok {
		return
	}
	if b := bytes.TrimLeft(body, " \t\r\n"); len(b) > 0 && b[0] == '[' {
		x.batch(body)
		return
	}
	if status, e := x.parse(body); e != nil {
		writeError(x.w, status, x.echo(), e)
		return
	}
	if x.modern {
		x.answer(x.r.Context())
		return
	}
	if x.msg.Method != string(mcp.MethodInitialize) && !x.find() {
		return
	}
	x.answer(x.r.Context())
}

// echo is the id to answer with: the request's, if that is one.
func (x *exchange) echo() []byte {
	if jsonrpc.ValidID(x.msg.ID) {
		return x.msg.ID
	}
	return nil
}

// parse reads the message and what of it says how to treat it. Whatever another parser could read differently is
// refused here, so that nothing behind has to think of it.
func (x *exchange) parse(body []byte) (int, *jsonrpc.Error) {
	var err error
	if x.msg, err = jsonrpc.Parse(body); err != nil {
		return http.StatusBadRequest, jsonrpc.Errorf(mcp.PARSE_ERROR, "reading the message: %v", err)
	}
	invalid := func(text string) (int, *jsonrpc.Error) {
		return http.StatusBadRequest, jsonrpc.Errorf(mcp.INVALID_REQUEST, "%s", text)
	}
	if err := x.msg.Members.LookAlike("jsonrpc", "id", "method", "params", "result", "error"); err != nil {
		return invalid(err.Error())
	}
	switch {
	case !x.msg.Version:
		return invalid(`"jsonrpc" is not "2.0"`)
	case x.msg.ID != nil && !jsonrpc.ValidID(x.msg.ID):
		return invalid(`"id" is not a string or an integer`)
	case x.msg.Method != "" && (x.msg.Result != nil || x.msg.Error != nil):
		return invalid("it is both a request and a response")
	case x.msg.Method == "" && x.msg.Result == nil && x.msg.Error == nil:
		return invalid(`"method" is missing`)
	case x.msg.Depth > maxDepth:
		return invalid("it nests too deep")
	}
	if x.msg.Params != nil {
		if e := x.readParams(); e != nil {
			return http.StatusBadRequest, e
		}
	}
	return x.era()
}

// maxDepth bounds the nesting of a client's message.
const maxDepth = 512

func (x *exchange) readParams() *jsonrpc.Error {
	var err error
	if x.params, err = jsonrpc.Object(x.msg.Params, make(jsonrpc.Members, 0, 4)); err == nil {
		err = x.params.LookAlike("name", "arguments", "uri", "_meta", "cursor", "ref", "argument", "level", "requestId", "protocolVersion",
			"capabilities", "clientInfo", "requestState", "inputResponses")
	}
	if meta := x.params.Get("_meta"); err == nil && meta != nil {
		if x.meta, err = jsonrpc.Object(meta, make(jsonrpc.Members, 0, 6)); err == nil {
			err = x.meta.LookAlike("progressToken", mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientInfo, mcp.MetaKeyClientCapabilities, mcp.MetaKeyLogLevel)
		}
	}
	if err != nil {
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "reading params: %v", err)
	}
	return nil
}

// era tells the two generations of the protocol apart: a request of the newer one says so itself, in its header and
// in _meta alike.
func (x *exchange) era() (int, *jsonrpc.Error) {
	header := x.header(keyVersion)
	meta, _ := jsonrpc.String(x.meta.Get(mcp.MetaKeyProtocolVersion))
	x.modern = mcp.IsModernProtocol(header) || mcp.IsModernProtocol(meta)
	if !x.modern {
		return 0, nil
	}
	switch {
	case x.msg.ID == nil && meta == "": // a notification has no place for it
		meta = header
	case meta == "":
		return http.StatusBadRequest, jsonrpc.Errorf(mcp.INVALID_PARAMS, "_meta has no %s", mcp.MetaKeyProtocolVersion)
	case header != meta:
		return http.StatusBadRequest, jsonrpc.Errorf(mcp.HEADER_MISMATCH, "header MCP-Protocol-Version and _meta's %s differ", mcp.MetaKeyProtocolVersion)
	}
	if !mcp.IsValidProtocolVersion(meta) {
		return http.StatusBadRequest, unsupported(meta)
	}
	if x.msg.ID == nil {
		return 0, nil
	}
	if raw := x.meta.Get(mcp.MetaKeyClientCapabilities); len(raw) == 0 || raw[0] != '{' {
		return http.StatusBadRequest, jsonrpc.Errorf(mcp.INVALID_PARAMS, "_meta has no %s", mcp.MetaKeyClientCapabilities)
	}
	if raw := x.meta.Get(mcp.MetaKeyLogLevel); raw != nil {
		if level, _ := jsonrpc.String(raw); severity(level) <= 0 {
			return http.StatusBadRequest, jsonrpc.Errorf(mcp.INVALID_PARAMS, "_meta's %s is no level", mcp.MetaKeyLogLevel)
		}
	}
	if err := x.standardHeaders(); err != nil {
		return http.StatusBadRequest, jsonrpc.Errorf(mcp.HEADER_MISMATCH, "%v", err)
	}
	return 0, nil
}

func unsupported(version string) *jsonrpc.Error {
	data, _ := json.Marshal(map[string]any{"supported": mcp.ValidProtocolVersions, "requested": version})
	return &jsonrpc.Error{Code: mcp.UNSUPPORTED_PROTOCOL_VERSION, Text: "unsupported protocol version", Data: data}
}

// answer acts on the message and writes what there is to say.
func (x *exchange) answer(ctx context.Context) {
	if x.msg.Method == "" || x.msg.ID == nil {
		x.notified()
		x.w.WriteHeader(http.StatusAccepted)
		return
	}
	defer x.unprime()
	re, err := x.run(ctx)
	e := asError(err)
	if x.sse && e == nil {
		x.stream()
	}
	switch {
	case x.events != nil:
		_ = x.events.send(x.bytes(re, e)) // the client may have hung up
	case e != nil:
		writeError(x.w, x.status(e), x.msg.ID, e)
	default:
		re.write(x.w, x.msg.ID)
	}
}

// asError is what a client is told of an error, nil for none.
func asError(err error) *jsonrpc.Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e
	}
	return jsonrpc.Errorf(mcp.INTERNAL_ERROR, "%v", err)
}

// most is the longest answer that is copied to be written at once: a second write costs more than that.
const most = 256 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// write answers with the result of a request.
func (re reply) write(w http.ResponseWriter, id []byte) {
	if len(re.result) > most && len(re.edits) == 0 {
		rest := [][]byte{re.result[re.open():], []byte("}")}
		if re.closed {
			rest = [][]byte{re.result[re.open() : len(re.result)+1]}
		}
		write(w, http.StatusOK, append([][]byte{re.appendHead(nil, id)}, rest...)...)
		return
	}
	b := buffers.Get().(*[]byte)
	*b = re.append((*b)[:0], id)
	write(w, http.StatusOK, *b)
	if cap(*b) <= 2*most {
		buffers.Put(b)
	}
}

// open is how much of the result appendHead stands in for.
func (re reply) open() int {
	if len(re.added) == 0 {
		return 0
	}
	return bytes.IndexByte(re.result, '{') + 1
}

// appendHead appends the response up to what stands in the result as it came.
func (re reply) appendHead(dst, id []byte) []byte {
	dst = jsonrpc.AppendHead(dst, id, "result")
	if len(re.added) == 0 {
		return dst
	}
	dst = append(append(dst, '{'), re.added...)
	if rest := bytes.TrimLeft(re.result[re.open():], " \t\r\n"); len(rest) > 0 && rest[0] == '}' {
		dst = dst[:len(dst)-1] // no comma before the end
	}
	return dst
}

// append appends the whole response.
func (re reply) append(dst, id []byte) []byte {
	dst = slices.Grow(dst, 128+len(re.added)+re.size())
	if len(re.edits) > 0 {
		edits := re.edits
		if at := re.open(); at > 0 {
			edits = slices.Concat([]jsonrpc.Edit{{Start: at, End: at, Text: re.added}}, edits)
		}
		return append(jsonrpc.Splice(jsonrpc.AppendHead(dst, id, "result"), re.result, edits...), '}')
	}
	return append(append(re.appendHead(dst, id), re.result[re.open():]...), '}')
}

// size is how many bytes the result has, without what is added.
func (re reply) size() int {
	n := len(re.result)
	for _, e := range re.edits {
		n += len(e.Text) - (e.End - e.Start)
	}
	return n
}

// bytes is the response as one message.
func (x *exchange) bytes(re reply, e *jsonrpc.Error) []byte {
	if e != nil {
		return append(append(jsonrpc.AppendHead(nil, x.msg.ID, "error"), e.JSON()...), '}')
	}
	return re.append(nil, x.msg.ID)
}

// run does what a request asks, so that its client can cancel it.
func (x *exchange) run(ctx context.Context) (reply, error) {
	if x.session != nil {
		var stop func() bool
		ctx, x.cancel, stop = x.lasting(ctx)
		defer x.cancel(nil)
		defer stop()
		if !x.session.begin(x.msg.ID, x.cancel) {
			return reply{}, jsonrpc.Errorf(mcp.INVALID_REQUEST, "a request with this id is in flight")
		}
		defer x.session.finish(x.msg.ID)
	} else if x.modern {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		x.srv.clients.requests.add(x, cancel)
		defer x.srv.clients.requests.remove(x)
		if err := x.stays(); err != nil {
			return reply{}, err
		}
	}
	x.ctx = ctx
	defer x.lost()
	re, back, err := x.comeBack()
	if err == nil && !back {
		re, err = x.method(ctx)
	}
	if err == nil && x.modern {
		re, err = x.complete(re)
	}
	return re, err
}

// lost closes the record of a request that panics.
func (x *exchange) lost() {
	if x.pass != nil {
		_ = x.pass.End("failed", 0)
	}
}

// status is the HTTP status of an error: the newer generation gives some of them one of their own.
func (x *exchange) status(e *jsonrpc.Error) int {
	if !x.modern {
		if e.Raw == nil && e.Code == mcp.INVALID_REQUEST {
			return http.StatusBadRequest
		}
		return http.StatusOK
	}
	switch code := e.Number(); {
	case code == mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case (code == mcp.UNSUPPORTED_PROTOCOL_VERSION || code == mcp.HEADER_MISMATCH) && e.Raw == nil, code == mcp.MISSING_REQUIRED_CLIENT_CAPABILITY,
		code == mcp.INVALID_REQUEST, code == mcp.INVALID_PARAMS && e.Raw == nil:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// complete adds what results have since 2026-07-28 where it is missing: an older server's is complete, and nothing of
// it is to be kept by anybody but this client, nor for any time.
func (x *exchange) complete(re reply) (reply, error) {
	hints := false
	switch mcp.MCPMethod(x.msg.Method) {
	case mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourcesList, mcp.MethodResourcesTemplatesList: // our own
		re.added = append(append([]byte(`"resultType":"complete",`), re.hint.Members()...), ',')
		return re, nil
	case mcp.MethodResourcesRead, mcp.MethodServerDiscover:
		hints = true
	}
	ms := re.members
	if ms == nil {
		var err error
		if ms, err = jsonrpc.Object(re.result, nil); err != nil {
			return reply{}, jsonrpc.Errorf(mcp.INTERNAL_ERROR, "reading the result: %v", err)
		}
	}
	var added []byte
	if ms.Index("resultType") < 0 {
		added = append(added, `"resultType":"complete",`...)
	}
	if hints && ms.Index("inputRequests") < 0 {
		if ms.Index("ttlMs") < 0 {
			added = append(added, `"ttlMs":0,`...)
		}
		if ms.Index("cacheScope") < 0 {
			added = append(added, `"cacheScope":"private",`...)
		}
	}
	if len(added) > 0 {
		re.added = append(added, re.added...)
	}
	return re, nil
}

// batch answers several messages at once, which one revision has and all others refuse (GC-35).
func (x *exchange) batch(body []byte) {
	const version = mcp.ProtocolVersion20250326
	if v := x.r.Header.Get(mcp.HeaderProtocolVersion); v != "" && v != version || x.r.Header.Get(mcp.HeaderSessionID) == "" {
		refuse(x.w, http.StatusBadRequest, "a batch is not a message")
		return
	}
	if !x.find() {
		return
	}
	if x.session.version != version {
		refuse(x.w, http.StatusBadRequest, "a batch is not a message in protocol "+x.session.version)
		return
	}
	messages, err := jsonrpc.Array(body, nil, x.srv.limits.Batch)
	if err != nil || len(messages) == 0 {
		writeError(x.w, http.StatusBadRequest, nil, jsonrpc.Errorf(mcp.PARSE_ERROR, "reading the batch: it is empty, broken or longer than %d", x.srv.limits.Batch))
		return
	}
	all := []byte{'['}
	for _, m := range messages {
		one := &exchange{srv: x.srv, w: x.w, r: x.r, bound: x.bound, member: x.member, local: x.local, endpoint: x.endpoint, request: x.request, session: x.session, plain: true}
		if b := one.single(m); b != nil {
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
	write(x.w, http.StatusOK, append(all, ']'))
}

// single answers one message of a batch, nil if there is nothing to say.
func (x *exchange) single(message []byte) []byte {
	_, e := x.parse(message)
	if e == nil && (x.modern || x.msg.Method == string(mcp.MethodInitialize)) {
		e = jsonrpc.Errorf(mcp.INVALID_REQUEST, "not in a batch")
	}
	if e == nil && (x.msg.Method == "" || x.msg.ID == nil) {
		x.notified()
		return nil
	}
	var re reply
	if e == nil {
		var err error
		re, err = x.run(x.r.Context())
		e = asError(err)
	}
	if !jsonrpc.ValidID(x.msg.ID) {
		x.msg.ID = nil
	}
	return x.bytes(re, e)
}
