package serve

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/schema"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/redact"
)

// target is what a request is about: a tool, a prompt, a resource.
type target struct {
	registry.Route
	kind  gate.Kind
	fits  bool           // the request is as its schema has it, if it has one
	reads bool           // asking twice does no harm
	edits []jsonrpc.Edit // of the parameters
}

// resourceOf is a resource, which has no schema.
func resourceOf(r registry.Route) target { return target{Route: r, kind: gate.Resource, fits: true} }

// replayWait bounds how long a call waits for a server that ended to come up again. The launcher's back-off begins with
// 1 s and 5 s.
const replayWait = 15 * time.Second

// reach passes the gate with a request to what find finds, sends it, and returns the result as the client may have it.
// Before it has passed, no server is woken for it.
func (x *exchange) reach(ctx context.Context, find func() (target, error)) (reply, error) {
	t, err := x.sought(ctx, find)
	if err != nil {
		x.missed(t, err)
		return reply{}, err
	}
	if err := x.enter(ctx, t); err != nil {
		return x.denied(ctx, t, err)
	}
	x.still = t.still(find, x.pass.Declared())
	re, err := x.attempt(ctx, x.still)
	return x.left(ctx, re, err)
}

// sought is find for a server that may just be started again: the request waits for it as it does after a crash.
func (x *exchange) sought(ctx context.Context, find func() (target, error)) (target, error) {
	wait, cancel := context.WithTimeout(ctx, replayWait)
	defer cancel()
	for {
		t, err := find()
		down, ok := errors.AsType[*registry.Down](err)
		if !ok || !x.srv.registry.Back(wait, down.Server) {
			return t, err
		}
	}
}

// still is find for a request that has passed the gate with t, of whose server its owner said declared: what it finds
// later must be the same, and of the same declaration.
func (t target) still(find func() (target, error), declared []byte) func() (target, error) {
	server := t.Upstream.Server().Name
	return func() (target, error) {
		now, err := find()
		if err != nil {
			return now, err
		}
		is := now.Upstream.Server()
		if now.Name != t.Name || now.Item.Pin != t.Item.Pin || is.Name != server || !bytes.Equal(is.Declared, declared) {
			err = jsonrpc.Errorf(registry.CodeUnavailable, "what was asked for has changed meanwhile: ask again")
		}
		return now, err
	}
}

// attempt sends the request, and returns the result. Should the server's process end, the next one is asked once more
// if the first has not had the request, or if it only reads (LIF-15).
func (x *exchange) attempt(ctx context.Context, find func() (target, error)) (reply, error) {
	t, release, err := x.hold(ctx, find)
	if err != nil {
		return reply{}, err
	}
	defer release()
	re, err := x.forward(ctx, t)
	gone, ok := errors.AsType[*registry.Gone](err)
	if !ok {
		return re, err
	}
	again := (!gone.Sent || t.reads && !x.pass.Approved()) && x.rounds == 0 // or the server has had a part of it, or what one yes was for
	if x.owns(t.Upstream) && again && !gone.Sent {                          // it was about to end: the session gets another
		return x.forward(ctx, t)
	}
	if again && !x.owns(t.Upstream) {
		wait, cancel := context.WithTimeout(ctx, replayWait)
		defer cancel()
		if x.srv.registry.Next(wait, t.Upstream) {
			next, done, err := x.hold(ctx, find)
			if err != nil {
				return reply{}, err
			}
			defer done()
			return x.forward(ctx, next)
		}
	}
	if gone.Sent && !t.reads {
		return reply{}, jsonrpc.Errorf(registry.CodeUnavailable, "%v; whether it had done what was asked is not known", err)
	}
	return reply{}, err
}

// hold finds a request's target and keeps its server awake until release; one that sleeps is woken.
func (x *exchange) hold(ctx context.Context, find func() (target, error)) (t target, release func(), err error) {
	for {
		if t, err = x.sought(ctx, find); err != nil {
			return t, nil, err
		}
		if t.Upstream.Hold() {
			return t, t.Upstream.Release, nil
		}
		if err = x.srv.registry.Wake(ctx, t.Upstream); err != nil {
			return t, nil, err
		}
	}
}

// forward sends the request once. The client's headers, and with them its token, go no further than here (GC-53).
func (x *exchange) forward(ctx context.Context, t target) (reply, error) {
	return x.observed(ctx, t.Upstream.Server().Name, t.Item.Name, func(ctx context.Context) (reply, error) { return x.send(ctx, t) })
}

