package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-sandbox/bubblewrap"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/backoff"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/sandbox"
)

// These tests run the real program with the real bwrap, as an unprivileged user; the test is its runner and its
// gateway.

var (
	program string
	mu      sync.Mutex // guards what follow collects
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bubblewrap.EnterArg { // of a sandbox that the test starts in this process
		bubblewrap.Enter(os.Args[2:])
	}
	dir, err := os.MkdirTemp("", "pfar-sandbox-test")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "pfar-sandbox")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// run is one launcher with what it was given.
type run struct {
	t       *testing.T
	cmd     *exec.Cmd
	gateway *handover.Conn
	passed  *os.File // the launcher's end of that, where pfard hands it out
	stdin   *os.File
	stdout  *os.File
	sockets []*os.File // of the namespace
	runtime string
	log     string
	vars    map[string]string // the last value of each variable that was notified
}

// script is a sandbox in which sh runs text.
func script(text string) sandbox.Sandbox {
	return sandbox.Sandbox{
		Mounts: []sandbox.Mount{
			{Kind: sandbox.ROOverlay, Source: "/usr", Dest: "/usr"},
			{Kind: sandbox.Symlink, Source: "usr/bin", Dest: "/bin"},
			{Kind: sandbox.Symlink, Source: "usr/lib", Dest: "/lib"},
			{Kind: sandbox.Symlink, Source: "usr/lib64", Dest: "/lib64"},
			{Kind: sandbox.Proc, Dest: "/proc"},
			{Kind: sandbox.Dev, Dest: "/dev"},
			{Kind: sandbox.Tmpfs, Dest: "/tmp"},
			{Kind: sandbox.Data, Dest: "/etc/note", Text: "from the plan"},
		},
		Env:     []sandbox.Env{{Name: "PATH", Value: "/usr/bin"}, {Name: "TOKEN", Credential: "TOKEN"}},
		Command: "/usr/bin/sh", Args: []string{"-c", text}, Dir: "/tmp",
		Limits: sandbox.Limits{Memory: 256 << 20, Tasks: 50},
	}
}

func begin(t *testing.T, s sandbox.Sandbox, prepare func(runtime string), args ...string) *run {
	t.Helper()
	return beginIn(t, s, prepare, func(cmd *exec.Cmd, log *os.File) { cmd.Stdout, cmd.Stderr = log, log }, args...)
}

// beginPlan is begin with more in the plan.
func beginPlan(t *testing.T, s sandbox.Sandbox, more map[string]any) *run {
	t.Helper()
	return beginWith(t, s, more, nil, func(cmd *exec.Cmd, log *os.File) { cmd.Stdout, cmd.Stderr = log, log })
}

// beginIn has output say where the launcher's goes, and whatever else of the command.
func beginIn(t *testing.T, s sandbox.Sandbox, prepare func(runtime string), output func(*exec.Cmd, *os.File), args ...string) *run {
	t.Helper()
	return beginWith(t, s, nil, prepare, output, args...)
}

