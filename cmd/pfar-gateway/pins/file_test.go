package pins

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// counting counts how often a file is replaced.
type counting struct {
	disk
	renames int
}

func (c *counting) rename(from, to string) error {
	c.renames++
	return c.disk.rename(from, to)
}

var errDisk = errors.New("the disk failed")

// failing fails at one step, of those that are numbered from 0 as they come, and at all that follow: a crash does not
// tidy up. With once it fails at that one alone, as a disk does that was full for a moment.
type failing struct {
	at, step int
	once     bool
}

func (f *failing) fails() bool {
	f.step++
	return f.step == f.at+1 || f.step > f.at && !f.once
}

func (f *failing) create(dir string) (temporary, error) {
	if f.fails() {
		return nil, errDisk
	}
	t, err := realDisk{}.create(dir)
	return &failingFile{t, f}, err
}

func (f *failing) rename(from, to string) error {
	if f.fails() {
		return errDisk
	}
	return realDisk{}.rename(from, to)
}

func (f *failing) remove(path string) error {
	if f.fails() {
		return errDisk
	}
	return realDisk{}.remove(path)
}

func (f *failing) syncDir(dir string) error {
	if f.fails() {
		return errDisk
	}
	return realDisk{}.syncDir(dir)
}

type failingFile struct {
	temporary
	disk *failing
}

func (f *failingFile) Write(b []byte) (int, error) {
	if f.disk.fails() {
		n, _ := f.temporary.Write(b[:len(b)/2])
		return n, errDisk
	}
	return f.temporary.Write(b)
}

func (f *failingFile) Sync() error {
	if f.disk.fails() {
		return errDisk
	}
	return f.temporary.Sync()
}

func (f *failingFile) Close() error {
	err := f.temporary.Close()
	if f.disk.fails() {
		return errDisk
	}
	return err
}

const steps = 6 // create, write, sync, close, rename, sync of the directory

// TestCrashAtFirstUse: what could not be written is not accepted, until it can be.
func TestCrashAtFirstUse(t *testing.T) {
	for at := range steps {
		s := fresh(t)
		f := &failing{at: at}
		s.disk = f
		if r := s.Review(offered(tool("a", "x"))); !errors.Is(r.Broken, errDisk) || words(r) != "a new" {
			t.Errorf("step %d: %s, %v", at, words(r), r.Broken)
		}
		if st := s.Status(); len(st) != 1 || !strings.Contains(st[0].Error, errDisk.Error()) {
			t.Errorf("step %d: the status is %+v", at, st)
		}
		again := opened(t, s.dir)
		if entries, _ := os.ReadDir(s.dir); slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), newPrefix) }) {
			t.Errorf("step %d left %v", at, entries)
		}
		if r := again.Review(offered(tool("a", "x"))); words(r) != "a accepted" {
			t.Errorf("step %d, after a restart: %s", at, words(r))
		}
		f.at = 1000
		if r := s.Review(offered(tool("a", "x"))); words(r) != "a accepted" || r.Broken != nil {
			t.Errorf("step %d, at the next try: %s, %v", at, words(r), r.Broken)
		}
	}
	f := &failing{at: 1000}
	s := fresh(t)
	s.disk = f
	if s.Review(offered(tool("a", "x"))); f.step != steps {
		t.Errorf("a write has %d steps, this test knows %d", f.step, steps)
	}
}

// TestTidiesUp: a write that fails leaves nothing but what was there.
func TestTidiesUp(t *testing.T) {
	for at := range steps {
		s := fresh(t)
		s.Review(offered(tool("a", "x")))
		s.Review(offered(tool("a", "y")))
		s.disk = &failing{at: at, once: true}
		if _, err := s.Accept(By{}, "s", "a"); !errors.Is(err, errDisk) {
			t.Errorf("step %d: %v", at, err)
		}
		if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 1 || entries[0].Name() != "s.json" {
			t.Errorf("step %d left %v, %v", at, entries, err)
		}
	}
}

