package runs

import (
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// resident is the memory that the process has, in bytes (proc_pid_statm(5)).
func resident(b *testing.B) float64 {
	b.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(raw))[1])
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages * os.Getpagesize())
}

// BenchmarkWaiting is what 1,000 runs take that wait for an approval, each of ten steps and with a store of 16 KiB: at
// most 20 MB more of the gateway's memory.
func BenchmarkWaiting(b *testing.B) {
	const (
		runs  = 1000
		limit = 20e6
	)
	store := map[string]json.RawMessage{"text": json.RawMessage(`"` + strings.Repeat("x", 16<<10) + `"`)}
	for b.Loop() {
		s := asks()
		bed := s.bed(b, b.TempDir(), Limits{})
		bed.Start()
		warm := bed.begin(b, planned(tenSteps))
		bed.until(b, warm, rests)
		before := resident(b)
		for range runs {
			id, err := bed.as(me.Client, planned(tenSteps), store)
			if err != nil {
				b.Fatal(err)
			}
			bed.until(b, id, rests)
			s.mu.Lock()
			s.calls = nil
			s.mu.Unlock()
		}
		added := resident(b) - before
		b.ReportMetric(added/1e6, "MB")
		if len(s.waiting) != runs+1 {
			b.Fatalf("%d runs wait", len(s.waiting))
		}
		if added > limit {
			b.Fatalf("%d runs that wait take %.1f MB, and may take %.1f MB", runs, added/1e6, limit/1e6)
		}
	}
}
