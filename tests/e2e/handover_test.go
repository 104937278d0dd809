package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// gateway returns the gateway's process, waiting for another one than those of before.
func (p *pfar) gateway(not ...process) process {
	p.t.Helper()
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(2 * time.Millisecond) { // nobody tells
		for _, d := range descendants(p.cmd.Process.Pid) {
			if d.name == "pfar-gateway" && !slices.Contains(not, d) {
				return d
			}
		}
	}
	p.t.Fatal("no gateway")
	return process{}
}

// below returns what runs below pfard, but for the gateway, and when it was started.
func (p *pfar) below() map[int]string {
	all := map[int]string{}
	for _, d := range descendants(p.cmd.Process.Pid) {
		if d.name != "pfar-gateway" {
			all[d.pid] = d.started
		}
	}
	return all
}

// load is clients that call all the time, and what has come of it.
type load struct {
	t      *testing.T
	end    chan struct{}
	all    sync.WaitGroup
	calls  atomic.Int64
	broken atomic.Int64
}

// caller calls a tool again and again, as long as the test goes on. A call whose connection breaks is made again by the
// same session, which must still be there.
func (l *load) caller(p *pfar, path, tool string, arguments func(n int) (map[string]any, string)) {
	c := p.client(path)
	l.all.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-l.end:
				return
			default:
			}
			a, want := arguments(n)
			begun := time.Now()
			r, err := c.call(tool, a)
			for err != nil {
				l.broken.Add(1)
				_, cut := errors.AsType[*url.Error](err)
				switch {
				case !cut && !strings.Contains(err.Error(), "EOF"):
					l.t.Errorf("%s ended with %v", tool, err)
					return
				case time.Since(begun) > soon:
					l.t.Errorf("%s does not come through: %v", tool, err)
					return
				}
				time.Sleep(time.Millisecond)
				r, err = c.call(tool, a)
			}
			if r.isError || !strings.Contains(r.text, want) {
				l.t.Errorf("%s%v answers %+v, want %q", tool, a, r, want)
			}
			l.calls.Add(1)
		}
	})
}

