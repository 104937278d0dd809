package telemetry

import (
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// value is the sample of a metric with these labels, name and value by turns.
func scrape(t *testing.T, tel *Telemetry) (value func(metric string, labels ...string) float64, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	tel.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	body = w.Body.String()
	decoder := expfmt.SampleDecoder{
		Dec:  expfmt.NewDecoder(strings.NewReader(body), expfmt.ResponseFormat(w.Header())),
		Opts: &expfmt.DecodeOptions{},
	}
	samples := map[model.Fingerprint]float64{}
	for {
		var v model.Vector
		err := decoder.Decode(&v)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("Prometheus cannot read it: %v\n%s", err, body)
		}
		for _, s := range v {
			if _, twice := samples[s.Metric.Fingerprint()]; twice {
				t.Errorf("%v comes twice", s.Metric)
			}
			samples[s.Metric.Fingerprint()] = float64(s.Value)
		}
	}
	return func(metric string, labels ...string) float64 {
		m := model.Metric{model.MetricNameLabel: model.LabelValue(metric)}
		for i := 0; i < len(labels); i += 2 {
			m[model.LabelName(labels[i])] = model.LabelValue(labels[i+1])
		}
		if v, ok := samples[m.Fingerprint()]; ok {
			return v
		}
		return math.NaN()
	}, body
}

func TestMetrics(t *testing.T) {
	tel := fresh(t)
	tel.Gauges(func() []Gauge {
		return []Gauge{
			{Server: "notion", Up: true, Tools: 24, Held: 2, Queue: 3, InFlight: 4, Sessions: 5, Leaks: map[string]uint64{"a": 2, "b": 1}, Faults: map[string]uint64{"not a JSON-RPC message": 7, "\xff": 1}},
			{Server: "notion"}, {Server: "\xff"}, {Server: "down"},
		}
	})
	tel.call(Call{Server: "notion", Method: "tools/call", Name: "search", Client: "secret-client"}, OK)
	tel.call(Call{Server: "notion", Method: "tools/call", Name: "search"}, ToolError)
	tel.call(Call{Server: "notion", Method: "tools/call", Name: "ghost"}, Refused)
	tel.call(Call{Server: "notion", Method: "tools/call", Name: otherName}, OK)
	tel.call(Call{Server: "notion", Method: "tools/call", Name: "q\"uo\\te\nd"}, OK)
	tel.call(Call{Server: "notion", Method: "\x1b"}, Failed)
	tel.call(Call{Method: "tools/list"}, OK)
	_, open := tel.Begin(t.Context(), Call{Server: "notion", Method: "prompts/get"})
	defer open.End(OK, 0, 0)
	s := tel.server("notion")
	for _, took := range []time.Duration{100 * time.Microsecond, 100*time.Microsecond + 1, 60 * time.Second, 61 * time.Second} {
		s.ended(resourcesRead, OK, took, time.Second, 0)
	}
	s.inFlight.Add(4)
	runtime.GC() // nothing is known of the heap before the first
	value, body := scrape(t, tel)
	call := []string{"server", "notion", "method", "tools/call"}
	read := []string{"server", "notion", "method", "resources/read"}
	for _, tt := range []struct {
		metric string
		labels []string
		want   float64
	}{
		{"pfar_build_info", []string{"version", "1.2.3"}, 1},
		{"pfar_calls_total", append(call, "outcome", "ok"), 3},
		{"pfar_calls_total", append(call, "outcome", "tool_error"), 1},
		{"pfar_calls_total", append(call, "outcome", "refused"), 1},
		{"pfar_calls_total", []string{"server", "notion", "method", "other", "outcome", "failed"}, 1},
		{"pfar_calls_total", []string{"server", "", "method", "tools/list", "outcome", "ok"}, 1},
		{"pfar_call_duration_seconds_count", call, 5},
		{"pfar_call_duration_seconds_count", read, 4},
		{"pfar_call_duration_seconds_sum", read, 121.000200001},
		{"pfar_call_duration_seconds_bucket", append(read, "le", "0.0001"), 1},
		{"pfar_call_duration_seconds_bucket", append(read, "le", "0.00025"), 2},
		{"pfar_call_duration_seconds_bucket", append(read, "le", "30"), 2},
		{"pfar_call_duration_seconds_bucket", append(read, "le", "60"), 3},
		{"pfar_call_duration_seconds_bucket", append(read, "le", "+Inf"), 4},
		{"pfar_tool_calls_total", []string{"server", "notion", "tool", "search", "outcome", "tool_error"}, 1},
		{"pfar_tool_calls_total", []string{"server", "notion", "tool", "other", "outcome", "ok"}, 1},
		{"pfar_tool_calls_total", []string{"server", "notion", "tool", "other", "outcome", "refused"}, 1},
		{"pfar_tool_calls_total", []string{"server", "notion", "tool", "q\"uo\\te\nd", "outcome", "ok"}, 1},
		{"pfar_result_bytes_total", []string{"server", "notion"}, 60},
		{"pfar_calls_in_flight", []string{"server", "notion"}, 1},
		{"pfar_server_up", []string{"server", "notion"}, 1},
		{"pfar_server_up", []string{"server", "down"}, 0},
		{"pfar_server_tools", []string{"server", "notion"}, 24},
		{"pfar_server_definitions_held", []string{"server", "notion"}, 2},
		{"pfar_server_queue", []string{"server", "notion"}, 3},
		{"pfar_server_requests_in_flight", []string{"server", "notion"}, 4},
		{"pfar_server_sessions", []string{"server", "notion"}, 5},
		{"pfar_redactions_total", []string{"server", "notion"}, 3},
		{"pfar_server_faults_total", []string{"server", "notion", "kind", "not a JSON-RPC message"}, 7},
		{"process_open_fds", nil, math.Inf(1)},
		{"go_goroutines", nil, math.Inf(1)},
		{"go_gc_heap_live_bytes", nil, math.Inf(1)},
	} {
		got := value(tt.metric, tt.labels...)
		if math.IsInf(tt.want, 1) && got > 0 {
			continue
		}
		if math.Abs(got-tt.want) > 1e-6 || math.IsNaN(got) {
			t.Errorf("%s%v is %v, want %v", tt.metric, tt.labels, got, tt.want)
		}
	}
	if at := value("pfar_last_call_timestamp_seconds", "server", "notion"); math.Abs(at-float64(tel.born.Unix())) > 60 {
		t.Errorf("the last call was at %v", at)
	}
	for _, never := range []string{"secret-client", "ghost", "\x1b", "\xff"} {
		if strings.Contains(body, never) {
			t.Errorf("%q is in the metrics", never)
		}
	}
	tel.Forget("notion")
	if value, _ := scrape(t, tel); !math.IsNaN(value("pfar_calls_total", append(call, "outcome", "ok")...)) {
		t.Error("a server that was forgotten is still shown")
	}
}

