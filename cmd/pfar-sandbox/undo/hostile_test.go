package undo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/handover"
)

// TestMain becomes a launcher that is killed, for TestKilled.
func TestMain(m *testing.M) {
	if dir := os.Getenv("PFAR_TEST_KILLED"); dir != "" {
		killed(dir, os.Getenv("PFAR_TEST_STEP"))
	}
	os.Exit(m.Run())
}

// outside has a file that nobody may see or change over the folder.
func (b *bed) outside() string {
	secret := filepath.Join(filepath.Dir(b.dir), "secret")
	b.must(os.MkdirAll(secret, 0o755))
	b.must(os.WriteFile(filepath.Join(secret, "key"), []byte("not to be seen"), 0o644))
	return secret
}

// holds reports whether anything in the store has a text in it.
func (b *bed) holds(text string) bool {
	found := false
	b.must(filepath.WalkDir(b.store, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var t []byte
			t, err = os.ReadFile(p)
			found = found || strings.Contains(string(t), text)
		}
		return err
	}))
	return found
}

// TestLinksLeadNowhere: nothing is read over a link, and nothing restored over one, wherever it is put and whenever.
func TestLinksLeadNowhere(t *testing.T) {
	for name, plant := range map[string]func(b *bed, secret string){
		"a file":       func(b *bed, s string) { b.must(os.Remove(b.path("a"))); b.must(os.Symlink(s+"/key", b.path("a"))) },
		"a folder":     func(b *bed, s string) { b.must(os.RemoveAll(b.path("in"))); b.must(os.Symlink(s, b.path("in"))) },
		"its own name": func(b *bed, s string) { b.must(os.Symlink(s+"/key", b.path(".pfar-undo"))) },
	} {
		b := newBed(t)
		secret := b.outside()
		b.furnish()
		b.write("in/key", "of the folder")
		b.keeps("1")
		b.must(os.Remove(b.path("in/key")))
		b.keeps("2")
		plant(b, secret)
		_, err := b.Restore(handover.Undo{Since: "1", Call: handover.Call{ID: "u"}})
		b.must(err)
		if b.holds("not to be seen") {
			t.Errorf("%s: the store has it", name)
		}
		if got, _ := os.ReadFile(filepath.Join(secret, "key")); string(got) != "not to be seen" {
			t.Errorf("%s: it is %q", name, got)
		}
		if got, err := os.ReadFile(b.path("in/key")); string(got) != "of the folder" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestSwaps: a server that puts links, FIFOs and folders in the place of files all the time gets nothing into the store
// from outside, does not block it, and each version that is said to be kept can be restored.
func TestSwaps(t *testing.T) {
	b := newBed(t)
	secret := b.outside()
	b.furnish()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			n := b.path(fmt.Sprint("swap", i%3))
			_ = os.RemoveAll(n)
			switch i % 5 {
			case 0:
				_ = os.Symlink(secret+"/key", n)
			case 1:
				_ = unix.Mkfifo(n, 0o600)
			case 2:
				_ = os.Symlink(secret, n)
			case 3:
				_ = os.WriteFile(n, []byte(strings.Repeat("x", i%5000)), 0o600)
			case 4:
				_ = os.Mkdir(n, 0o700)
				_ = os.WriteFile(n+"/key", []byte("mine"), 0o600)
			}
			_ = os.Rename(b.path("in"), b.path("moved"))
			_ = os.Rename(b.path("moved"), b.path("in"))
		}
	}()
	for i := range 30 {
		if err := b.Keep(handover.Call{ID: fmt.Sprint(i)}); err != nil && !errors.Is(err, errMoved) {
			t.Log(err)
		}
	}
	_, _ = b.Restore(handover.Undo{Path: b.dir, Call: handover.Call{ID: "u"}})
	close(stop)
	<-stopped
	if b.holds("not to be seen") {
		t.Error("the store has it")
	}
	if got, _ := os.ReadFile(filepath.Join(secret, "key")); string(got) != "not to be seen" {
		t.Errorf("it is %q", got)
	}
	for i := range 3 {
		b.must(os.RemoveAll(b.path(fmt.Sprint("swap", i))))
	}
	before := b.state()
	b.keeps("quiet")
	b.write("a", "other")
	b.restore("quiet")
	if got := b.state(); got != before {
		t.Errorf("restored:\n%s\nwant:\n%s", got, before)
	}
}

