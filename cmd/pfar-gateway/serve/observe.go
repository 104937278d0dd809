package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/telemetry"
	"github.com/pfar/pfar/policies/gate"
)

// Observe has calls counted and traced, from before the first.
func (s *Server) Observe(t *telemetry.Telemetry) { s.telemetry = t }

// headerRequestID names the response header that has the id under which the log speaks of a request.
const headerRequestID = "X-Request-Id"

// observed runs a call of a server's, or of the gateway's own if that is "".
func (x *exchange) observed(ctx context.Context, server, name string, call func(context.Context) (reply, error)) (re reply, err error) {
	c := telemetry.Call{Server: server, Method: x.msg.Method, Name: name, Client: x.bound.Client, Request: x.request}
	if raw := x.meta.Get("traceparent"); raw != nil {
		c.Traceparent, _ = jsonrpc.String(raw)
		c.Tracestate, _ = jsonrpc.String(x.meta.Get("tracestate"))
	} else if c.Traceparent = x.headerTrace(); c.Traceparent != "" {
		c.Tracestate = x.r.Header.Get("Tracestate")
	}
	start := time.Now()
	ctx, running := x.srv.telemetry.Begin(ctx, c)
	x.traceparent, x.tracestate = running.Traceparent(), ""
	if x.meta.Get("traceparent") != nil && x.meta.Get("tracestate") != nil { // the gate has looked through the message, and not through its headers
		x.tracestate = running.Tracestate()
	}
	ended := false
	defer func() {
		if !ended { // it panics
			running.End(telemetry.Failed, mcp.INTERNAL_ERROR, 0)
		}
	}()
	re, err = call(ctx)
	outcome, code := judged(ctx, re, err)
	running.End(outcome, code, re.size())
	ended = true
	x.log(server, name, outcome, cmp.Or(err, re.why), start)
	return re, err
}

// headerTrace is the trace that the request's header says that it is part of, "" for none.
func (x *exchange) headerTrace() string {
	if values := x.r.Header["Traceparent"]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// judged says how a call ended.
func judged(ctx context.Context, re reply, err error) (telemetry.Outcome, int) {
	code := mcp.INTERNAL_ERROR
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Raw == nil {
		code = e.Code
	}
	switch {
	case err == nil && re.refused:
		return telemetry.Refused, 0
	case err == nil && re.toolError:
		return telemetry.ToolError, 0
	case err == nil:
		return telemetry.OK, 0
	case ctx.Err() != nil:
		return telemetry.Cancelled, code
	case code == registry.CodeBusy || code == mcp.INVALID_PARAMS || code == mcp.METHOD_NOT_FOUND:
		return telemetry.Refused, code
	}
	return telemetry.Failed, code
}

// logEvery bounds the entries for calls, of those that a server has answered and of all others apart: nobody keeps what
// is refused out of the log by calling what is not.
const logEvery = time.Second / 20

// The kinds of calls in the log.
const (
	answered   = "answered"
	unanswered = "refused or failed"
)

// leftOut logs how many calls of a kind have no entry. Audit has them.
func (s *Server) leftOut(kind string, n int64) {
	s.log.Info("calls are left out of the log: pfar audit", "kind", kind, "calls", n)
}

// notCalled logs a call that no server gets because of its name, which is whatever the client says.
func (x *exchange) notCalled(name string, err error) {
	outcome, _ := judged(x.r.Context(), reply{}, err)
	if outcome != telemetry.Refused {
		return // its server does not run
	}
	server := x.endpoint
	if server == "" {
		if before, _, ok := strings.Cut(name, registry.Separator); ok && x.catalogue().Known(before) {
			server = before
		}
	}
	x.log(server, cut(name, 200), outcome, err, time.Now())
}

// log writes an entry, of which those for calls of tools have a tool; those that the gate has decided about a verdict,
// and a call by which audit knows them; and those for what pfar has refused the verdict deny.
func (x *exchange) log(server, name string, outcome telemetry.Outcome, err error, since time.Time) {
	kind := unanswered
	if outcome == telemetry.OK || outcome == telemetry.ToolError {
		kind = answered
	}
	if kind == answered && !x.srv.log.Enabled(x.r.Context(), slog.LevelDebug) || !x.srv.logs.allow(kind) {
		return
	}
	what := "name"
	if x.msg.Method == string(mcp.MethodToolsCall) {
		what = "tool"
	}
	who := x.identity()
	attributes := []slog.Attr{
		slog.String("request", x.request), slog.String("server", server), slog.String("method", x.msg.Method), slog.String(what, name), slog.String("client", who.Client), slog.String("proof", who.Proof),
		slog.String("outcome", outcome.String()), slog.Duration("took", time.Since(since).Round(time.Microsecond)),
	}
	if err != nil {
		attributes = append(attributes, slog.String("error", cut(err.Error(), 500)))
	}
	verdict, call := "", ""
	if x.pass != nil {
		verdict, call = x.pass.Verdict().String(), x.pass.Call()
	}
	if no, ok := errors.AsType[*enforce.Refused](err); ok {
		call = no.Call
	}
	if outcome == telemetry.Refused {
		verdict = gate.Deny.String()
	}
	for _, a := range [][2]string{{"verdict", verdict}, {"call", call}} {
		if a[1] != "" {
			attributes = append(attributes, slog.String(a[0], a[1]))
		}
	}
	level := slog.LevelInfo
	if kind == answered { // audit has it
		level = slog.LevelDebug
	}
	x.srv.log.LogAttrs(x.r.Context(), level, "call "+outcome.String(), attributes...)
}
