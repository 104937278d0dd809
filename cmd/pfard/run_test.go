package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// look is what lies in a directory: names, and of each what changes with it.
func look(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			fmt.Fprintln(&b, path, info.Mode(), info.Size(), info.ModTime(), info.Sys().(*syscall.Stat_t).Ino)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSecondPfard: a pfard that finds another one in its run directory says so, and touches nothing of that one's. What
// one leaves behind that was killed keeps nobody away.
func TestSecondPfard(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "pfar-run-") // others may enter it
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := options{local: true, declarations: dir, servers: dir, listen: "127.0.0.1:0", dirs: control.Dirs{
		Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state"), Config: dir, Servers: dir,
	}}
	if err := prepareDirs(o.dirs); err != nil {
		t.Fatal(err)
	}
	first, err := lockRun(o.dirs.Run)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.dirs.Control(), nil, 0o600); err != nil { // as the first one's socket would be
		t.Fatal(err)
	}
	before := look(t, dir)
	want := fmt.Sprintf("another pfar runs with the run directory %q: stop it, or set PFAR_RUN_DIR and PFAR_STATE_DIR", o.dirs.Run)
	if err := run(t.Context(), o, slog.New(slog.DiscardHandler)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if now := look(t, dir); now != before {
		t.Errorf("it has changed\n%s\nto\n%s", before, now)
	}
	if _, err := lockRun(o.dirs.Run); err == nil {
		t.Error("a third one is not kept away")
	}
	first.Close()
	again, err := lockRun(o.dirs.Run)
	if err != nil {
		t.Fatalf("after the first one's end: %v", err)
	}
	again.Close()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "pfard.lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := lockRun(dir); err == nil || strings.Contains(err.Error(), "another pfar") {
		t.Errorf("behind a symbolic link: %v", err)
	}
}

// TestToken: it is made beside its place, so that a crash leaves a whole one or none, and is the same from then on.
func TestToken(t *testing.T) {
	dir := t.TempDir()
	path, last := filepath.Join(dir, "token"), filepath.Join(dir, "last")
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	made, err := token(path)
	if err != nil || len(made) < minToken {
		t.Fatalf("%d characters, %v", len(made), err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if again, err := token(path); err != nil || string(again) != string(made) {
		t.Errorf("another one, %v", err)
	}
	if err := os.WriteFile(last, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for e := range w.Events {
		if e.Name == last {
			break
		}
		if e.Name == path && e.Has(fsnotify.Write) {
			t.Error("it is written in its place")
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if b, err := token(path); err == nil || strings.Contains(err.Error(), string(made)) {
		t.Errorf("one that others may read: %d characters, %v", len(b), err)
	}
}

// TestNewerState: a pfard that is older than the state touches nothing in it.
func TestNewerState(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "pfar-run-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := options{local: true, declarations: dir, servers: dir, listen: "127.0.0.1:0", dirs: control.Dirs{
		Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state"), Config: dir, Servers: dir,
	}}
	if err := prepareDirs(o.dirs); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.dirs.State, "format.json"), []byte(`{"format":99,"pfar":"9.0.0"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	before := look(t, o.dirs.State)
	for name, err := range map[string]error{"starting": run(t.Context(), o, slog.New(slog.DiscardHandler)), "sealing": sealKey(o.dirs, nil)} {
		if err == nil || !strings.Contains(err.Error(), "install pfar 9.0.0 or a later one again") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if now := look(t, o.dirs.State); now != before {
		t.Errorf("the state has changed\n%s\nto\n%s", before, now)
	}
}

func TestOtherLauncher(t *testing.T) {
	own, held := units.Version(), units.Confinement{Limits: "held"}
	for _, c := range []struct {
		u    units.Update
		want string
	}{
		{units.Update{PID: 7, Confinement: held, Version: "0.0.1"}, "0.0.1"},
		{units.Update{PID: 7, Confinement: held}, "an earlier version"},
		{units.Update{PID: 7, Confinement: held, Version: own}, ""},
		{units.Update{PID: 7}, ""},
		{units.Update{Confinement: held, Version: "0.0.1"}, ""},
	} {
		if got := otherLauncher(c.u); got != c.want {
			t.Errorf("%+v: %q, want %q", c.u, got, c.want)
		}
	}
}