func beginWith(t *testing.T, s sandbox.Sandbox, more map[string]any, prepare func(runtime string), output func(*exec.Cmd, *os.File), args ...string) *run {
	t.Helper()
	base, err := os.MkdirTemp("", "pfar-launch")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	r := &run{t: t, runtime: filepath.Join(base, "runtime"), log: filepath.Join(base, "log"), vars: map[string]string{}}
	credentials := filepath.Join(base, "credentials")
	for _, dir := range []string{r.runtime, credentials} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	whole := map[string]any{
		"name": "x", "sandbox": s, "egress": egress.Policy{Endpoints: []egress.Endpoint{{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Port: 5432}}}, "gateway": handover.Server{Name: "x", Label: "internal"},
		"credentials": []map[string]string{{"name": "TOKEN"}},
	}
	maps.Copy(whole, more)
	plan, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := json.Marshal(units.Secrets{Values: map[string][]byte{"TOKEN": []byte("hunter2-secret")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"plan": plan, units.CredentialSecrets: secrets} {
		if err := os.WriteFile(filepath.Join(credentials, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if prepare != nil {
		prepare(r.runtime)
	}
	notify := filepath.Join(base, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(pair[0]), "gateway")
	c, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	ours.Close()
	r.gateway = handover.Accepted(c.(*net.UnixConn))
	theirs := os.NewFile(uintptr(pair[1]), "gateway")
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.cmd = exec.Command(program, args...)
	r.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "NOTIFY_SOCKET=" + notify, "CREDENTIALS_DIRECTORY=" + credentials, "RUNTIME_DIRECTORY=" + r.runtime,
		"LISTEN_FDS=2", "LISTEN_FDNAMES=" + units.FDGateway + ":" + units.FDPfard, "CANARY_OF_THE_LAUNCHER=1",
	}
	output(r.cmd, log)
	leak, err := unix.Dup(int(log.Fd())) // what a careless shell leaves open must not reach the server
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	if len(args) == 0 {
		if r.cmd.ExtraFiles == nil {
			r.cmd.ExtraFiles = []*os.File{localPfard(t)}
		}
		r.cmd.ExtraFiles = append([]*os.File{theirs}, r.cmd.ExtraFiles...)
	} else {
		r.cmd.Env = append(r.cmd.Env, "LISTEN_FDS=")
	}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 { // a server never runs as root
		r.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 61183, Gid: 61183}
		err := filepath.WalkDir(base, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, 61183, 61183))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if len(args) == 0 {
		attach.CloseAll(r.cmd.ExtraFiles)
	} else { // for pfard to hand out
		r.passed = theirs
		t.Cleanup(func() { theirs.Close() })
	}
	t.Cleanup(func() {
		_ = unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL) // bwrap that has not set up its sandbox yet dies with nobody
		r.cmd.Wait()
		r.gateway.Close()
	})
	go r.follow(socket)
	return r
}

// follow collects notifications; the proxy listener comes with one.
func (r *run) follow(socket *net.UnixConn) {
	b, oob := make([]byte, 4096), make([]byte, 256)
	for {
		n, oobn, _, _, err := socket.ReadMsgUnix(b, oob)
		if err != nil {
			return
		}
		if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(msgs) > 0 {
			if fds, err := unix.ParseUnixRights(&msgs[0]); err == nil {
				mu.Lock()
				for _, fd := range fds {
					r.sockets = append(r.sockets, os.NewFile(uintptr(fd), "inside"))
				}
				mu.Unlock()
			}
		}
		mu.Lock()
		for line := range strings.SplitSeq(string(b[:n]), "\n") {
			name, value, _ := strings.Cut(line, "=")
			r.vars[name] = value
		}
		mu.Unlock()
	}
}

func (r *run) noted(name string) string {
	mu.Lock()
	defer mu.Unlock()
	return r.vars[name]
}

// hello takes the server over as the gateway does.
func (r *run) hello() {
	r.t.Helper()
	m, files, err := r.gateway.Receive()
	if err != nil || m.Hello == nil || len(files) != 2 {
		r.t.Fatalf("handover: %+v, %d files, %v\n%s", m, len(files), err, r.logged())
	}
	r.stdin, r.stdout = files[0], files[1]
	r.t.Cleanup(func() { r.stdin.Close(); r.stdout.Close() })
}

func (r *run) logged() string { b, _ := os.ReadFile(r.log); return string(b) }

// exit waits for the launcher and returns its exit code.
func (r *run) exit(within time.Duration) int {
	r.t.Helper()
	done := make(chan int, 1)
	go func() { _ = r.cmd.Wait(); done <- r.cmd.ProcessState.ExitCode() }()
	select {
	case code := <-done:
		return code
	case <-time.After(within):
		r.t.Fatalf("the launcher still runs after %v\n%s", within, r.logged())
		return 0
	}
}

func (r *run) say(m handover.Message) {
	r.t.Helper()
	if err := r.gateway.Send(m); err != nil {
		r.t.Fatal(err)
	}
}

func TestServerInItsSandbox(t *testing.T) {
	r := begin(t, script(`read line; echo "got $line, $TOKEN, $(cat /etc/note)"; echo to-stderr >&2; env >&2; id -u; ls /proc/self/fd | tr '\n' ' '; echo; cat`), nil)
	r.hello()
	if _, err := r.stdin.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(r.stdout)
	next := func() string { out.Scan(); return out.Text() }
	if got, want := next(), "got hello, hunter2-secret, from the plan"; got != want {
		t.Errorf("got %q, want %q\n%s", got, want, r.logged())
	}
	if got := next(); got != "1000" {
		t.Errorf("uid inside %q, want 1000", got)
	}
	seen := 0
	for _, pid := range descendants(r.cmd.Process.Pid) { // the uid that the host sees
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil { // the script's own commands come and go
			seen++
		}
		if strings.Contains(string(b), "\nUid:\t0\t") {
			t.Errorf("process %d runs as root", pid)
		}
	}
	if seen < 3 {
		t.Errorf("%d processes are there: bwrap, its pid 1 and the server at least", seen)
	}
	if got := strings.Fields(next()); strings.Join(got, " ") != "0 1 2 3" { // 3 is ls's own
		t.Errorf("descriptors inside %q, want 0 1 2", got)
	}
	r.say(handover.Message{Ready: &handover.Ready{Tools: 7, Server: "x 1.0"}})
	eventually(t, r, func() bool { return r.noted("READY") == "1" })
	if r.noted(units.NotifyTools) != "7" || r.noted("STATUS") != "7 tools, x 1.0" || r.noted(units.NotifyState) != units.StateRunning {
		t.Errorf("notified %v", r.vars)
	}
	eventually(t, r, func() bool {
		log := r.logged()
		return strings.Contains(log, "to-stderr") && strings.Contains(log, "PWD=")
	})
	if log := r.logged(); strings.Contains(log, "CANARY") || strings.Contains(log, "NOTIFY_SOCKET") || strings.Contains(log, "LISTEN") {
		t.Errorf("stderr and environment of the server:\n%s", log)
	}
	for _, p := range processesWith("hunter2-secret") {
		t.Errorf("the secret is in the arguments of %s", p)
	}
	r.cmd.Process.Signal(unix.SIGTERM)
	m, _, err := r.gateway.Receive()
	if err != nil || !m.Stopping {
		t.Fatalf("on SIGTERM the gateway hears %+v, %v; want stopping", m, err)
	}
	r.stdin.Close()
	if code := r.exit(2 * time.Minute); code != 0 {
		t.Errorf("exit code %d after a stop, want 0", code)
	}
}

// processesWith lists processes whose arguments hold text.
func processesWith(text string) (found []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), text) {
			found = append(found, p)
		}
	}
	return found
}

