package telemetry

import (
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("pfar_"+name, help, labels, nil)
}

// What /metrics shows beside the Go runtime and the process. Labels are bounded: server is a declared one, tool one
// that has answered, and clients are none.
var (
	descBuild    = desc("build_info", "Always 1; the version is the label.", "version")
	descCalls    = desc("calls_total", "Calls that have ended.", "server", "method", "outcome")
	descDuration = desc("call_duration_seconds", "From a call's arrival to its end.", "server", "method")
	descTools    = desc("tool_calls_total", "Calls of tools that have ended.", "server", "tool", "outcome")
	descSeconds  = desc("tool_call_seconds_total", "Time that calls of tools took, all together.", "server", "tool")
	descBytes    = desc("result_bytes_total", "Size of results and errors.", "server")
	descInFlight = desc("calls_in_flight", "Calls that have begun and not ended.", "server")
	descLast     = desc("last_call_timestamp_seconds", "When the last call ended.", "server")
	descUp       = desc("server_up", "Whether the server is served.", "server")
	descServed   = desc("server_tools", "Tools that are served.", "server")
	descHeld     = desc("server_definitions_held", "Definitions that wait for acceptance.", "server")
	descQueue    = desc("server_queue", "Calls that wait for others to end.", "server")
	descWaiting  = desc("server_requests_in_flight", "Requests that the server has not answered.", "server")
	descSessions = desc("server_sessions", "Processes of the server that serve one session alone.", "server")
	descLeaks    = desc("redactions_total", "Secrets that were replaced in what the server said.", "server")
	descFaults   = desc("server_faults_total", "What the server did wrong, by kind.", "server", "kind")
)

// maxFaults is how many kinds of faults a server can have.
const maxFaults = 64

// exposition collects for Prometheus.
type exposition struct{ t *Telemetry }

func (e exposition) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descBuild, descCalls, descDuration, descTools, descSeconds, descBytes, descInFlight, descLast,
		descUp, descServed, descHeld, descQueue, descWaiting, descSessions, descLeaks, descFaults,
	} {
		to <- d
	}
}

func (e exposition) Collect(to chan<- prometheus.Metric) {
	to <- constant(descBuild, prometheus.GaugeValue, 1, text(e.t.version))
	for name, s := range *e.t.servers.Load() {
		e.calls(to, name, s)
		for tool, c := range *s.tools.Load() {
			toolMetrics(to, name, tool, c)
		}
		toolMetrics(to, name, otherName, &s.others)
	}
	for name, g := range e.t.pull() {
		if label(name) {
			gauges(to, name, g)
		}
	}
}

// calls shows the methods that were called.
func (e exposition) calls(to chan<- prometheus.Metric, name string, s *server) {
	for m := range s.methods {
		series := &s.methods[m]
		if !ended(to, descCalls, &series.ended, name, methodNames[m]) || method(m) == listen {
			continue
		}
		cumulative := make(map[float64]uint64, len(bounds))
		var count uint64
		for i := range series.buckets {
			count += series.buckets[i].Load()
			if i < len(bounds) {
				cumulative[bounds[i].Seconds()] = count
			}
		}
		sum := time.Duration(series.nanos.Load()).Seconds()
		to <- prometheus.MustNewConstHistogram(descDuration, count, sum, cumulative, name, methodNames[m])
	}
	to <- constant(descBytes, prometheus.CounterValue, float64(s.bytes.Load()), name)
	to <- constant(descInFlight, prometheus.GaugeValue, float64(max(0, s.inFlight.Load())), name)
	if last := s.last.Load(); last > 0 {
		at := e.t.born.Add(time.Duration(last))
		to <- constant(descLast, prometheus.GaugeValue, float64(at.UnixMilli())/1000, name)
	}
}

func toolMetrics(to chan<- prometheus.Metric, server, name string, c *tool) {
	if ended(to, descTools, &c.ended, server, name) {
		to <- constant(descSeconds, prometheus.CounterValue, time.Duration(c.nanos.Load()).Seconds(), server, name)
	}
}

// ended shows the outcomes that there were and reports whether there was one.
func ended(to chan<- prometheus.Metric, d *prometheus.Desc, counts *[outcomes]atomic.Uint64, labels ...string) bool {
	some := false
	for o := range counts {
		if n := counts[o].Load(); n > 0 {
			some = true
			to <- constant(d, prometheus.CounterValue, float64(n), append(slices.Clone(labels), Outcome(o).String())...)
		}
	}
	return some
}

func gauges(to chan<- prometheus.Metric, name string, g Gauge) {
	up := 0
	if g.Up {
		up = 1
	}
	for _, v := range []struct {
		desc  *prometheus.Desc
		value int
	}{
		{descUp, up}, {descServed, g.Tools}, {descHeld, g.Held}, {descQueue, g.Queue}, {descWaiting, g.InFlight}, {descSessions, g.Sessions},
	} {
		to <- constant(v.desc, prometheus.GaugeValue, float64(v.value), name)
	}
	var leaks uint64
	for _, n := range g.Leaks {
		leaks += n
	}
	to <- constant(descLeaks, prometheus.CounterValue, float64(leaks), name)
	kinds := slices.Sorted(maps.Keys(g.Faults))
	for _, kind := range kinds[:min(len(kinds), maxFaults)] {
		if label(kind) {
			to <- constant(descFaults, prometheus.CounterValue, float64(g.Faults[kind]), name, kind)
		}
	}
}

// constant panics only if labels and description do not fit, or if a label is not UTF-8, which label has checked.
func constant(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, kind, value, labels...)
}

// Metrics answers a scrape, in the text format of Prometheus or of OpenMetrics.
func (t *Telemetry) Metrics() http.Handler {
	registry := prometheus.NewPedanticRegistry()
	live := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)} // grows if something is never let go
	registry.MustRegister(exposition{t}, collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(live)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slogPrinter{t.log},
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
		EnableOpenMetrics:   true,
	})
}

// slogPrinter takes promhttp's errors.
type slogPrinter struct{ log *slog.Logger }

func (p slogPrinter) Println(v ...any) {
	var words []string
	for _, x := range v {
		if err, ok := x.(error); ok {
			words = append(words, err.Error())
		} else if s, ok := x.(string); ok {
			words = append(words, s)
		}
	}
	p.log.Warn("showing metrics, ignoring", "error", strings.Join(words, " "))
}
