package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// crowd is clients who connect, ask for something that is not there, and stay.
type crowd struct {
	conns  []net.Conn
	served atomic.Int64 // those who have had an answer
}

func gather(t *testing.T, network, address string, n int) *crowd {
	t.Helper()
	c := &crowd{}
	for range n {
		conn, err := net.Dial(network, address)
		if err == nil {
			_, err = io.WriteString(conn, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		if err != nil {
			t.Fatalf("client %d of %s: %v", len(c.conns), network, err)
		}
		c.conns = append(c.conns, conn)
		go func() {
			if n, _ := conn.Read(make([]byte, 1)); n == 1 {
				c.served.Add(1)
			}
		}()
	}
	t.Cleanup(c.leave)
	return c
}

func (c *crowd) leave() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// busy is the processor time that a process has taken.
func busy(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime and stime (proc(5)), in hundredths of a second
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// gatewayLog is what the gateway has written.
func (p *pfar) gatewayLog() string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.state(), "log", "pfar-gateway.service.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// TestDescriptorsRunOut: of 1000 clients a gateway with 256 descriptors serves as many as it has places for. Calls,
// servers and the operator do not notice, it takes no time and few lines of the log, and whoever waits is served once
// others go.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	const descriptors, each = 256, 500
	p := prepare(t, map[string]string{"first.hcl": declare(program(t, "corpus"), []string{"-plain", "-generation", "legacy"}, "")})
	p.up("prlimit", fmt.Sprintf("--nofile=%d:%d", descriptors, descriptors))
	p.awaitRunning("first")
	all := descendants(p.cmd.Process.Pid)
	i := slices.IndexFunc(all, func(q process) bool { return q.name == "pfar-gateway" })
	if i < 0 {
		t.Fatalf("no gateway among %v", all)
	}
	gateway := all[i]
	c, other := p.client("/mcp"), p.client("/mcp")
	called := make(chan error, 1)
	go func() {
		r, err := c.call("first__steps", map[string]any{"steps": 1, "label": "held"})
		if err == nil && r.text != "1 steps" {
			err = errors.New(r.text)
		}
		called <- err
	}()
	p.underWay("steps")
	endpoint, err := url.Parse(p.last().Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(p.gatewayLog(), "\n")
	loopback, local := gather(t, "tcp", endpoint.Host, each), gather(t, "unix", p.last().Socket, each)
	const places = descriptors / 4
	for deadline := time.Now().Add(soon); loopback.served.Load() < places || local.served.Load() < places/2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are served on loopback and %d on the Unix socket, want %d", loopback.served.Load(), local.served.Load(), places)
		}
	}
	before := busy(t, gateway.pid)
	time.Sleep(time.Second) // is what is measured
	if took := busy(t, gateway.pid) - before; took > time.Second/2 {
		t.Errorf("with nothing to do it takes %v of a second", took)
	}
	select {
	case err := <-called:
		t.Errorf("the call under way has ended: %v", err)
		called <- err
	default:
	}
	if got := loopback.served.Load(); got != places {
		t.Errorf("%d are served on loopback, want %d", got, places)
	}
	if got := local.served.Load(); got > places {
		t.Errorf("%d are served on the Unix socket, want %d at most", got, places)
	}
	// A server that comes now is served, and the operator is.
	p.write("second.hcl", echo(t))
	p.awaitRunning("second")
	if _, stderr, code := p.command("pins"); code != 0 {
		t.Errorf("pfar pins: %d: %s", code, stderr)
	}
	other.must("first__release", map[string]any{"label": "held"})
	if err := <-called; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	loopback.leave()
	local.leave()
	for name, c := range map[string]*client{"loopback": p.loopback(), "the Unix socket": p.client("/mcp")} {
		if got := c.must("second__echo", map[string]any{"message": "back"}); got != "back" {
			t.Errorf("on %s: %q", name, got)
		}
	}
	if !gateway.alive() {
		t.Error("it is another gateway")
	}
	log := p.gatewayLog()
	if n := strings.Count(log, "as many connections are open as may be"); n != 2 {
		t.Errorf("the log says %d times that clients wait, want once of each listener", n)
	}
	if n := strings.Count(log, "\n") - lines; n > 20 {
		t.Errorf("1000 clients brought about %d lines:\n%s", n, log)
	}
}

// TestHungServer: however many clients wait for a server that does not answer, so many and no more wait, the rest hear
// why, and the other servers' calls end as always.
func TestHungServer(t *testing.T) {
	t.Parallel()
	const (
		running, waiting = 64, 256 // registry.DefaultLimits
		clients, each    = 3, 200
		refused          = clients*each - running - waiting
	)
	p := start(t, map[string]string{"hung.hcl": echo(t) + "timeout = \"30m\"\n", "honest.hcl": echo(t)})
	p.awaitRunning("hung", "honest")
	var ended, busy atomic.Int64
	var all sync.WaitGroup
	for _, c := range [clients]*client{p.client("/mcp"), p.client("/mcp"), p.loopback()} {
		for range each {
			all.Go(func() {
				_, err := c.call("hung__sleep", map[string]any{"milliseconds": 3600_000})
				switch {
				case err == nil:
					t.Error("the server has answered")
				case strings.Contains(err.Error(), `-32011: server "hung" is busy: 64 calls run and 256 wait; try again later`):
					busy.Add(1)
				case !strings.Contains(err.Error(), `server "hung" went away`) && !strings.Contains(err.Error(), `server "hung" is not running`):
					t.Error(err)
				}
				ended.Add(1)
			})
		}
	}
	for deadline := time.Now().Add(soon); busy.Load() < refused; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are refused and %d have ended, want %d", busy.Load(), ended.Load(), refused)
		}
	}
	c := p.client("/mcp")
	for i := range 100 {
		if got := c.must("honest__echo", map[string]any{"message": fmt.Sprint(i)}); got != fmt.Sprint(i) {
			t.Errorf("call %d: %q", i, got)
		}
	}
	if busy.Load() != refused || ended.Load() != refused {
		t.Errorf("while the others were served, %d were refused and %d ended, want %d", busy.Load(), ended.Load(), refused)
	}
	pid := server(p.last(), "honest").PID
	if _, stderr, code := p.command("stop", "hung"); code != 0 { // calls would wait for a restart
		t.Fatalf("pfar stop: %d: %s", code, stderr)
	}
	all.Wait()
	if _, stderr, code := p.command("start", "hung"); code != 0 {
		t.Fatalf("pfar start: %d: %s", code, stderr)
	}
	p.await("hung running", soon, inState("hung", control.Running))
	if got := p.client("/mcp").must("hung__echo", map[string]any{"message": "again"}); got != "again" {
		t.Errorf("after the restart: %q", got)
	}
	if now := server(p.last(), "honest").PID; now != pid {
		t.Errorf("the other server was started again: %d, before %d", now, pid)
	}
}