func eventually(t *testing.T, r *run, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after 2 minutes; notified %v\n%s", r.vars, r.logged())
		}
	}
}

// A stop: stdin, 5 s, SIGTERM, 3 s, SIGKILL; and nothing is left, whatever the server forked.
func TestStopSequence(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		min    time.Duration
		term   bool // it is told by SIGTERM
	}{
		"ends with its stdin": {`sleep 1000 & setsid sleep 1001 & trap 'echo term >&2; exit 0' TERM; cat`, 0, false},
		"ends on SIGTERM":     {`setsid sleep 1002 & trap 'echo term >&2; exit 0' TERM; while :; do sleep 0.1; done`, 5 * time.Second, true},
		"ignores everything":  {`trap '' TERM INT HUP; setsid sleep 1003 & while :; do sleep 0.1; done`, 8 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			took, log := stopped(t, c.script)
			for range 2 { // a server that had no processor in its seconds is killed before it can do as it is told
				if strings.Contains(log, "term\n") == c.term && (c.min > 0 || took < 5*time.Second) {
					break
				}
				took, log = stopped(t, c.script)
			}
			if took < c.min {
				t.Errorf("it took %v, want %v", took, c.min)
			} else if c.min == 0 && took >= 5*time.Second { // when it would be told by SIGTERM
				t.Errorf("it took %v, and it ends with its stdin", took)
			}
			if strings.Contains(log, "term\n") != c.term {
				t.Errorf("told by SIGTERM: %t, want %t\n%s", !c.term, c.term, log)
			}
		})
	}
}

// stopped starts a server and stops it. It returns how long that took, and the log.
func stopped(t *testing.T, of string) (time.Duration, string) {
	t.Helper()
	r := begin(t, script("echo up; "+of), nil)
	r.hello()
	if line, err := bufio.NewReader(r.stdout).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%q, %v\n%s", line, err, r.logged())
	}
	sandboxed := descendants(r.cmd.Process.Pid)
	if len(sandboxed) < 3 {
		t.Fatalf("descendants %v: bwrap, its pid 1 and the server at least", sandboxed)
	}
	began := time.Now()
	r.cmd.Process.Signal(unix.SIGTERM)
	eventually(t, r, func() bool { return r.noted("STOPPING") == "1" }) // else it has ended by itself
	r.stdin.Close()
	if code := r.exit(time.Minute); code != 0 {
		t.Errorf("exit code %d", code)
	}
	took := time.Since(began)
	gone(t, sandboxed)
	return took, r.logged()
}

