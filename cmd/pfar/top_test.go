package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/term"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/processes/processestest"
)

// fakeProc makes a directory like /proc of processes, whose parents and names are given, and which each have 100 KiB
// of their own, and have used pid hundredths of a second.
func fakeProc(t *testing.T, list ...[2]any) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(list); i++ {
		pid, parent := list[i][0].(int), list[i][1].(int)
		processestest.Make(t, dir, pid, parent, "node) S 1 (x", pid)
	}
	return dir
}

// statistician answers as the gateway does on the operator's socket, with whatever a test puts into it.
type statistician struct {
	mu   sync.Mutex
	body string
	code int
}

func (s *statistician) set(code int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.body = code, body
}

func (s *statistician) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path != "/stats" || r.Method != http.MethodGet {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.WriteHeader(s.code)
	fmt.Fprint(w, s.body)
}

const someStats = `{"time":"2026-08-01T12:00:00Z","servers":[
{"server":"","in_flight":0,"last_minute":{"seconds":60,"calls":6,"ok":6,"p50":0.00004,"p99":0.00009,"max":0.0001},"total":{"seconds":600,"calls":9}},
{"server":"ghost","in_flight":1,"last_minute":{"seconds":60,"calls":6},"total":{"calls":9}},
{"server":"notion","held":2,"in_flight":3,"last_minute":{"seconds":60,"calls":1200,"ok":1190,"tool_error":1,"refused":2,"failed":4,"cancelled":3,
 "p50":0.0123,"p95":0.2,"p99":1.5,"max":2},"total":{"seconds":600,"calls":5000,"tool_error":10,"refused":20,"failed":40,"p50":0.01,"p99":1}}]}`

func topReport() control.Report {
	r := sampleReport(time.Now())
	r.Servers[0].Name = "fs\x1b[2J"
	r.Servers[1].Sessions = []control.Session{{Handle: "h", State: control.Running, PID: 20}, {Handle: "i", State: control.Starting}}
	return r
}

// newTop is a bench with servers, statistics and processes; each sample is a second after the last.
func newTop(t *testing.T) (*bench, *statistician, topOptions) {
	t.Helper()
	return newTopOf(t, topReport())
}

func newTopOf(t *testing.T, r control.Report) (*bench, *statistician, topOptions) {
	t.Helper()
	b := newBench(t, "")
	b.pfard(t, r, nil)
	s := &statistician{code: 200, body: someStats}
	b.serveOperator(t, s)
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	b.now = func() time.Time { now = now.Add(time.Second); return now }
	// 7 and 20 are launchers, 30 and below somebody else's.
	proc := fakeProc(t, [2]any{1, 0}, [2]any{7, 1}, [2]any{8, 7}, [2]any{9, 8}, [2]any{10, 8}, [2]any{20, 1}, [2]any{21, 20}, [2]any{30, 1}, [2]any{31, 30})
	return b, s, topOptions{once: true, sort: byName, interval: time.Millisecond, proc: proc}
}

func TestTopOnce(t *testing.T) {
	b, _, o := newTop(t)
	if err := (topVerb{b.pfar}).top(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := `NAME       STATE    CALLS/S  ACTIVE    P50    P99  ERRORS   MEMORY  CPU  SESSIONS
fs\x1b[2J  failed       0.0       0      -      -       0        -    -         0
notion     running       20       3  12 ms  1.5 s       7  400 KiB    -         2
(gateway)               0.1       0  40 us  90 us       0        -    -         0
`
	if b.out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.out, want)
	}
}

