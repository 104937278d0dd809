package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/sandbox"
)

// apart is the user and group that the server runs as here, its launcher does not.
const apart = 261183

// mapsIDs does what newuidmap(1) does for pfard.
func mapsIDs(pid int) attach.Placed {
	for _, file := range []string{"uid_map", "gid_map"} {
		text := fmt.Sprintf("%d %d 1\n", apart, apart)
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, file), []byte(text), 0); err != nil {
			return attach.Placed{Error: err.Error()}
		}
	}
	return attach.Placed{How: "cgroup"}
}

func beginApart(t *testing.T, text string, place func(pid int) attach.Placed) *run {
	t.Helper()
	return beginApartIn(t, script(text), place)
}

func beginApartIn(t *testing.T, s sandbox.Sandbox, place func(pid int) attach.Placed) *run {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root maps ids without newuidmap(1)")
	}
	return beginIn(t, s, nil, func(cmd *exec.Cmd, log *os.File) {
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Args = append(cmd.Args, "--ids", fmt.Sprintf("%d:%d", apart, apart))
		p := &pfard{t: t, search: asIs}
		p.place = func() *attach.Message {
			placed := place(p.placing)
			return &attach.Message{Placed: &placed}
		}
		cmd.ExtraFiles = []*os.File{localPfardOf(t, p)}
	})
}

// TestServerApart: a server with ids of its own has nothing of its launcher's user, whose share of the kernel it cannot
// use up, and can all that a server can.
func TestServerApart(t *testing.T) {
	r := beginApart(t, `cat /dev/stdin | { read line; echo "got $line, $TOKEN" > /dev/stdout; }; echo heard >/dev/stderr; id -G; cat`, mapsIDs)
	r.hello()
	if _, err := r.stdin.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(r.stdout)
	out.Scan()
	if got, want := out.Text(), "got hello, hunter2-secret"; got != want {
		t.Fatalf("got %q, want %q\n%s", got, want, r.logged())
	}
	all := descendants(r.cmd.Process.Pid)
	for _, pid := range all {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for _, line := range []string{"Uid:", "Gid:"} {
			if want := fmt.Sprintf("\n%s\t%[2]d\t%[2]d\t%[2]d\t%[2]d\n", line, apart); !strings.Contains(string(b), want) {
				t.Errorf("process %d is not user and group %d alone:\n%s", pid, apart, b)
			}
		}
		if !strings.Contains(string(b), "\nGroups:\t \n") {
			t.Errorf("process %d has groups of pfar's user:\n%s", pid, b)
		}
	}
	if len(all) < 3 {
		t.Errorf("%d processes are there, want bwrap, its pid 1 and the server at least", len(all))
	}
	if err := r.cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, all) // though another user's, they end with the launcher
}

func TestServerApartStops(t *testing.T) {
	r := beginApart(t, `trap '' TERM; while :; do sleep 1; done`, mapsIDs)
	r.hello()
	r.cmd.Process.Signal(unix.SIGTERM)
	if code := r.exit(time.Minute); code != 0 {
		t.Errorf("exit code %d after a stop, want 0\n%s", code, r.logged())
	}
}

// TestServerApartNeedsItsIDs: without them nothing starts, as the launcher's user least of all.
func TestServerApartNeedsItsIDs(t *testing.T) {
	r := beginApart(t, `cat`, func(int) attach.Placed { return attach.Placed{Error: "mapping a subordinate id: no"} })
	if code := r.exit(time.Minute); code != 78 {
		t.Errorf("exit code %d, want 78", code)
	}
	eventually(t, r, func() bool { return strings.Contains(r.noted("STATUS"), "mapping a subordinate id: no") })
}
