package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/monitor"
)

// golden compares got with a file of an archive in testdata.
func golden(t *testing.T, archive, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", archive)
	b, err := os.ReadFile(path)
	if err != nil && !(*update && errors.Is(err, os.ErrNotExist)) {
		t.Fatal(err)
	}
	a := txtar.Parse(b)
	i := slices.IndexFunc(a.Files, func(f txtar.File) bool { return f.Name == name })
	if *update {
		if i < 0 {
			a.Files, i = append(a.Files, txtar.File{Name: name}), len(a.Files)
		}
		a.Files[i].Data = []byte(got)
		if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if i < 0 {
		t.Fatalf("%s has no file %q", path, name)
	}
	if want := string(a.Files[i].Data); got != want {
		t.Errorf("%s, %s: got:\n%s\nwant:\n%s", path, name, got, want)
	}
}

// bridge serves a table where the egress bridge of a server listens, until stop or the test's end.
func (b *bench) bridge(t *testing.T, name string, table *monitor.Table) (stop func()) {
	t.Helper()
	path := b.dirs.Egress(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l := b.listen(t, path)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				if err := table.Serve(ctx, c); err != nil {
					t.Errorf("Serve: %v", err)
				}
			})
		}
	})
	stop = sync.OnceFunc(func() { l.Close(); cancel(); serving.Wait() })
	t.Cleanup(stop)
	return stop
}

func denied(at time.Time, path monitor.Path, protocol, host, reason string) monitor.Connection {
	return monitor.Connection{Time: at, Path: path, Protocol: protocol, Host: host, Verdict: "deny", Reason: reason}
}

// sampleTable has one of each kind. A bridge's word is never obeyed.
func sampleTable(now time.Time) *monitor.Table {
	table := monitor.NewTable("")
	allowed := func(ago time.Duration, host string) monitor.Connection {
		return monitor.Connection{
			Time: now.Add(-ago), Path: monitor.Redirect, Protocol: "tls", Host: host, Address: "104.18.0.1:443",
			Verdict: "allow", Reason: "declared", Rule: "*.notion.com",
		}
	}
	table.Begin(allowed(3*time.Hour, "api.notion.com:443"), func() (int64, int64) { return 1234, 56 << 20 }).
		End(func(c *monitor.Connection) { c.Seconds = 75 })
	failed := allowed(time.Hour, "gone.notion.com:443")
	failed.Address, failed.Reason, failed.Rule = "", "not-resolved", ""
	table.Refuse(failed)
	table.Begin(allowed(12*time.Minute+10*time.Second, "ws.notion.com:443"), func() (int64, int64) { return 312, 10000 })
	for range 3 {
		table.Refuse(denied(now.Add(-90*time.Second), monitor.Proxy, "tls", "evil.example:443", "name-not-declared"))
	}
	other := denied(now.Add(-time.Minute), monitor.Redirect, "tcp", "api.notion.com:5432", "port-not-declared")
	other.Rule = "*.notion.com"
	table.Refuse(other)
	table.Refuse(denied(now.Add(-30*time.Second), monitor.Kernel, "udp", "8.8.8.8:53", "protocol-udp"))
	unpinned := denied(now.Add(-25*time.Second), monitor.Redirect, "tls", "api.example.com:443", "tls-pin")
	unpinned.Rule, unpinned.Detail = "api.example.com", "its certificates have the keys sha256/AAAA="
	table.Refuse(unpinned)
	table.Refuse(denied(now.Add(-20*time.Second), monitor.Resolver, "dns", "odd\x1b[2J\u202e\n", "bad-name"))
	return table
}

func egressReport() control.Report {
	return control.Report{Servers: []control.Server{
		{Name: "fs", State: control.Running},
		{Name: "late", State: control.Starting},
		{Name: "notion", State: control.Running},
		{Name: "off", State: control.Stopped, Owed: control.Owed{Off: control.OffByFile}, File: "/d/off.hcl"},
		{Name: "old", State: control.Running},
		{Name: "sad", State: control.Failed},
	}}
}