// TestTopElsewhere: the table is as it would be without servers that pfar does not start, and tells where they are
// below.
func TestTopElsewhere(t *testing.T) {
	r := topReport()
	r.Servers[0].Attached = "/run/fs/\x1b[2J.sock"
	r.Servers[1].URL = "https://mcp.notion.example:8443/mcp?key=1"
	b, _, o := newTopOf(t, r)
	if err := (topVerb{b.pfar}).top(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	const want = "\n(gateway)               0.1       0  40 us  90 us       0        -    -         0\n" +
		`elsewhere: fs\x1b[2J at /run/fs/\x1b[2J.sock, notion at mcp.notion.example:8443` + "\n"
	if !strings.HasSuffix(b.out.String(), want) {
		t.Errorf("got:\n%s\nwant at its end:\n%s", b.out, want)
	}
}

func TestTopJSON(t *testing.T) {
	b, _, o := newTop(t)
	b.output = "json"
	if err := (topVerb{b.pfar}).top(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.out.String(), "\x1b") {
		t.Errorf("a control character is printed: %q", b.out)
	}
	var got topTable
	if err := json.Unmarshal(b.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Servers) != 2 || got.Gateway == nil || got.Gateway.Recent != 6 || got.Problem != "" || got.Time.IsZero() {
		t.Fatalf("got %+v", got)
	}
	n := got.Servers[1]
	if n.Memory == nil || *n.Memory != 400<<10 || n.CPU != nil || got.Servers[0].Memory != nil {
		t.Errorf("memory %v, CPU %v", n.Memory, n.CPU)
	}
	n.Memory = nil
	want := topServer{
		Name: "notion", State: control.Running, Tools: 24, Held: 2, Rate: 20, InFlight: 3, Recent: 1200, Errors: 7,
		P50: 0.0123, P99: 1.5, Max: 2, topTotal: topTotal{Total: 5000, Failures: 70}, Sessions: 2,
	}
	if n != want {
		t.Errorf("got  %+v\nwant %+v", n, want)
	}
}

// TestTopRates: the second sample knows what happened since the first, and a gateway that began anew is no negative
// rate.
func TestTopRates(t *testing.T) {
	b, s, o := newTop(t)
	v := &topView{pfar: b.pfar, topOptions: o, client: b.socketHTTP(b.dirs.Operator())}
	sample := func() topServer {
		t.Helper()
		table, err := v.sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		v.order(table.Servers)
		return table.Servers[1]
	}
	stats := func(calls int) string {
		return fmt.Sprintf(`{"servers":[{"server":"notion","last_minute":{"seconds":50,"calls":100},"total":{"calls":%d}}]}`, calls)
	}
	s.set(200, stats(1000))
	if got := sample(); got.Rate != 2 || got.CPU != nil {
		t.Errorf("at first: %v calls/s, CPU %v", got.Rate, got.CPU)
	}
	s.set(200, stats(1030))
	processestest.Make(t, o.proc, 9, 8, "node", 9+25)
	if got := sample(); got.Rate != 30 || got.CPU == nil || *got.CPU != 0.25 {
		t.Errorf("then: %v calls/s, CPU %v", got.Rate, got.CPU)
	}
	s.set(200, stats(5))
	if err := os.RemoveAll(filepath.Join(o.proc, "9")); err != nil {
		t.Fatal(err)
	}
	if got := sample(); got.Rate != 2 || *got.CPU != 0 || *got.Memory != 300<<10 {
		t.Errorf("after a restart: %v calls/s, CPU %v, memory %d", got.Rate, *got.CPU, *got.Memory)
	}
}

// TestTopWithoutTerminal measures twice.
func TestTopWithoutTerminal(t *testing.T) {
	b, _, o := newTop(t)
	o.once = false
	if err := (topVerb{b.pfar}).top(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.out.String(), "notion     running      0.0       3  12 ms  1.5 s       7  400 KiB   0%         2\n") {
		t.Errorf("got:\n%s", b.out)
	}
}

func TestTopFails(t *testing.T) {
	b := newBench(t, "")
	if code := b.run(t.Context(), []string{"top", "--once"}); code != exitNotRunning {
		t.Errorf("without pfard: exit %d, %s", code, b.err)
	}
	for name, c := range map[string]struct {
		code    int
		body    string
		problem string
	}{
		"another version": {404, "", `the gateway answers "404 Not Found": ` +
			`pfar and pfar-gateway may be of different versions`},
		"nonsense":   {200, "\x1b[2J", `reading its answer: invalid character '\x1b'`},
		"half of it": {200, someStats[:100], "reading its answer: unexpected EOF"},
		"endless":    {200, `{"servers":[{"server":"` + strings.Repeat("x", maxStats), "reading its answer: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			b, s, _ := newTop(t)
			s.set(c.code, c.body)
			code := b.run(t.Context(), []string{"top", "--once"})
			for n := 0; n < 20 && strings.Contains(b.err.String(), "does not answer within"); n++ { // as on a busy machine
				b.err.Reset()
				code = b.run(t.Context(), []string{"top", "--once"})
			}
			if code != exitFailed || !strings.Contains(b.err.String(), c.problem) || strings.Contains(b.err.String(), "\x1b") {
				t.Errorf("exit %d, %q, want %q", code, b.err, c.problem)
			}
			if !strings.Contains(b.out.String(), "notion") {
				t.Errorf("what pfard knows is not shown: %s", b.out)
			}
		})
	}
	b, _, _ = newTop(t)
	if code := b.run(t.Context(), []string{"top", "--sort", "x"}); code != exitUsage || !strings.Contains(b.err.String(), "want one of name, calls") {
		t.Errorf("exit %d, %s", code, b.err)
	}
}

// TestTopInterrupted: Ctrl-C ends the second before a table is printed.
func TestTopInterrupted(t *testing.T) {
	b, _, _ := newTop(t)
	ctx, cancel := context.WithCancel(t.Context())
	tick := b.now
	b.now = func() time.Time { cancel(); return tick() } // after the first sample
	if code := b.run(ctx, []string{"top"}); code != exitInterrupted || b.out.Len() > 0 {
		t.Errorf("exit %d, %s", code, b.out)
	}
}