// TestTooMuch: what does not fit is not kept, which is an error, and costs nothing.
func TestTooMuch(t *testing.T) {
	for name, c := range map[string]struct {
		make func(b *bed)
		want string
	}{
		"a huge file with holes": {func(b *bed) { b.must(os.Truncate(b.path("a"), 1<<40)) }, "undo_size"},
		"many files": {func(b *bed) {
			for i := range 2000 {
				b.write(fmt.Sprint("f", i), "")
			}
		}, "more than 1000 files"},
		"depth": {func(b *bed) {
			b.must(os.MkdirAll(b.path(strings.Repeat("d/", maxDepth+2)), 0o755))
		}, "directories in each other"},
	} {
		b := newBed(t)
		b.limits.Files = 1000
		b.open()
		b.furnish()
		b.keeps("1")
		kept, before := b.bytes, b.state()
		c.make(b)
		if err := b.Keep(handover.Call{ID: "2"}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if b.bytes != kept {
			t.Errorf("%s: %d bytes are kept, want %d", name, b.bytes, kept)
		}
		if c.want == "directories in each other" {
			continue
		}
		if _, err := b.Restore(handover.Undo{Since: "1", Discard: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := b.state(); got != before {
			t.Errorf("%s: restored:\n%s\nwant:\n%s", name, got, before)
		}
	}
}

// TestFlood: a server that writes much cannot have that dropped what it overwrote today; what is older goes first.
func TestFlood(t *testing.T) {
	b := newBed(t)
	b.limits.Bytes = 1 << 20
	b.open()
	b.write("a", "precious")
	b.keeps("first")
	var err error
	for i := 0; i < 20 && err == nil; i++ {
		b.write("a", strings.Repeat(fmt.Sprint(i%10), 100<<10))
		err = b.Keep(handover.Call{ID: fmt.Sprint(i)})
	}
	if err == nil || !strings.Contains(err.Error(), "undo_size") {
		t.Errorf("more was kept than fits: %v", err)
	}
	b.write("a", "small")
	b.restore("first")
	if got, _ := os.ReadFile(b.path("a")); string(got) != "precious" {
		t.Errorf("%.20q", got)
	}
	b.now = b.now.Add(25 * time.Hour)
	for i := range 20 {
		b.write("a", strings.Repeat(fmt.Sprint(i%10), 100<<10))
		b.now = b.now.Add(25 * time.Hour)
		b.keeps(fmt.Sprint("later", i))
	}
	b.write("a", "gone")
	b.restore("later19")
	if got, _ := os.ReadFile(b.path("a")); len(got) != 100<<10 || b.bytes > 1<<20 {
		t.Errorf("%d bytes restored, %d kept", len(got), b.bytes)
	}
	if _, err := b.List(handover.Undo{Since: "first"}); err == nil {
		t.Error("what was dropped can be restored")
	}
}

// TestExpires: what is older than is asked for goes.
func TestExpires(t *testing.T) {
	b := newBed(t)
	b.write("a", "first")
	b.keeps("1")
	b.write("a", "second")
	b.keeps("2")
	b.now = b.now.Add(8 * 24 * time.Hour)
	b.write("a", "third")
	b.keeps("3")
	if b.holds("first") {
		t.Error("it is still there")
	}
	b.restore("3")
	if got, _ := os.ReadFile(b.path("a")); string(got) != "third" {
		t.Errorf("%q", got)
	}
}

// TestFullDiskExpires has the disk be full at every step of removing old versions. The store counts what the disk has,
// and restores the newest version.
func TestFullDiskExpires(t *testing.T) {
	for step := 0; ; step++ {
		b := newBed(t)
		for i := range 3 {
			b.write("a", strings.Repeat("x", 1000*(i+1)))
			b.keeps(fmt.Sprint("old", i))
		}
		b.now = b.now.Add(8 * 24 * time.Hour)
		b.write("a", "third")
		n, failed := 0, ""
		b.step = func(name string) error {
			if n++; n > step {
				failed = name
				return unix.ENOSPC
			}
			return nil
		}
		err := b.Keep(handover.Call{ID: "3"})
		b.step = func(string) error { return nil }
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		names, rerr := os.ReadDir(filepath.Join(b.store, objects))
		b.must(rerr)
		var bytes int64
		for _, n := range names {
			st, err := n.Info()
			b.must(err)
			bytes += st.Size()
		}
		if b.bytes != bytes {
			t.Errorf("step %d, %s: %d bytes are counted, %d are there", step, failed, b.bytes, bytes)
		}
		b.keeps("4")
		b.open()
		b.write("a", "fourth")
		b.restore("4")
		if got, _ := os.ReadFile(b.path("a")); string(got) != "third" {
			t.Errorf("step %d, %s: %q", step, failed, got)
		}
		if failed == "" {
			return
		}
	}
}

// TestFullDisk: at every step at which the disk can be full nothing that was kept is lost, a version that is not made
// is an error, and the next is made as if nothing had been.
func TestFullDisk(t *testing.T) {
	for name, settle := range map[string]struct{ before, then bool }{
		"first version": {}, "next object made": {before: true}, "next object not made": {then: true},
	} {
		t.Run(name, func(t *testing.T) { fullDisk(t, settle.before, settle.then) })
	}
}

// fullDisk settles the store before the disk is full, or while it is.
func fullDisk(t *testing.T, before, then bool) {
	for step := 0; ; step++ {
		b := newBed(t)
		b.furnish()
		first := b.state()
		b.keeps("1")
		b.write("a", "second")
		b.write("in/deep/c", "second")
		b.must(os.Remove(b.path("in/b")))
		second := b.state()
		if before {
			b.settle()
		}
		n := 0
		b.step = func(string) error {
			if n++; n > step {
				return unix.ENOSPC
			}
			return nil
		}
		if then {
			b.settle()
		}
		err := b.Keep(handover.Call{ID: "2"})
		b.step = func(string) error { return nil }
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		if _, lerr := b.since(handover.Undo{Since: "2"}); (lerr == nil) != (err == nil) {
			t.Errorf("step %d: kept: %v, known: %v", step, err, lerr)
		}
		b.open()
		b.keeps("3")
		b.write("a", "third")
		b.restore("3")
		if got := b.state(); got != second {
			t.Errorf("step %d: restored:\n%s\nwant:\n%s", step, got, second)
		}
		b.restore("1")
		if got := b.state(); got != first {
			t.Errorf("step %d: restored:\n%s\nwant:\n%s", step, got, first)
		}
		if err == nil {
			return
		}
	}
}

// TestSmallDisk: on a disk that is really full nothing is kept, and nothing of the disk's rest is taken.
func TestSmallDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a file system")
	}
	root := t.TempDir()
	private(t)
	b := bedIn(t, root)
	b.Store.Close()
	b.Store = nil
	b.must(unix.Mount("tmpfs", b.store, "tmpfs", 0, "size=1m"))
	defer unix.Unmount(b.store, unix.MNT_DETACH)
	b.open()
	b.write("a", strings.Repeat("a", 400<<10))
	b.keeps("1")
	b.write("a", strings.Repeat("b", 700<<10))
	if err := b.Keep(handover.Call{ID: "2"}); err == nil {
		t.Error("it was kept")
	}
	if _, err := b.Restore(handover.Undo{Since: "1"}); err == nil {
		t.Error("it was restored, though what was there could not be kept")
	}
	_, err := b.Restore(handover.Undo{Since: "1", Discard: true})
	b.must(err)
	if got, _ := os.ReadFile(b.path("a")); string(got) != strings.Repeat("a", 400<<10) {
		t.Errorf("%.20q", got)
	}
}

// death is what a launcher does until it is killed, after version "1" was made of the first state of a folder.
type death struct {
	first  bool          // the launcher is the first: the store and its versions are still to be made
	large  bool          // the store is full, so the launcher removes older versions
	after  time.Duration // since the launcher before it; 0: no version is too old
	settle bool          // the next object is made before it keeps anything
}

var deaths = map[string]death{
	"first store": {first: true}, "first version": {}, "next object made": {settle: true},
	"no room": {large: true, after: 2 * guard}, "too old": {after: 8 * 24 * time.Hour},
}

// limits are those of its store.
func (d death) limits() Limits {
	l := Limits{Bytes: 64 << 20, Time: 7 * 24 * time.Hour, Files: MaxFiles}
	if d.large {
		l.Bytes = 7 << 19 // three files of 1 MiB
	}
	return l
}

// TestKilled kills a launcher before each step, and in the middle of each. The earlier versions stay, and no version is
// there in part.
func TestKilled(t *testing.T) {
	for name, d := range deaths {
		for _, torn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, torn=%t", name, torn), func(t *testing.T) {
				t.Parallel()
				seen := map[string]bool{}
				for step := 0; d.killed(t, name, step, torn, seen); step++ {
				}
				wants := []string{"make the store", "copy a file", "write the log"}
				if d.after > 0 {
					wants = append(wants, "replace the log", "remove an object")
				}
				for _, want := range wants {
					if !seen[want] {
						t.Errorf("it was not killed when it was to %s: %v", want, seen)
					}
				}
			})
		}
	}
}