func TestEgress(t *testing.T) {
	now := time.Now()
	first := newBench(t, "")
	first.pfard(t, egressReport(), nil)
	first.bridge(t, "notion", sampleTable(now))
	first.bridge(t, "fs", monitor.NewTable(""))
	for _, tt := range []struct {
		name string
		args []string
		code int
	}{
		{"all", nil, 0}, {"one", []string{"notion"}, 0}, {"nothing yet", []string{"fs"}, 0}, {"stopped", []string{"off"}, 0},
		{"failed", []string{"sad"}, 0}, {"starting", []string{"late"}, 0}, {"without a socket", []string{"old"}, 0},
		{"stopped, for a machine", []string{"off", "--json"}, 0},
		{"no such server", []string{"notoin"}, exitNoSuch}, {"too many", []string{"a", "b"}, exitUsage},
	} {
		b := first.again("")
		b.now = func() time.Time { return now }
		code := b.run(t.Context(), append([]string{"egress"}, tt.args...))
		if code != tt.code {
			t.Errorf("%s: exit %d, want %d", tt.name, code, tt.code)
		}
		golden(t, "egress.txtar", tt.name, fmt.Sprintf("%s-- stderr\n%s", b.out, b.err))
	}
	b := first.again("")
	if code := b.run(t.Context(), []string{"egress", "--json"}); code != 0 {
		t.Fatalf("exit %d, %s", code, b.err)
	}
	lines := strings.Split(strings.TrimSpace(b.out.String()), "\n")
	if len(lines) != 8 {
		t.Fatalf("%d lines:\n%s", len(lines), b.out)
	}
	for _, line := range lines {
		var m struct {
			Server string
			monitor.Connection
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Server != "notion" || m.ID == 0 || strings.ContainsFunc(line, func(r rune) bool { return hostile(r, oneLine) }) {
			t.Errorf("%s: %+v, %v", line, m, err)
		}
	}
	b = newBench(t, "")
	if code := b.run(t.Context(), []string{"egress"}); code != exitNotRunning {
		t.Errorf("without pfard: exit %d, %s", code, b.err)
	}
}

// TestEgressOfSessions: a process of one session has a bridge of its own. Its connections are shown with its handle.
func TestEgressOfSessions(t *testing.T) {
	b := newBench(t, "")
	b.pfard(t, control.Report{Servers: []control.Server{{
		Name: "notion", State: control.Running,
		Sessions: []control.Session{{Handle: "abcdefg2", State: control.Running}},
	}}}, nil)
	b.bridge(t, "notion", monitor.NewTable(""))
	b.bridge(t, "notion_abcdefg2", sampleTable(time.Now()))
	for _, args := range [][]string{{"egress"}, {"egress", "notion"}} {
		n := b.again("")
		if code := n.run(t.Context(), args); code != 0 || strings.Count(n.out.String(), "\nnotion_abcdefg2  ") != 8 {
			t.Errorf("%q: exit %d, %s%s", args, code, n.out, n.err)
		}
	}
}

// TestEgressOfABadBridge: it may end, lie, or say too much; what it says is an error and never obeyed.
func TestEgressOfABadBridge(t *testing.T) {
	var many strings.Builder
	for range maxConnections + 1 {
		many.WriteString("{\"connection\":{\"id\":1}}\n")
	}
	for _, tt := range []struct {
		name, says string
		code       int
		want       string
	}{
		{"garbage", "\x1b[2J\n", 1, `asking the egress bridge of "notion"`},
		{"no end", many.String(), 1, "the bridge shows more than 10000 connections"},
		{"ends at once", "", 0, "notion: running; its egress bridge does not answer yet"},
		{"absurd numbers", `{"connection":{"id":1,"sent":-5,"received":9223372036854775807,"seconds":1e300,"open":true,"count":-3,"time":"9999-12-31T23:59:59Z","host":"\u001b[2J"}}` +
			"\n{\"synced\":true}\n", 0, `now        \x1b[2J           0 B   8388608 TiB  open 36500d`},
	} {
		b := newBench(t, "")
		b.pfard(t, control.Report{Servers: []control.Server{{Name: "notion", State: control.Running}}}, nil)
		if err := os.Mkdir(filepath.Dir(b.dirs.Egress("notion")), 0o700); err != nil {
			t.Fatal(err)
		}
		l := b.listen(t, b.dirs.Egress("notion"))
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, tt.says) // the client may have had enough
				c.Close()
			}
		})
		code := b.run(t.Context(), []string{"egress", "notion"})
		if all := b.out.String() + b.err.String(); code != tt.code || !strings.Contains(all, tt.want) || strings.Contains(all, "\x1b") {
			t.Errorf("%s: exit %d, %q; want %d, %q", tt.name, code, all, tt.code, tt.want)
		}
		l.Close()
		serving.Wait()
	}
}

