package undo

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/handover"
)

// TestFullDiskRestoring has the disk be full at every step of restoring. What is not restored is told, and each file is
// as it was or as it is to be. Nothing that was kept is lost: once the disk has room, both states can be restored.
func TestFullDiskRestoring(t *testing.T) {
	seen := map[string]bool{}
	for step, full := 0, true; full; step++ {
		b := newBed(t)
		b.furnish()
		b.write("gone/x", "to be made")
		before := b.state()
		b.keeps("1")
		b.write("a", "second")
		b.write("in/deep/c", "second")
		b.write("new", "to be removed")
		b.must(os.RemoveAll(b.path("gone")))
		b.must(os.Remove(b.path("in/b")))
		after := b.state()
		n := 0
		full = false
		b.step = func(doing string) error {
			if n++; n > step {
				seen[doing], full = true, true
				return unix.ENOSPC
			}
			return nil
		}
		h, err := b.Restore(handover.Undo{Since: "1", Call: handover.Call{ID: "u"}})
		b.step = func(string) error { return nil }
		told := err != nil
		for _, r := range h.Restores {
			told = told || strings.Contains(r.Error, unix.ENOSPC.Error())
		}
		if told != full || err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Errorf("step %d: the disk was full: %t; told: %v, %+v", step, full, err, h.Restores)
		}
		known := before + after
		for line := range strings.Lines(b.state()) {
			if !strings.Contains(line, " d") && !strings.Contains(known, line) {
				t.Errorf("step %d: there is %s", step, line)
			}
		}
		if got := b.state(); !full && got != before {
			t.Errorf("step %d: restored:\n%s\nwant:\n%s", step, got, before)
		}
		b.open()
		if _, err := b.since(handover.Undo{Since: "u"}); err == nil { // what was there is kept
			b.restore("u")
		}
		if got := b.state(); got != after {
			t.Errorf("step %d: taken back:\n%s\nwant:\n%s", step, got, after)
		}
		b.restore("1")
		if got := b.state(); got != before {
			t.Errorf("step %d: restored later:\n%s\nwant:\n%s", step, got, before)
		}
		b.Store.Close()
	}
	for _, want := range []string{"copy a file", "write the log", "restore a file"} {
		if !seen[want] {
			t.Errorf("the disk was not full when it was to %s: %v", want, seen)
		}
	}
}

// TestSmallDiskRestoring: on a disk that is really full a file may be restored in part. That is told, and what was
// there before is kept: once the disk has room, both can be restored.
func TestSmallDiskRestoring(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a file system")
	}
	root := t.TempDir()
	private(t)
	b := bedIn(t, root)
	b.Store.Close()
	b.Store = nil
	b.must(unix.Mount("tmpfs", b.dir, "tmpfs", 0, "size=1m"))
	defer unix.Unmount(b.dir, unix.MNT_DETACH)
	b.open()
	first, second := strings.Repeat("a", 600<<10), strings.Repeat("b", 100<<10)
	b.write("a", first)
	b.keeps("1")
	b.write("a", second)
	b.write("filler", strings.Repeat("f", 700<<10))
	h, err := b.Restore(handover.Undo{Since: "1", Path: b.path("a"), Call: handover.Call{ID: "u"}})
	b.must(err)
	if len(h.Restores) != 1 || !strings.Contains(h.Restores[0].Error, unix.ENOSPC.Error()) {
		t.Errorf("told: %+v", h.Restores)
	}
	b.must(os.Remove(b.path("filler")))
	b.open()
	for _, c := range []struct{ since, want string }{{"u", second}, {"1", first}} {
		q := handover.Undo{Since: c.since, Path: b.path("a"), Call: handover.Call{ID: "undo-" + c.since}}
		h, err := b.Restore(q)
		b.must(err)
		if got, _ := os.ReadFile(b.path("a")); string(got) != c.want {
			t.Errorf("restored to %s: %d bytes, %.20q, %+v", c.since, len(got), got, h.Restores)
		}
	}
}