// killed has it be killed at a step, and reports whether there is that step.
func (d death) killed(t *testing.T, name string, step int, torn bool, seen map[string]bool) bool {
	root := t.TempDir()
	b := &bed{
		T: t, dir: filepath.Join(root, "folder"), store: filepath.Join(root, "store"), now: time.Now(),
		limits: d.limits(), step: func(string) error { return nil },
	}
	b.furnish()
	fill := func(letter string) string { return strings.Repeat(letter, 1<<20) }
	if !d.first {
		b.open()
		for _, id := range []string{"x", "0"} {
			b.write("a", fill(id))
			b.keeps(id)
		}
		b.write("a", fill("1"))
		b.keeps("1")
		b.Store.Close()
		b.Store = nil
	}
	first := b.state()
	b.write("a", fill("2"))
	b.write("in/deep/c", "second")
	second := b.state()
	at := dies(t, root, step, torn, "PFAR_TEST_DEATH="+name)
	seen[at] = true
	b.now = b.now.Add(d.after)
	b.open()
	defer b.Store.Close()
	if _, err := b.since(handover.Undo{Since: "2"}); err == nil && at != "" {
		t.Errorf("step %d, %s: there is a version that was not finished", step, at)
	}
	_, lost := b.since(handover.Undo{Since: "1"})
	b.keeps("3")
	b.write("a", "third")
	b.restore("3")
	if got := b.state(); got != second {
		t.Errorf("step %d, %s: restored:\n%s\nwant:\n%s", step, at, got, second)
	}
	if !d.first && d.after == 0 && lost != nil {
		t.Errorf("step %d, %s: %v", step, at, lost)
	}
	if _, err := b.since(handover.Undo{Since: "1"}); err == nil {
		b.restore("1")
		if got := b.state(); got != first {
			t.Errorf("step %d, %s: restored:\n%s\nwant:\n%s", step, at, got, first)
		}
	}
	names, err := readNames(b.store)
	b.must(err)
	if len(names) != 2 {
		t.Errorf("step %d, %s: the store has %q", step, at, names)
	}
	return at != ""
}

