package undo

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/handover"
)

// bed is a store and a folder.
type bed struct {
	*testing.T
	dir, store string
	limits     Limits
	step       func(string) error
	now        time.Time
	*Store
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return bedIn(t, t.TempDir())
}

func bedIn(t *testing.T, root string) *bed {
	b := &bed{
		T: t, dir: filepath.Join(root, "folder"), store: filepath.Join(root, "store"), now: time.Now(),
		limits: Limits{Bytes: 64 << 20, Time: 7 * 24 * time.Hour, Files: MaxFiles}, step: func(string) error { return nil },
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.open()
	t.Cleanup(func() { b.Store.Close() })
	return b
}

// open opens the store, again if it is open: as the next launcher does.
func (b *bed) open() {
	b.Helper()
	if b.Store != nil {
		b.Store.Close()
	}
	now, step := func() time.Time { return b.now }, func(doing string) error { return b.step(doing) }
	s, err := open(b.store, []Folder{{b.dir, b.dir}}, b.limits, now, step)
	if err != nil {
		b.Fatal(err)
	}
	s.settling.after = time.Hour // when a test says so
	b.Store = s
}

func (b *bed) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bed) write(name, text string) {
	b.Helper()
	b.must(os.MkdirAll(filepath.Dir(b.path(name)), 0o755))
	b.must(os.WriteFile(b.path(name), []byte(text), 0o644))
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) keeps(id string) {
	b.Helper()
	b.must(b.Keep(handover.Call{ID: id, Client: "desk", Tool: "write"}))
}

// state is everything in the folder, in words.
func (b *bed) state() string { return stateOf(b.T, b.dir) }

func stateOf(t *testing.T, dir string) string {
	t.Helper()
	var w strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&w, "%s %v", strings.TrimPrefix(p, dir), info.Mode())
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&w, " %.20q %x %d", text, sha256.Sum256(text), info.ModTime().UnixNano())
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			w.WriteString(" -> " + to)
		}
		w.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return w.String()
}

// restore has all be as before a call, and wants each file to be restored.
func (b *bed) restore(since string) {
	b.Helper()
	h, err := b.Restore(handover.Undo{Since: since, Call: handover.Call{ID: "undo-" + since}})
	b.must(err)
	for _, c := range h.Restores {
		if c.Error != "" {
			b.Errorf("%+v", c)
		}
	}
}

// changes are what a server does to a folder.
var changes = map[string]func(b *bed){
	"overwrite":        func(b *bed) { b.write("a", "other") },
	"same size":        func(b *bed) { b.write("a", "A") },
	"empty":            func(b *bed) { b.write("a", "") },
	"fill an empty":    func(b *bed) { b.write("empty", "text") },
	"append":           func(b *bed) { b.write("a", "a and more") },
	"delete":           func(b *bed) { b.must(os.Remove(b.path("a"))) },
	"delete all":       func(b *bed) { b.must(os.RemoveAll(b.path("in"))); b.must(os.Remove(b.path("link"))) },
	"create":           func(b *bed) { b.write("new/deep/file", "x") },
	"rename":           func(b *bed) { b.must(os.Rename(b.path("a"), b.path("z"))) },
	"rename over":      func(b *bed) { b.must(os.Rename(b.path("a"), b.path("in/b"))) },
	"rename a folder":  func(b *bed) { b.must(os.Rename(b.path("in"), b.path("out"))) },
	"mode":             func(b *bed) { b.must(os.Chmod(b.path("a"), 0o600)) },
	"mode of a folder": func(b *bed) { b.must(os.Chmod(b.path("in"), 0o700)) },
	"file to link":     func(b *bed) { b.must(os.Remove(b.path("a"))); b.must(os.Symlink("/etc/passwd", b.path("a"))) },
	"file to folder":   func(b *bed) { b.must(os.Remove(b.path("a"))); b.write("a/b/c", "x") },
	"folder to file":   func(b *bed) { b.must(os.RemoveAll(b.path("in"))); b.write("in", "x") },
	"folder to link":   func(b *bed) { b.must(os.RemoveAll(b.path("in"))); b.must(os.Symlink("/", b.path("in"))) },
	"link to another":  func(b *bed) { b.must(os.Remove(b.path("link"))); b.must(os.Symlink("b", b.path("link"))) },
	"file to fifo":     func(b *bed) { b.must(os.Remove(b.path("a"))); b.must(unix.Mkfifo(b.path("a"), 0o600)) },
	"fifo to file":     func(b *bed) { b.must(os.Remove(b.path("fifo"))); b.write("fifo", "x") },
	"odd name":         func(b *bed) { b.write("\xff\n\x01", "x"); b.must(os.Remove(b.path("odd\xfe"))) },
	"time set back": func(b *bed) {
		old := time.Unix(1000, 0)
		b.write("a", "B")
		b.must(os.Chtimes(b.path("a"), old, old))
	},
	"another name": func(b *bed) { b.must(os.Link(b.path("a"), b.path("hard"))); b.write("hard", "through it") },
}

func (b *bed) furnish() {
	b.write("a", "a")
	b.write("empty", "")
	b.write("in/b", "b")
	b.write("in/deep/c", strings.Repeat("c", 300<<10))
	b.write("odd\xfe", "o")
	b.must(os.Symlink("a", b.path("link")))
	b.must(unix.Mkfifo(b.path("fifo"), 0o644))
	old := time.Now().Add(-time.Hour)
	b.must(os.Chtimes(b.path("a"), old, old))
}