func TestTopOrder(t *testing.T) {
	number := func(n uint64) *uint64 { return &n }
	share := func(n float64) *float64 { return &n }
	servers := []topServer{
		{Name: "a", Rate: 1, InFlight: 3, P50: 5, P99: 1, Errors: 2, Memory: number(7), Sessions: 1},
		{Name: "b", Rate: 3, InFlight: 1, P50: 5, P99: 2, Errors: 2, CPU: share(.5), Sessions: 1},
		{Name: "c", Rate: 2, InFlight: 2, P50: 6, P99: 3, Errors: 3, Memory: number(9), CPU: share(.6), Sessions: 0},
	}
	for key, want := range map[string]string{
		"n": "abc", "c": "bca", "a": "acb", "p": "cab", "l": "cba", "e": "cab", "m": "cab", "u": "cba", "s": "abc", "x": "abc", "": "abc",
	} {
		v := &topView{topOptions: topOptions{sort: byName}}
		if !v.pressed(key) {
			t.Errorf("%q ends", key)
		}
		for _, turned := range []bool{false, true} {
			v.order(servers)
			got := servers[0].Name + servers[1].Name + servers[2].Name
			if turned {
				got = string([]byte{got[2], got[1], got[0]})
			}
			if got != want {
				t.Errorf("%q, turned %v: %s, want %s", key, turned, got, want)
			}
			v.pressed("r")
		}
	}
	for _, key := range []string{"q", "Q", "ctrl+c", "ctrl+d"} {
		if new(topView).pressed(key) {
			t.Errorf("%q does not end", key)
		}
	}
}

func TestTopNumbers(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0.0 us", 0.000001: "1.0 us", 0.00001234: "12 us", 0.0009994: "999 us", 0.0009996: "1.0 ms", 0.00994: "9.9 ms", 0.5: "500 ms",
		0.9996: "1.0 s", 12.34: "12.3 s", 99.96: "100 s", 3600: "3600 s",
	} {
		if got := latency(seconds); got != want {
			t.Errorf("%v s is %q, want %q", seconds, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0.0", 0.04: "0.0", 9.94: "9.9", 9.96: "10", 12345.6: "12346"} {
		if got := rate(n); got != want {
			t.Errorf("%v/s is %q, want %q", n, got, want)
		}
	}
}

// TestTopOnTerminal draws, sorts, keeps to the size, and leaves the terminal as it was.
func TestTopOnTerminal(t *testing.T) {
	screen, program := newScreen(t, 60, 8)
	b, s, o := newTop(t)
	o.once, o.interval = false, 5*time.Millisecond
	b.stdin, b.stdout = program, program
	b.getenv = variables(b.getenv, map[string]string{"TERM": "xterm-256color"})
	before, err := term.GetState(int(program.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- topVerb{b.pfar}.top(t.Context(), o) }()
	screen.await(t, "1 of 2 servers run")
	screen.await(t, "and 2 more")
	if text := screen.String(); strings.Contains(text, "MEMORY") || strings.Contains(text, "notion") {
		t.Errorf("more is shown than fits: %s", text)
	}
	screen.resize(t, 120, 20)
	screen.await(t, "12 ms")
	s.set(500, "")
	screen.await(t, `no calls are shown: the gateway answers "500 Internal`)
	s.set(200, someStats)
	screen.press(t, "m")
	screen.awaitStyled(t, "\x1b[1;4mMEMORY")
	screen.press(t, "r")
	screen.await(t, "fs\\x1b[2J")
	screen.press(t, "\x03")
	screen.awaitLeft(t)
	if err := <-done; err != nil {
		t.Error(err)
	}
	after, err := term.GetState(int(program.Fd()))
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %v", err)
	}
}

// TestTopOutlivesPfard: it says so, and goes on when there is one again; a signal ends it and leaves the terminal
// clean.
func TestTopOutlivesPfard(t *testing.T) {
	screen, program := newScreen(t, 120, 20)
	b, _, o := newTop(t)
	o.once, o.interval = false, 5*time.Millisecond
	b.stdin, b.stdout = program, program
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- topVerb{b.pfar}.top(ctx, o) }()
	screen.await(t, "12 ms")
	away := b.dirs.Control() + ".away"
	if err := os.Rename(b.dirs.Control(), away); err != nil {
		t.Fatal(err)
	}
	screen.await(t, "pfar does not run")
	if err := os.Rename(away, b.dirs.Control()); err != nil {
		t.Fatal(err)
	}
	screen.await(t, "12 ms")
	cancel()
	screen.awaitLeft(t)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestTopSaysWhyPlainly: what HTTP says around it is left out.
func TestTopSaysWhyPlainly(t *testing.T) {
	b, _, o := newTop(t)
	if err := os.Chmod(b.dirs.Run, 0o777); err != nil { // a directory in which anybody may listen
		t.Fatal(err)
	}
	if err := (topVerb{b.pfar}).top(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "reading the gateway's statistics: permission denied: ") {
		t.Errorf("got %v", err)
	}
}