// dies runs a launcher until it is killed at a step, and returns the step's name. It returns "" if there are fewer
// steps.
func dies(t *testing.T, root string, step int, torn bool, how string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "PFAR_TEST_KILLED="+root, "PFAR_TEST_STEP="+fmt.Sprint(step), how)
	if torn {
		cmd.Env = append(cmd.Env, "PFAR_TEST_TORN=1")
	}
	out, err := cmd.Output()
	var died *exec.ExitError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &died) && died.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL:
		return string(out)
	}
	t.Fatalf("%v: %s", err, out)
	return ""
}

// killed makes a version, or restores one, and is killed at a step.
func killed(root, at string) {
	d, n := deaths[os.Getenv("PFAR_TEST_DEATH")], 0
	folder, store := filepath.Join(root, "folder"), filepath.Join(root, "store")
	now := func() time.Time { return time.Now().Add(d.after) }
	s, err := open(store, []Folder{{folder, folder}}, d.limits(), now, func(doing string) error {
		if fmt.Sprint(n) == at {
			if os.Getenv("PFAR_TEST_TORN") != "" {
				tear(root, doing)
			}
			os.Stdout.WriteString(doing)
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {} // it comes
		}
		n++
		return nil
	})
	if err == nil {
		s.settling.after = time.Hour
		if d.settle {
			s.settle()
		}
		if since := os.Getenv("PFAR_TEST_RESTORE"); since != "" {
			_, err = s.Restore(handover.Undo{Since: since, Call: handover.Call{ID: "u"}})
		} else {
			err = s.Keep(handover.Call{ID: "2"})
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// tear leaves what a launcher leaves that is killed while it does something.
func tear(root, doing string) {
	store := filepath.Join(root, "store")
	add := func(path, text string) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			panic(err)
		}
	}
	switch doing {
	case "make the store":
		_ = os.Mkdir(store, 0o700)
	case "copy a file":
		names, _ := filepath.Glob(store + "/objects/*")
		number := func(path string) int { n, _ := strconv.Atoi(filepath.Base(path)); return n }
		add(slices.MaxFunc(names, func(a, b string) int { return number(a) - number(b) }), "222")
	case "write the log":
		add(store+"/log", `{"version":{"at":"2026-`)
	case "replace the log":
		add(store+"/"+durable.Prefix+"123", `{"base":{"fol`)
	case "restore a file":
		_ = os.Truncate(root+"/folder/a", 1000)
	}
}

// TestKilledRestoring kills a launcher between two files, and in the middle of one. Each file is as it was or as it is
// to be, and the next launcher restores the rest.
func TestKilledRestoring(t *testing.T) {
	for _, torn := range []bool{false, true} {
		steps, mixed := 0, 0
		for step := 0; ; step++ {
			root := t.TempDir()
			b := bedIn(t, root)
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
			b.keeps("2")
			b.Store.Close()
			b.Store = nil
			at := dies(t, root, step, torn, "PFAR_TEST_RESTORE=1")
			if at == "restore a file" {
				steps++
			}
			if got := b.state(); !torn && got != before && got != after {
				mixed++
				known := before + after
				for line := range strings.Lines(got) {
					if !strings.Contains(line, " d") && !strings.Contains(known, line) {
						t.Errorf("step %d: there is %s", step, line)
					}
				}
			}
			b.open()
			b.restore("1")
			if got := b.state(); got != before {
				t.Errorf("step %d, torn=%t, %s: restored:\n%s\nwant:\n%s", step, torn, at, got, before)
			}
			b.restore("2")
			if got := b.state(); got != after {
				t.Errorf("step %d, torn=%t, %s: taken back:\n%s\nwant:\n%s", step, torn, at, got, after)
			}
			if at == "" {
				break
			}
		}
		if steps < 6 || !torn && mixed == 0 {
			t.Errorf("torn=%t: killed at %d files, %d times between two", torn, steps, mixed)
		}
	}
}

// TestFullDiskFirst has the disk be full at every step of making the store and its first version. The launcher gets an
// error, and the next launcher begins anew.
func TestFullDiskFirst(t *testing.T) {
	failed := map[string]bool{}
	for step, more := 0, true; more; step++ {
		root := t.TempDir()
		b := &bed{T: t, dir: filepath.Join(root, "folder"), store: filepath.Join(root, "store"), now: time.Now()}
		b.limits, b.step = death{}.limits(), func(string) error { return nil }
		b.furnish()
		before := b.state()
		n := 0
		more = false
		s, err := open(b.store, []Folder{{b.dir, b.dir}}, b.limits, time.Now, func(doing string) error {
			if n++; n > step {
				failed[doing], more = true, true
				return unix.ENOSPC
			}
			return nil
		})
		if err == nil {
			err = s.Keep(handover.Call{ID: "1"})
			s.Close()
		}
		if more != errors.Is(err, unix.ENOSPC) {
			t.Fatalf("step %d: %v", step, err)
		}
		b.open()
		if _, err := b.since(handover.Undo{Since: "1"}); (err == nil) == more {
			t.Errorf("step %d: known: %v", step, err)
		}
		b.keeps("2")
		b.write("a", "second")
		b.restore("2")
		if got := b.state(); got != before {
			t.Errorf("step %d: restored:\n%s\nwant:\n%s", step, got, before)
		}
		b.Store.Close()
	}
	for _, want := range []string{"make the store", "make an object", "copy a file", "write the log"} {
		if !failed[want] {
			t.Errorf("the disk was not full when it was to %s: %v", want, failed)
		}
	}
}

// TestSettled: what is made ready between calls is no version, holds what it is used for, and is not used once old
// versions were dropped, when all that no version needs is removed.
func TestSettled(t *testing.T) {
	b := newBed(t)
	for i, what := range []string{"used", "dropped", "closed"} {
		b.write("a", what+" before")
		b.keeps(fmt.Sprint("first", i))
		b.write("a", what)
		b.settle()
		if b.settling.spare == nil {
			t.Fatal("no object is made ready")
		}
		switch what {
		case "dropped":
			b.must(b.drop(1))
		case "closed":
			b.Store.Close()
			b.settle()
			b.open()
		}
		b.keeps(fmt.Sprint("second", i))
		b.open()
		b.write("a", "other")
		b.restore(fmt.Sprint("second", i))
		if got, _ := os.ReadFile(b.path("a")); string(got) != what {
			t.Errorf("%s: restored: %q", what, got)
		}
	}
}

// TestDiskTakesNothing: a copy that the disk does not take is not kept, which is said, and the next version has another
// one. If it does not take the log, nothing is kept until the next launcher.
func TestDiskTakesNothing(t *testing.T) {
	for _, again := range []bool{false, true} {
		b := newBed(t)
		b.write("a", "first")
		b.keeps("1")
		b.settle()
		b.write("a", "second")
		b.keeps("2")
		failing := b.Store.path("log")
		b.settling.sync = func(fd int) error {
			if at, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)); at != failing {
				return unix.EIO
			}
			return nil
		}
		kept := b.bytes
		b.settle()
		b.settling.sync = unix.Fdatasync
		if b.bytes != kept-int64(len("second")) {
			t.Errorf("%d bytes are counted, there were %d", b.bytes, kept)
		}
		if again {
			b.open()
		}
		b.keeps("3")
		b.write("a", "third")
		h, err := b.Restore(handover.Undo{Since: "2", Call: handover.Call{ID: "u"}})
		b.must(err)
		if len(h.Restores) != 1 || h.Restores[0].Error != errNotKept.Error() {
			t.Errorf("again=%t: restored to what was lost: %+v", again, h.Restores)
		}
		for _, c := range []struct{ since, want string }{{"3", "second"}, {"1", "first"}} {
			b.restore(c.since)
			if got, _ := os.ReadFile(b.path("a")); string(got) != c.want {
				t.Errorf("again=%t: restored to %s: %q", again, c.since, got)
			}
		}
		b.settling.sync = func(fd int) error {
			if at, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)); at == failing {
				return unix.EIO
			}
			return nil
		}
		b.settle()
		b.write("a", "fourth")
		if err := b.Keep(handover.Call{ID: "4"}); !errors.Is(err, unix.EIO) {
			t.Errorf("again=%t: kept without a log: %v", again, err)
		}
		b.open()
		b.keeps("5")
	}
}

