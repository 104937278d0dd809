package telemetry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// otlp is a collector at the edge of the network: it takes what the exporter really sends.
type otlp struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*spans.Span
	resource map[string]string
	headers  http.Header
	path     string
	answer   func(http.ResponseWriter)
}

func newOTLP(t *testing.T) *otlp {
	t.Helper()
	o := &otlp{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(b, &request)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("not OTLP: %v, %v", r.Header, err)
		}
		o.headers, o.path = r.Header.Clone(), r.URL.Path
		if o.answer != nil {
			o.answer(w)
			return
		}
		for _, rs := range request.ResourceSpans {
			o.resource = attributes(rs.Resource.Attributes)
			for _, ss := range rs.ScopeSpans {
				o.spans = append(o.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(o.Close)
	return o
}

func attributes(list []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		m[kv.Key] = kv.Value.GetStringValue()
	}
	return m
}

// traced returns a Telemetry that sends to the collector, and its log.
func traced(t *testing.T, o *otlp, environment ...string) (*Telemetry, *lines) {
	t.Helper()
	t.Setenv(envEndpoint, o.URL)
	for i := 0; i < len(environment); i += 2 {
		t.Setenv(environment[i], environment[i+1])
	}
	log := new(lines)
	tel := New(t.Context(), slog.New(slog.NewTextHandler(log, nil)), "1.2.3")
	if tel.tracer == nil {
		t.Fatalf("traces are off: %s", log)
	}
	return tel, log
}

// lines is a log that may be written to and read at once.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestSpans(t *testing.T) {
	o := newOTLP(t)
	tel, _ := traced(t, o, "OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test", "OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2")
	long := strings.Repeat("é", maxText)
	calls := []struct {
		call    Call
		outcome Outcome
		code    int
		name    string
		want    map[string]string
		status  spans.Status_StatusCode
	}{
		{
			Call{Server: "notion", Method: "tools/call", Name: "search", Client: "uid 7", Request: "r-1", Traceparent: parent, Tracestate: "a=b"}, OK, 0, "tools/call search",
			map[string]string{
				"mcp.method.name": "tools/call", "gen_ai.tool.name": "search", "gen_ai.operation.name": "execute_tool",
				"pfar.server.name": "notion", "pfar.client": "uid 7", "pfar.request.id": "r-1", "pfar.outcome": "ok",
			}, spans.Status_STATUS_CODE_UNSET,
		},
		{
			Call{Server: "notion", Method: "prompts/get", Name: "p"}, Failed, -32603, "prompts/get p",
			map[string]string{
				"mcp.method.name": "prompts/get", "gen_ai.prompt.name": "p", "pfar.server.name": "notion", "pfar.outcome": "failed",
				"rpc.response.status_code": "-32603", "error.type": "-32603",
			}, spans.Status_STATUS_CODE_ERROR,
		},
		{
			Call{Server: "notion", Method: "tools/call", Name: "x\xff" + long}, ToolError, 0, "tools/call x\uFFFD" + long[:maxText-2],
			map[string]string{
				"mcp.method.name": "tools/call", "gen_ai.tool.name": "x\uFFFD" + long[:maxText-2], "gen_ai.operation.name": "execute_tool",
				"pfar.server.name": "notion", "pfar.outcome": "tool_error", "error.type": "tool_error",
			}, spans.Status_STATUS_CODE_ERROR,
		},
		{
			Call{Method: "x/\x1b[2J"}, Cancelled, -32800, "other",
			map[string]string{"mcp.method.name": "x/\x1b[2J", "pfar.outcome": "cancelled", "rpc.response.status_code": "-32800", "error.type": "cancelled"},
			spans.Status_STATUS_CODE_UNSET,
		},
	}
	var handed []string
	for _, c := range calls {
		_, r := tel.Begin(t.Context(), c.call)
		handed = append(handed, r.Traceparent())
		if got := r.Tracestate(); got != c.call.Tracestate {
			t.Errorf("%s: the server is handed tracestate %q", c.name, got)
		}
		r.End(c.outcome, c.code, 0)
	}
	if err := tel.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o.path != "/v1/traces" || o.headers.Get("Api-Key") != "hunter2" || len(o.spans) != len(calls) {
		t.Fatalf("%d spans at %q with %v", len(o.spans), o.path, o.headers)
	}
	for key, want := range map[string]string{"service.name": "pfar-gateway", "service.version": "1.2.3", "deployment.environment": "test"} {
		if o.resource[key] != want {
			t.Errorf("resource %s is %q, want %q", key, o.resource[key], want)
		}
	}
	for i, c := range calls {
		s := o.spans[i]
		if s.Name != c.name || s.Status.Code != c.status || s.Kind != spans.Span_SPAN_KIND_SERVER || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("got  %v\nwant %s, %v", s, c.name, c.status)
		}
		got := attributes(s.Attributes)
		for key, want := range c.want {
			if got[key] != want {
				t.Errorf("%s: %s is %q, want %q", c.name, key, got[key], want)
			}
			delete(got, key)
		}
		if len(got) > 0 {
			t.Errorf("%s: also has %v", c.name, got)
		}
		if want := "00-" + hexadecimal(s.TraceId) + "-" + hexadecimal(s.SpanId) + "-0"; !strings.HasPrefix(handed[i], want) {
			t.Errorf("%s: the server is handed %q, want %q...", c.name, handed[i], want)
		}
	}
	if s := o.spans[0]; hexadecimal(s.TraceId) != parent[3:35] || hexadecimal(s.ParentSpanId) != parent[36:52] {
		t.Errorf("the client's span is not the parent: %v", s)
	}
	if len(o.spans[1].ParentSpanId) != 0 {
		t.Errorf("a span without a parent has one: %v", o.spans[1])
	}
}

