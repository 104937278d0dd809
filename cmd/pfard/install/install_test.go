package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/installer"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

var wanted = source.Package{Kind: source.NPM, Name: "@a/b", Version: "1.0.0"}

// bench is a machine that runs jobs in the test's own process, and all that jobs want of pfard.
type bench struct {
	t    *testing.T
	jobs *Jobs
	base string
	does func(stage string) string // what npm does there; it returns why it fails

	refused egress.Refusal // of the job's bridge
	known   string         // digest of the package

	mu        sync.Mutex
	starts    int
	installed int
	stopped   []string
}

func newBench(t *testing.T, does func(stage string) string) *bench {
	t.Helper()
	b := &bench{t: t, base: t.TempDir(), does: does}
	for path, text := range map[string]string{
		"bin/npm": "#!/usr/bin/env node\n", "bin/node": "\x7fELF", "bin/env": "\x7fELF",
	} {
		b.write(filepath.Join(b.base, path), text)
		if err := os.Chmod(filepath.Join(b.base, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.jobs = New(slog.New(slog.DiscardHandler), filepath.Join(b.base, "packages"), b)
	b.jobs.Run(b)
	return b
}

func (b *bench) write(path, text string) {
	b.t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		b.t.Error(err)
	}
}

func (b *bench) Start(p plan.Plan, _ units.Secrets) error {
	b.mu.Lock()
	b.starts++
	b.mu.Unlock()
	u := units.Update{Server: p.Name, Session: p.Gateway.Session, State: units.StateStopped, Ended: true}
	u.Refusal = b.refused
	jobs, does := b.jobs, b.does // a process may end after the test has gone on to others
	go func() {
		if why := does(p.PrivateHome()); why != "" {
			u.State, u.Detail = units.StateFailed, why
		}
		jobs.Take(u)
	}()
	return nil
}

func (b *bench) Stop(instance string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = append(b.stopped, instance)
}

func (b *bench) Settings() installer.Reader {
	return installer.Reader{Env: func(string) string { return "" }, Host: generator.Host{
		FS: os.DirFS("/").(fs.ReadLinkFS), Path: []string{filepath.Join(b.base, "bin")},
		Packages: filepath.Join(b.base, "packages"), StateDir: filepath.Join(b.base, "home"),
	}}
}

func (b *bench) Clean(text string) string        { return strings.ReplaceAll(text, "hunter2", "***") }
func (b *bench) Log(string) string               { return "the log" }
func (b *bench) Integrity(source.Package) string { return b.known }
func (b *bench) Installed(source.Package) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.installed++
}

func (b *bench) folder() string { return b.Settings().Host.Folder(wanted) }

// install has the package installed, and returns what was said last.
func (b *bench) install() (last control.Installing, err error) {
	b.t.Helper()
	job, err := b.jobs.Begin(wanted)
	if err != nil {
		b.t.Fatal(err)
	}
	err = job.Watch(b.t.Context(), func(i control.Installing) error { last = i; return nil })
	return last, err
}

const lock = `{"packages": {"node_modules/@a/b":
	{"version": "1.0.0", "resolved": "https://r/b.tgz", "integrity": "sha512-A"}}}`

// fetch is what npm does when all goes well.
func (b *bench) fetch(stage string) string {
	b.write(filepath.Join(stage, "tree/node_modules/@a/b/package.json"), `{"name": "@a/b", "bin": "b.js"}`)
	b.write(filepath.Join(stage, "tree/node_modules/@a/b/b.js"), "#!/usr/bin/env node\n")
	if err := os.Chmod(filepath.Join(stage, "tree/node_modules/@a/b/b.js"), 0o4777); err != nil {
		b.t.Error(err)
	}
	if err := os.Symlink("../@a/b/b.js", filepath.Join(stage, "tree/node_modules/b")); err != nil {
		b.t.Error(err)
	}
	b.write(filepath.Join(stage, "lock.json"), lock)
	b.write(filepath.Join(stage, "done"), "")
	return ""
}

// clean wants nothing to be left in the folder of jobs.
func (b *bench) clean() {
	b.t.Helper()
	left, err := os.ReadDir(filepath.Join(b.base, "packages/.staged"))
	if err != nil || len(left) > 0 {
		b.t.Errorf("left: %v, %v", left, err)
	}
}

// TestInstall: two who ask have one job, and the package is everybody's to read and nobody's to write. Asked again, it
// is there already.
func TestInstall(t *testing.T) {
	hold := make(chan struct{})
	var b *bench
	b = newBench(t, func(stage string) string { <-hold; return b.fetch(stage) })
	one, err := b.jobs.Begin(wanted)
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.jobs.Begin(wanted)
	if err != nil || one != two || !b.jobs.Under(wanted) {
		t.Errorf("two jobs: %v", err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	left := errors.New("left")
	err = one.Watch(gone, func(control.Installing) error { cancel(left); return nil })
	if !errors.Is(err, left) {
		t.Errorf("who has left hears %v", err)
	}
	close(hold)
	got, err := b.install()
	if err != nil || !got.Done || got.Folder != b.folder() {
		t.Fatalf("%+v, %v", got, err)
	}
	if got, err := b.install(); err != nil || !got.Already || !got.Done {
		t.Errorf("again: %+v, %v", got, err)
	}
	if b.starts != 1 || b.installed != 1 || len(b.stopped) != 1 {
		t.Errorf("%d starts, told %d times, stopped %q", b.starts, b.installed, b.stopped)
	}
	for path, want := range map[string]fs.FileMode{
		"": fs.ModeDir | 0o755, "..": fs.ModeDir | 0o755, "../..": fs.ModeDir | 0o755,
		"../../../../.staged": fs.ModeDir | 0o711,
		"record.json":         0o444, "lock.json": 0o444, "tree": fs.ModeDir | 0o755,
		"tree/node_modules/@a/b/package.json": 0o444, "tree/node_modules/@a/b/b.js": 0o555,
	} {
		info, err := os.Lstat(filepath.Join(b.folder(), path))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(b.folder(), "done")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the job says of its end is there: %v", err)
	}
	b.clean()
}

// TestNewest: a package without a version is looked for, and nothing is installed. What the registry says is a
// stranger's text.
func TestNewest(t *testing.T) {
	for said, want := range map[string]string{
		`"1.2.3"`: "npm:@a/b@1.2.3", `"../../x"`: "", `"latest"`: "", `["1.2.3"]`: "", `""`: "", "": "", "hunter2": "",
	} {
		var b *bench
		b = newBench(t, func(stage string) string {
			b.write(filepath.Join(stage, "lock.json"), said)
			b.write(filepath.Join(stage, "done"), "")
			return ""
		})
		job, err := b.jobs.Begin(source.Package{Kind: source.NPM, Name: "@a/b"})
		if err != nil {
			t.Fatal(err)
		}
		var last control.Installing
		err = job.Watch(t.Context(), func(i control.Installing) error { last = i; return nil })
		if (err == nil) != (want != "") || err == nil && !reflect.DeepEqual(last, control.Installing{Package: want}) {
			t.Errorf("%s: %+v, %v, want %q", said, last, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "looking for the newest version of npm:@a/b: ") {
			t.Errorf("%s: %v", said, err)
		}
		if b.installed != 0 || len(b.stopped) != 1 {
			t.Errorf("%s: %d installed, stopped %q", said, b.installed, b.stopped)
		}
		b.clean()
	}
}

// TestInstallFails: whatever a job does, what is not whole is no package, nothing of it is left, and the words say why.
func TestInstallFails(t *testing.T) {
	var b *bench
	also := func(more func(stage string)) func(string) string {
		return func(stage string) string { b.fetch(stage); more(stage); return "" }
	}
	for want, does := range map[string]func(stage string) string{
		"exit status 1: 404 ***; its log: the log": func(string) string { return "exit status 1: 404 hunter2" },
		"the job was stopped before its end":       func(string) string { return "" },
		"the lock file is missing":                 also(func(s string) { os.Remove(s + "/lock.json") }),
		"no SHA-2 digest": also(func(s string) {
			b.write(s+"/lock.json", strings.Replace(lock, "sha512", "md5", 1))
		}),
		"the lock is not a file": also(func(s string) {
			os.Remove(s + "/lock.json")
			os.Symlink("/etc/passwd", s+"/lock.json")
		}),
		"another " + wanted.String() + " than pfar knows": also(func(string) { b.known = "sha512-another" }),
		"is neither a file nor a directory":               also(func(s string) { unix.Mkfifo(s+"/tree/fifo", 0o644) }),
		"the disk is full; make room": func(string) string {
			return "exit status 228: npm error nospc Clear up some disk space and try again."
		},
	} {
		b = newBench(t, does)
		_, err := b.install()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), wanted.String()) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := os.Lstat(b.folder()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the directory is there", want)
		}
		if b.installed > 0 || b.jobs.Under(wanted) || len(b.stopped) != 1 {
			t.Errorf("%s: told %d times, stopped %q", want, b.installed, b.stopped)
		}
		b.clean()
	}
}

// TestInstallCut: a pfard that ends before any step, or whose disk is full there, leaves what was there: nothing, or a
// package that cannot be used. The next one puts it right.
func TestInstallCut(t *testing.T) {
	for _, before := range []bool{false, true} {
		for _, step := range []string{"check", "own", "record", "folder", "place"} {
			var b *bench
			b = newBench(t, func(stage string) string { return b.fetch(stage) })
			broken := filepath.Join(b.folder(), "record.json")
			if before {
				b.write(broken, "of another one")
			}
			reached := false
			b.jobs.steps = func(at string) error {
				if at == step {
					reached = true
					return fmt.Errorf("writing: %w", unix.ENOSPC)
				}
				return nil
			}
			_, err := b.install()
			if !reached || err == nil || !strings.Contains(err.Error(), "the disk is full; make room") {
				t.Fatalf("%s: %t, %v", step, reached, err)
			}
			text, err := os.ReadFile(broken)
			if before && string(text) != "of another one" || !before && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %q, %v", step, text, err)
			}
			b.clean()
			stray := filepath.Join(b.base, "packages/.staged/0install_abcdefgh/tree")
			b.write(filepath.Join(stray, "half"), "")
			if err := os.Chmod(stray, 0o555); err != nil {
				t.Fatal(err)
			}
			b.jobs = New(slog.New(slog.DiscardHandler), filepath.Join(b.base, "packages"), b)
			if _, err := b.jobs.Begin(wanted); err == nil {
				t.Error("there is nothing to run a job")
			}
			b.jobs.Run(b)
			if got, err := b.install(); err != nil || got.Already || b.Settings().Host.Installed(wanted) != nil {
				t.Errorf("%s: %+v, %v", step, got, err)
			}
			b.clean()
		}
	}
}

// listed has a server listed by a job that does this with its file.
func (b *bench) listed(ctx context.Context, does func(out string) string) (control.Listing, error) {
	b.t.Helper()
	b.does = does
	return b.jobs.List(ctx, "notion", func(session, out string) (plan.Plan, error) {
		p := plan.Plan{Name: installer.Server, Gateway: handover.Server{Session: session}}
		p.Sandbox.Mounts = []sandbox.Mount{{State: true, Source: out}}
		return p, nil
	})
}

// TestList: what a listing's job leaves in its one file comes back as it is. Whatever else the file has become is not
// followed, waited for or read whole, and nothing of the job stays.
func TestList(t *testing.T) {
	b := newBench(t, nil)
	put := func(text string) func(string) string {
		return func(out string) string { b.write(out, text); return "" }
	}
	instead := func(make func(out string) error) func(string) string {
		return func(out string) string {
			if err := errors.Join(os.Remove(out), make(out)); err != nil {
				t.Error(err)
			}
			return ""
		}
	}
	l, err := b.listed(t.Context(), put("{}\x00 anything"))
	if err != nil || string(l.Found) != "{}\x00 anything" {
		t.Errorf("%+v, %v", l, err)
	}
	b.clean()
	for want, does := range map[string]func(string) string{
		"the job left nothing":   put(""),
		"a file of at most":      func(out string) string { os.Truncate(out, drift.MaxListing+1); return "" },
		"too many levels":        instead(func(out string) error { return os.Symlink("/etc/passwd", out) }),
		"is not a file of":       instead(func(out string) error { return unix.Mkfifo(out, 0o644) }),
		"the job left something": instead(func(out string) error { return os.Mkdir(out, 0o755) }),
		"no such file":           instead(func(string) error { return nil }),
		"exit 1 ***; its log":    func(string) string { return "exit 1 hunter2" },
	} {
		l, err := b.listed(t.Context(), does)
		if err == nil || !strings.Contains(err.Error(), want) || l.Found != nil {
			t.Errorf("%+v, %v, want %q", l, err, want)
		}
		b.clean()
	}
	b.refused = egress.Refusal{Reason: "name-not-declared", Host: "api.example"}
	if l, err := b.listed(t.Context(), put("{}")); err != nil || !strings.Contains(l.Refused, "api.example") {
		t.Errorf("%+v, %v", l, err)
	}
	b.clean()
}

// TestListEnds: a listing ends with whoever wants it, and there is one of a server at a time.
func TestListEnds(t *testing.T) {
	b := newBench(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	begun, over := make(chan string), make(chan error)
	go func() {
		_, err := b.listed(ctx, func(out string) string {
			begun <- out
			<-ctx.Done()
			return "killed"
		})
		over <- err
	}()
	if info, err := os.Lstat(<-begun); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if _, err := b.jobs.List(t.Context(), "notion", nil); !errors.Is(err, control.ErrBusy) {
		t.Errorf("a second one: %v", err)
	}
	left := errors.New("left")
	cancel(left)
	if err := <-over; !errors.Is(err, left) && !strings.Contains(err.Error(), "killed") {
		t.Errorf("who has left hears %v", err)
	}
	if len(b.stopped) != 1 {
		t.Errorf("stopped %q", b.stopped)
	}
	b.clean()
	b.jobs = New(slog.New(slog.DiscardHandler), filepath.Join(b.base, "packages"), b)
	if _, err := b.jobs.List(t.Context(), "notion", nil); err == nil {
		t.Error("there is nothing to run a job")
	}
}
