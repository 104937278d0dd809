package systemd

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// without puts the programs into a machine as they are shipped: without the race detector.
func without(t *testing.T, m *bed.Machine) {
	t.Helper()
	dir := t.TempDir()
	args := append(slices.Clone(goBuild), "-o", dir+"/")
	for _, program := range []string{"pfard", "pfar-gateway", "pfar-sandbox", "pfar-egress"} {
		args = append(args, "./cmd/"+program)
	}
	if err := command(t.Context(), []string{"CGO_ENABLED=0"}, "go", args...); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"pfard", "pfar-gateway", "pfar-sandbox", "pfar-egress"} {
		m.PutFile(t, "/usr/lib/pfar/"+program, filepath.Join(dir, program), 0o755)
	}
}

// switches counts how often the kernel has given a process's threads the processor.
func switches(t *testing.T, m *bed.Machine, pid string) (n int) {
	t.Helper()
	for _, word := range strings.Fields(m.Shell(t, "cat /proc/"+pid+"/task/*/status | sed -n 's/.*voluntary_ctxt_switches://p'")) {
		count, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		n += count
	}
	return n
}

// memory is what a process has written, so what it alone can give back, in KiB (Pss_Anon of proc_pid_smaps(5)).
// Pages of the program's file are
// left out: how many of them are there says how busy the machine was, and BenchmarkIdle counts them.
func memory(t *testing.T, m *bed.Machine, pid string) int {
	t.Helper()
	kib, err := strconv.Atoi(strings.TrimSpace(m.Shell(t, "sed -n 's/^Pss_Anon: *\\([0-9]*\\) kB/\\1/p' /proc/"+pid+"/smaps_rollup")))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// quiet watches processes, by name, for some seconds, in which they have to sleep.
func quiet(t *testing.T, m *bed.Machine, processes map[string]string) error {
	t.Helper()
	before := map[string]int{}
	for name, pid := range processes {
		if before[name] = switches(t, m, pid); before[name] == 0 {
			t.Fatalf("%s, process %s, has never run: this counts the wrong thing", name, pid)
		}
	}
	const watched = 5 * time.Second
	time.Sleep(watched)
	for name, pid := range processes {
		n := switches(t, m, pid) - before[name]
		t.Logf("%s: %d switches in %s", name, n, watched)
		if n > 10 {
			return fmt.Errorf("%s has woken %d times in %s", name, n, watched)
		}
	}
	return nil
}

// TestIdle: where nothing happens, nothing of pfar wakes up, and it takes little memory.
func TestIdle(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	without(t, m)
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	processes := map[string]string{}
	for i := range 3 {
		name := fmt.Sprintf("idle-%d", i)
		m.Put(t, "/etc/pfar/mcp.d/"+name+".hcl", echo(""), 0o644)
		becomes(t, m, name, control.Running)
		processes[name] = pid(t, m, "pfar-mcp@"+name)
	}
	for _, unit := range []string{"pfard", "pfar-gateway"} {
		processes[unit] = pid(t, m, unit)
	}
	// Go's runtime looks after itself for a while after the last work, on a busy machine for longer.
	time.Sleep(3 * time.Second)
	bed.Eventually(t, soon, func() error { return quiet(t, m, processes) })
	pfard, gateway := memory(t, m, processes["pfard"]), memory(t, m, processes["pfar-gateway"])
	t.Logf("memory: pfard %d KiB, gateway %d KiB, a launcher %d KiB", pfard, gateway, memory(t, m, processes["idle-0"]))
	if pfard+gateway > 40<<10 {
		t.Errorf("pfard and the gateway have written %d KiB, want no more than 40 MiB", pfard+gateway)
	}
}
