package watch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// Every way in which editors and tools write files, as one action, leads to one look at the directory, and soon.
func TestWatch(t *testing.T) {
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(t *testing.T, from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	sh := func(script string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			cmd := exec.Command("/bin/sh", "-ec", script)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	for name, action := range map[string]func(*testing.T, string){
		"in place": func(t *testing.T, dir string) { write(t, dir+"/a.hcl", "new") },
		"new file": func(t *testing.T, dir string) { write(t, dir+"/b.hcl", "new") },
		"removed":  func(t *testing.T, dir string) { os.Remove(dir + "/a.hcl") },
		"two steps": func(t *testing.T, dir string) {
			write(t, dir+"/a.hcl", "ne")
			time.Sleep(100 * time.Millisecond)
			write(t, dir+"/a.hcl", "new")
		},
		"rename over": func(t *testing.T, dir string) {
			write(t, dir+"/.a.hcl.tmp", "new")
			rename(t, dir+"/.a.hcl.tmp", dir+"/a.hcl")
		},
		"moved in from outside": func(t *testing.T, dir string) {
			write(t, filepath.Dir(dir)+"/staged", "new")
			rename(t, filepath.Dir(dir)+"/staged", dir+"/b.hcl")
		},
		"cp over":                 sh("cp /etc/passwd a.hcl"),
		"sed -i":                  sh("sed -i s/old/new/ a.hcl"),
		"vim, backup":             sh("touch .a.hcl.swp .a.hcl.swx; rm .a.hcl.swx; mv a.hcl a.hcl~; echo new > a.hcl; chmod 644 a.hcl; rm a.hcl~ .a.hcl.swp"),
		"dpkg":                    sh("echo new > a.hcl.dpkg-new; chmod 644 a.hcl.dpkg-new; mv a.hcl.dpkg-new a.hcl"),
		"link swapped":            sh("ln -s ..two ..tmp; mv -T ..tmp ..data"),
		"directory made anew":     sh("d=$PWD; rm -rf $d; mkdir $d; echo new > $d/a.hcl"),
		"target of a link edited": func(t *testing.T, dir string) { write(t, filepath.Dir(dir)+"/outside/l.hcl", "new") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "mcp.d")
			sh("mkdir mcp.d outside; cd mcp.d; echo old > a.hcl; mkdir ..one ..two; echo 1 > ..one/c.hcl; echo 2 > ..two/c.hcl; ln -s ..one ..data; ln -s ..data/c.hcl c.hcl; echo > ../outside/l.hcl; ln -s ../outside/l.hcl l.hcl")(t, filepath.Dir(dir))
			w := Dir(dir, func(blind error) { t.Error(blind) })
			defer w.Close()
			began := time.Now()
			action(t, dir)
			last := time.Now()
			slow := last.Sub(began) > Quiet // so that it may be taken for two
			select {
			case <-w.Changed:
				if d := time.Since(last); d > 300*time.Millisecond {
					t.Logf("told %v after the last event, on a busy machine", d)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("not told")
			}
			select {
			case <-w.Changed:
				if !slow {
					t.Error("told twice of one action")
				}
			case <-time.After(2 * Quiet):
			}
		})
	}
}

func TestWatchIsNotPutOffForEver(t *testing.T) {
	dir := t.TempDir()
	w := Dir(dir, func(blind error) { t.Error(blind) })
	defer w.Close()
	stop := time.After(3 * AtMost)
	for {
		if err := os.WriteFile(dir+"/a.hcl", []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.Changed:
			return
		case <-stop:
			t.Fatal("a stream of events kept it from being told")
		case <-time.After(Quiet / 3):
		}
	}
}

func TestWatchLeavesTheNeighboursOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mcp.d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w := Dir(dir, func(blind error) { t.Error(blind) })
	defer w.Close()
	if err := os.WriteFile(filepath.Dir(dir)+"/other", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.Changed:
		t.Error("told of a file beside the directory")
	case <-time.After(2 * Quiet):
	}
}