// descendants lists a process's children, their children and so on.
func children(pid int) (all []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for f := range strings.FieldsSeq(string(text)) {
		if n, err := strconv.Atoi(f); err == nil {
			all = append(all, n)
		}
	}
	return all
}

func descendants(pid int) (all []int) {
	for _, c := range children(pid) {
		all = append(append(all, c), descendants(c)...)
	}
	return all
}

func gone(t *testing.T, pids []int) {
	t.Helper()
	end := time.Now().Add(2 * time.Minute)
	for _, pid := range pids {
		for unix.Kill(pid, 0) == nil && !zombie(pid) {
			if time.Now().After(end) {
				b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
				t.Errorf("process %d is still there: %q", pid, b)
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func zombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestNothingSurvivesTheLauncher(t *testing.T) {
	r := begin(t, script("trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM HUP; sleep 1004' &); echo up; sleep 1005"), nil)
	r.hello()
	if line, err := bufio.NewReader(r.stdout).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%q, %v\n%s", line, err, r.logged())
	}
	var all []int
	eventually(t, r, func() bool { all = descendants(r.cmd.Process.Pid); return len(all) >= 5 })
	r.cmd.Process.Kill()
	gone(t, all)
}

func TestWaysToEnd(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		act    func(*run)
		code   int
		status string
	}{
		"server ends":     {"echo last words >&2; exit 7", func(*run) {}, units.ExitCrashed, "back-off 1s after crash 1 of 3: exit status 7: last words"},
		"server ends 0":   {"exit 0", func(*run) {}, units.ExitCrashed, "back-off 1s after crash 1 of 3: it ended by itself with status 0"},
		"server killed":   {"kill -9 $$", func(*run) {}, units.ExitCrashed, "back-off 1s after crash 1 of 3: killed by SIGKILL"},
		"no such command": {"", nil, units.ExitCrashed, "execvp /usr/bin/none: No such file or directory"},
		"no MCP": {"cat", func(r *run) {
			r.say(handover.Message{Failed: "no answer to initialize"})
			r.stdin.Close()
		}, units.ExitCrashed, "back-off 1s after crash 1 of 3: no answer to initialize"},
		"gateway goes": {"cat", func(r *run) { r.gateway.Close(); r.stdin.Close() }, units.ExitGateway, "the gateway went away"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := script(c.script)
			if c.act == nil {
				s.Command = "/usr/bin/none"
			}
			r := begin(t, s, nil)
			r.hello()
			if c.act != nil {
				c.act(r)
			}
			if code := r.exit(2 * time.Minute); code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, r.logged())
			}
			eventually(t, r, func() bool { return strings.Contains(r.noted("STATUS"), c.status) })
		})
	}
}

// TestRefusedToken: a remote server that wants another token is not tried again, and says what to type; any other
// server that a gateway says that of has crashed.
func TestRefusedToken(t *testing.T) {
	refuse := func(r *run, scopes ...string) {
		login := handover.Shown{Unauthorized: true, Scopes: scopes}
		r.say(handover.Message{Failed: "remote server: 401", Shown: login})
		r.stdin.Close()
	}
	remote := script("cat")
	remote.Remote = "https://mcp.example/mcp"
	for want, scopes := range map[string][]string{
		"pfar login x": nil, "pfar login x --scope a:b --scope c": {"a:b", "c"},
	} {
		remedy := units.ToDo(units.SignIn, "x", scopes...)
		words := want + ": remote server: 401"
		r := begin(t, remote, nil)
		r.hello()
		refuse(r, scopes...)
		eventually(t, r, func() bool { return strings.Contains(r.noted("STATUS"), "pfar login ") })
		state, wait := r.noted(units.NotifyState), r.noted(units.NotifyWait)
		login := units.Wait{For: units.WaitLogin, Remedy: remedy, Words: words}
		if state != units.StateWaiting || wait != login.Notification() ||
			!strings.Contains(r.noted("STATUS"), words) {
			t.Errorf("it is %s, %s: %s", state, wait, r.noted("STATUS"))
		}
		r.cmd.Process.Signal(syscall.SIGTERM)
		if code := r.exit(2 * time.Minute); code != 0 {
			t.Errorf("exit code %d\n%s", code, r.logged())
		}
	}
	one := begin(t, remote, session(t))
	one.hello()
	refuse(one)
	login := units.Wait{
		For: units.WaitLogin, Remedy: units.ToDo(units.SignIn, "x"), Words: "pfar login x: remote server: 401",
	}
	if code := one.exit(2 * time.Minute); code != units.ExitCrashed ||
		one.noted(units.NotifyState) != units.StateWaiting || one.noted(units.NotifyWait) != login.Notification() ||
		!strings.Contains(one.logged(), "the session is over: pfar login x: remote server: 401") {
		t.Errorf("of one session: exit code %d, %s\n%s", code, one.noted(units.NotifyState), one.logged())
	}
	socket := script("cat")
	socket.Attached = "/run/fs/mcp.sock"
	attached := beginPlan(t, socket, map[string]any{
		"gateway": map[string]any{"name": "x", "token_by": units.ToDo(units.EditFile, "x")},
	})
	attached.hello()
	refuse(attached, "a:b")
	eventually(t, attached, func() bool {
		return strings.Contains(attached.noted("STATUS"), "pfar edit x: remote server: 401")
	})
	attached.cmd.Process.Signal(syscall.SIGTERM)
	if code := attached.exit(2 * time.Minute); code != 0 {
		t.Errorf("at a socket: exit code %d\n%s", code, attached.logged())
	}
	local := begin(t, script("cat"), nil)
	local.hello()
	refuse(local)
	if code := local.exit(2 * time.Minute); code != units.ExitCrashed {
		t.Errorf("a server on this machine: exit code %d\n%s", code, local.logged())
	}
}