func hexadecimal(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

// TestHostileParents: what is not exactly a traceparent begins a trace of our own.
func TestHostileParents(t *testing.T) {
	tel, _ := traced(t, newOTLP(t))
	defer tel.Close(t.Context())
	id, span := parent[3:35], parent[36:52]
	tests := []struct {
		name, traceparent, tracestate string
		follows                       bool
		state                         string
	}{
		{"as it should be", parent, "", true, ""},
		{"not sampled", parent[:53] + "00", "", true, ""},
		{"with state", parent, "a=1,b@c=2", true, "a=1,b@c=2"},
		{"of a later version", "01-" + id + "-" + span + "-01-more", "", true, ""},
		{"empty", "", "", false, ""},
		{"version ff", "ff" + parent[2:], "", false, ""},
		{"upper case", strings.ToUpper(parent), "", false, ""},
		{"too short", parent[:54], "", false, ""},
		{"too long for version 00", parent + "-00", "", false, ""},
		{"a dash at the end", parent + "-", "", true, ""},
		{"blank before", " " + parent, "", false, ""},
		{"line break behind", parent + "\n", "", false, ""},
		{"no trace", "00-" + strings.Repeat("0", 32) + "-" + span + "-01", "", false, ""},
		{"no span", "00-" + id + "-" + strings.Repeat("0", 16) + "-01", "", false, ""},
		{"other digits", strings.Replace(parent, "4bf9", "4bg9", 1), "", false, ""},
		{"full-width digits", strings.Replace(parent, "00f0", "００", 1), "", false, ""},
		{"NUL", "00-" + id + "-" + span + "-\x001", "", false, ""},
		{"flags that are none", parent[:53] + "ff", "", false, ""},
		{"endless", "01-" + id + "-" + span + "-01-" + strings.Repeat("x", 1<<20), "", false, ""},
		{"state without traceparent", "", "a=1", false, ""},
		{"broken state", parent, "a=1,a=2", true, ""},
		{"state that a terminal obeys", parent, "a=\x1b[2J", true, ""},
		{"endless state", parent, "a=" + strings.Repeat("x", 1<<20), true, ""},
		{"too many members", parent, strings.TrimSuffix(strings.Repeat("a=1,", 33), ","), true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, r := tel.Begin(t.Context(), Call{Server: "s", Method: "tools/call", Traceparent: tt.traceparent, Tracestate: tt.tracestate})
			defer r.End(OK, 0, 0)
			got := r.Traceparent()
			if len(got) != 55 || strings.Contains(got, span) {
				t.Errorf("the server is handed %q", got)
			}
			if follows := strings.Contains(got, id); follows != tt.follows {
				t.Errorf("follows the client's trace: %v, want %v (%q)", follows, tt.follows, got)
			}
			if r.Tracestate() != tt.state {
				t.Errorf("the server is handed the state %q, want %q", r.Tracestate(), tt.state)
			}
		})
	}
}

// TestOff: nothing is sent that was not asked for, and the traceparent stays the client's.
func TestOff(t *testing.T) {
	o := newOTLP(t)
	for name, environment := range map[string]map[string]string{
		"not asked for":     {},
		"disabled":          {envEndpoint: o.URL, envDisabled: " TRUE "},
		"exporter none":     {envEndpoint: o.URL, envExporter: "none"},
		"no URL":            {envEndpoint: "collector-secret:4318"},
		"host alone":        {envEndpoint: "collector-secret"},
		"other scheme":      {envEndpoint: "unix:///collector-secret"},
		"broken":            {envEndpoint: "http://collector-secret:\x7f"},
		"one of two broken": {envEndpoint: o.URL, envTracesEndpoint: "collector-secret"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{envEndpoint, envTracesEndpoint, envDisabled, envExporter} {
				t.Setenv(v, environment[v])
			}
			log := new(lines)
			tel := New(t.Context(), slog.New(slog.NewTextHandler(log, nil)), "1")
			ctx, r := tel.Begin(t.Context(), Call{Server: "s", Method: "tools/call", Name: "t", Traceparent: parent})
			if ctx != t.Context() || r.Traceparent() != "" || r.Tracestate() != "" {
				t.Errorf("the call is traced: %q", r.Traceparent())
			}
			r.End(OK, 0, 0)
			if err := tel.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if strings.Contains(log.String(), "secret") {
				t.Errorf("a value is logged: %s", log)
			}
			if name != "not asked for" && environment[envDisabled] == "" && environment[envExporter] == "" && !strings.Contains(log.String(), "OTEL_EXPORTER_OTLP") {
				t.Errorf("nobody is told why: %q", log)
			}
		})
	}
	if o.path != "" {
		t.Errorf("something was sent to %q", o.path)
	}
}