// TestRestore: whatever was changed after a call is as it was before, also for the next process, and that can be undone
// itself.
func TestRestore(t *testing.T) {
	for name, change := range changes {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, opened again %v", name, again), func(t *testing.T) {
				b := newBed(t)
				b.furnish()
				before := b.state()
				b.keeps("1")
				change(b)
				after := b.state()
				if again {
					b.open()
				}
				b.restore("1")
				if got := b.state(); got != before {
					t.Errorf("restored:\n%s\nwant:\n%s", got, before)
				}
				if again {
					b.open()
				}
				b.restore("undo-1")
				if got := b.state(); got != after {
					t.Errorf("restored again:\n%s\nwant:\n%s", got, after)
				}
			})
		}
	}
}

// TestRestoreEach: each of many calls can be taken back with all after it.
func TestRestoreEach(t *testing.T) {
	for back := range 6 {
		b := newBed(t)
		b.furnish()
		var states []string
		for i := range 6 {
			states = append(states, b.state())
			b.keeps(fmt.Sprint(i))
			b.write("a", fmt.Sprint("version ", i))
			b.write(fmt.Sprint("new", i), "x")
			if i == 3 {
				b.must(os.RemoveAll(b.path("in")))
			}
			if i%2 == 1 {
				b.open()
			}
		}
		b.restore(fmt.Sprint(back))
		if got := b.state(); got != states[back] {
			t.Errorf("before call %d:\n%s\nwant:\n%s", back, got, states[back])
		}
	}
}

// TestPath: what is not asked for stays.
func TestPath(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.keeps("1")
	b.write("a", "other")
	b.write("in/b", "other")
	_, err := b.Restore(handover.Undo{Path: b.path("in"), Call: handover.Call{ID: "u"}})
	b.must(err)
	got := b.state()
	if !strings.Contains(got, `/in/b -rw-r--r-- "b" `) || !strings.Contains(got, `/a -rw-r--r-- "other" `) {
		t.Error(got)
	}
}

// TestList: people see after which call what changed.
func TestList(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.keeps("1")
	b.write("a", "longer")
	b.keeps("2")
	b.keeps("3")
	b.must(os.Remove(b.path("in/b")))
	h, err := b.List(handover.Undo{})
	b.must(err)
	got := ""
	for _, s := range h.Steps {
		got += fmt.Sprintln(s.Calls, s.Changes)
	}
	const format = "[{1 desk write 0}] [{%s file changed 1 6 }]\n[{3 desk write 0}] [{%s file deleted 1 0 }]\n"
	want := fmt.Sprintf(format, b.path("a"), b.path("in/b"))
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if h, err = b.List(handover.Undo{Since: "2"}); err != nil || len(h.Restores) != 1 || h.Restores[0].What != "created" {
		t.Errorf("%+v, %v", h.Restores, err)
	}
	if _, err = b.List(handover.Undo{Since: "9"}); err == nil {
		t.Error("an unknown call is no error")
	}
	if h, err = b.List(handover.Undo{At: b.now}); err != nil || len(h.Restores) != 2 {
		t.Errorf("%+v, %v", h.Restores, err)
	}
}

// TestUnseenWrites: what is written within the same tick of the clock as it was kept is seen.
func TestUnseenWrites(t *testing.T) {
	b := newBed(t)
	for i := range 50 {
		text := fmt.Sprintf("%03d", i)
		b.write("a", text)
		b.keeps("c" + text)
		b.write("a", "xxx")
		b.restore("c" + text)
		if got, _ := os.ReadFile(b.path("a")); string(got) != text {
			t.Fatalf("got %q, want %q", got, text)
		}
	}
}

// TestCleared: a restore is told which stains had been cleared when that was kept which it brings back: no later one,
// also when other versions are forgotten, and for the next process.
func TestCleared(t *testing.T) {
	b := newBed(t)
	b.write("a", "first")
	b.must(b.Keep())
	cleared := func(q handover.Undo) int64 {
		t.Helper()
		h, err := b.List(q)
		b.must(err)
		if len(h.Folders) != 1 || h.Folders[0] != b.dir {
			t.Errorf("it is in %q", h.Folders)
		}
		return h.Cleared
	}
	for i, at := range []int64{3, 5, 5} {
		late := handover.Call{ID: fmt.Sprint(i, " late"), Cleared: at + 1}
		b.must(b.Keep(late, handover.Call{ID: fmt.Sprint(i), Cleared: at}))
		b.write("a", fmt.Sprint(i))
	}
	all := func(oldest int64) {
		t.Helper()
		for since, want := range map[string]int64{"": oldest, "1": 5, "1 late": 5, "2": 5} {
			if got := cleared(handover.Undo{Since: since, Path: b.path("a")}); got != want {
				t.Errorf("since call %q: %d, want %d", since, got, want)
			}
		}
	}
	all(0)
	if got := cleared(handover.Undo{Since: "0"}); got != 3 {
		t.Errorf("since the first call: %d", got)
	}
	b.must(b.drop(1))
	all(3)
	b.open()
	all(3)
}
