// Package telemetry counts and times the gateway's calls: calls in; statistics, Prometheus metrics and OpenTelemetry
// spans out.
//
// Counting is always on and costs a call a few hundred nanoseconds and no allocation. Spans are made only if the
// environment names a collector, metrics are served only on a listener that was asked for.
package telemetry

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Call is one request of a client. Server, Method and Name come from the catalogue, never from the client's own words:
// they become labels. "" as Server is what the gateway answers itself.
type Call struct {
	Server, Method string
	Name           string // of the tool or prompt; "": none
	Client         string // who asks, as serve knows it; in spans, never in metrics
	Request        string // id of the client's request in logs (RequestID)
	// Of the request's _meta or, failing that, its HTTP header (W3C Trace Context); a client's words, "": none.
	Traceparent, Tracestate string
}

// Outcome is how a call ended.
type Outcome uint8

const (
	Failed    Outcome = iota // an error of the server's, none to ask, or no answer in time
	OK                       // a result
	ToolError                // a result that says isError
	Refused                  // pfar said no
	Cancelled                // the client did not want the answer any more
	outcomes                 // how many there are
)

// String returns the outcome as metrics and spans have it.
func (o Outcome) String() string {
	switch o {
	case OK:
		return "ok"
	case ToolError:
		return "tool_error"
	case Refused:
		return "refused"
	case Cancelled:
		return "cancelled"
	}
	return "failed"
}

// isError reports whether an operator counts the outcome as an error: what a client took back is none.
func (o Outcome) isError() bool { return o != OK && o != Cancelled }

// Telemetry counts calls. A nil one counts nothing.
type Telemetry struct {
	log     *slog.Logger
	version string
	born    time.Time
	running sync.Pool

	servers atomic.Pointer[map[string]*server] // copied for each change, under mu
	mu      sync.Mutex
	names   int // of tools that have counters of their own, of all servers

	gauges   atomic.Pointer[func() []Gauge]
	provider *sdktrace.TracerProvider // nil: traces are off
	tracer   trace.Tracer
	dropped  *exportErrors
}

// New returns a Telemetry that has counted nothing. It makes spans if OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT names a collector, and neither OTEL_SDK_DISABLED nor OTEL_TRACES_EXPORTER says
// otherwise; a variable that is wrong is logged, without its value, and leaves traces off.
func New(ctx context.Context, log *slog.Logger, version string) *Telemetry {
	t := &Telemetry{log: log, version: version, born: time.Now()}
	t.running.New = func() any { return new(Running) }
	t.servers.Store(&map[string]*server{})
	t.startTraces(ctx)
	return t
}

// Running is a call under way.
type Running struct {
	t      *Telemetry
	server *server
	method method
	name   string
	start  time.Time
	span   trace.Span // nil: traces are off
}

// Begin counts a call as being in flight until End, which must follow exactly once. The context carries the span. What
// a client keeps open as long as it likes is a call like any other, but its time is not part of the latency.
func (t *Telemetry) Begin(ctx context.Context, c Call) (context.Context, *Running) {
	if t == nil {
		return ctx, nil
	}
	r := t.running.Get().(*Running)
	*r = Running{t: t, server: t.server(c.Server), method: methodOf(c.Method), name: c.Name, start: time.Now()}
	r.server.inFlight.Add(1)
	if t.tracer != nil {
		ctx, r.span = t.startSpan(ctx, c, r.start)
	}
	return ctx, r
}

// End counts the call. code is the JSON-RPC error's, 0 if there was none, and bytes the size of the result or error.
// The Running is not to be used any more.
func (r *Running) End(o Outcome, code, bytes int) {
	if r == nil || r.t == nil {
		return
	}
	if o >= outcomes {
		o = Failed
	}
	now := time.Now()
	took := max(0, now.Sub(r.start))
	at := now.Sub(r.t.born)
	r.server.ended(r.method, o, took, at, max(0, bytes))
	if r.method == toolsCall && r.name != "" {
		r.t.tool(r.server, r.name, o).add(o, took)
	}
	if r.span != nil {
		endSpan(r.span, o, code, now)
	}
	t := r.t
	*r = Running{}
	t.running.Put(r)
}

// Close sends the spans that still wait, until ctx ends.
func (t *Telemetry) Close(ctx context.Context) error {
	if t == nil || t.provider == nil {
		return nil
	}
	return t.dropped.clean(t.provider.Shutdown(ctx))
}

const (
	maxServers = 1024 // with counters of their own; the rest shares "other"
	maxNames   = 2000 // of tools with counters of their own, all servers together
	maxLabel   = 128  // bytes; a longer name is "other"
	otherName  = "other"
)

// server returns the counters of a server.
func (t *Telemetry) server(name string) *server {
	if s := (*t.servers.Load())[name]; s != nil {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.servers.Load()
	if len(old) >= maxServers || !label(name) {
		name = otherName
	}
	if s := old[name]; s != nil {
		return s
	}
	s := newServer(strings.Clone(name)) // not a part of somebody's request, which it would keep
	t.servers.Store(with(old, s.name, s))
	return s
}

// tool returns the counters of a server's tool. A call that nobody but the client says has a tool makes no new ones: a
// client could fill the table with names.
func (t *Telemetry) tool(s *server, name string, o Outcome) *tool {
	if c := (*s.tools.Load())[name]; c != nil {
		return c
	}
	if o == Refused || o == Cancelled || !label(name) || name == otherName {
		return &s.others
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *s.tools.Load()
	if c := old[name]; c != nil {
		return c
	}
	if t.names >= maxNames || s.forgotten {
		return &s.others
	}
	t.names++
	c := new(tool)
	s.tools.Store(with(old, strings.Clone(name), c))
	return c
}

// Forget gives up what is counted of a server that has no declaration any more.
func (t *Telemetry) Forget(name string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	old := *t.servers.Load()
	s := old[name]
	if s == nil {
		return
	}
	s.forgotten = true
	t.names -= len(*s.tools.Load())
	t.servers.Store(with(old, name, nil))
}

// with returns a copy of m in which key has value, or is not if value is nil.
func with[V any](m map[string]*V, key string, value *V) *map[string]*V {
	n := maps.Clone(m)
	if value == nil {
		delete(n, key)
	} else {
		n[key] = value
	}
	return &n
}
