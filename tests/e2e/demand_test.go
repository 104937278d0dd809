package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

const (
	lazy   = "autostart = false\n"
	drowsy = "idle_timeout = \"2s\"\n"
)

// launchers returns those of a server that the reports since a mark tell of.
func (p *pfar) launchers(since int, name string) (pids []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.reports[since:] {
		if pid := server(r, name).PID; pid != 0 && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (p *pfar) awaitAsleep(since int, name string) control.Server {
	p.t.Helper()
	return server(p.awaitFrom(since, name+" asleep", soon, inState(name, control.Sleeping)), name)
}

// learned returns when a server that sleeps from the beginning has been started once, and sleeps.
func (p *pfar) learned(name string) {
	p.t.Helper()
	c := p.client("/mcp")
	eventually(p.t, func() bool { // that it ran may be in no report
		return slices.ContainsFunc(c.names(), func(tool string) bool { return strings.HasPrefix(tool, name+"__") })
	})
	p.awaitAsleep(p.mark()-1, name)
}

// TestSleeps: a server that sleeps is listed, the first call starts it, idleness stops it, and pfar's restart changes
// nothing of that.
func TestSleeps(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"lazy.hcl": echo(t) + lazy + drowsy, "awake.hcl": echo(t)})
	p.learned("lazy")
	c := p.client("/mcp")
	listed := c.names()
	if !slices.Contains(listed, "lazy__echo") || !slices.Contains(listed, "awake__echo") {
		t.Fatalf("listed while it sleeps: %q", listed)
	}
	if stdout, _, code := p.command("status"); code != 0 || !strings.Contains(stdout, "sleeping") {
		t.Errorf("pfar status: %d, %s", code, stdout)
	}
	since := p.mark()
	var calls sync.WaitGroup
	for n := range 20 {
		calls.Go(func() {
			want := fmt.Sprint("call ", n)
			if r, err := c.call("lazy__echo", map[string]any{"message": want}); err != nil || r.isError || r.text != want {
				t.Errorf("%s: %+v, %v", want, r, err)
			}
		})
	}
	calls.Wait()
	p.awaitFrom(since, "lazy running", soon, inState("lazy", control.Running))
	pids := p.launchers(since, "lazy")
	if len(pids) != 1 {
		t.Fatalf("20 calls at once started the launchers %v", pids)
	}
	processes := descendants(pids[0])
	called := time.Now()
	c.must("lazy__echo", map[string]any{"message": "the last one"})
	slept := server(p.await("lazy asleep after the last call", soon, func(r control.Report) bool {
		s := server(r, "lazy")
		return s.State == control.Sleeping && s.Since.After(called)
	}), "lazy")
	if after := slept.Since.Sub(called); after < 2*time.Second {
		t.Errorf("asleep %v after the calls, want no less than 2s", after)
	}
	awaitGone(t, soon, processes)
	if now := c.names(); !slices.Equal(now, listed) {
		t.Errorf("listed %q, and when it sleeps again %q", listed, now)
	}
	p.again()
	p.await("lazy asleep", soon, inState("lazy", control.Sleeping))
	p.awaitRunning("awake")
	if now := p.client("/mcp").names(); !slices.Equal(now, listed) {
		t.Errorf("after pfar's restart: %q, before %q", now, listed)
	}
	time.Sleep(500 * time.Millisecond) // what must not happen
	if pids := p.launchers(0, "lazy"); len(pids) != 0 {
		t.Errorf("a server that is known was started again to learn its tools: %v", pids)
	}
}

// TestSleepsByTransport: what pfar speaks with by its adapter sleeps with all its processes, and a call wakes it.
func TestSleepsByTransport(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(listenApart(t).Addr().String())
	check(t, err)
	marks := map[string]string{"port": marker(t), "piped": marker(t)}
	p := start(t, map[string]string{
		"port.hcl": drowsy + everythingAt(t, marks["port"], port,
			fmt.Sprintf("transport = \"stream-http\"\nurl = \"http://127.0.0.1:%s/mcp\"", port)),
		"piped.hcl": drowsy + pipedEcho(t, marks["piped"], "/run/piped/pipe"),
	})
	for name := range marks { // each is started once, to learn its tools
		p.awaitFrom(0, name+" running", soon, inState(name, control.Running))
	}
	c := p.client("/mcp")
	for name, want := range map[string]string{"port": "Echo: hello", "piped": "hello"} {
		for range 2 {
			if got := c.must(name+"__echo", map[string]any{"message": "hello"}); got != want {
				t.Errorf("%s answered %q", name, got)
			}
			called := time.Now()
			p.await(name+" asleep", soon, func(r control.Report) bool {
				s := server(r, name)
				return s.State == control.Sleeping && s.Since.After(called)
			})
			until(t, "no process of "+name, func() bool { return len(find(marks[name])) == 0 })
		}
	}
}

