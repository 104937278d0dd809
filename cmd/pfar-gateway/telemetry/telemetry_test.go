package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	for _, e := range os.Environ() { // the tests' own collector is not to hear of this
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "OTEL_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// fresh returns a Telemetry that the test's own environment has no say in.
func fresh(t testing.TB) *Telemetry {
	t.Helper()
	t.Setenv(envEndpoint, "")
	t.Setenv(envTracesEndpoint, "")
	tel := New(context.Background(), silent(), "1.2.3")
	return tel
}

func (t *Telemetry) call(c Call, o Outcome) {
	_, r := t.Begin(context.Background(), c)
	r.End(o, 0, 10)
}

func TestStats(t *testing.T) {
	tel := fresh(t)
	tel.Gauges(func() []Gauge {
		return []Gauge{
			{Server: "notion", Up: true, Tools: 24, Held: 2, Queue: 1, Sessions: 3, Faults: map[string]uint64{"noise": 7}},
			{Server: "idle", Up: true, Tools: 1},
			{Server: "idle", Tools: 99},
		}
	})
	for o, n := range map[Outcome]int{OK: 5, ToolError: 4, Refused: 3, Failed: 2, Cancelled: 1, outcomes: 1, 255: 1} {
		for range n {
			tel.call(Call{Server: "notion", Method: "tools/call", Name: "search"}, o)
		}
	}
	_, open := tel.Begin(context.Background(), Call{Server: "notion", Method: "subscriptions/listen"})
	tel.call(Call{Method: "initialize"}, OK)
	stats := tel.Stats()
	if len(stats) != 3 || stats[0].Server != "" || stats[1].Server != "idle" || stats[2].Server != "notion" {
		t.Fatalf("got %+v", stats)
	}
	if s := stats[1]; s.Tools != 1 || !s.Up || s.Total.Calls != 0 || !s.LastCall.IsZero() {
		t.Errorf("got %+v", s)
	}
	s := stats[2]
	want := Period{Calls: 17, OK: 5, ToolError: 4, Refused: 3, Failed: 4, Cancelled: 1}
	for name, p := range map[string]Period{"minute": s.Minute, "total": s.Total} {
		if p.P50 <= 0 || p.P50 > p.P95 || p.P95 > p.P99 || p.P99 > p.Max || p.Seconds <= 0 {
			t.Errorf("%s: %+v", name, p)
		}
		p.P50, p.P95, p.P99, p.Max, p.Seconds = 0, 0, 0, 0, 0
		if p != want {
			t.Errorf("%s: got  %+v\nwant %+v", name, p, want)
		}
	}
	if s.InFlight != 1 || s.Bytes != 170 || s.Tools != 24 || s.Held != 2 || s.Queue != 1 || s.Sessions != 3 || s.Faults["noise"] != 7 || time.Since(s.LastCall) > time.Minute {
		t.Errorf("got %+v", s)
	}
	before := s.Total.Max
	open.start = open.start.Add(-time.Hour)
	open.End(OK, 0, 0)
	if s := tel.Stats()[2]; s.InFlight != 0 || s.Total.Calls != 18 || s.Total.Max != before {
		t.Errorf("after a stream of an hour: %+v", s)
	}
}

func TestNilCountsNothing(t *testing.T) {
	var tel *Telemetry
	ctx, r := tel.Begin(t.Context(), Call{Server: "x"})
	r.End(OK, 0, 0)
	tel.Forget("x")
	tel.Gauges(nil)
	if ctx != t.Context() || r.Traceparent() != "" || tel.Stats() != nil || tel.Close(ctx) != nil {
		t.Error("a nil Telemetry does something")
	}
}

// TestMinute moves the clock: what is older than a minute is forgotten, what is younger is not.
func TestMinute(t *testing.T) {
	const ms = time.Millisecond
	type call struct{ at, took time.Duration }
	every := func(step time.Duration, from, to time.Duration) (list []call) {
		for at := from; at < to; at += step {
			list = append(list, call{at, ms})
		}
		return list
	}
	tests := []struct {
		name        string
		calls       []call
		now         time.Duration
		least, most uint32 // calls within the minute before now; an interval more may be told
		length      [2]time.Duration
	}{
		{"nothing yet", nil, 10 * time.Second, 0, 0, [2]time.Duration{10 * time.Second, 10 * time.Second}},
		{"young", every(time.Second, time.Second, 10*time.Second), 10 * time.Second, 9, 9, [2]time.Duration{10 * time.Second, 10 * time.Second}},
		{"steady for long", every(time.Second, time.Second, 1000*time.Second), 1000 * time.Second, 59, 66, [2]time.Duration{window, window + interval + time.Second}},
		{"idle since", every(time.Second, time.Second, 100*time.Second), 200 * time.Second, 0, 0, [2]time.Duration{window, window}},
		{"one after long", append(every(time.Second, time.Second, 100*time.Second), call{500 * time.Second, ms}), 501 * time.Second, 1, 1, [2]time.Duration{window, window}},
		{"one each 50 s", every(50*time.Second, time.Second, 1000*time.Second), 1000 * time.Second, 1, 2, [2]time.Duration{window, window + interval}},
		{"one each 7 s", every(7*time.Second, time.Second, 1000*time.Second), 1000 * time.Second, 8, 10, [2]time.Duration{window, window + interval + 7*time.Second}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer("x")
			for _, c := range tt.calls {
				s.inFlight.Add(1)
				s.ended(toolsCall, OK, c.took, c.at, 0)
			}
			got, length := s.recent(tt.now)
			if n := got.ended[OK]; n < tt.least || n > tt.most {
				t.Errorf("%d calls, want %d to %d", n, tt.least, tt.most)
			}
			var inBuckets uint32
			for _, n := range got.latency {
				inBuckets += n
			}
			if inBuckets != got.ended[OK] {
				t.Errorf("%d calls, %d latencies", got.ended[OK], inBuckets)
			}
			if length < tt.length[0] || length > tt.length[1] {
				t.Errorf("over %v, want %v to %v", length, tt.length[0], tt.length[1])
			}
		})
	}
}