func (x *exchange) send(ctx context.Context, t target) (reply, error) {
	up, err := x.process(ctx, t.Upstream)
	if err != nil {
		return reply{}, err
	}
	call := registry.Call{Method: x.msg.Method, Params: x.msg.Params, Client: x.caller(), Meta: true, Withdraw: withdraw(x.pass)}
	back, err := x.stateFor(up)
	if err != nil {
		return reply{}, err
	}
	meta, err := x.metaFor(up, &call)
	if err != nil {
		return reply{}, err
	}
	edits := slices.Concat(t.edits, back, meta)
	switch {
	case len(edits) > 0 && call.Params == nil:
		call.Params = jsonrpc.Splice(nil, []byte("{}"), edits...)
	case len(edits) > 0:
		slices.SortFunc(edits, func(a, b jsonrpc.Edit) int { return cmp.Or(a.Start-b.Start, a.End-b.End) })
		call.Params = jsonrpc.Splice(make([]byte, 0, len(call.Params)+64), call.Params, edits...)
	}
	if x.pass.Approved() { // by somebody who was shown no white space, nor how strings are escaped
		if call.Params, err = jsonrpc.Compact(nil, paramsOr(call.Params)); err != nil {
			return reply{}, invalidParams("reading params: %v", err)
		}
	}
	return x.converse(ctx, up, t, call)
}

// withdraw says whether a server may hear that its client has left. A client that the operator has dismissed has chosen
// nothing.
func withdraw(pass *enforce.Passage) func(cause error) bool {
	return func(cause error) bool {
		return errors.Is(cause, errDismissed) || errors.Is(cause, errStopping) || pass.Withdraw()
	}
}

// caller is whose call it is: a session, or each request for itself since 2026-07-28.
func (x *exchange) caller() string {
	if x.session != nil {
		return x.session.id
	}
	return "request " + x.request
}

// perRequest reports whether a member of _meta is one with which a request of 2026-07-28 says what older revisions say
// in their handshake.
func perRequest(name []byte) bool {
	switch string(name) {
	case mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientInfo, mcp.MetaKeyClientCapabilities, mcp.MetaKeyLogLevel:
		return true
	}
	return false
}

// metaFor returns the edit that gives the request's _meta what the server of that generation wants to see, with a
// progress token that no other client has.
func (x *exchange) metaFor(up *registry.Upstream, call *registry.Call) ([]jsonrpc.Edit, error) {
	added, drop, err := x.generation(up)
	if err != nil {
		return nil, err
	}
	if token := x.meta.Get("progressToken"); token != nil {
		if !jsonrpc.ValidID(token) {
			return nil, invalidParams("the progressToken is not a string or an integer")
		}
		if !x.plain {
			call.Token, call.ClientToken = up.Token(), token
			added = append(comma(added), `"progressToken":`...)
			added = strconv.AppendInt(added, call.Token, 10)
		}
	}
	if x.traceparent != "" && !x.pass.Approved() {
		added = append(append(append(comma(added), `"traceparent":"`...), x.traceparent...), '"')
		if x.tracestate != "" {
			added = append(append(added, `,"tracestate":`...), jsonrpc.Quote(x.tracestate)...)
		}
		kept := drop
		drop = func(name []byte) bool {
			return string(name) == "traceparent" || string(name) == "tracestate" || kept(name)
		}
	}
	i := x.params.Index("_meta")
	if i < 0 {
		if len(added) == 0 {
			return nil, nil
		}
		return []jsonrpc.Edit{x.params.Prepend(paramsOr(x.msg.Params), slices.Concat([]byte(`"_meta":{`), added, []byte{'}'}))}, nil
	}
	keep := func(name []byte) bool {
		return string(name) != "progressToken" && !drop(name) && (!x.pass.Approved() || plainMeta(name))
	}
	return []jsonrpc.Edit{x.params.Replace(i, x.meta.Merge(nil, keep, added))}, nil
}

func paramsOr(params []byte) []byte {
	if params == nil {
		return []byte("{}")
	}
	return params
}

func comma(b []byte) []byte {
	if len(b) > 0 {
		return append(b, ',')
	}
	return b
}

