package systemd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
)

// victimVariable makes this program another test run, which ends badly: how, after it has booted a machine.
const victimVariable = "PFAR_TEST_BED_VICTIM"

// report is what a victim writes about its machine.
type report struct {
	Processes []int
}

func victim() {
	b, err := bed.Reopen(context.Background(), cache)
	if err != nil {
		panic(err)
	}
	if os.Getenv(victimVariable) == "boot" { // is killed somewhere in there
		fmt.Println("{}")
	}
	m, err := b.Start()
	if err != nil {
		panic(err)
	}
	m.Try("sh", "-c", "mount -t tmpfs tmpfs /mnt; ip link add bed-proof type dummy; setsid sleep 1000 >/dev/null 2>&1 &")
	if err := json.NewEncoder(os.Stdout).Encode(report{m.Processes()}); err != nil {
		panic(err)
	}
	if os.Getenv(victimVariable) == "panic" {
		_, _ = io.Copy(io.Discard, os.Stdin) // until somebody has looked
		panic("as told")
	}
	time.Sleep(time.Minute)
}

// TestNothingIsLeft ends test runs in every bad way and looks for their machines.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"panic": 0, "kill": syscall.SIGKILL, "interrupt": syscall.SIGINT, "boot": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), victimVariable+"="+name)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadBytes('\n')
			if err != nil {
				t.Fatal(err, cmd.Wait())
			}
			var r report
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			held, err := bed.Hold(r.Processes)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			if name == "boot" {
				time.Sleep(150 * time.Millisecond)
			} else if inside := held.Inside(); len(held) < 6 || len(inside) < 5 {
				t.Fatalf("%q in %d namespaces: this looks for the wrong thing", inside, len(held))
			}
			stdin.Close()
			if signal != 0 {
				_ = cmd.Process.Signal(signal)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("the victim has lived")
			}
			bed.Eventually(t, soon, func() error {
				return errors.Join(none("processes", held.Inside()), none("cgroups", machines.Cgroups(cmd.Process.Pid)))
			})
		})
	}
}

func none(what string, left []string) error {
	if len(left) > 0 {
		return fmt.Errorf("%s are left: %q", what, left)
	}
	return nil
}

// TestGuardianIsKilled has the machine go with its guardian, and its cgroup with the test.
func TestGuardianIsKilled(t *testing.T) {
	t.Parallel()
	m, err := machines.Start()
	if err != nil {
		t.Fatal(err)
	}
	held, err := bed.Hold(m.Processes())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	group := filepath.Dir(filepath.Dir(m.Cgroup()))
	guardian, err := strconv.Atoi(group[strings.LastIndex(group, "-")+1:])
	if err != nil {
		t.Fatalf("whose guardian has the cgroup %q? %v", group, err)
	}
	if err := syscall.Kill(guardian, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	bed.Eventually(t, soon, func() error { return none("processes", held.Inside()) })
	if err := m.Close(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the machine's end says %v", err)
	}
	if _, err := os.Stat(group); err == nil {
		t.Errorf("the cgroup %q is left", group)
	}
}