// TestSlowCallIsForgotten: a bad minute does not stay in the last minute's quantiles.
func TestSlowCallIsForgotten(t *testing.T) {
	s := newServer("x")
	s.ended(toolsCall, Failed, 30*time.Second, 40*time.Second, 0)
	for at := 41 * time.Second; at < 130*time.Second; at += time.Second {
		s.ended(toolsCall, OK, time.Millisecond, at, 0)
	}
	got, _ := s.recent(130 * time.Second)
	most := time.Duration(s.longest.Load())
	if most != 30*time.Second || got.ended[Failed] != 0 || got.latency.longest(most) > 2*time.Millisecond {
		t.Errorf("got %v, %v", got.ended, got.latency.longest(most))
	}
}

func TestCardinality(t *testing.T) {
	t.Run("tools", func(t *testing.T) {
		tel := fresh(t)
		for i := range maxNames + 50 {
			tel.call(Call{Server: fmt.Sprintf("s%d", i%3), Method: "tools/call", Name: fmt.Sprintf("t%d", i)}, OK)
		}
		if n, o := tel.toolsAndOthers(); n != maxNames || o != 50 {
			t.Errorf("%d tools have counters, %d calls are of others", n, o)
		}
		tel.Forget("s0")
		for i := range maxNames {
			tel.call(Call{Server: "s1", Method: "tools/call", Name: fmt.Sprintf("u%d", i)}, OK)
		}
		if n, _ := tel.toolsAndOthers(); n != maxNames {
			t.Errorf("after a server was forgotten %d tools have counters", n)
		}
	})
	t.Run("names that only a client says", func(t *testing.T) {
		tel := fresh(t)
		for i := range 100 {
			tel.call(Call{Server: "s", Method: "tools/call", Name: fmt.Sprintf("t%d", i)}, Refused)
			tel.call(Call{Server: "s", Method: "tools/call", Name: fmt.Sprintf("t%d", i)}, Cancelled)
			tel.call(Call{Server: "s", Method: fmt.Sprintf("m%d", i), Name: "x"}, Refused)
		}
		for _, name := range []string{strings.Repeat("x", maxLabel+1), "\xff\xfe", otherName} {
			tel.call(Call{Server: "s", Method: "tools/call", Name: name}, OK)
		}
		if n, o := tel.toolsAndOthers(); n != 0 || o != 203 {
			t.Errorf("%d tools have counters, %d calls are of others", n, o)
		}
		if got := tel.server("s").methods[otherMethod].ended[Refused].Load(); got != 100 {
			t.Errorf("%d calls of other methods, want 100", got)
		}
	})
	t.Run("servers", func(t *testing.T) {
		tel := fresh(t)
		for i := range maxServers + 100 {
			tel.call(Call{Server: fmt.Sprintf("s%d", i), Method: "ping"}, OK)
		}
		tel.call(Call{Server: "\xff", Method: "ping"}, OK)
		if n := len(tel.Stats()); n != maxServers+1 {
			t.Errorf("%d servers have counters", n)
		}
		if got := tel.server(otherName).totals()[OK]; got != 101 {
			t.Errorf("%d calls are of other servers, want 101", got)
		}
	})
}

func (t *Telemetry) toolsAndOthers() (tools int, others uint64) {
	for _, s := range *t.servers.Load() {
		tools += len(*s.tools.Load())
		for o := range s.others.ended {
			others += s.others.ended[o].Load()
		}
	}
	return tools, others
}