// TestSampler: the SDK's own variables are heeded.
func TestSampler(t *testing.T) {
	o := newOTLP(t)
	tel, _ := traced(t, o, "OTEL_TRACES_SAMPLER", "always_off")
	_, r := tel.Begin(t.Context(), Call{Server: "s", Method: "tools/call", Traceparent: parent})
	if got := r.Traceparent(); !strings.HasSuffix(got, "-00") || !strings.Contains(got, parent[3:35]) {
		t.Errorf("the server is handed %q", got)
	}
	r.End(OK, 0, 0)
	if err := tel.Close(t.Context()); err != nil || len(o.spans) != 0 {
		t.Errorf("%d spans, %v", len(o.spans), err)
	}
}

// TestCollectorFails: no call fails with it, and what is logged holds nothing of the environment, and nothing twice.
func TestCollectorFails(t *testing.T) {
	o := newOTLP(t)
	o.answer = func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "key hunter2 \x1b[2J is wrong "+strings.Repeat("x", 1<<20))
	}
	tel, log := traced(t, o, envEndpoint, strings.Replace(o.URL, "http://", "http://user:tellnobody@", 1)+"/path-secret",
		"OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2,broken-secret", "OTEL_EXPORTER_OTLP_TIMEOUT", "timeout-secret")
	for range 3 {
		_, r := tel.Begin(t.Context(), Call{Server: "s", Method: "tools/call"})
		r.End(OK, 0, 0)
		if err := tel.provider.ForceFlush(t.Context()); err == nil {
			t.Error("what was refused is not an error")
		} else {
			tel.dropped.Handle(err)
		}
	}
	if err := tel.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, secret := range []string{"hunter2", "secret", "tellnobody", strings.TrimPrefix(o.URL, "http://"), "\x1b", strings.Repeat("x", 500)} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %.40q: %s", secret, log)
		}
	}
	if n := strings.Count(log.String(), "sending traces"); n != 1 {
		t.Errorf("%d lines: %s", n, log)
	}
	if !strings.Contains(log.String(), "403") {
		t.Errorf("nobody is told why: %s", log)
	}
}

// TestCollectorHangs: the end of the gateway does not wait for it.
func TestCollectorHangs(t *testing.T) {
	o := newOTLP(t)
	release := make(chan struct{})
	asked := make(chan struct{}, 1)
	o.answer = func(http.ResponseWriter) { asked <- struct{}{}; <-release }
	defer close(release)
	tel, _ := traced(t, o)
	_, r := tel.Begin(t.Context(), Call{Server: "s", Method: "tools/call"})
	r.End(OK, 0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- tel.Close(ctx) }()
	<-asked
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("spans were lost without an error")
		}
	case <-time.After(2 * time.Minute):
		t.Error("waits for the collector")
	}
}

func TestCleanErrors(t *testing.T) {
	e := &exportErrors{log: silent(), secrets: strings.NewReplacer(secrets([]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=https://u:pw-secret@col.example:4318/v1/k-secret?q=q-secret", "OTEL_EXPORTER_OTLP_HEADERS=a=h-secret, b = enc%20secret",
		"HOME=/root", "OTEL_EXPORTER_OTLP_CLIENT_KEY=/path/key-secret", "OTEL_RESOURCE_ATTRIBUTES=x=r-secret", "OTEL_EMPTY", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=/",
	})...)}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("in /root at col.example"), `"in /root at [...]"`},
		{errors.New("k: pw-secret h-secret enc secret enc%20secret r-secret /path/key-secret q-secret"), `"k: `},
		{&url.Error{Op: "Post", URL: "https://col.example:4318/v1/k-secret", Err: errors.New("refused")}, `"refused"`},
		{context.DeadlineExceeded, "the collector did not answer in time"},
		{errors.New("a\x1b[2J\u202e\n"), `"a\x1b[2J\u202e\n"`},
	} {
		got := e.clean(tt.err)
		if tt.err == nil {
			if got != nil {
				t.Errorf("of no error: %v", got)
			}
			continue
		}
		if strings.Contains(got.Error(), "secret") || strings.Contains(got.Error(), "example") || !strings.HasPrefix(got.Error(), tt.want) {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
