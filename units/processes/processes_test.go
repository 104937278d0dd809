package processes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/processes/processestest"
)

// TestBelow sums up what runs below launchers, whatever the processes call themselves, and reads past what is no
// process.
func TestBelow(t *testing.T) {
	proc := t.TempDir()
	for _, p := range [][2]int{{2, 1}, {3, 2}, {4, 3}, {6, 6}, {7, 8}, {8, 7}} {
		processestest.Make(t, proc, p[0], p[1], "node) S 1 (x", p[0])
	}
	for name, content := range map[string]string{
		"11": "", "12": "12 (half", "13": "13 (x) S 2 1", "14": "14 (x) S -5 " + strings.Repeat("x ", 40),
		"self": "2 (x) S 3",
	} {
		if err := os.MkdirAll(filepath.Join(proc, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, name, "stat"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(proc, "4", "smaps_rollup")); err != nil {
		t.Fatal(err)
	}
	table, err := Read(proc)
	if err != nil {
		t.Fatal(err)
	}
	resident := 50 * uint64(os.Getpagesize())
	for _, tt := range []struct {
		launchers []int
		want      Cost
	}{
		{[]int{2}, Cost{100<<10 + resident, 7 * Tick, 2}}, // 4 may not be read: its resident size
		{[]int{3}, Cost{resident, 4 * Tick, 1}},
		{[]int{2, 3}, Cost{resident, 4 * Tick, 1}}, // 3 is a launcher itself
		{[]int{6}, Cost{}},
		{[]int{7}, Cost{100 << 10, 8 * Tick, 1}},
		{[]int{99}, Cost{}},
		{nil, Cost{}},
	} {
		if got := table.Below(tt.launchers); got != tt.want {
			t.Errorf("below %v: %+v, want %+v", tt.launchers, got, tt.want)
		}
	}
	if _, err := Read(filepath.Join(proc, "none")); err == nil {
		t.Error("a /proc that is not there is read")
	}
	pid := os.Getpid()
	if table, err := Read(Proc); err != nil || table.memory(pid) < 1<<20 || table.resident[pid] < 1<<20 {
		t.Errorf("of the real /proc this process has no memory: %v", err)
	}
}

// TestShare: time that is used up is a share of the time that has passed, and never less than nothing.
func TestShare(t *testing.T) {
	for _, tt := range []struct {
		used, passed time.Duration
		want         float64
	}{
		{time.Second, 2 * time.Second, 0.5}, {3 * time.Second, time.Second, 3}, {0, time.Second, 0},
		{-time.Second, time.Second, 0}, {time.Second, 0, 0}, {time.Second, -time.Second, 0},
	} {
		if got := Share(tt.used, tt.passed); got != tt.want {
			t.Errorf("%v of %v: %v, want %v", tt.used, tt.passed, got, tt.want)
		}
	}
}
