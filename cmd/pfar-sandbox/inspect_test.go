package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

// inspectWith runs an inspector that is a script, and returns the socket that asks it.
func inspectWith(t *testing.T, text string, timeout time.Duration) string {
	t.Helper()
	base, err := os.MkdirTemp("", "pfar-inspect")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	box := script(text)
	box.Env = box.Env[:1]
	given, err := json.Marshal(plan.Inspection{Sandbox: box, Inspector: inspector.External{Name: "scan", Exec: []string{"/usr/bin/sh"}, Parallel: 2, Timeout: timeout, Memory: 128 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "plan"), given, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(base, "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	defer f.Close()
	cmd := exec.Command(program, inspectArg)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CREDENTIALS_DIRECTORY=" + base, "LISTEN_FDS=1", "LISTEN_FDNAMES=" + units.FDInspect, "CANARY_OF_THE_LAUNCHER=1"}
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stderr = t.Output()
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 61183, Gid: 61183}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the launcher: %v", err)
		}
	})
	return socket
}

func askInspector(socket, question string) (string, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(question)); err != nil {
		return "", err
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// TestInspectorConfined has one that looks around: there is nothing but what it was asked.
func TestInspectorConfined(t *testing.T) {
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("canary"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	socket := inspectWith(t, `cat; echo; env | grep -v ^PWD= | grep -v ^_= | grep -v ^SHLVL= | sort; ls /run /etc 2>&1; cat `+canary+` 2>&1
python3 -c "
import socket
for a in (('127.0.0.1', `+port+`), ('192.0.2.1', 443)):
    try:
        socket.create_connection(a, 1); print('reached')
    except OSError as e:
        print('not reached')
"
ls /proc | grep -c '^[0-9]'; ls /proc/self/fd | wc -l; touch /usr/x 2>&1; id -u`, 20*time.Second)
	got, err := askInspector(socket, "the question")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the question\nPATH=/usr/bin\n", "note", "No such file", "not reached\nnot reached\n", "Read-only file system"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	for _, no := range []string{"CANARY", "canary\n", "\nreached", "CREDENTIALS"} {
		if strings.Contains(strings.ReplaceAll(got, canary, ""), no) {
			t.Errorf("%q in:\n%s", no, got)
		}
	}
}

// TestInspectorAnswers wants an answer from those that end well in time, and none from all others.
func TestInspectorAnswers(t *testing.T) {
	for name, one := range map[string]struct{ script, want string }{
		"good": {`cat >/dev/null; echo '{"verdict":"clean"}'`, "{\"verdict\":\"clean\"}\n"}, "does not read": {"echo x", "x\n"}, "fails": {`echo '{"verdict":"clean"}'; exit 3`, ""}, "is killed": {`echo '{"verdict":"clean"}'; kill -9 $$`, ""},
		"hangs": {`echo '{"verdict":"clean"}'; sleep 60`, ""}, "leaves a child": {`echo x; sleep 60 & exit 0`, ""}, "too much": {`head -c 70000 /dev/zero`, ""}, "endless": {`cat /dev/zero`, ""}, "memory": {`python3 -c "x = bytearray(200 << 20)" 2>/dev/null && echo '{"verdict":"clean"}'`, ""}, "some memory": {`python3 -c "x = bytearray(50 << 20)" && echo x`, "x\n"}, "fork bomb": {`b() { b | b & }; b; sleep 60`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			limit := 2 * time.Second
			if one.want != "" {
				limit = 2 * time.Minute
			}
			socket := inspectWith(t, one.script, limit)
			start := time.Now()
			got, err := askInspector(socket, strings.Repeat("q", 200_000))
			if got != one.want && !(name == "leaves a child" && got == "x\n") {
				t.Errorf("%.100q, %v; want %q", got, err, one.want)
			}
			if took := time.Since(start); took > 40*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestInspectorParallel gives each its own answer, and one that hangs keeps none of the others from theirs.
func TestInspectorParallel(t *testing.T) {
	socket := inspectWith(t, `read q; test "$q" = hang && sleep 60; echo "$q"`, 5*time.Second)
	var wait sync.WaitGroup
	wait.Go(func() {
		if got, _ := askInspector(socket, "hang\n"); got != "" {
			t.Errorf("got %q", got)
		}
	})
	for i := range 6 {
		wait.Go(func() {
			q := fmt.Sprintf("question %d\n", i)
			if got, err := askInspector(socket, q); got != q {
				t.Errorf("asked %q, got %q, %v", q, got, err)
			}
		})
	}
	wait.Wait()
}