// TestSettles: versions are whole while the disk takes them.
func TestSettles(t *testing.T) {
	b := newBed(t)
	b.settling.after = 0
	for i := range 50 {
		b.write("a", fmt.Sprint("version ", i))
		b.keeps(fmt.Sprint(i))
	}
	b.open()
	for i := 49; i >= 0; i-- {
		b.restore(fmt.Sprint(i))
		if got, _ := os.ReadFile(b.path("a")); string(got) != fmt.Sprint("version ", i) {
			t.Errorf("%d: restored: %q", i, got)
		}
	}
}

// TestDamaged: what a power cut left of the last records and objects is not taken for what it is not.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(b *bed){
		"half a record": func(b *bed) {
			st, err := os.Stat(b.Store.path("log"))
			b.must(err)
			b.must(os.Truncate(b.Store.path("log"), st.Size()-3))
		},
		"zeros": func(b *bed) {
			f, err := os.OpenFile(b.Store.path("log"), os.O_WRONLY|os.O_APPEND, 0)
			b.must(err)
			_, err = f.Write(make([]byte, 4096))
			b.must(errors.Join(err, f.Close()))
		},
		"empty objects": func(b *bed) {
			names, err := readNames(b.Store.path(objects))
			b.must(err)
			for _, n := range names {
				b.must(os.Truncate(filepath.Join(b.Store.path(objects), n), 0))
			}
		},
		"a stray object": func(b *bed) { b.must(os.WriteFile(b.Store.object(999), []byte("x"), 0o600)) },
	} {
		b := newBed(t)
		b.furnish()
		b.keeps("1")
		damage(b)
		b.open()
		before := b.state()
		b.keeps("2")
		b.write("a", "other")
		b.must(os.Remove(b.path("in/b")))
		b.restore("2")
		if got := b.state(); got != before {
			t.Errorf("%s: restored:\n%s\nwant:\n%s", name, got, before)
		}
		if _, err := os.Lstat(b.Store.object(999)); err == nil {
			t.Errorf("%s: the stray object is there", name)
		}
	}
}

