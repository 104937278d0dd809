package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain lets the test binary be the process under test, or the process in a server's namespace.
func TestMain(m *testing.M) {
	if policy := os.Getenv(namespaceVariable); policy != "" {
		if err := runNamespace(policy); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv("PFAR_EGRESS_UNDER_TEST") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is pfar-egress as a runner starts it.
type process struct {
	cmd    *exec.Cmd
	stderr *lockedBuffer
	states chan string // notifications, a line each
}

func startProcess(t *testing.T, l *os.File, plan string, args ...string) *process {
	t.Helper()
	return startProcessIn(t, l, plan, func(cmd *exec.Cmd, stderr io.Writer) { cmd.Stderr = stderr }, args...)
}

// startProcessIn has prepare say where the process's standard error goes, and whatever else of the command.
func startProcessIn(t *testing.T, l *os.File, plan string, prepare func(*exec.Cmd, io.Writer), args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	if plan != "" {
		if err := os.WriteFile(filepath.Join(dir, "plan"), []byte(plan), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { notify.Close() })
	p := &process{cmd: exec.Command(os.Args[0], args...), stderr: &lockedBuffer{}, states: make(chan string, 100)}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := notify.Read(buf)
			if err != nil {
				return
			}
			for line := range strings.SplitSeq(string(buf[:n]), "\n") {
				p.states <- line
			}
		}
	}()
	p.cmd.Env = []string{"PFAR_EGRESS_UNDER_TEST=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=egress", "CREDENTIALS_DIRECTORY=" + dir, "NOTIFY_SOCKET=" + dir + "/notify"}
	prepare(p.cmd, p.stderr)
	if l != nil {
		p.cmd.ExtraFiles = []*os.File{l}
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *process) await(t *testing.T, state string) {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		select {
		case s := <-p.states:
			if s == state {
				return
			}
		case <-timeout:
			t.Fatalf("no %q; stderr: %s", state, p.stderr)
		}
	}
}

const testPlan = `{"name":"notion","file":"/etc/pfar/mcp.d/notion.hcl","sandbox":{"anything":1},"egress":{"endpoints":[{"host":"api.allowed.test"}]}}`

func listenerFile(t *testing.T) (*os.File, string) {
	t.Helper()
	l := listen(t)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, l.Addr().String()
}

func askAt(t *testing.T, addr, raw string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A process ends when it is idle; the listener stays, and the next process serves the connection that waits on it.
func TestProcessEndsIdleAndIsActivatedAgain(t *testing.T) {
	l, addr := listenerFile(t)
	for range 2 {
		answer := make(chan string, 1)
		go func() { answer <- askAt(t, addr, connectTo("evil.test:443")) }()
		p := startProcess(t, l, testPlan, "-idle", "300ms")
		p.await(t, "READY=1")
		p.await(t, "STATUS=refused evil.test:443 (name-not-declared)")
		if s := <-answer; !strings.Contains(s, "403 Forbidden") || !strings.Contains(s, "in notion.hcl.") || strings.Contains(s, "/etc/pfar") {
			t.Errorf("%q", s)
		}
		p.await(t, "STOPPING=1")
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%v, stderr: %s", err, p.stderr)
		}
		if !strings.Contains(p.stderr.String(), "host=evil.test:443") {
			t.Errorf("stderr: %s", p.stderr)
		}
	}
}

func TestProcessEndsWhenTold(t *testing.T) {
	l, addr := listenerFile(t)
	p := startProcess(t, l, testPlan, "-idle", "0")
	p.await(t, "READY=1")
	c, err := net.Dial("tcp", addr) // and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.await(t, "STOPPING=1")
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v, stderr: %s", err, p.stderr)
	}
}

func TestProcessRefusesToStart(t *testing.T) {
	l, _ := listenerFile(t)
	dir := t.TempDir()
	u, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	uf, err := u.File()
	if err != nil {
		t.Fatal(err)
	}
	defer uf.Close()
	for _, c := range []struct {
		name, plan, says string
		l                *os.File
	}{
		{"a Unix socket, over which descriptors can come", testPlan, "not a listener of TCP", uf},
		{"no plan", "", "plan", l},
		{"a broken plan", "{", "plan", l},
		{"a plan of nobody", "{}", "names no server", l},
		{"a file that is no socket", testPlan, "taking the descriptor", devNull(t)},
	} {
		p := startProcess(t, c.l, c.plan)
		err := p.cmd.Wait()
		if err == nil || p.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.stderr.String(), c.says) {
			t.Errorf("%s: %v, stderr: %s", c.name, err, p.stderr)
		}
	}
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Many clients arrive while the service is about to end, again and again: each is served, by this run or the next.
func TestNoConnectionIsLostToIdleness(t *testing.T) {
	l := listen(t)
	l2 := listen(t)
	var served atomic.Int64
	serve := func(_ context.Context, c *net.TCPConn) {
		defer c.Close()
		served.Add(1)
		fmt.Fprint(c, "x")
	}
	stop := make(chan struct{})
	runs := make(chan int, 1)
	go func() {
		n := 0
		defer func() { runs <- n }()
		for {
			for _, l := range []*net.TCPListener{l, l2} {
				_ = l.SetDeadline(time.Time{}) // a new process has a descriptor of its own
			}
			slots := make(chan struct{}, 8)
			s := &service{sources: []source{listener(l, slots, nil, serve), listener(l2, slots, nil, serve)}, idle: time.Millisecond, log: slog.New(slog.DiscardHandler)}
			if err := s.run(context.Background()); err != nil {
				t.Error(err)
				return
			}
			n++
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	const clients = 300
	for i := range clients {
		target := l
		if i%3 == 0 {
			target = l2
		}
		if s := askAt(t, target.Addr().String(), ""); s != "x" {
			t.Fatalf("client %d got %q", i, s)
		}
		time.Sleep(time.Duration(i%5) * 400 * time.Microsecond) // around the idle time
	}
	close(stop)
	if n := <-runs; n < 2 {
		t.Errorf("%d runs", n)
	}
	if served.Load() != clients {
		t.Errorf("%d served of %d", served.Load(), clients)
	}
}

func TestServiceEndsWithABrokenListener(t *testing.T) {
	good, bad := listen(t), listen(t)
	bad.Close()
	serve := func(_ context.Context, c *net.TCPConn) { c.Close() }
	slots := make(chan struct{}, 4)
	s := &service{sources: []source{listener(good, slots, nil, serve), listener(bad, slots, nil, serve)}, log: slog.New(slog.DiscardHandler)}
	if err := s.run(context.Background()); err == nil {
		t.Error("no error")
	}
}