// TestForgetInFlight: a call outlives its server's counters.
func TestForgetInFlight(t *testing.T) {
	tel := fresh(t)
	_, r := tel.Begin(t.Context(), Call{Server: "s", Method: "tools/call", Name: "t"})
	tel.Forget("s")
	tel.Forget("s")
	r.End(OK, 0, 0)
	if len(tel.Stats()) != 0 || tel.names != 0 {
		t.Errorf("got %+v, %d names", tel.Stats(), tel.names)
	}
}

// TestConcurrent is for the race detector, and counts that nothing is lost.
func TestConcurrent(t *testing.T) {
	tel := fresh(t)
	tel.Gauges(func() []Gauge { return []Gauge{{Server: "s0", Up: true}} })
	const workers, each = 8, 500
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					tel.Stats()
					tel.Forget("gone")
				}
			}
		})
	}
	var callers sync.WaitGroup
	for w := range workers {
		callers.Go(func() {
			for i := range each {
				tel.call(Call{Server: fmt.Sprintf("s%d", i%3), Method: "tools/call", Name: fmt.Sprintf("t%d", (i+w)%40)}, OK)
				tel.call(Call{Server: "gone", Method: "tools/call", Name: "t"}, OK)
			}
		})
	}
	callers.Wait()
	close(stop)
	all.Wait()
	var calls, ofTools uint64
	for name, s := range *tel.servers.Load() {
		if name == "gone" {
			continue
		}
		calls += s.totals()[OK]
		for _, c := range *s.tools.Load() {
			ofTools += c.ended[OK].Load()
		}
		if s.inFlight.Load() != 0 {
			t.Errorf("%s: %d in flight", name, s.inFlight.Load())
		}
	}
	if calls != workers*each || ofTools != workers*each {
		t.Errorf("%d calls and %d of tools, want %d", calls, ofTools, workers*each)
	}
}

// TestStatsNeverRunBackwards: a snapshot that is taken meanwhile is not newer than what it is taken from.
func TestStatsNeverRunBackwards(t *testing.T) {
	s := newServer("x")
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range 2000 {
				s.ended(toolsCall, OK, time.Millisecond, time.Duration(i)*interval, 0)
			}
		})
	}
	done := make(chan struct{})
	go func() { callers.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		for i := range 2000 {
			got, _ := s.recent(time.Duration(i) * interval)
			if got.ended[OK] > 8000 {
				t.Fatalf("%d calls in the last minute", got.ended[OK])
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	tel := fresh(t)
	ctx := context.Background()
	c := Call{Server: "notion", Method: "tools/call", Name: "search", Client: "token", Request: RequestID()}
	tel.call(c, OK)
	if n := testing.AllocsPerRun(1000, func() {
		_, r := tel.Begin(ctx, c)
		r.End(OK, 0, 100)
	}); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}

func TestStatsHandler(t *testing.T) {
	tel := fresh(t)
	tel.call(Call{Server: "notion", Method: "tools/call", Name: "search"}, OK)
	get := func(method string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		tel.StatsHandler().ServeHTTP(w, httptest.NewRequest(method, "/stats", nil))
		return w
	}
	w := get("GET")
	var got struct {
		Time    time.Time
		Servers []ServerStats
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Servers) != 1 || got.Servers[0].Minute.OK != 1 || got.Time.IsZero() {
		t.Errorf("got %s, %v", w.Body, err)
	}
	if w := get("POST"); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
	if w := httptest.NewRecorder(); true {
		fresh(t).StatsHandler().ServeHTTP(w, httptest.NewRequest("GET", "/stats", nil))
		if !strings.Contains(w.Body.String(), `"servers":[]`) {
			t.Errorf("without servers: %s", w.Body)
		}
	}
}

func TestRequestID(t *testing.T) {
	seen := sync.Map{}
	form := regexp.MustCompile(`^[a-z2-7]{6}-[0-9a-z]{1,13}$`)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				id := RequestID()
				if _, twice := seen.LoadOrStore(id, true); twice || !form.MatchString(id) {
					t.Errorf("got %q, twice: %v", id, twice)
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkCall(b *testing.B) {
	tel := fresh(b)
	ctx := context.Background()
	c := Call{Server: "notion", Method: "tools/call", Name: "search", Client: "token", Request: "k3x7qa-1f"}
	b.ReportAllocs()
	for b.Loop() {
		_, r := tel.Begin(ctx, c)
		r.End(OK, 0, 100)
	}
}

func BenchmarkCallParallel(b *testing.B) {
	tel := fresh(b)
	ctx := context.Background()
	c := Call{Server: "notion", Method: "tools/call", Name: "search", Client: "token", Request: "k3x7qa-1f"}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			_, r := tel.Begin(ctx, c)
			r.End(OK, 0, 100)
		}
	})
}

func BenchmarkRequestID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		RequestID()
	}
}
