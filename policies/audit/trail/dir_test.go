package trail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit"
)

func newDir(t *testing.T, seal bool) Dir {
	t.Helper()
	d := Dir{Path: filepath.Join(t.TempDir(), "audit"), Group: -1, Seal: seal}
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // what is append-only cannot be removed
		paths, _ := filepath.Glob(d.Path + "/*")
		for _, p := range paths {
			if f, err := os.Open(p); err == nil {
				_ = sealed(f, false)
				f.Close()
			}
		}
	})
	return d
}

// fill writes a file of a chain with some records, and ends it.
func fill(t *testing.T, d Dir, n int) {
	t.Helper()
	now := time.Now()
	f, unsealed, err := d.Open("gateway", now)
	if err != nil || d.Seal && unsealed != nil {
		t.Fatal(err, unsealed)
	}
	l := New(Options{Writer: "gateway"})
	if err := l.Use(f); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := l.Append(record(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
}

// aged opens the next file a day later.
func aged(t *testing.T, d Dir, later time.Duration) {
	t.Helper()
	f, _, err := d.Open("gateway", time.Now().Add(later))
	if err != nil {
		t.Fatal(err)
	}
	l := New(Options{Writer: "gateway"})
	if err := l.Use(f); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(record("x")); err != nil {
		t.Fatal(err)
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
}

func base(path string) string { return filepath.Base(path) }

// TestDir: the newest file is gone on with, until it has enough.
func TestDir(t *testing.T) {
	d := newDir(t, false)
	if list, err := d.Files("gateway"); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	for _, name := range []string{"gateway-000001.jsonl.old", "gateway-1.jsonl", "other", "gateway-x.jsonl", "gateway-000000.jsonl"} { // not ours
		if err := os.WriteFile(filepath.Join(d.Path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, d, 3)
	fill(t, d, 3)
	aged(t, d, MaxAge+time.Minute)
	paths, err := d.Files("gateway")
	if err != nil || len(paths) != 2 || base(paths[0]) != "gateway-000001.jsonl" || base(paths[1]) != "gateway-000002.jsonl" {
		t.Fatal(paths, err)
	}
	wholeChain(t, content(t, paths[0]), content(t, paths[1]))
	if info, err := os.Stat(paths[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	// A link in place of a file is not followed.
	if err := os.Symlink("/etc/passwd", filepath.Join(d.Path, "pfard-000001.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Open("pfard", time.Now()); err == nil {
		t.Error("it follows a link")
	}
}

// TestPrune deletes what is old, oldest first, tells before it does, and what is left verifies from what was told.
func TestPrune(t *testing.T) {
	for _, seal := range []bool{false, true} {
		t.Run(fmt.Sprint(seal), func(t *testing.T) {
			d := newDir(t, seal && sealable(t))
			fill(t, d, 3)
			for i := range 4 {
				aged(t, d, time.Duration(i+1)*(MaxAge+time.Minute))
			}
			paths, _ := d.Files("gateway")
			if len(paths) != 5 {
				t.Fatal(paths)
			}
			old := time.Now().Add(-40 * 24 * time.Hour)
			for _, p := range []string{paths[0], paths[1], paths[3], paths[4]} { // not the third
				if err := setTime(d, p, old); err != nil {
					t.Fatal(err)
				}
			}
			refused := errors.New("no record of it")
			if err := d.Prune("gateway", 30*24*time.Hour, 1<<30, time.Now(), func(Deleted) error { return refused }); !errors.Is(err, refused) {
				t.Fatal(err)
			}
			var told []Deleted
			if err := d.Prune("gateway", 30*24*time.Hour, 1<<30, time.Now(), func(x Deleted) error { told = append(told, x); return nil }); err != nil {
				t.Fatal(err)
			}
			left, _ := d.Files("gateway")
			if len(told) != 2 || !told[0].Old || !told[1].Old || told[0].Path != paths[0] || told[1].Path != paths[1] || len(left) != 3 || left[0] != paths[2] {
				t.Fatalf("told %+v, left %q", told, left)
			}
			check := func(bases ...audit.Anchor) int {
				var files []audit.File
				for _, p := range left {
					files = append(files, audit.File{Name: p, Reader: strings.NewReader(string(content(t, p)))})
				}
				r, err := audit.Verify("gateway", files, bases, nil)
				if err != nil {
					t.Fatal(err)
				}
				return len(r.Problems)
			}
			if check(told[1].Base) != 0 {
				t.Error("what is left does not verify")
			}
			if check() == 0 || check(told[0].Base) == 0 {
				t.Error("it verifies without a word of what is gone")
			}
			paths, err := d.Files("gateway")
			if err != nil {
				t.Fatal(err)
			}
			if b, err := baseOf("gateway", paths[0]); err != nil || b != told[1].Base {
				t.Errorf("it begins at %+v, %v", b, err)
			}
		})
	}
}

// TestPruneSize deletes the oldest files as long as all of them together have too much, but not the newest two; a file
// that begins with a part of a line is no obstacle.
func TestPruneSize(t *testing.T) {
	for _, torn := range []bool{false, true} {
		d := newDir(t, false)
		fill(t, d, 3)
		for i := range 5 {
			if torn {
				if err := os.WriteFile(d.path("gateway", i+2), []byte(`{"seq":9,"pre`), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			aged(t, d, time.Duration(i+1)*(MaxAge+time.Minute))
		}
		paths, _ := d.Files("gateway")
		if len(paths) != 6 {
			t.Fatal(paths)
		}
		var sizes []int64
		total := int64(0)
		for _, p := range paths {
			size := int64(len(content(t, p)))
			sizes, total = append(sizes, size), total+size
		}
		var bases []audit.Anchor
		for _, step := range []struct {
			most int64
			left int
		}{{total, 6}, {total - 1, 5}, {total - sizes[0], 5}, {total - sizes[0] - sizes[1] - 1, 3}, {0, 2}, {0, 2}} {
			err := d.Prune("gateway", 30*24*time.Hour, step.most, time.Now(), func(x Deleted) error {
				if x.Old || time.Since(x.Until) > time.Hour {
					t.Errorf("%+v", x)
				}
				bases = append(bases, x.Base)
				return nil
			})
			left, _ := d.Files("gateway")
			if err != nil || len(left) != step.left || left[0] != paths[6-step.left] || len(bases) != 6-step.left {
				t.Fatalf("with %d bytes of %d (%v) there are %q, told %+v, %v", step.most, total, torn, left, bases, err)
			}
			var files []audit.File
			for _, p := range left {
				files = append(files, audit.File{Name: p, Reader: strings.NewReader(string(content(t, p)))})
			}
			if r, err := audit.Verify("gateway", files, bases, nil); err != nil || len(r.Problems) > 0 {
				t.Errorf("what is left: %v, %v", r.Problems, err)
			}
		}
	}
}

func setTime(d Dir, path string, to time.Time) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if d.Seal {
		if err := sealed(f, false); err != nil {
			return err
		}
		defer sealed(f, true)
	}
	return os.Chtimes(path, to, to)
}

// sealable reports whether this process can make a file append-only here.
func sealable(t *testing.T) bool {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(sealed(f, true), sealed(f, false)); err != nil {
		t.Skipf("no append-only attribute here: %v", err)
	}
	return true
}

// TestSealed: even with the descriptor a writer can do nothing but append; tests/systemd has another user try all there
// is.
func TestSealed(t *testing.T) {
	sealable(t)
	d := newDir(t, true)
	f, unsealed, err := d.Open("gateway", time.Now())
	if err != nil || unsealed != nil {
		t.Fatal(err, unsealed)
	}
	defer f.Close()
	if yes, err := Sealed(f.W.Name()); err != nil || !yes {
		t.Errorf("sealed: %v, %v", yes, err)
	}
	if _, err := f.W.WriteString("a line\n"); err != nil {
		t.Fatal(err)
	}
	fd := int(f.W.Fd())
	for what, err := range map[string]error{
		"truncated":          unix.Ftruncate(fd, 0),
		"made a hole":        unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4),
		"O_APPEND taken":     func() error { _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0); return err }(),
		"removed":            os.Remove(f.W.Name()),
		"renamed":            os.Rename(f.W.Name(), f.W.Name()+"x"),
		"opened to write":    func() error { _, err := os.OpenFile(f.W.Name(), os.O_WRONLY, 0); return err }(),
		"another in its way": os.Rename(f.R.Name(), filepath.Join(d.Path, "gateway-000009.jsonl")),
	} {
		if err == nil {
			t.Errorf("it was %s", what)
		}
	}
	if b := content(t, f.W.Name()); string(b) != "a line\n" {
		t.Errorf("it is %q", b)
	}
}