// TestCrashAtAccept: the old file or the new one is there, whole, and it is said that something went wrong.
func TestCrashAtAccept(t *testing.T) {
	for at := range steps {
		s := fresh(t)
		s.Review(offered(tool("a", "x")))
		s.Review(offered(tool("a", "y")))
		old, err := os.ReadFile(s.path("s"))
		if err != nil {
			t.Fatal(err)
		}
		s.disk = &failing{at: at}
		s.Watch(func(string) { t.Errorf("step %d: what was not written is announced", at) })
		if _, err := s.Accept(By{}, "s", "a"); !errors.Is(err, errDisk) {
			t.Errorf("step %d: %v", at, err)
		}
		if r := s.Review(offered(tool("a", "y"))); words(r) != "a changed" {
			t.Errorf("step %d: %s", at, words(r))
		}
		now, err := os.ReadFile(s.path("s"))
		if err != nil {
			t.Fatal(err)
		}
		if renamed := at == steps-1; bytes.Equal(now, old) == renamed {
			t.Errorf("step %d: the file is %s", at, now)
		}
		if st := opened(t, s.dir).Status(); len(st) != 1 || st[0].Error != "" {
			t.Errorf("step %d, after a restart: %+v", at, st)
		}
	}
}

// TestCrashAtReview: without a disk what was accepted is served, what changed is held, and can still be seen.
func TestCrashAtReview(t *testing.T) {
	s := fresh(t)
	s.Review(offered(tool("a", "x"), tool("b", "x")))
	s.disk = &failing{}
	r := s.Review(offered(tool("a", "y"), tool("b", "x")))
	if words(r) != "a changed, b accepted" || !errors.Is(r.Broken, errDisk) {
		t.Errorf("%s, %v", words(r), r.Broken)
	}
	st := s.Status()[0]
	if len(st.Held) != 1 || st.Accepted != 1 || st.Error == "" {
		t.Errorf("%+v", st)
	}
	s.disk = realDisk{}
	if r := s.Review(offered(tool("a", "y"), tool("b", "x"))); r.Broken != nil || s.Status()[0].Error != "" {
		t.Errorf("the next review did not write: %v", r.Broken)
	}
	if st, _ := opened(t, s.dir).Show("s"); len(st.Held) != 1 {
		t.Errorf("read again: %+v", st)
	}
	s.disk = &failing{}
	if err := s.Forget(By{}, "s"); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	if r := s.Review(offered(tool("c", "y"))); words(r) != "c new" {
		t.Errorf("what could not be forgotten is first use: %s", words(r))
	}
}

// TestBrokenFiles: each is the trouble of its server alone.
func TestBrokenFiles(t *testing.T) {
	good := `{"format":1,"server":"bad","version":"","program":"","accepted":"","started":"","pins":[`
	sum, _ := digest([]byte(`{"name":"a"}`))
	pin := func(name, sum, raw string) string {
		return fmt.Sprintf(`{"kind":"tool","name":%q,"digest":%q,"raw":%s,"first_seen":"2026-01-01T00:00:00Z"}`, name, sum, raw)
	}
	for name, c := range map[string]struct{ text, problem string }{
		"empty":          {"", "EOF"},
		"half":           {good, "unexpected EOF"},
		"no JSON":        {"\x1b[2J", "invalid character"},
		"more behind":    {good + "]}{}", "something behind its end"},
		"other format":   {strings.Replace(good, `"format":1`, `"format":2`, 1) + "]}", "the format of the file is 2"},
		"other server":   {strings.Replace(good, "bad", "good", 1) + "]}", `it is of the server "good"`},
		"twice":          {good + pin("a", sum, `{"name":"a"}`) + "," + pin("a", sum, `{"name":"a"}`) + "]}", "two pins"},
		"other digest":   {good + pin("a", sum, `{"name":"b"}`) + "]}", "does not match"},
		"digest alone":   {good + `{"kind":"tool","name":"a","digest":"` + sum + `"}]}`, "does not match"},
		"without digest": {good + pin("a", "", `{"name":"b"}`) + "]}", "does not match"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "bad.json"), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			heldAll(t, dir, c.problem)
		})
	}
	whole := t.TempDir()
	if err := os.WriteFile(filepath.Join(whole, "bad.json"), []byte(good+pin("a", sum, `{"name":"a"}`)+"]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st := opened(t, whole).Status(); len(st) != 1 || st[0].Error != "" || st[0].Accepted != 1 {
		t.Errorf("what these are made from is broken itself: %+v", st)
	}
}

