package call

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/quota"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/cmd/pfar-gateway/telemetry"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

// The kinds of calls in the log.
const (
	answered   = "answered"
	unanswered = "refused or failed"
)

// logEvery bounds the entries for answered calls, and those for all others apart: many calls that go well do not keep a
// refused one out of the log.
const logEvery = time.Second / 20

// NewLog returns a log of calls. t is nil if nothing is counted or traced.
func NewLog(log *slog.Logger, t *telemetry.Telemetry) Log {
	leftOut := func(kind string, n int64) { // audit has them
		log.Info("calls are left out of the log: pfar audit", "kind", kind, "calls", n)
	}
	return Log{Logger: log, Telemetry: t, Entries: &quota.Quota{Every: logEvery, Record: leftOut}}
}

// observed runs a call of a server's. It is counted, traced and logged.
func (c *Call) observed(ctx context.Context, server, name string, do func(context.Context) (reply.Reply,
	error)) (re reply.Reply, err error) {
	of := telemetry.Call{Server: server, Method: c.Method, Name: name, Client: c.Bound.Client, Request: c.LogID}
	if raw := c.Meta.Get("traceparent"); raw != nil {
		of.Traceparent, _ = jsonrpc.String(raw)
		of.Tracestate, _ = jsonrpc.String(c.Meta.Get("tracestate"))
	} else if of.Traceparent = c.Trace(); of.Traceparent != "" {
		of.Tracestate = c.Header.Get("Tracestate")
	}
	start := time.Now()
	ctx, running := c.Log.Telemetry.Begin(ctx, of)
	c.trace = trace{parent: running.Traceparent()}
	if c.Meta.Get("traceparent") != nil && c.Meta.Get("tracestate") != nil { // the gate has looked through the message, and not through its headers
		c.trace.state = running.Tracestate()
	}
	ended := false
	defer func() {
		if !ended { // it panics
			running.End(telemetry.Failed, mcp.INTERNAL_ERROR, 0)
		}
	}()
	re, err = do(ctx)
	outcome, code := Judge(ctx, re, err)
	running.End(outcome, code, re.Size())
	ended = true
	c.log(server, name, outcome, cmp.Or(err, re.Why), start)
	return re, err
}

// Judge says how a call ended.
func Judge(ctx context.Context, re reply.Reply, err error) (telemetry.Outcome, int) {
	code := mcp.INTERNAL_ERROR
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Raw == nil {
		code = e.Code
	}
	switch {
	case err == nil && re.Refused:
		return telemetry.Refused, 0
	case err == nil && re.ToolError:
		return telemetry.ToolError, 0
	case err == nil:
		return telemetry.OK, 0
	case ctx.Err() != nil:
		return telemetry.Cancelled, code
	case code == protocol.CodeBusy || code == mcp.INVALID_PARAMS || code == mcp.METHOD_NOT_FOUND:
		return telemetry.Refused, code
	}
	return telemetry.Failed, code
}

// Unsent answers a call that goes to no server, by a reply that says why.
func (a *Calls) Unsent(v *Visit, server, name string, re reply.Reply) (reply.Reply, error) {
	c := &Call{Calls: a, Visit: v}
	return c.observed(v.Ctx, server, name, func(context.Context) (reply.Reply, error) { return re, nil })
}

// NotFound logs a call of a name that no server has. The name is the client's.
func (a *Calls) NotFound(v *Visit, name string, err error) {
	outcome, _ := Judge(v.Ctx, reply.Reply{}, err)
	if outcome != telemetry.Refused {
		return // its server does not run
	}
	server := v.Endpoint
	if server == "" {
		if before, _, ok := strings.Cut(name, registry.Separator); ok && v.Catalogue(a.Registry).Known(before) {
			server = before
		}
	}
	c := &Call{Calls: a, Visit: v}
	c.log(server, reply.Cut(name, 200), outcome, err, time.Now())
}

// log writes an entry. A call of a tool has the tool's name. A call that the gate has decided about has its verdict,
// and its id in the audit. A refused call has the verdict deny.
func (c *Call) log(server, name string, outcome telemetry.Outcome, err error, since time.Time) {
	kind := unanswered
	if outcome == telemetry.OK || outcome == telemetry.ToolError {
		kind = answered
	}
	if kind == answered && !c.Log.Enabled(c.Ctx, slog.LevelDebug) || !c.Log.Entries.Allow(kind) {
		return
	}
	what := "name"
	if c.Method == string(mcp.MethodToolsCall) {
		what = "tool"
	}
	who := c.Identity()
	attributes := []slog.Attr{
		slog.String("request", c.LogID), slog.String("server", server), slog.String("method", c.Method), slog.String(what, name),
		slog.String("client", who.Client), slog.String("proof", who.Proof),
		slog.String("outcome", outcome.String()), slog.Duration("took", time.Since(since).Round(time.Microsecond)),
	}
	if err != nil {
		attributes = append(attributes, slog.String("error", reply.Cut(err.Error(), 500)))
		if class := failure.Of(err).Class; class != "" {
			attributes = append(attributes, slog.String("class", string(class)))
		}
	}
	verdict, id := "", ""
	if c.Pass != nil {
		verdict, id = c.Pass.Verdict().String(), c.Pass.Call()
	}
	if no, ok := errors.AsType[*enforce.Refused](err); ok {
		id = no.Call
	}
	if outcome == telemetry.Refused {
		verdict = gate.Deny.String()
	}
	for _, a := range [][2]string{{"verdict", verdict}, {"call", id}} {
		if a[1] != "" {
			attributes = append(attributes, slog.String(a[0], a[1]))
		}
	}
	level := slog.LevelInfo
	if kind == answered { // audit has it
		level = slog.LevelDebug
	}
	c.Log.LogAttrs(c.Ctx, level, "call "+outcome.String(), attributes...)
}