// TestWatchOfWhatIsNotThere: neither the directory nor its parent need exist, and what else happens beside them is not
// told.
func TestWatchOfWhatIsNotThere(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "a", "b", "policies.d")
	changed := make(chan struct{}, 1)
	w := watchTo(dir, changed, inotify(), func(blind error) { t.Error(blind) })
	defer w.Close()
	told := func(want bool, what string, do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		limit := 3 * Quiet
		if want {
			limit = 5 * time.Second
		}
		select {
		case <-changed:
			if !want {
				t.Errorf("told of %s", what)
			}
		case <-time.After(limit):
			if want {
				t.Errorf("not told of %s", what)
			}
		}
	}
	told(false, "something beside it", func() error { return os.Mkdir(filepath.Join(base, "ab"), 0o700) })
	told(true, "a directory above it", func() error { return os.Mkdir(filepath.Join(base, "a"), 0o700) })
	told(false, "something beside it", func() error { return os.Mkdir(filepath.Join(base, "a", "c"), 0o700) })
	told(true, "the directory with a file", func() error {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "x.hcl"), nil, 0o600)
	})
	told(true, "a file in it", func() error { return os.WriteFile(filepath.Join(dir, "y.hcl"), []byte("#"), 0o600) })
	told(false, "something above it", func() error { return os.Mkdir(filepath.Join(base, "later"), 0o700) })
}

// TestWatchWithoutInotify: other programs of this user can hold all of its inotify instances. The watcher tells so,
// tries again, and has the directory looked at when it sees: what changed meanwhile it does not know.
func TestWatchWithoutInotify(t *testing.T) {
	dir := t.TempDir()
	turns, clock := make(chan error, 8), make(chan time.Time)
	taken := 2 // tries that find no instance
	w := watchTo(dir, make(chan struct{}, 1), eyes{
		open: func() (*fsnotify.Watcher, error) {
			if taken--; taken >= 0 {
				return nil, os.NewSyscallError("inotify_init1", unix.EMFILE)
			}
			return fsnotify.NewWatcher()
		},
		after: func(time.Duration) <-chan time.Time { return clock },
	}, func(blind error) { turns <- blind })
	defer w.Close()
	if err := <-turns; !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("turned with %v, want EMFILE and the directory", err)
	}
	clock <- time.Time{} // in vain
	clock <- time.Time{}
	if err := <-turns; err != nil {
		t.Fatalf("turned with %v, want nil: it sees", err)
	}
	<-w.Changed
	if err := os.WriteFile(filepath.Join(dir, "a.hcl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-w.Changed
}

// TestBlindWatcherStops: one that never sees ends when it is told.
func TestBlindWatcherStops(t *testing.T) {
	w := watchTo(t.TempDir(), make(chan struct{}, 1), eyes{
		open:  func() (*fsnotify.Watcher, error) { return nil, unix.EMFILE },
		after: func(time.Duration) <-chan time.Time { return nil },
	}, func(error) {})
	w.Close()
}

// TestWatchTellsOfDropIns: one level below, in directories that are made later, too.
func TestWatchTellsOfDropIns(t *testing.T) {
	base := t.TempDir()
	dir, store := filepath.Join(base, "mcp.d"), filepath.Join(base, "store")
	for _, d := range []string{dir, store, filepath.Join(store, "linked")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(store, "linked"), filepath.Join(dir, "b.hcl.d")); err != nil {
		t.Fatal(err)
	}
	w := Dir(dir, func(blind error) { t.Error(blind) })
	defer w.Close()
	for _, do := range []func() error{
		func() error { return os.Mkdir(filepath.Join(dir, "a.hcl.d"), 0o755) },
		func() error { return os.WriteFile(filepath.Join(dir, "a.hcl.d", "x.hcl"), []byte("1"), 0o644) },
		func() error { return os.WriteFile(filepath.Join(dir, "a.hcl.d", "x.hcl"), []byte("2"), 0o644) },
		func() error { return os.WriteFile(filepath.Join(store, "linked", "y.hcl"), []byte("1"), 0o644) },
		func() error { return os.WriteFile(filepath.Join(store, "y"), []byte("1"), 0o644) },
		func() error { return os.Symlink(filepath.Join(store, "y"), filepath.Join(dir, "a.hcl.d", "y.hcl")) },
		func() error { return os.WriteFile(filepath.Join(store, "y"), []byte("2"), 0o644) },
		func() error { return os.RemoveAll(filepath.Join(dir, "a.hcl.d")) },
	} {
		for len(w.Changed) > 0 {
			<-w.Changed
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
		<-w.Changed
	}
}