// heldAll checks that the server bad is held whole because of its file, that another is not, and what the way out is.
func heldAll(t *testing.T, dir, problem string) {
	t.Helper()
	s := opened(t, dir)
	o := offered(tool("a", "x"))
	if r := s.Review(o); words(r) != "a accepted" {
		t.Errorf("another server: %s", words(r))
	}
	o.Server = "bad"
	r := s.Review(o)
	if r.Broken == nil || !strings.Contains(r.Broken.Error(), problem) || words(r) != "a new" {
		t.Errorf("%s, %v, want %q", words(r), r.Broken, problem)
	}
	if st := s.Status(); len(st) != 2 || !strings.Contains(st[0].Error, problem) {
		t.Errorf("the status is %+v", st)
	}
	if _, err := s.Accept(By{}, "bad"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), problem) {
		t.Errorf("accepting: %v", err)
	}
	if err := s.Forget(By{}, "bad"); err != nil {
		t.Error(err)
	} else if r := s.Review(o); words(r) != "a accepted" || r.Broken != nil {
		t.Errorf("forgotten: %s, %v", words(r), r.Broken)
	}
}

// TestForeignFiles: nothing that somebody else may have written is read, and no link is followed.
func TestForeignFiles(t *testing.T) {
	src := fresh(t)
	o := offered(tool("a", "x"))
	o.Server = "bad"
	src.Review(o)
	good, err := os.ReadFile(src.path("bad"))
	if err != nil {
		t.Fatal(err)
	}
	const problem = "nobody else may write"
	for name, make := range map[string]func(path string) (string, error){
		"writable": func(path string) (string, error) {
			return problem, errors.Join(os.WriteFile(path, good, 0o600), os.Chmod(path, 0o620))
		},
		"link":      func(path string) (string, error) { return "too many levels", os.Symlink(src.path("bad"), path) },
		"FIFO":      func(path string) (string, error) { return problem, unix.Mkfifo(path, 0o600) },
		"directory": func(path string) (string, error) { return problem, os.Mkdir(path, 0o700) },
		"too large": func(path string) (string, error) {
			return problem, errors.Join(os.WriteFile(path, good, 0o600), os.Truncate(path, maxFile+1))
		},
		"foreign": func(path string) (string, error) {
			if os.Geteuid() != 0 {
				return problem, os.ErrPermission
			}
			return problem, errors.Join(os.WriteFile(path, good, 0o600), os.Chown(path, 65534, 65534))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			problem, err := make(filepath.Join(dir, "bad.json"))
			if errors.Is(err, os.ErrPermission) {
				t.Skip("only root can give files away")
			}
			if err != nil {
				t.Fatal(err)
			}
			heldAll(t, dir, problem)
		})
	}
}

func TestDirectory(t *testing.T) {
	s := fresh(t)
	s.Review(offered(tool("a", "x")))
	for path, want := range map[string]os.FileMode{s.dir: 0o700, s.path("s"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if err := os.Chmod(s.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	opened(t, s.dir)
	if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("an open directory stays so: %v, %v", info.Mode(), err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(s.dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(s.dir, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "belongs to uid 65534") {
			t.Errorf("a foreign directory: %v", err)
		}
	}
	if _, err := Open("/dev/null/pins", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a directory where none can be")
	}
}