// underWay makes a call that takes a second, and returns once the server has told how far it is. ended gets what comes
// of it.
func (c *client) underWay(ended chan<- error) {
	c.t.Helper()
	const id = "under way"
	resp, err := c.post(map[string]any{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": map[string]any{
		"name": "trigger-long-running-operation", "arguments": map[string]any{"duration": 1, "steps": 2}, "_meta": map[string]any{"progressToken": "p"},
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer resp.Body.Close()
		a, err := response(resp, `"`+id+`"`)
		if err == nil && a.Error != nil {
			err = errors.New(a.Error.Message)
		}
		ended <- err
	}()
}

func message(who string) func(int) (map[string]any, string) {
	return func(n int) (map[string]any, string) {
		text := fmt.Sprintf("%s %d", who, n)
		return map[string]any{"message": text}, text
	}
}

// TestGatewayIsReplaced ends the gateway twenty times, or six times with -short, in order and not, with calls in
// flight: no server ends by that, sessions go on, and no call gets a wrong answer.
func TestGatewayIsReplaced(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{
		"everything.hcl": declare("node", []string{npm(t, "@modelcontextprotocol/server-everything/dist/index.js")}, ""),
		"echo.hcl":       echo(t),
		"modern.hcl":     declare(program(t, "corpus"), []string{"-generation", "modern", "-plain"}, ""),
		"own.hcl":        echo(t) + "sessions = \"own\"\n",
	})
	p.awaitRunning("everything", "echo", "modern", "own")
	l := &load{t: t, end: make(chan struct{})}
	for i := range 3 {
		l.caller(p, "/mcp", "everything__echo", message(fmt.Sprint("everything ", i)))
		l.caller(p, "/mcp/echo", "echo", message(fmt.Sprint("echo ", i)))
		l.caller(p, "/mcp/modern", "text", message(fmt.Sprint("modern ", i)))
		l.caller(p, "/mcp/own", "echo", message(fmt.Sprint("own ", i)))
	}
	large := strings.Repeat("x", 200<<10) // more than a pipe holds
	l.caller(p, "/mcp/echo", "echo", func(n int) (map[string]any, string) {
		text := fmt.Sprint(n, large, n)
		return map[string]any{"message": text}, text
	})
	l.caller(p, "/mcp/echo", "sleep", func(int) (map[string]any, string) { return map[string]any{"milliseconds": 300}, "awake" })
	p.await("three processes of sessions", soon, func(r control.Report) bool {
		running := slices.DeleteFunc(slices.Clone(server(r, "own").Sessions), func(s control.Session) bool { return s.State != control.Running })
		return len(running) == 3
	})
	watcher := p.client("/mcp")
	tools := watcher.names()
	first := p.gateway() // sessions that have just begun need not go on after a SIGKILL, but after an end in order
	check(t, syscall.Kill(first.pid, syscall.SIGTERM))
	awaitGone(t, soon, []process{first})
	check(t, again(t, func() error { _, err := watcher.call("modern__text", map[string]any{"message": "x"}); return err }))
	p.gateway(first)
	before, report := p.below(), p.last()
	var served []time.Duration
	ends := 20
	if testing.Short() {
		ends = 6
	}
	for i := range ends {
		g, signal, enough := p.gateway(), syscall.SIGKILL, l.calls.Load()+10
		drained := make(chan error, 1)
		if i%2 > 0 {
			signal = syscall.SIGTERM
			p.client("/mcp/everything").underWay(drained)
		} else {
			drained <- nil
		}
		until(t, "calls are made", func() bool { return l.calls.Load() >= enough })
		time.Sleep(time.Duration(100+i*17%150) * time.Millisecond) // another moment each time
		if err := syscall.Kill(g.pid, signal); err != nil {
			t.Fatal(err)
		}
		awaitGone(t, soon, []process{g})
		gone := time.Now()
		if err := <-drained; err != nil {
			t.Errorf("end %d, in order: a call in flight ends with %v", i, err)
		}
		if got := again(watcher.t, func() error { _, err := watcher.call("modern__text", map[string]any{"message": "x"}); return err }); got != nil {
			t.Errorf("after end %d: %v", i, got)
		}
		served = append(served, time.Since(gone))
		if got := watcher.names(); !slices.Equal(got, tools) {
			t.Errorf("after end %d there are the tools %q, before %q", i, got, tools)
		}
		p.gateway(g)
	}
	close(l.end)
	l.all.Wait()
	slices.Sort(served)
	t.Logf("%d calls, %d broken connections; served again after %v, %v at most", l.calls.Load(), l.broken.Load(), served[len(served)/2], served[len(served)-1])
	if l.calls.Load() < int64(10*ends) || l.broken.Load() < int64(ends/2) {
		t.Errorf("only %d calls and %d broken connections: this tests nothing", l.calls.Load(), l.broken.Load())
	}
	if after := p.below(); !maps.Equal(before, after) {
		t.Errorf("processes below pfard were\n%v\nand are\n%v", before, after)
	}
	for _, name := range []string{"everything", "echo", "modern", "own"} {
		if was, is := server(report, name), server(p.last(), name); was.PID != is.PID || !was.Since.Equal(is.Since) || is.Crashes != 0 || is.State != control.Running {
			t.Errorf("%s was %+v and is %+v", name, was, is)
		}
	}
}

// again tries until it works, for a while.
func again(t testing.TB, try func() error) error {
	t.Helper()
	err := try()
	for end := time.Now().Add(soon); err != nil && time.Now().Before(end); err = try() {
		time.Sleep(time.Millisecond)
	}
	return err
}

// TestSessionsFailToStart: if the process of a session ends before it serves, calls begin no other one for a while, and
// the owner sees why. The server's own process, which lists the tools, runs.
func TestSessionsFailToStart(t *testing.T) {
	t.Parallel()
	dir := directory(t, "")
	check(t, os.Chmod(dir, 0o777))
	const once = `if mkdir "$1/first"; then exec "$2"; fi; echo >>"$1/starts"; exit 3`
	works := program(t, "echo")
	sandbox := fmt.Sprintf("sessions = \"own\"\nsandbox {\n  writable = [%q]\n  read_only = [%q]\n}\n", dir,
		filepath.Dir(works))
	p := start(t, map[string]string{
		"own.hcl": declare("sh", []string{"-c", once, "sh", dir, works}, sandbox),
	})
	p.awaitRunning("own")
	before := p.mark()
	if _, err := p.client("/mcp/own").call("echo", map[string]any{"message": "x"}); err == nil {
		t.Error("a process that has ended has answered")
	}
	p.awaitFrom(before, "sessions have to wait", soon, func(r control.Report) bool {
		return strings.Contains(server(r, "own").Detail, "no session gets a process of its own for 1 s after")
	})
	if s := server(p.last(), "own"); s.State != control.Running {
		t.Errorf("the server itself is %s: %s", s.State, s.Detail)
	}
	text, err := os.ReadFile(filepath.Join(dir, "starts"))
	if n := strings.Count(string(text), "\n"); err != nil || n != 1 {
		t.Errorf("one call has started %d processes: %v", n, err)
	}
}