// running is a command line that goes on until it is interrupted.
type running struct {
	*bench
	out, err  *bufio.Scanner
	interrupt context.CancelFunc
	code      chan int
}

func (b *bench) start(t *testing.T, args ...string) *running {
	t.Helper()
	n := b.again("")
	out, outW := io.Pipe()
	err, errW := io.Pipe()
	n.stdout, n.stderr, n.now = outW, errW, b.now
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{n, bufio.NewScanner(out), bufio.NewScanner(err), cancel, make(chan int, 1)}
	go func() {
		code := n.run(ctx, args)
		outW.Close()
		errW.Close()
		r.code <- code
	}()
	return r
}

// next reads a line.
func next(t *testing.T, s *bufio.Scanner) string {
	t.Helper()
	if !s.Scan() {
		t.Fatalf("it has ended: %v", s.Err())
	}
	return s.Text()
}

// rest reads to the end.
func rest(s *bufio.Scanner) string {
	var b strings.Builder
	for s.Scan() {
		b.WriteString(s.Text() + "\n")
	}
	return b.String()
}

// finish reads both to the end.
func (r *running) finish() (out, err string, code int) {
	read := make(chan string)
	go func() { read <- rest(r.out) }()
	err = rest(r.err)
	return <-read, err, <-r.code
}

func fixedNow() time.Time { return time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC) }

// TestEgressFollow goes through all that happens to servers and bridges: connections, a bridge that ends and comes
// back with its past, a server that stops and starts, pfard's end.
func TestEgressFollow(t *testing.T) {
	first := newBench(t, "")
	first.now = fixedNow
	p := first.pfard(t, control.Report{Servers: []control.Server{{Name: "fs", State: control.Running}, {Name: "notion", State: control.Stopped}}}, nil)
	saved := filepath.Join(t.TempDir(), "connections")
	table := monitor.NewTable(saved)
	at := fixedNow().Add(-time.Minute)
	table.Refuse(denied(at, monitor.Proxy, "tls", "before.example:443", "name-not-declared"))
	stop := first.bridge(t, "fs", table)
	all, one := first.start(t, "egress", "-f"), first.start(t, "egress", "fs", "-f", "--json")
	var shown []string
	line := func() { t.Helper(); shown = append(shown, next(t, all.out)) }
	var machine []monitor.Connection
	object := func() {
		t.Helper()
		var c monitor.Connection
		if err := json.Unmarshal([]byte(next(t, one.out)), &c); err != nil {
			t.Fatal(err)
		}
		machine = append(machine, c)
	}
	if got := next(t, all.err); got != "notion: stopped; pfar start notion" {
		t.Errorf("got %q", got)
	}
	line()
	object()
	var sent atomic.Int64
	e := table.Begin(monitor.Connection{
		Time: at.Add(time.Second), Path: monitor.Redirect, Protocol: "tls", Host: "api.fs.example:443", Address: "192.0.2.1:443",
		Verdict: "allow", Reason: "declared", Rule: "*.fs.example",
	}, func() (int64, int64) { return sent.Load(), 0 })
	line()
	object()
	sent.Store(2048)
	object() // for a person, nothing happened
	e.End(func(c *monitor.Connection) { c.Seconds = 61.5 })
	line()
	object()
	loop := denied(at.Add(2*time.Second), monitor.Kernel, "udp", "8.8.8.8:53", "protocol-udp")
	table.Refuse(loop)
	line()
	object()
	for i := range 3 { // of 2, 3 and 4 times, 3 is no line
		loop.Time = loop.Time.Add(time.Second)
		table.Refuse(loop)
		object()
		if i != 1 {
			line()
		}
	}
	stop()
	if err := table.Save(); err != nil {
		t.Fatal(err)
	}
	table = monitor.NewTable(saved) // what it tells again is not shown again
	p.set(func(r *control.Report) { r.Servers[0].State = control.Stopping })
	stop = first.bridge(t, "fs", table)
	p.set(func(r *control.Report) { r.Servers[0].State, r.Servers[1].State = control.Running, control.Starting })
	table.Refuse(denied(at.Add(20*time.Second), monitor.Resolver, "dns", "again\x1b.example", "name-not-declared"))
	line()
	object()
	notion := monitor.NewTable("")
	notion.Refuse(denied(at.Add(30*time.Second), monitor.Redirect, "http", "other.example:80", "name-not-declared"))
	stopNotion := first.bridge(t, "notion", notion)
	p.set(func(r *control.Report) { r.Servers[1].State = control.Running })
	line()
	p.set(func(r *control.Report) { r.Servers[1].State = control.Failed })
	if got := next(t, all.err); got != "notion: failed; pfar logs notion says why, pfar start notion tries again" {
		t.Errorf("got %q", got)
	}
	golden(t, "egress.txtar", "follow", strings.Join(shown, "\n")+"\n")
	for i, want := range []string{"before.example:443 0 0", "api.fs.example:443 0 0", "api.fs.example:443 0 2048", "api.fs.example:443 0 2048", "8.8.8.8:53 0 0", "8.8.8.8:53 2 0", "8.8.8.8:53 3 0", "8.8.8.8:53 4 0", "again\x1b.example 0 0"} {
		if c := machine[i]; fmt.Sprint(c.Host, " ", c.Count, " ", c.Sent) != want {
			t.Errorf("object %d: %+v, want %s", i, c, want)
		}
	}
	all.interrupt()
	if more, said, code := all.finish(); more+said != "" || code != 0 {
		t.Errorf("interrupted: exit %d, more %q, %q", code, more, said)
	}
	p.set(func(r *control.Report) { r.Servers = r.Servers[1:] })
	if _, said, code := one.finish(); code != exitNoSuch || !strings.Contains(said, `"error":"no such server: \"fs\""`) {
		t.Errorf("removed: exit %d, %q", code, said)
	}
	stop()
	stopNotion()
}