// generation returns what the server's generation of the protocol has in _meta that the client's has not, and what is
// to be left out.
func (x *exchange) generation(up *registry.Upstream) (added []byte, drop func([]byte) bool, err error) {
	switch {
	case !up.Modern():
		return nil, perRequest, nil
	case !x.modern:
		client, err := x.session.asClient(up.Server().Capabilities)
		if err != nil {
			return nil, nil, err
		}
		added = protocol.RequestMeta(client)
		if level := x.session.level(); level != "" {
			added = append(append(append(added, `,"`+mcp.MetaKeyLogLevel+`":"`...), level...), '"')
		}
		return added, perRequest, nil
	}
	allowed, err := protocol.Allow(x.meta.Get(mcp.MetaKeyClientCapabilities), up.Server().Capabilities)
	if err != nil {
		return nil, nil, invalidParams("reading _meta: %v", err)
	}
	return fmt.Appendf(nil, `%q:%s,%q:%s`, mcp.MetaKeyClientInfo, clientInfo(x.bound), mcp.MetaKeyClientCapabilities, allowed),
		func(name []byte) bool {
			return string(name) == mcp.MetaKeyClientCapabilities || string(name) == mcp.MetaKeyClientInfo
		}, nil
}

// wantsLog reports whether log messages of the server's are to reach the client with this call.
func (x *exchange) wantsLog(up *registry.Upstream) bool {
	switch {
	case x.plain:
		return false
	case x.modern:
		return x.meta.Get(mcp.MetaKeyLogLevel) != nil
	}
	return up.Modern() && x.session.level() != "" // others send them to the session
}

// leastLevel is the one from which a client of 2026-07-28 wants messages, where the server does not heed it itself.
func (x *exchange) leastLevel(up *registry.Upstream) int {
	if up.Modern() {
		return -1
	}
	name, _ := jsonrpc.String(x.meta.Get(mcp.MetaKeyLogLevel))
	return severity(name)
}

// CodeResult is the error of a call whose result is not as the tool's outputSchema has it. The tool has run (WRP-10).
const CodeResult = -32012

// known are the members of results that mean something. One that another parser could take for one of them is refused:
// it would see another result than the one that was looked at here.
var known = []string{"_meta", "resultType", "inputRequests", "requestState", "isError", "structuredContent", "content", "contents",
	"messages", "description", "completion", "ttlMs", "cacheScope"}

// finish is what is done with a result on its way to the client: the server's label is put on what a model will read,
// and every other byte stays as it came.
func (x *exchange) finish(ctx context.Context, up *registry.Upstream, t target, call registry.Call, result []byte) (reply, error) {
	ms, err := jsonrpc.Object(result, make(jsonrpc.Members, 0, 8))
	if err == nil {
		err = ms.LookAlike(known...)
	}
	if err != nil {
		return reply{}, x.unread(up, err)
	}
	asks, err := isQuestion(ms)
	if err != nil {
		return reply{}, x.unread(up, err)
	}
	if asks {
		switch {
		case !up.Modern():
			return reply{}, against(up, "an input_required result is not of protocol %s", up.Agreed().Protocol)
		case !mayAsk(call.Method):
			return reply{}, against(up, "an input_required result is none of %s", call.Method)
		}
		return x.inputRequired(ctx, up, t, call, result, ms)
	}
	if !mayAsk(call.Method) {
		if err := x.pass.Seen(); err != nil { // it may have been written to meanwhile
			return reply{}, x.unseeable(up, err)
		}
		if !x.pass.Strange() {
			return reply{result: result, members: ms}, nil
		}
		return x.received(ctx, up, t, reply{result: result, members: ms})
	}
	if mcp.MCPMethod(call.Method) == mcp.MethodToolsCall {
		if v := t.Item.CheckResult(ms); v != nil {
			return reply{}, x.misfit(up, t, v)
		}
	}
	if x.modern && mcp.MCPMethod(call.Method) == mcp.MethodResourcesRead {
		if fit := up.Hint(result, ms); len(fit) != len(result) || &fit[0] != &result[0] {
			if ms, err = jsonrpc.Object(fit, nil); err != nil {
				return reply{}, x.unread(up, err)
			}
			result = fit
		}
	}
	failed := string(ms.Get("isError")) == "true"
	if failed {
		result = explained(result, ms, x.refused(ctx, up))
		if ms, err = jsonrpc.Object(result, ms[:0]); err != nil {
			return reply{}, x.unread(up, err)
		}
		result = redact.StripJSON(result)
		if ms, err = jsonrpc.Object(result, ms[:0]); err != nil {
			return reply{}, x.unread(up, err)
		}
	}
	return x.received(ctx, up, t, reply{result: result, members: ms, toolError: failed})
}

