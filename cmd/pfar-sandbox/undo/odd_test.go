package undo

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/handover"
)

// TestOddFiles: whatever a server leaves in its folder, it is kept or that is an error, and all else can be restored.
func TestOddFiles(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(b *bed) // the version is made, and after it
		want          string       // in the error of keeping; "": it is kept
		lost          string       // what cannot be restored, and is said to be
	}{
		"holes": {
			before: func(b *bed) { b.write("holes", "x"); b.must(os.Truncate(b.path("holes"), 8<<20)) },
			after:  func(b *bed) { b.write("holes", "filled") },
		},
		"many names of one file": {
			before: func(b *bed) {
				b.write("big", strings.Repeat("b", 1<<20))
				for i := range 80 {
					b.must(os.Link(b.path("big"), b.path(fmt.Sprint("big", i))))
				}
			},
			want: "undo_size",
		},
		"a socket": {
			before: func(b *bed) { b.socket("socket") },
			after:  func(b *bed) { b.must(os.Remove(b.path("socket"))); b.write("a", "other") },
			lost:   "socket",
		},
		"a socket in the place of a file": {
			after: func(b *bed) { b.must(os.Remove(b.path("a"))); b.socket("a") },
		},
		"a directory of pfar's own name": {
			after: func(b *bed) { b.write(".pfar-undo/full", "x"); b.must(os.Remove(b.path("a"))) },
		},
		"a FIFO of pfar's own name": {
			after: func(b *bed) { b.must(unix.Mkfifo(b.path(".pfar-undo"), 0o600)); b.must(os.Remove(b.path("a"))) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.furnish()
			if c.before != nil {
				c.before(b)
			}
			before, kept := b.state(), b.bytes
			err := b.Keep(handover.Call{ID: "1"})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || b.bytes != kept {
					t.Errorf("%v, want %q; %d bytes are kept, %d before", err, c.want, b.bytes, kept)
				}
				return
			}
			b.must(err)
			c.after(b)
			h, err := b.Restore(handover.Undo{Since: "1", Call: handover.Call{ID: "u"}})
			b.must(err)
			for _, r := range h.Restores {
				if lost := c.lost != "" && r.Path == b.path(c.lost); lost != (r.Error != "") {
					t.Errorf("%+v", r)
				}
			}
			if c.lost != "" {
				before = without(before, c.lost)
			}
			if got := b.state(); got != before {
				t.Errorf("restored:\n%s\nwant:\n%s", got, before)
			}
		})
	}
}

func (b *bed) socket(name string) {
	b.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.path(name)})
	b.must(err)
	l.SetUnlinkOnClose(false)
	b.must(l.Close())
}

// without is a state without a file.
func without(state, name string) string {
	var kept []string
	for _, line := range strings.SplitAfter(state, "\n") {
		if !strings.HasPrefix(line, "/"+name+" ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestOneFileBesideOurName: a server cannot keep a deleted file from being restored alone, by what it puts at the name
// that restoring uses.
func TestOneFileBesideOurName(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.keeps("1")
	b.write(".pfar-undo/full", "x")
	b.must(os.Remove(b.path("a")))
	h, err := b.Restore(handover.Undo{Path: b.path("a"), Call: handover.Call{ID: "u"}})
	b.must(err)
	if got, err := os.ReadFile(b.path("a")); string(got) != "a" {
		t.Errorf("%q, %v; %+v", got, err, h.Restores)
	}
	names, err := os.ReadDir(b.dir)
	b.must(err)
	for _, n := range names {
		if n.Name() != ".pfar-undo" && strings.HasPrefix(n.Name(), ".pfar-undo") {
			t.Errorf("%s is left", n.Name())
		}
	}
}

// TestImmutable: a file that nobody may change is said not to be restored, and does not hold up the others.
func TestImmutable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes a file immutable")
	}
	b := newBed(t)
	b.furnish()
	b.keeps("1")
	b.write("a", "other")
	b.write("in/b", "other")
	mark := func(flags int) error {
		f, err := os.Open(b.path("a"))
		b.must(err)
		defer f.Close()
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	const immutable = 0x10 // FS_IMMUTABLE_FL (ioctl_iflags(2))
	if err := mark(immutable); err != nil {
		t.Skipf("the file system of %s has no immutable files: %v", b.dir, err)
	}
	defer func() { _ = mark(0) }()
	h, err := b.Restore(handover.Undo{Since: "1", Call: handover.Call{ID: "u"}})
	b.must(err)
	for _, r := range h.Restores {
		if (r.Path == b.path("a")) != (r.Error != "") {
			t.Errorf("%+v", r)
		}
	}
	if got, _ := os.ReadFile(b.path("in/b")); string(got) != "b" {
		t.Errorf("the other file is %q", got)
	}
}

// TestUnreadable: a server cannot have a call counted as one that can be taken back by making its own files unreadable
// while they are kept.
func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 { // who reads everything
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
			if err := os.Chmod(at, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		program := filepath.Join(dir, "test")
		text, err := os.ReadFile(self)
		if err == nil {
			err = os.WriteFile(program, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "-test.run", "^TestUnreadable$", "-test.v")
		cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestUnreadable") {
			t.Errorf("as another user: %v\n%s", err, out)
		}
		return
	}
	for name, hide := range map[string]func(b *bed, mode os.FileMode){
		"a file":   func(b *bed, mode os.FileMode) { b.must(os.Chmod(b.path("a"), mode)) },
		"a folder": func(b *bed, mode os.FileMode) { b.must(os.Chmod(b.path("in"), mode|mode>>2&0o111)) },
	} {
		b := newBed(t)
		b.furnish()
		b.keeps("1")
		b.write("a", "second")
		b.write("in/b", "second")
		kept := b.bytes
		hide(b, 0)
		if err := b.Keep(handover.Call{ID: "2"}); err == nil || b.bytes != kept {
			t.Errorf("%s: %v; %d bytes are kept, %d before", name, err, b.bytes, kept)
		}
		if _, err := b.since(handover.Undo{Since: "2"}); err == nil {
			t.Errorf("%s: there is a version", name)
		}
		hide(b, 0o644)
		b.keeps("3")
		b.restore("1")
		if got, err := os.ReadFile(b.path("a")); string(got) != "a" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestNoInodes: when the disk has no more files, nothing is kept, which is an error, and what was kept before stays.
func TestNoInodes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a file system")
	}
	private(t)
	b := bedIn(t, t.TempDir())
	b.Store.Close()
	b.Store = nil
	b.must(unix.Mount("tmpfs", b.store, "tmpfs", 0, "size=8m,nr_inodes=24"))
	defer unix.Unmount(b.store, unix.MNT_DETACH)
	b.open()
	b.write("a", "first")
	b.keeps("1")
	for i := range 40 {
		b.write(fmt.Sprint("many", i), "x")
	}
	b.write("a", "second")
	kept := b.bytes
	if err := b.Keep(handover.Call{ID: "2"}); err == nil || b.bytes != kept {
		t.Errorf("%v; %d bytes are kept, %d before", err, b.bytes, kept)
	}
	for i := range 40 {
		b.must(os.Remove(b.path(fmt.Sprint("many", i))))
	}
	b.keeps("3")
	b.restore("1")
	if got, _ := os.ReadFile(b.path("a")); string(got) != "first" {
		t.Errorf("%q", got)
	}
}
