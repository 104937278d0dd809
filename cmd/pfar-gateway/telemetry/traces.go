package telemetry

import (
	"context"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Attributes of the OpenTelemetry semantic conventions for MCP servers, docs/gen-ai/mcp.md of
// semantic-conventions-genai; those that begin with pfar are our own.
const (
	attrMethod    = attribute.Key("mcp.method.name")
	attrTool      = attribute.Key("gen_ai.tool.name")
	attrPrompt    = attribute.Key("gen_ai.prompt.name")
	attrOperation = attribute.Key("gen_ai.operation.name")
	attrErrorType = attribute.Key("error.type")
	attrCode      = attribute.Key("rpc.response.status_code")
	attrServer    = attribute.Key("pfar.server.name")
	attrClient    = attribute.Key("pfar.client")
	attrRequest   = attribute.Key("pfar.request.id")
	attrOutcome   = attribute.Key("pfar.outcome")
)

// Variables of the OpenTelemetry specification that are looked at here; the SDK reads the rest.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

// wanted reports whether the environment asks for traces and names a collector that can be asked.
func (t *Telemetry) wanted() bool {
	env := func(name string) string { return strings.TrimSpace(os.Getenv(name)) }
	if strings.EqualFold(env(envDisabled), "true") || strings.EqualFold(env(envExporter), "none") {
		return false
	}
	name := envTracesEndpoint
	if env(name) == "" {
		name = envEndpoint
	}
	if env(name) == "" {
		return false
	}
	// The SDK would take a host alone for a path and send to localhost.
	u, err := url.Parse(env(name))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		t.log.Warn("reading "+name+": it is not a URL such as http://127.0.0.1:4318; traces stay off", "variable", name)
		return false
	}
	return true
}

// startTraces makes the SDK send spans, if that is wanted.
func (t *Telemetry) startTraces(ctx context.Context) {
	if !t.wanted() {
		return
	}
	// The SDK logs what it cannot read of the environment with its value, which may be a key.
	otel.SetLogger(logr.Discard())
	t.dropped = newExportErrors(t.log)
	otel.SetErrorHandler(t.dropped)
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		t.log.Warn("starting the exporter of traces; they stay off", "error", t.dropped.clean(err))
		return
	}
	about := []attribute.KeyValue{attribute.String("service.name", "pfar-gateway"), attribute.String("service.version", text(t.version))}
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(about...), resource.WithFromEnv())
	if err != nil {
		t.dropped.Handle(err) // what could be read is in res
	}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	t.tracer = t.provider.Tracer("github.com/pfar/pfar/cmd/pfar-gateway", trace.WithInstrumentationVersion(text(t.version)))
}

// startSpan begins a span below the client's, if it named one. The sampler of the environment decides whether it is
// recorded; the default follows the client, who may thus keep its own calls out of the traces, but not out of the
// metrics and the logs.
func (t *Telemetry) startSpan(ctx context.Context, c Call, start time.Time) (context.Context, trace.Span) {
	method := methodOf(c.Method)
	name := methodNames[method]
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, attrMethod.String(text(c.Method)))
	add := func(key attribute.Key, value string) {
		if value != "" {
			attrs = append(attrs, key.String(text(value)))
		}
	}
	switch method {
	case toolsCall:
		add(attrTool, c.Name)
		add(attrOperation, "execute_tool")
	case promptsGet:
		add(attrPrompt, c.Name)
	}
	if c.Name != "" && (method == toolsCall || method == promptsGet) {
		name += " " + text(c.Name)
	}
	add(attrServer, c.Server)
	add(attrClient, c.Client)
	add(attrRequest, c.Request)
	return t.tracer.Start(withParent(ctx, c.Traceparent, c.Tracestate), name,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(start), trace.WithAttributes(attrs...))
}

// endSpan says how the call ended, in our words only: a server's message may hold anything.
func endSpan(span trace.Span, o Outcome, code int, now time.Time) {
	span.SetAttributes(attrOutcome.String(o.String()))
	if code != 0 {
		span.SetAttributes(attrCode.String(strconv.Itoa(code)))
	}
	if o != OK {
		kind := o.String()
		if code != 0 && o != Cancelled {
			kind = strconv.Itoa(code)
		}
		span.SetAttributes(attrErrorType.String(kind))
	}
	if o.isError() {
		span.SetStatus(codes.Error, o.String())
	}
	span.End(trace.WithTimestamp(now))
}

const (
	maxTraceparent = 128 // bytes; version 00 has 55 (W3C Trace Context 3.2), later ones may have more
	maxTracestate  = 512 // bytes, which must be passed on (3.3.1.5)
	maxText        = 256 // bytes of an attribute
)

// withParent puts the span that the client named into the context, if it is one.
func withParent(ctx context.Context, traceparent, tracestate string) context.Context {
	if traceparent == "" || len(traceparent) > maxTraceparent {
		return ctx
	}
	if len(tracestate) > maxTracestate {
		tracestate = ""
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate})
}

// Traceparent returns what the server is to be handed as traceparent in _meta, so that its spans come below this one.
// It is "" if traces are off: then what the client sent stays as it is.
func (r *Running) Traceparent() string { return r.inject("traceparent") }

// Tracestate returns what belongs to Traceparent; "": no member.
func (r *Running) Tracestate() string { return r.inject("tracestate") }

func (r *Running) inject(key string) string {
	if r == nil || r.span == nil {
		return ""
	}
	m := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), r.span), m)
	return m[key]
}

// text cuts a string to what an attribute may hold: protobuf refuses a whole batch for one that is not UTF-8.
func text(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// label reports whether a name may be a label of its own.
func label(s string) bool { return len(s) <= maxLabel && utf8.ValidString(s) }