// private has what the test mounts be seen by nobody else.
func private(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // it ends with the test
	err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMounts: what is mounted in a folder is the server's to write to, and cannot be kept.
func TestMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a file system")
	}
	private(t)
	b := newBed(t)
	b.furnish()
	b.keeps("1")
	b.must(unix.Mount(b.outside(), b.path("in/deep"), "", unix.MS_BIND, ""))
	defer unix.Unmount(b.path("in/deep"), unix.MNT_DETACH)
	if err := b.Keep(handover.Call{ID: "2"}); err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Error(err)
	}
}

// TestModesOfPrograms: nothing that is restored is set-user-ID.
func TestModesOfPrograms(t *testing.T) {
	b := newBed(t)
	b.write("a", "x")
	b.must(os.Chmod(b.path("a"), 0o755|os.ModeSetuid))
	b.keeps("1")
	b.must(os.Remove(b.path("a")))
	b.restore("1")
	if st, err := os.Stat(b.path("a")); err != nil || st.Mode() != 0o755 {
		t.Error(st.Mode(), err)
	}
}

// BenchmarkKeep is what a call waits for, in a folder of 10,000 files of which none or one of 1 MiB has changed.
func BenchmarkKeep(b *testing.B) {
	for _, changed := range []bool{false, true} {
		b.Run(fmt.Sprintf("changed=%v", changed), func(b *testing.B) {
			root := b.TempDir()
			dir := filepath.Join(root, "folder")
			for i := range 10000 {
				at := filepath.Join(dir, fmt.Sprint(i%500))
				file := filepath.Join(at, fmt.Sprint(i))
				if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(file, []byte("x"), 0o644)); err != nil {
					b.Fatal(err)
				}
			}
			limits := Limits{Bytes: 8 << 30, Time: time.Hour, Files: MaxFiles}
			s, err := Open(filepath.Join(root, "store"), []Folder{{dir, dir}}, limits)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if err := s.Keep(); err != nil {
				b.Fatal(err)
			}
			text := make([]byte, 1<<20)
			for i := 0; b.Loop(); i++ {
				if changed {
					text[0] = byte(i)
					if err := os.WriteFile(filepath.Join(dir, "big"), text, 0o644); err != nil {
						b.Fatal(err)
					}
				}
				if err := s.Keep(handover.Call{ID: "x"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