// TestMetricsBounded: however many names there are, a scrape stays of one size.
func TestMetricsBounded(t *testing.T) {
	tel := fresh(t)
	for i := range 3 * maxNames {
		tel.call(Call{Server: "s", Method: "tools/call", Name: "tool-" + time.Duration(i).String()}, OK)
	}
	_, body := scrape(t, tel)
	if n := strings.Count(body, "pfar_tool_calls_total{"); n != maxNames+1 {
		t.Errorf("%d series of tools, want %d", n, maxNames+1)
	}
}

func TestServeMetrics(t *testing.T) {
	tel := fresh(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := tel.ServeMetrics(l.(*net.TCPListener))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, tt := range []struct {
		name, method, path, host string
		origin                   string
		code                     int
	}{
		{"as it should be", "GET", "/metrics", "", "", 200},
		{"by name", "GET", "/metrics", "LocalHost:" + port, "", 200},
		{"by the other address", "GET", "/metrics", "[::1]:" + port, "", 200},
		{"with a query", "GET", "/metrics?x=y", "", "", 200},
		{"rebound name", "GET", "/metrics", "evil.example:" + port, "", 403},
		{"rebound name without a port", "GET", "/metrics", "evil.example", "", 403},
		{"without a port", "GET", "/metrics", "127.0.0.1", "", 403},
		{"other port", "GET", "/metrics", "127.0.0.1:1", "", 403},
		{"name that begins like ours", "GET", "/metrics", "127.0.0.1.evil.example:" + port, "", 403},
		{"name that ends like ours", "GET", "/metrics", "evil.localhost:" + port, "", 403},
		{"a page", "GET", "/metrics", "", "http://localhost:" + port, 403},
		{"a page of nowhere", "GET", "/metrics", "", "null", 403},
		{"elsewhere", "GET", "/", "", "", 404},
		{"below", "GET", "/metrics/", "", "", 404},
		{"profiles", "GET", "/debug/pprof/", "", "", 404},
		{"write", "POST", "/metrics", "", "", 405},
		{"head", "HEAD", "/metrics", "", "", 405},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequest(tt.method, "http://"+l.Addr().String()+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.host != "" {
				r.Host = tt.host
			}
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tt.code {
				t.Errorf("%d, want %d: %v", resp.StatusCode, tt.code, err)
			}
			if shown := strings.Contains(string(b), "pfar_build_info"); shown != (tt.code == 200) {
				t.Errorf("metrics are shown: %v", shown)
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestServeMetricsOnlyOnLoopback(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := fresh(t).ServeMetrics(l.(*net.TCPListener)); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("got %v", err)
	}
}

// TestOwnHostWithoutPort: port 80 is not written (RFC 9110 section 7.2).
func TestOwnHostWithoutPort(t *testing.T) {
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 80}
	for host, want := range map[string]bool{
		"127.0.0.2": true, "127.0.0.2:80": true, "localhost": true, "[::1]": true, "": false, "::1": false, "127.0.0.3": false, ":80": false,
	} {
		if got := ownHost(host, addr); got != want {
			t.Errorf("%q is ours: %v, want %v", host, got, want)
		}
	}
}