// TestEgressFollowsABridgeThatEndsWhenIdle: it is connected to again at once, though pfard has nothing to tell.
func TestEgressFollowsABridgeThatEndsWhenIdle(t *testing.T) {
	first := newBench(t, "")
	first.now = fixedNow
	first.pfard(t, control.Report{Servers: []control.Server{{Name: "fs", State: control.Running}}}, nil)
	if err := os.Mkdir(filepath.Dir(first.dirs.Egress("fs")), 0o700); err != nil {
		t.Fatal(err)
	}
	l := first.listen(t, first.dirs.Egress("fs"))
	defer l.Close()
	r := first.start(t, "egress", "fs", "-f")
	var accepted []time.Time
	for i := range 2 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, time.Now())
		table := monitor.NewTable("")
		table.Refuse(denied(fixedNow().Add(time.Duration(i)*time.Second), monitor.Proxy, "tls", fmt.Sprint(i), "name-not-declared"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- table.Serve(ctx, c) }()
		if got := next(t, r.out); !strings.Contains(got, fmt.Sprintf("refused  %d ", i)) {
			t.Errorf("got %q", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if d := accepted[1].Sub(accepted[0]); d < reconnectPause/2 {
		t.Errorf("connected again after %s: a bridge that ends at once would be started without end", d)
	}
	r.interrupt()
	if _, said, code := r.finish(); code != 0 || said != "" {
		t.Errorf("exit %d, %q", code, said)
	}
}

// TestBridgesAfterAReportThatCameTooEarly: the report of a server's start is there before the answer that nothing
// listens.
func TestBridgesAfterAReportThatCameTooEarly(t *testing.T) {
	b := newBench(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	bridges := newBridges(ctx, b.dirs)
	defer bridges.wait()
	defer cancel()
	up := []control.Server{{Name: "fs", State: control.Running}}
	bridges.watch(up)
	refused := <-bridges.events // and not yet taken
	b.bridge(t, "fs", sampleTable(time.Now()))
	bridges.watch(up)
	if err := bridges.take(refused); err != nil || !errors.Is(refused.end, control.ErrNotRunning) {
		t.Fatalf("%v, %v", refused.end, err)
	}
	if e := <-bridges.events; e.message.Connection == nil {
		t.Errorf("got %+v", e)
	}
}

func TestSizeAndDuration(t *testing.T) {
	for n, want := range map[int64]string{
		-1: "0 B", 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 10137: "9.9 KiB", 10240: "10 KiB", 1<<20 - 1: "1.0 MiB", 3 << 20: "3.0 MiB",
		700 << 30: "700 GiB", 1 << 40: "1.0 TiB", 1<<63 - 1: "8388608 TiB",
	} {
		if got := visible.Size(n); got != want {
			t.Errorf("size of %d: %q, want %q", n, got, want)
		}
	}
	for s, want := range map[float64]string{-1: "0ms", 0.0125: "12ms", 1: "1s", 75: "1m", 1e300: "36500d"} {
		if got := duration(s); got != want {
			t.Errorf("duration of %g: %q, want %q", s, got, want)
		}
	}
}