// TestGatewayAndServerEndAtOnce has a launcher learn at the same time that the gateway hung up and that the server
// ended by the end of its stdin: that is no crash.
func TestGatewayAndServerEndAtOnce(t *testing.T) {
	for n := range 8 { // which of the two it sees first is chance
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			r := begin(t, script("cat"), nil)
			r.hello()
			if _, err := r.stdin.WriteString("up\n"); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(r.stdout).ReadString('\n'); err != nil || line != "up\n" {
				t.Fatalf("%q, %v\n%s", line, err, r.logged())
			}
			sandboxed := descendants(r.cmd.Process.Pid)
			if err := r.cmd.Process.Signal(unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			r.gateway.Close()
			r.stdin.Close()
			gone(t, sandboxed)
			if err := r.cmd.Process.Signal(unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if code := r.exit(2 * time.Minute); code != units.ExitGateway {
				t.Errorf("exit code %d, want %d", code, units.ExitGateway)
			}
			if log := r.logged(); strings.Contains(log, "crashed") {
				t.Errorf("it logs\n%s", log)
			}
			eventually(t, r, func() bool { return r.noted("STATUS") == gatewayLeft })
			if h := readHistory(r.runtime); h.InRow != 0 {
				t.Errorf("%d crashes are counted", h.InRow)
			}
		})
	}
}

func TestThirdCrashDisables(t *testing.T) {
	r := begin(t, script("exit 1"), func(runtime string) {
		h := history{InRow: 2, Recent: 2, Last: time.Now().Add(-time.Minute)}
		if err := h.write(runtime); err != nil {
			t.Fatal(err)
		}
	})
	r.hello()
	if code := r.exit(2 * time.Minute); code != units.ExitDisabled {
		t.Errorf("exit code %d, want %d", code, units.ExitDisabled)
	}
	eventually(t, r, func() bool {
		return r.noted("STATUS") == "disabled after 3 crashes in a row: exit status 1" && r.noted(units.NotifyState) == units.StateFailed
	})
}

// The clock may have been set back since the crash: no wait is longer than its step.
func TestBackOffAfterTheClockWasSet(t *testing.T) {
	begun := time.Now()
	r := begin(t, script("exit 1"), func(runtime string) {
		h := history{InRow: 1, Recent: 1, Last: time.Now().AddDate(1, 0, 0)}
		if err := h.write(runtime); err != nil {
			t.Fatal(err)
		}
	})
	r.hello()
	if took, least := time.Since(begun), backoff.Crashes().After(1); took < least || took > 2*time.Minute {
		t.Errorf("it waited %s, and the step is %s", took, least)
	}
}

func TestBackOffCanBeStopped(t *testing.T) {
	r := begin(t, script("exit 1"), func(runtime string) {
		h := history{InRow: 2, Recent: 3, Last: time.Now(), Why: "exit status 1"}
		if err := h.write(runtime); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, r, func() bool { return strings.HasPrefix(r.noted("STATUS"), "back-off 30s after crash 2 of 3") })
	r.cmd.Process.Signal(unix.SIGTERM)
	if code := r.exit(2 * time.Minute); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// What stood at a source when the plan was made may be a link by now.
func TestSourceThatBecameALink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	s := script("cat")
	s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.ROOverlay, Source: filepath.Join(dir, "data"), Dest: "/data"})
	r := begin(t, s, nil)
	if code := r.exit(2 * time.Minute); code != units.ExitDisabled {
		t.Errorf("exit code %d", code)
	}
	eventually(t, r, func() bool { return strings.Contains(r.noted("STATUS"), "symbolic link") })
}

