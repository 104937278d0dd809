// Package processestest makes directories like /proc: pids, parents and times in, the files that package processes
// reads out.
package processestest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Make adds a process to a directory like /proc. It has 100 KiB of its own and 50 resident pages, and has used so many
// ticks.
func Make(t *testing.T, proc string, pid, parent int, name string, ticks int) {
	t.Helper()
	dir := filepath.Join(proc, fmt.Sprint(pid))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const format = "%d (%s) S %d 1 1 0 -1 4194560 1 2 3 4 %d 0 0 0 20 0 1 0 100 1000000 50 18446744073709551615 1 1"
	stat := fmt.Sprintf(format, pid, name, parent, ticks)
	if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600); err != nil {
		t.Fatal(err)
	}
	const rollup = "00400000-7fff0000 ---p 00000000 00:00 0  [rollup]\nRss:  999 kB\nPss:                 100 kB\n" +
		"Pss_Dirty:  7 kB\n"
	if err := os.WriteFile(filepath.Join(dir, "smaps_rollup"), []byte(rollup), 0o600); err != nil {
		t.Fatal(err)
	}
}
