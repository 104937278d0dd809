package undo

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/handover"
)

// BenchmarkKeepWrite is what keeping adds to a write of 1 MiB over 1 MiB: it reports how many times as long the write
// takes with it, each next to one without. Neither waits for the disk, and a call does not. BenchmarkKeep has what the
// other files of a folder add. The file system is that of TMPDIR, and for root also empty ones, of which btrfs
// shares blocks. To share the blocks of a file, the kernel first writes to the disk what it has not written yet:
// "written" has the disk take the file before the next write begins.
//
// It fails beyond 2.0 times if undo copies the file, or if the kernel has to write first. It fails beyond 1.2 if the
// two share blocks of a file that the disk has.
func BenchmarkKeepWrite(b *testing.B) {
	b.Run("here", func(b *testing.B) { benchmarkKeepWrite(b, b.TempDir(), false, 2.0) })
	b.Run("ext4", func(b *testing.B) { benchmarkKeepWrite(b, mounted(b, "ext4"), false, 2.0) })
	b.Run("reflinks", func(b *testing.B) { benchmarkKeepWrite(b, mounted(b, "btrfs"), false, 2.0) })
	b.Run("reflinks/written", func(b *testing.B) { benchmarkKeepWrite(b, mounted(b, "btrfs"), true, 1.2) })
}

func benchmarkKeepWrite(b *testing.B, root string, written bool, limit float64) {
	text := make([]byte, 1<<20)
	furnish := func(name string) string {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		return dir
	}
	plain, kept := furnish("plain"), furnish("kept")
	limits := Limits{Bytes: 8 << 30, Time: time.Hour, Files: MaxFiles}
	s, err := Open(filepath.Join(root, "store"), []Folder{{kept, kept}}, limits)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	write := func(dir string) time.Duration {
		begun := time.Now()
		if dir == kept {
			if err := s.Keep(handover.Call{ID: "x"}); err != nil {
				b.Fatal(err)
			}
		}
		f, err := os.Create(filepath.Join(dir, "big"))
		if err == nil {
			_, err = f.Write(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			b.Fatal(err)
		}
		took := time.Since(begun)
		if written {
			if err := onDisk(filepath.Join(dir, "big")); err != nil {
				b.Fatal(err)
			}
		}
		s.settle() // as between calls
		return took
	}
	write(plain)
	write(kept)
	var without, with []time.Duration
	for i := 0; b.Loop(); i++ {
		text[0] = byte(i)
		without, with = append(without, write(plain)), append(with, write(kept))
	}
	quietest := math.Inf(1)
	for part := range parts {
		from, to := part*len(with)/parts, (part+1)*len(with)/parts
		quietest = min(quietest, median(with[from:to])/median(without[from:to]))
	}
	b.ReportMetric(median(without), "without-µs")
	b.ReportMetric(median(with), "with-µs")
	b.ReportMetric(median(with)/median(without), "times")
	if len(with) >= fewest && quietest > limit {
		b.Errorf("a write takes %.2f times as long, and may take %.1f times", quietest, limit)
	}
}

// fewest is how many writes it takes to say how long one takes. The limit holds for the quietest of their parts: other
// work on the disk makes them only longer.
const fewest, parts = 80, 4

func median(all []time.Duration) float64 {
	if len(all) == 0 {
		return 0
	}
	return float64(slices.Sorted(slices.Values(all))[len(all)/2].Microseconds())
}

func onDisk(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// mounted mounts an empty file system, in a file of 8 GiB with holes. Files of btrfs can share blocks
// (ioctl_ficlone(2)), and those of ext4 cannot.
func mounted(t testing.TB, kind string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skipf("NOT RUN as an ordinary user: to mount %s takes root", kind)
	}
	mkfs, err := exec.LookPath("mkfs." + kind)
	if err != nil {
		t.Fatalf("%v: tests/setup.sh mkfs.%s installs it", err, kind)
	}
	dir := t.TempDir()
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "at")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(8<<30), f.Close(), os.Mkdir(at, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs, "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v: %s", kind, err, out)
	}
	private(t)
	if out, err := exec.Command("mount", "-o", "loop", image, at).CombinedOutput(); err != nil {
		if known, _ := os.ReadFile("/proc/filesystems"); !slices.Contains(strings.Fields(string(known)), kind) {
			t.Skipf("NOT RUN: this kernel has no %s, and no module of it: %v: %s", kind, err, out)
		}
		t.Fatalf("mounting %s: %v: %s", kind, err, out)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

// TestReflinks: where files can share blocks, what is kept costs no copy, and is restored like any other.
func TestReflinks(t *testing.T) {
	b := bedIn(t, mounted(t, "btrfs"))
	b.furnish()
	before := b.state()
	b.keeps("1")
	in, err := os.Open(b.path("in/deep/c"))
	b.must(err)
	out, err := os.Create(filepath.Join(filepath.Dir(b.dir), "clone"))
	b.must(err)
	b.must(unix.IoctlFileClone(int(out.Fd()), int(in.Fd()))) // else this shows nothing
	b.must(errors.Join(in.Close(), out.Close()))
	b.write("a", "other")
	b.write("in/deep/c", "other")
	b.restore("1")
	if got := b.state(); got != before {
		t.Errorf("restored:\n%s\nwant:\n%s", got, before)
	}
}
