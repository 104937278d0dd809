package units

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestConstants: what is written to, what a loader has changed and what is another file's keeps its pages.
func TestConstants(t *testing.T) {
	const smaps = `00400000-00500000 r-xp 00000000 fe:00 12                                 /usr/lib/pfar/pfard
Size:               1024 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00500000-00600000 r--p 00100000 fe:00 12                                 /usr/lib/pfar/pfard
Anonymous:             0 kB
00600000-00700000 r--p 00200000 fe:00 12                                 /usr/lib/pfar/pfard
Anonymous:             4 kB
00700000-00800000 rw-p 00300000 fe:00 12                                 /usr/lib/pfar/pfard
Anonymous:             0 kB
00800000-00900000 rw-p 00000000 00:00 0
Anonymous:           900 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 13                         /usr/lib/libc.so.6
Anonymous:             0 kB
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
`
	const program = "/usr/lib/pfar/pfard"
	got, err := constants(strings.NewReader(smaps), 0x400010)
	if want := []mapping{{0x400000, 0x500000, program, true}, {0x500000, 0x600000, program, true}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := constants(strings.NewReader(smaps), 0xa00000); err == nil {
		t.Errorf("%v of a program that is not there", got)
	}
	if got, err := constants(strings.NewReader(""), 0x400010); err == nil {
		t.Errorf("%v of nothing", got)
	}
}

// TestUnmapProgram: this program goes on, with fewer of its pages.
func TestUnmapProgram(t *testing.T) {
	before := resident(t)
	if err := unmapProgram(); err != nil {
		t.Fatal(err)
	}
	if after := resident(t); after >= before {
		t.Errorf("%d KiB of files were mapped, and now %d", before, after)
	}
}

// resident is how much this process has mapped of files, in KiB: RssFile of proc_pid_status(5).
func resident(t *testing.T) (kib int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "RssFile:")
	if _, err := fmt.Sscan(rest, &kib); !ok || err != nil {
		t.Fatalf("no RssFile in %s: %v", b, err)
	}
	return kib
}