// TestStopIsForGood: what the operator has stopped no call starts; his start does, and then it may sleep again.
func TestStopIsForGood(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"lazy.hcl": echo(t) + drowsy})
	p.awaitFrom(0, "lazy running", soon, inState("lazy", control.Running))
	c := p.client("/mcp")
	p.awaitAsleep(p.mark()-1, "lazy")
	if stdout, stderr, code := p.command("stop", "lazy"); code != 0 {
		t.Fatalf("pfar stop: %d, %s%s", code, stdout, stderr)
	}
	_, err := c.call("lazy__echo", map[string]any{"message": "x"})
	if err == nil || !strings.Contains(err.Error(), "stopped") || !strings.Contains(err.Error(), "pfar start lazy") {
		t.Errorf("calling what is stopped: %v", err)
	}
	if names := c.names(); len(names) != 0 {
		t.Errorf("tools of a stopped server: %q", names)
	}
	p.await("lazy stopped", soon, inState("lazy", control.Stopped))
	since := p.mark()
	if stdout, stderr, code := p.command("start", "lazy"); code != 0 {
		t.Fatalf("pfar start: %d, %s%s", code, stdout, stderr)
	}
	if got := c.must("lazy__echo", map[string]any{"message": "back"}); got != "back" {
		t.Errorf("echo returns %q", got)
	}
	p.awaitAsleep(since, "lazy")
	if stdout, stderr, code := p.command("start", "lazy"); code != 0 || !strings.Contains(stdout, "running") {
		t.Errorf("pfar start of what sleeps: %d, %s%s", code, stdout, stderr)
	}
}

// TestWakingFails: the call is told why the server did not start, and the next one finds it mended.
func TestWakingFails(t *testing.T) {
	t.Parallel()
	p := prepare(t, nil)
	flags, path := filepath.Join(p.home, "flags"), filepath.Join(p.home, "server")
	check(t, os.Mkdir(flags, 0o755))
	broken := filepath.Join(flags, "broken")
	check(t, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\n[ ! -e %s ] || exit 3\nexec %s\n", broken, program(t, "echo")), 0o755))
	p.write("frail.hcl", declare(path, nil, "")+lazy+drowsy+fmt.Sprintf("sandbox {\n  read_only = [%q, %q]\n}\n", flags, program(t, "echo")))
	p.write("poor.hcl", echo(t)+lazy+drowsy+"auth = { TOKEN = \"vault:poor_token\" }\n")
	p.up()
	p.learned("frail")
	p.stdin = "hunter2"
	p.await("poor waiting", soon, inState("poor", control.Waiting))
	if _, stderr, code := p.command("vault", "set", "poor_token"); code != 0 {
		t.Fatal(stderr)
	}
	p.learned("poor")
	c := p.client("/mcp")

	check(t, os.WriteFile(broken, nil, 0o644))
	_, err := c.call("frail__echo", map[string]any{"message": "x"})
	if err == nil || !strings.Contains(err.Error(), `"frail" slept, and starting it for this request failed`) || strings.Contains(err.Error(), "not ready within") {
		t.Errorf("calling what does not start: %v", err)
	}
	since := p.mark()
	check(t, os.Remove(broken))
	p.awaitFrom(since, "frail running after its back-off", soon, inState("frail", control.Running))
	if got := c.must("frail__echo", map[string]any{"message": "mended"}); got != "mended" {
		t.Errorf("echo returns %q", got)
	}

	if _, stderr, code := p.command("vault", "remove", "poor_token"); code != 0 {
		t.Fatal(stderr)
	}
	_, err = c.call("poor__echo", map[string]any{"message": "x"})
	if err == nil || !strings.Contains(err.Error(), "pfar vault set poor_token") {
		t.Errorf("calling what lacks a credential: %v", err)
	}
	since = p.mark()
	if _, stderr, code := p.command("vault", "set", "poor_token"); code != 0 {
		t.Fatal(stderr)
	}
	p.awaitFrom(since, "poor running", soon, inState("poor", control.Running))
	if got := c.must("poor__echo", map[string]any{"message": "rich"}); got != "rich" {
		t.Errorf("echo returns %q", got)
	}
}

// TestFallingAsleep calls again and again at the moment at which the server is about to sleep: no call is lost.
func TestFallingAsleep(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"lazy.hcl": echo(t) + "idle_timeout = \"1s\"\n"})
	p.awaitFrom(0, "lazy running", soon, inState("lazy", control.Running))
	since := p.mark()
	clients := []*client{p.client("/mcp"), p.client("/mcp")}
	for i := range 12 {
		time.Sleep(time.Second + time.Duration(rand.IntN(120)-40)*time.Millisecond)
		var callers sync.WaitGroup
		for n, c := range clients {
			callers.Go(func() {
				want := fmt.Sprintf("%d of %d", i, n)
				if r, err := c.call("lazy__echo", map[string]any{"message": want}); err != nil || r.text != want {
					t.Errorf("%s: %+v, %v", want, r, err)
				}
			})
		}
		callers.Wait() // else they would part, and one would keep the server awake for the other
	}
	if pids := p.launchers(since, "lazy"); len(pids) < 2 {
		t.Errorf("it never slept: launchers %v", pids)
	}
}
