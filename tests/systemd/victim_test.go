package systemd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
)

// victimVariable makes this program another test run, which ends badly: how, after it has booted a machine.
const victimVariable = "PFAR_TEST_BED_VICTIM"

// report is what a victim writes about its machine.
type report struct {
	Cgroup     string
	Namespaces map[string]bool
}

func victim() {
	b, err := bed.Reopen(context.Background(), images, cache)
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
	if err := json.NewEncoder(os.Stdout).Encode(report{m.Cgroup(), m.Namespaces()}); err != nil {
		panic(err)
	}
	if os.Getenv(victimVariable) == "panic" {
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
			if name == "boot" {
				time.Sleep(150 * time.Millisecond)
			} else if len(r.Namespaces) < 6 || len(bed.InNamespaces(r.Namespaces)) < 5 {
				t.Fatalf("%d processes in %v: this looks for the wrong thing", len(bed.InNamespaces(r.Namespaces)), r.Namespaces)
			}
			if signal != 0 {
				_ = cmd.Process.Signal(signal)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("the victim has lived")
			}
			bed.Eventually(t, 10*time.Second, func() error {
				if left := bed.InNamespaces(r.Namespaces); len(left) > 0 {
					return fmt.Errorf("processes are left: %q", left)
				}
				if _, err := os.Stat(r.Cgroup); err == nil {
					return fmt.Errorf("the cgroup %q is left", r.Cgroup)
				}
				return nil
			})
		})
	}
}
