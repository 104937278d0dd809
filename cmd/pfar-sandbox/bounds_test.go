package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// share is the part of what its user has that one server may take: an eighth, as pfard(8) says.
const share = 8

// takes prints how many inotify instances a program gets, and how many descriptors it may have open.
const takes = `python3 -c '
import ctypes, resource
libc, n = ctypes.CDLL(None), 0
while libc.inotify_init() >= 0: n += 1
print(n, resource.getrlimit(resource.RLIMIT_NOFILE)[1], flush=True)
'; cat`

// TestServerTakesAPart: pfar of an ordinary user runs as the same user as its servers, and needs some of what is
// counted by user as well.
func TestServerTakesAPart(t *testing.T) {
	const files = "/proc/sys/fs/inotify/max_user_instances"
	b, err := os.ReadFile(files)
	if err != nil {
		t.Fatal(err)
	}
	all, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for name, limit := range map[string]uint64{"plenty of descriptors": 10_000, "few descriptors": 1024} {
		t.Run(name, func(t *testing.T) {
			r := beginIn(t, script(takes), nil, func(cmd *exec.Cmd, log *os.File) {
				cmd.Stdout, cmd.Stderr = log, log
				cmd.Path, cmd.Args = "/usr/bin/prlimit", []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", limit, limit), program}
			})
			r.hello()
			out := bufio.NewScanner(r.stdout)
			out.Scan()
			got := strings.Fields(out.Text())
			if len(got) != 2 {
				t.Fatalf("got %q\n%s", out.Text(), r.logged())
			}
			if n, _ := strconv.Atoi(got[0]); n == 0 || n > all/share {
				t.Errorf("a server got %d inotify instances of its user's %d", n, all)
			}
			if want := strconv.FormatUint(min(4096, limit/2), 10); got[1] != want {
				t.Errorf("a server may have %s descriptors, want %s: less than pfar", got[1], want)
			}
			r.cmd.Process.Signal(unix.SIGTERM)
		})
	}
}

// TestServerTakesAPartOfEach: the launcher's user namespace has its part of all that the kernel counts by user.
// TestServerTakesAPart uses one of them up; watches are too many for that.
func TestServerTakesAPartOfEach(t *testing.T) {
	r := begin(t, script("cat"), nil)
	r.hello()
	bwrap := children(r.cmd.Process.Pid)
	if len(bwrap) != 1 {
		t.Fatalf("the launcher has the processes %v", bwrap)
	}
	for ours, users := range map[string]string{
		"max_inotify_instances": "inotify/max_user_instances", "max_inotify_watches": "inotify/max_user_watches",
		"max_fanotify_groups": "fanotify/max_user_groups", "max_fanotify_marks": "fanotify/max_user_marks",
	} {
		all, err := os.ReadFile("/proc/sys/fs/" + users)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(all)))
		if err != nil {
			t.Fatal(err)
		}
		within := []string{
			"--user", "--preserve-credentials", fmt.Sprintf("--target=%d", bwrap[0]), "cat", "/proc/sys/user/" + ours,
		}
		out, err := exec.Command("nsenter", within...).CombinedOutput()
		if want := fmt.Sprintln(n / share); err != nil || string(out) != want {
			t.Errorf("of fs/%s = %d a server has %s (%v), want %s", users, n, out, err, want)
		}
	}
	manual, err := os.ReadFile("../../packaging/man/pfard.8")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manual), "an eighth of the user's inotify instances and watches") {
		t.Errorf("the manual does not say that a server gets 1/%d", share)
	}
}
