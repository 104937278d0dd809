package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

const consoleAt = "http://127.0.0.1:19300/ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// desktopOf is a bench of a person at a desktop, with a stand-in for xdg-open that tells what it was given.
type desktopOf struct {
	*bench
	runtime string
	told    string // a FIFO into which the stand-in writes
	set     map[string]string
	pfards  chan control.Request
	answers chan control.Response // the second ones, of a pfard that knows Await
}

// standIn writes its arguments, and of the file that it opens the mode, that of its directory, and the text. Then it
// ends as it is told.
const standIn = `#!/bin/sh
{ echo "$#"; echo "$*"; stat -c %%a "$1"; stat -c %%a "$(dirname "$1")"; cat "$1"; } >%s
exit %d
`

func newDesktop(t *testing.T, exit int) *desktopOf {
	t.Helper()
	d := &desktopOf{bench: newBench(t, ""), runtime: t.TempDir(), pfards: make(chan control.Request, 9)}
	d.answers = make(chan control.Response, 9)
	bin := t.TempDir()
	d.told = filepath.Join(bin, "told")
	if err := unix.Mkfifo(d.told, 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(standIn, d.told, exit)
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	_, terminal := terminalPair(t)
	d.stdout, d.uid = terminal, 4711
	if err := errors.Join(os.Chmod(d.runtime, 0o700), d.owns(d.runtime)); err != nil {
		t.Fatal(err)
	}
	d.set = map[string]string{
		"DISPLAY": ":0", "WAYLAND_DISPLAY": "", "SSH_CONNECTION": "", "SUDO_UID": "", "XDG_RUNTIME_DIR": d.runtime,
	}
	d.getenv = variables(d.getenv, d.set)
	l := d.listen(t, d.dirs.Control())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { control.Serve(ctx, l, d.serve); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return d
}

// owns gives a file to the person of the desk.
func (d *desktopOf) owns(path string) error {
	if os.Getuid() != 0 {
		d.uid = os.Getuid()
		return nil
	}
	return os.Chown(path, d.uid, -1)
}

func (d *desktopOf) serve(
	ctx context.Context, _ control.Peer, r control.Request, send func(control.Response) error,
) error {
	d.pfards <- r
	if err := send(control.Response{Declarations: control.Declarations{Link: consoleAt}}); err != nil || !r.Await {
		return err
	}
	select {
	case answer := <-d.answers:
		return send(answer)
	case <-ctx.Done():
		return nil
	}
}

// opened reads what the stand-in was given: arguments, modes and the file.
func (d *desktopOf) opened(t *testing.T) (path, file string) {
	t.Helper()
	text, err := os.ReadFile(d.told)
	parts := strings.SplitN(string(text), "\n", 5)
	if err != nil || len(parts) != 5 || parts[0] != "1" || parts[2] != "600" || parts[3] != "700" {
		t.Fatalf("the browser is given %q, %v", text, err)
	}
	return parts[1], parts[4]
}

// left are the files below the directory of the login.
func (d *desktopOf) left(t *testing.T) (list []string) {
	t.Helper()
	err := filepath.WalkDir(d.runtime, func(path string, _ fs.DirEntry, err error) error {
		if path != d.runtime {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestConsoleOpensABrowser: on a desktop the command prints the link and gives the browser a file that leads there, of
// which nobody else can read anything. No argument has the link. When it was used, or is void, and when a person or the
// end of the terminal ends the command, the file is gone.
func TestConsoleOpensABrowser(t *testing.T) {
	for name, end := range map[string]struct {
		answer *control.Response
		says   string
	}{
		"used":   {&control.Response{Declarations: control.Declarations{Entered: true}}, "The link has been used."},
		"void":   {&control.Response{}, "Nobody used the link"},
		"Ctrl-C": {nil, "Opening it in your browser."}, "SIGHUP": {nil, "Opening it in your browser."},
	} {
		d := newDesktop(t, 0)
		ctx, cancel := context.WithCancel(t.Context())
		code := make(chan int)
		go func() { code <- d.run(ctx, []string{"console"}) }()
		path, file := d.opened(t)
		leads := strings.Contains(file, `content="0; url=`+consoleAt+`"`) && strings.Contains(file, `<a href="`+consoleAt+`"`)
		if !strings.HasPrefix(path, d.runtime+"/pfar-console-") || strings.Contains(path, "ABCDEF") || !leads {
			t.Errorf("%s: the browser opens %s: %s", name, path, file)
		}
		if left := d.left(t); len(left) != 2 {
			t.Errorf("%s: while it is open there are %q", name, left)
		}
		switch {
		case end.answer != nil:
			d.answers <- *end.answer
		case name == "SIGHUP":
			if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
				t.Error(err)
			}
		default:
			cancel()
		}
		if got := <-code; got != 0 {
			t.Errorf("%s: exit code %d: %s", name, got, d.err)
		}
		if left := d.left(t); len(left) > 0 {
			t.Errorf("%s: it leaves %q", name, left)
		}
		for _, want := range []string{end.says, consoleAt, "The link works once"} {
			if !strings.Contains(d.err.String(), want) {
				t.Errorf("%s: it does not say %q: %s", name, want, d.err)
			}
		}
		cancel()
	}
}

// TestConsoleWithoutABrowser: where there is no desktop of the person, and where the person says so, the command prints
// the link, writes no file and ends.
func TestConsoleWithoutABrowser(t *testing.T) {
	for name, change := range map[string]func(*desktopOf) []string{
		"--no-browser": func(*desktopOf) []string { return []string{"--no-browser"} },
		"--json":       func(*desktopOf) []string { return []string{"--json"} },
		"no desktop":   func(d *desktopOf) []string { d.set["DISPLAY"] = ""; return nil },
		"over SSH":     func(d *desktopOf) []string { d.set["SSH_CONNECTION"] = "192.0.2.1 1 192.0.2.2 22"; return nil },
		"no terminal":  func(d *desktopOf) []string { d.stdout = d.out; return nil },
		"sudo":         func(d *desktopOf) []string { d.set["SUDO_UID"] = "1000"; return nil },
		"root":         func(d *desktopOf) []string { d.uid = 0; return nil },
		"no directory": func(d *desktopOf) []string { d.set["XDG_RUNTIME_DIR"] = ""; return nil },
		"a path":       func(d *desktopOf) []string { d.set["XDG_RUNTIME_DIR"] = "run"; return nil },
		"not there":    func(d *desktopOf) []string { d.set["XDG_RUNTIME_DIR"] += "/none"; return nil },
		"open to all":  func(d *desktopOf) []string { _ = os.Chmod(d.runtime, 0o755); return nil },
		"another's":    func(d *desktopOf) []string { d.uid++; return nil },
		"no program":   func(d *desktopOf) []string { _ = os.Setenv("PATH", "/nowhere"); return nil },
	} {
		d := newDesktop(t, 0)
		args := change(d)
		if code := d.run(t.Context(), append([]string{"console"}, args...)); code != 0 {
			t.Errorf("%s: exit code %d: %s", name, code, d.err)
		}
		if r := <-d.pfards; r.Await || len(d.left(t)) > 0 || strings.Contains(d.err.String(), "Opening it") {
			t.Errorf("%s: %+v, %q, %s", name, r, d.left(t), d.err)
		}
		if name != "--json" && !strings.Contains(d.err.String(), consoleAt) {
			t.Errorf("%s: the link is not printed: %s", name, d.err)
		}
	}
}

// TestConsoleBrowserFails: if no browser starts, the command says so, and the link stays good.
func TestConsoleBrowserFails(t *testing.T) {
	d := newDesktop(t, 3)
	code := make(chan int)
	go func() { code <- d.run(t.Context(), []string{"console"}) }()
	d.opened(t)
	const want = "no browser could be started (xdg-open: exit status 3)"
	if got := <-code; got != 0 || !strings.Contains(d.err.String(), want) || len(d.left(t)) > 0 {
		t.Errorf("exit code %d, %q: %s", got, d.left(t), d.err)
	}
}

// TestConsoleOfAnEarlierPfard: one that does not tell when a link is used gives a link all the same.
func TestConsoleOfAnEarlierPfard(t *testing.T) {
	d := newDesktop(t, 0)
	b := newBench(t, "")
	d.dirs = b.dirs
	b.pfard(t, control.Report{}, func(_ *fakePfard, r control.Request) error {
		if r.Await {
			return fmt.Errorf("%w: unknown member", control.ErrInvalid)
		}
		return nil
	})
	if code := d.run(t.Context(), []string{"console"}); code != 0 || len(d.left(t)) > 0 {
		t.Errorf("exit code %d, %q: %s", code, d.left(t), d.err)
	}
}

// TestLeftLinks: what a killed command left is removed by the next one, which leaves alone what another one uses, and
// follows no link.
func TestLeftLinks(t *testing.T) {
	runtime := t.TempDir()
	used, err := writeLink(runtime, consoleAt)
	if err != nil {
		t.Fatal(err)
	}
	killed, err := writeLink(runtime, consoleAt)
	if err != nil {
		t.Fatal(err)
	}
	killed.dir.Close() // as the kernel does
	other := filepath.Join(t.TempDir(), "other")
	link := filepath.Join(runtime, "pfar-console-x")
	if err := errors.Join(os.Mkdir(other, 0o700), os.Symlink(other, link)); err != nil {
		t.Fatal(err)
	}
	next, err := writeLink(runtime, consoleAt)
	if err != nil {
		t.Fatal(err)
	}
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	for path, want := range map[string]bool{
		used.path: true, next.path: true, killed.path: false, filepath.Dir(killed.path): false, other: true,
	} {
		if there(path) != want {
			t.Errorf("%s is there: %t", path, !want)
		}
	}
	used.remove()
	next.remove()
	if list, _ := filepath.Glob(filepath.Join(runtime, linkDirs)); !slices.Equal(list, []string{link}) {
		t.Errorf("there are %q", list)
	}
	var page bytes.Buffer
	if err := linkPage.Execute(&page, `x"><script>`); err != nil || strings.Contains(page.String(), "<script>") {
		t.Errorf("%v: %s", err, page.String())
	}
}
