package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/durable"
	"golang.org/x/sys/unix"
)

var errCut = errors.New("cut")

// original is a state of format 1, and wanted what twoSteps make of it.
var (
	original = map[string]string{"token": "t", "pins/notion.json": "old pins", "vault/key": "k", "gone/last": "x"}
	wanted   = map[string]string{"token": "t", "pins/notion.json": "new pins, again", "vault/key": "k", "made/below/list": "notion"}
)

func twoSteps() []Step {
	return []Step{
		func(state fs.FS) ([]Edit, error) {
			b, err := fs.ReadFile(state, "pins/notion.json")
			return []Edit{
				{Path: "pins/notion.json", Data: []byte(strings.ReplaceAll(string(b), "old", "new"))},
				{Path: "made/below/list", Data: []byte("notion")},
				{Path: "gone/last", Gone: true},
			}, err
		},
		func(state fs.FS) ([]Edit, error) {
			b, err := fs.ReadFile(state, "pins/notion.json")
			return []Edit{{Path: "pins/notion.json", Data: append(b, ", again"...)}}, err
		},
	}
}

func newState(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pfar-migrate-") // where a sync takes no time
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// contents are the files of a state, without those of this package.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == Backups:
			return fs.SkipDir
		case d.IsDir() || path == marked:
			return nil
		}
		b, err := os.ReadFile(filepath.Join(dir, path))
		got[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (m migration) cutAfter(n int) migration {
	m.cut = func() error {
		if n--; n <= 0 {
			return errCut
		}
		return nil
	}
	return m
}

// half is a file that was being written where no migration writes any more. Each part of pfar looks after its own.
const half = "pins/" + durable.Prefix + "half"

// TestCut ends a migration after each change of the disk. The next start of the same program ends where an uncut one
// does, and the program of before finds its own files or refuses.
func TestCut(t *testing.T) {
	after := func(dir string) migration { return migration{dir: dir, steps: twoSteps(), program: "0.2.0"} }
	earlier := func(dir string) migration { return migration{dir: dir, program: "0.1.0"} }
	for _, next := range []struct {
		name  string
		start func(t *testing.T, dir string)
	}{
		{"again", func(*testing.T, string) {}},
		{"cut again", func(t *testing.T, dir string) {
			for n := 1; ; n++ { // also the undoing of what was cut
				if _, err := after(dir).cutAfter(n).bring(); !errors.Is(err, errCut) {
					return
				}
			}
		}},
		{"the version before", func(t *testing.T, dir string) {
			mark, _, err := read(dir)
			if err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			_, err = earlier(dir).bring()
			got := contents(t, dir)
			delete(got, half)
			delete(before, half)
			switch {
			case mark.Format == 1 && (err != nil || !maps.Equal(got, original)):
				t.Errorf("from format 1: %v, %v", err, got)
			case mark.Format > 1 && (err == nil || !maps.Equal(got, before)):
				t.Errorf("from format %d: %v, %v", mark.Format, err, got)
			}
		}},
	} {
		t.Run(next.name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				dir := newState(t, original)
				_, err := after(dir).cutAfter(n).bring()
				if err == nil {
					if n < 10 {
						t.Fatalf("only %d changes of the disk", n)
					}
					return
				}
				if !errors.Is(err, errCut) {
					t.Fatal(err)
				}
				for _, at := range []string{".", "pins"} { // half of a file that was being written
					if err := os.WriteFile(filepath.Join(dir, at, durable.Prefix+"half"), nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				next.start(t, dir)
				if _, err := after(dir).bring(); err != nil {
					t.Fatalf("after change %d: %v", n, err)
				}
				got := contents(t, dir)
				delete(got, half)
				if !maps.Equal(got, wanted) {
					t.Fatalf("after change %d: %v", n, got)
				}
			}
		})
	}
}

func TestFirstUse(t *testing.T) {
	for name, files := range map[string]map[string]string{"new": nil, "without a number": original} {
		t.Run(name, func(t *testing.T) {
			dir := newState(t, files)
			if _, err := Bring(dir); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf(`{"format":%d,"pfar":%q}`+"\n", own(dir).format(), own(dir).program)
			if b, err := os.ReadFile(filepath.Join(dir, marked)); err != nil || string(b) != want {
				t.Errorf("%s, %v", b, err)
			}
			if info, err := os.Stat(filepath.Join(dir, marked)); err != nil || info.Mode() != 0o644 {
				t.Errorf("the gateway cannot read it: %v, %v", info.Mode(), err)
			}
			if got := contents(t, dir); !maps.Equal(got, files) {
				t.Errorf("got %v", got)
			}
			if err := errors.Join(Check(dir), Whole(dir)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFullDisk: a state that cannot be numbered is of the format that it has without a number.
func TestFullDisk(t *testing.T) {
	m := migration{dir: newState(t, original), program: "0.1.0", cut: func() error { return unix.ENOSPC }}
	if r, err := m.bring(); err != nil || !errors.Is(r.Unmarked, unix.ENOSPC) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestBackup: what a migration changes is there as it was, with its mode.
func TestBackup(t *testing.T) {
	dir := newState(t, original)
	r, err := migration{dir: dir, steps: twoSteps(), program: "0.2.0"}.bring()
	if err != nil || r.From != 1 || r.To != 3 || len(r.Backups) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	for name, text := range map[string]string{"backup/1/pins/notion.json": "old pins", "backup/1/gone/last": "x", "backup/2/pins/notion.json": "new pins"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		info, serr := os.Stat(filepath.Join(dir, name))
		if err != nil || serr != nil || string(b) != text || info.Mode() != 0o640 {
			t.Errorf("%s: %q, %v, %v", name, b, err, info)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "pins/notion.json")); err != nil || info.Mode() != 0o640 {
		t.Errorf("the migrated file: %v, %v", info, err)
	}
}

// TestRefused: nothing is touched, and the words say who wrote the state and what to do.
func TestRefused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	edit := func(path string) []Step {
		return []Step{func(fs.FS) ([]Edit, error) { return []Edit{{Path: path, Data: []byte("x")}}, nil }}
	}
	for name, c := range map[string]struct {
		marked string
		steps  []Step
		words  string
	}{
		"newer":              {`{"format":7,"pfar":"0.7.0"}`, nil, "it has format 7, which pfar 0.7.0 wrote, and this is pfar 0.1.0, which knows formats up to 1; nothing was changed: install pfar 0.7.0 or a later one"},
		"newer, of nobody":   {`{"format":2}`, nil, "which a newer pfar wrote"},
		"zero":               {`{"format":0}`, nil, "has format 0"},
		"no JSON":            {`7`, nil, "reading the format of the state"},
		"out of the state":   {"", edit("../x"), "is not a path below the state"},
		"absolute":           {"", edit("/etc/passwd"), "is not a path below the state"},
		"through a link":     {"", edit("link/secret"), "is neither a directory nor a regular file"},
		"in place of a link": {"", edit("pins/link"), "is neither a directory nor a regular file"},
		"a directory":        {"", edit("pins"), "is neither a directory nor a regular file"},
		"a step that fails":  {"", []Step{func(fs.FS) ([]Edit, error) { return nil, errors.New("what is this?") }}, "from format 1 to 2: what is this?"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newState(t, original)
			for link, to := range map[string]string{"link": filepath.Dir(outside), "pins/link": outside} {
				if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			if c.marked != "" {
				if err := os.WriteFile(filepath.Join(dir, marked), []byte(c.marked), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, err := migration{dir: dir, steps: c.steps, program: "0.1.0"}.bring()
			if err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, want %q", err, c.words)
			}
			for name, text := range original {
				if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != text {
					t.Errorf("%s: %q, %v", name, b, err)
				}
			}
			if b, err := os.ReadFile(outside); err != nil || string(b) != "s" {
				t.Errorf("outside of the state: %q, %v", b, err)
			}
			if _, err := os.Lstat(filepath.Join(dir, journal)); err == nil {
				t.Error("a journal is left")
			}
		})
	}
}

// TestRest: systemd starts no process again and again that a newer state refuses.
func TestRest(t *testing.T) {
	dir := newState(t, original)
	if err := os.WriteFile(filepath.Join(dir, marked), []byte(`{"format":99}`), 0o644); err != nil {
		t.Fatal(err)
	}
	refused := fmt.Errorf("starting: %w", Check(dir))
	for name, c := range map[string]struct {
		err     error
		started bool
		rests   bool
	}{
		"newer":               {refused, true, true},
		"newer, by a person":  {refused, false, false},
		"another error":       {errors.New("no"), true, false},
		"it is told to end":   {nil, true, false},
		"joined with another": {errors.Join(errors.New("no"), refused), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			pauses := 0
			over := make(chan time.Time)
			close(over)
			rest(t.Context(), c.err, c.started, func(d time.Duration) <-chan time.Time {
				if pauses++; d < time.Second {
					t.Errorf("it rests for %s", d)
				}
				return over
			})
			if pauses > 0 != c.rests {
				t.Errorf("%d pauses", pauses)
			}
		})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	rest(ended, refused, true, func(time.Duration) <-chan time.Time { return nil })
}

// TestWhole: who reads the state beside pfard waits for it.
func TestWhole(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		whole      bool
	}{
		"nothing":   {"token", "", true},
		"newer":     {marked, `{"format":99}`, false},
		"under way": {journal, `{}`, false},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Whole(dir); (err == nil) != c.whole {
			t.Errorf("%s: %v", name, err)
		}
	}
}