// The sockets are inside the server's namespace, and are accepted on from outside.
func TestSocketsOfTheNamespace(t *testing.T) {
	r := begin(t, script(`cat > /dev/null`), nil)
	r.hello()
	eventually(t, r, func() bool { mu.Lock(); defer mu.Unlock(); return len(r.sockets) > 0 })
	if c, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(egress.ProxyPort), time.Second); err == nil {
		c.Close()
		t.Error("the proxy can be reached from the host's namespace")
	}
	kinds := map[string]int{}
	for _, f := range r.sockets {
		kind := kindOf(t, f)
		kinds[kind]++
		if l, err := net.FileListener(f); err == nil && strings.HasPrefix(kind, "tcp") {
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					io.WriteString(c, l.Addr().String())
					c.Close()
				}
			}()
		}
	}
	want := map[string]int{"tcp 127.0.0.1:9876": 1, "tcp 127.0.0.1:9877": 1, "tcp 127.0.0.1:53": 1, "udp 127.0.0.1:53": 1, "netlink": 1}
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		want["tcp [::1]:9877"] = 1
	}
	if !maps.Equal(kinds, want) {
		t.Errorf("the namespace sends %v, want %v", kinds, want)
	}
	for address, answer := range map[string]string{
		"127.0.0.1 9876": "127.0.0.1:9876", "198.18.1.1 443": "127.0.0.1:9877", "192.0.2.9 5432": "127.0.0.1:9877", "8.8.8.8 53": "refused", "192.0.2.9 443": "refused",
	} {
		if got := r.fromInside(address); got != answer {
			t.Errorf("a connection to %s gets %q, want %q", address, got, answer)
		}
	}
}

func kindOf(t *testing.T, f *os.File) string {
	t.Helper()
	fd := int(f.Fd())
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain == unix.AF_NETLINK {
		return "netlink"
	}
	if l, err := net.FileListener(f); err == nil {
		defer l.Close()
		return "tcp " + l.Addr().String()
	}
	c, err := net.FilePacketConn(f)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return "udp " + c.LocalAddr().String()
}

// fromInside connects from the server's namespace and returns what the other side says.
func (r *run) fromInside(address string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	const program = `
import socket, sys
try:
    print(socket.create_connection((sys.argv[1], int(sys.argv[2]))).recv(100).decode())
except ConnectionRefusedError:
    print("refused")`
	host, port, _ := strings.Cut(address, " ")
	out, err := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(descendants(r.cmd.Process.Pid)[0]), "-U", "-n", "--preserve-credentials",
		"python3", "-c", program, host, port).CombinedOutput()
	if err != nil {
		r.t.Errorf("from inside: %q, %v", out, err)
	}
	return strings.TrimSpace(string(out))
}

func TestProbe(t *testing.T) {
	probe := func(env ...string) (string, error) {
		cmd := exec.Command(program, probeArg)
		cmd.Env = env
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 61183, Gid: 61183}}
		}
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := probe("PATH=/nowhere"); err == nil || !strings.Contains(out, "apt install bubblewrap") {
		t.Errorf("without bwrap: %q, %v", out, err)
	}
	out, err := probe("PATH=" + os.Getenv("PATH"))
	if found, ok := units.ParseProbe(out); err != nil || !ok {
		t.Errorf("got %q, %v, read as %+v; want a probe", out, err, found)
	}
}

// TestNotDumpable: nobody of the launcher's user may read its memory or take its descriptors, before its server runs or
// after. Its file system and namespaces, which pfard looks for, are root's to see.
func TestNotDumpable(t *testing.T) {
	r := begin(t, script("exec cat"), nil)
	r.hello()
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid), &st); err != nil || st.Uid != 0 {
		t.Errorf("/proc/PID/fd of the launcher belongs to %d (%v), want root", st.Uid, err)
	}
	if os.Getuid() == 0 {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", r.cmd.Process.Pid))
		if err != nil {
			t.Errorf("root cannot open its namespace: %v", err)
		} else {
			f.Close()
		}
	}
}