// unread is the error of an answer that cannot be read alike by all, or is against the protocol. The names in it are
// the server's words.
func (x *exchange) unread(up *registry.Upstream, why error) error {
	if err := x.pass.Seen(); err != nil {
		return x.unseeable(up, err)
	}
	text := cut(redact.Strip(why.Error()), maxWhy)
	switch {
	case !x.pass.Strange():
	case x.pass.Inbound(x.ctx, fmt.Appendf(nil, `[%s]`, jsonrpc.Quote(text))):
		text = x.pass.Answer().Text(text)
	default:
		text = tooSuspicious
	}
	return against(up, "%s", text)
}

const (
	maxWhy        = 500 // bytes of what is wrong with an answer
	tooSuspicious = "in what way, inspectors found too suspicious to be told"
)

// misfit is the error of a result that is against its schema. The names in it are the server's words.
func (x *exchange) misfit(up *registry.Upstream, t target, v *schema.Violation) error {
	if err := x.pass.Seen(); err != nil {
		return x.unseeable(up, err)
	}
	text := redact.Strip(v.Text)
	data := fmt.Appendf(nil, `{"path":%s,"rule":%s}`, jsonrpc.Quote(v.Path), jsonrpc.Quote(v.Rule))
	if x.pass.Strange() {
		if !x.pass.Inbound(x.ctx, fmt.Appendf(nil, `[%s,%s]`, jsonrpc.Quote(text), data)) {
			text, data = tooSuspicious, nil
		} else {
			text, data = x.pass.Answer().Text(text), x.pass.Answer().Data(data)
		}
	}
	e := jsonrpc.Errorf(CodeResult, "server %q has run tool %q, and its result is against its own outputSchema: %s", up.Server().Name, t.Name, text)
	e.Data = data
	return e
}

// mayAsk reports whether a server of 2026-07-28 may ask its client something in the course of a method. These are also
// the ones whose results a model will read.
func mayAsk(method string) bool {
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsCall, mcp.MethodResourcesRead, mcp.MethodPromptsGet:
		return true
	}
	return false
}

// isQuestion reports whether a result asks the client for input. One that does and says otherwise is an error.
func isQuestion(ms jsonrpc.Members) (bool, error) {
	raw := ms.Get("resultType")
	kind := string(mcp.ResultTypeComplete)
	if raw != nil {
		var err error
		if kind, err = jsonrpc.String(raw); err != nil {
			return false, fmt.Errorf("resultType is %w", err)
		}
	}
	if kind == string(mcp.ResultTypeInputRequired) {
		return true, nil
	}
	if ms.Index("inputRequests") >= 0 || ms.Index("requestState") >= 0 {
		return false, fmt.Errorf("a result of type %q has questions", kind)
	}
	return false, nil
}

// heard makes of a server's error what the client may hear: one that sends the client's user to an address is a
// question (URL elicitation, 2025-11-25), and for that the server needs leave, and the client to be capable.
func (x *exchange) heard(up *registry.Upstream, err error) error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || e.Raw == nil {
		return err
	}
	if ms, merr := jsonrpc.Object(e.Raw, nil); merr != nil || ms.LookAlike("code", "message", "data") != nil {
		return against(up, "two parsers could read its error differently")
	}
	switch code := e.Number(); code {
	case mcp.HEADER_MISMATCH, mcp.UNSUPPORTED_PROTOCOL_VERSION: // between pfar and the server, and nothing of the client's
		return against(up, "the error %d is about pfar's own words", code)
	case mcp.URL_ELICITATION_REQUIRED:
	default:
		return x.fencedError(up, e)
	}
	if err := mayNot(up, string(mcp.MethodElicitationCreate)); err != nil {
		return err
	}
	if !x.capable("elicitation") {
		return incapable(up.Server().Name, "elicitation")
	}
	if x.session != nil {
		x.session.sub.expectsAll(up.Server().Name, e.Raw)
	}
	return x.fencedError(up, e)
}
