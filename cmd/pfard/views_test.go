package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/health"
	"github.com/pfar/pfar/units/journal/journaltest"
)

// TestOpenLog: the log of a server is a file, and no link, pipe or directory.
func TestOpenLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wiki.log")
	open := func() (text string, err error) {
		f, err := openLog(path)
		if f == nil {
			return "", err
		}
		defer f.Close()
		b, rerr := io.ReadAll(f)
		return string(b), errors.Join(err, rerr)
	}
	if text, err := open(); text != "" || err != nil {
		t.Errorf("before it has logged anything: %q, %v", text, err)
	}
	if err := os.WriteFile(path, []byte("| hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := open(); text != "| hello\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func() error{
		"a link":      func() error { return os.Symlink(path+".1", path) },
		"a pipe":      func() error { return unix.Mkfifo(path, 0o600) },
		"a directory": func() error { return os.Mkdir(path, 0o700) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if text, err := open(); text != "" || err == nil {
			t.Errorf("%s: %q", name, text)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestViewsAreForPeople: nobody at another machine sees a log, a lesson or an import, and nobody sees what pfard does
// not know.
func TestViewsAreForPeople(t *testing.T) {
	d, _, _ := fixture(t)
	for _, test := range []struct {
		uid  int
		view attach.View
		want error
	}{
		{nobody, attach.View{What: attach.ViewLog, Subject: "b"}, control.ErrDenied},
		{nobody, attach.View{What: attach.ViewLesson, Subject: "b"}, control.ErrDenied},
		{nobody, attach.View{What: attach.ViewImport}, control.ErrDenied},
		{nobody, attach.View{What: attach.ViewImport, Subject: "cursor"}, control.ErrDenied},
		{os.Getuid(), attach.View{What: attach.ViewLog, Subject: "nothing"}, control.ErrNoServer},
		{os.Getuid(), attach.View{What: attach.ViewExplain, Subject: "nothing"}, control.ErrNoServer},
		{os.Getuid(), attach.View{Subject: "b"}, control.ErrInvalid},
		{os.Getuid(), attach.View{What: "vault", Subject: "b"}, control.ErrInvalid},
	} {
		f, _, err := shown{d}.view(t.Context(), control.Peer{UID: test.uid}, test.view)
		if f != nil || !errors.Is(err, test.want) {
			t.Errorf("uid %d, %+v: %v", test.uid, test.view, err)
		}
	}
}

// TestViewExplain: everybody with a console sees in words what a server can reach, which pfar explain says as well, and
// nobody is told of a broken declaration as if it were in force.
func TestViewExplain(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	d.put(t, "c.hcl", "command = 1\n")
	changed <- struct{}{}
	d.state(t)
	text := func(source consoleSource, uid int, server string) (string, error) {
		v := attach.View{What: attach.ViewExplain, Subject: server}
		f, more, err := source.view(t.Context(), control.Peer{UID: uid}, v)
		if f == nil {
			return "", err
		}
		b, rerr := units.ReadSealed(f, 1<<20)
		if more || rerr != nil {
			t.Errorf("more: %v, %v", more, rerr)
		}
		return string(b), err
	}
	for source, uid := range map[consoleSource]int{shown{d}: os.Getuid() + 4711, shownRemotely{shown: shown{d}}: nobody} {
		got, err := text(source, uid, "b")
		declared := "\nIt is declared in " + d.options.declarations + "/b.hcl.\n"
		for _, want := range []string{"b runs ", "It may use ", declared} {
			if err != nil || !strings.Contains(got, want) {
				t.Errorf("no %q in %q, %v", want, got, err)
			}
		}
		if got, err := text(source, uid, "c"); got != "" || !errors.Is(err, control.ErrInvalid) ||
			!strings.Contains(err.Error(), "c.hcl:1:") {
			t.Errorf("of a broken file: %q, %v", got, err)
		}
	}
}

// TestViewLog: a log that is a file is for the user who runs pfard alone. The journal of the system's pfard is also for
// its other people at this machine.
func TestViewLog(t *testing.T) {
	t.Chdir(t.TempDir()) // where the machine of the test has its logs
	d, _, changed := fixture(t)
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	arguments := journaltest.Journalctl(t, `{"MESSAGE":"of the journal","PFAR_SERVER":"b"}`, 0)
	other := os.Getuid() + 4711
	for _, test := range []struct {
		name   string
		source consoleSource
		local  bool
		uid    int
		want   string // "": it is denied
	}{
		{"who runs pfard", shown{d}, true, os.Getuid(), "of the file\n"},
		{"another user", shown{d}, true, other, ""},
		{"another machine", shownRemotely{shown: shown{d}}, true, nobody, ""},
		{"the journal", shown{d}, false, os.Getuid(), "of the journal\n"},
		{"the journal for another user", shown{d}, false, other, map[bool]string{false: "of the journal\n"}[rootless()]},
		{"the journal for another machine", shownRemotely{shown: shown{d}}, false, nobody, ""},
	} {
		d.within(t, func() {
			d.options.local = test.local
			if err := os.WriteFile(d.fleet.runner.Log("b"), []byte("of the file\n"), 0o600); err != nil {
				t.Error(err)
			}
		})
		v := attach.View{What: attach.ViewLog, Subject: "b"}
		f, more, err := test.source.view(t.Context(), control.Peer{UID: test.uid}, v)
		if f == nil {
			if test.want != "" || !errors.Is(err, control.ErrDenied) {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		defer f.Close()
		b, rerr := io.ReadAll(io.NewSectionReader(f, 0, 1000))
		if string(b) != test.want || more || err != nil || rerr != nil {
			t.Errorf("%s: %q, %v, %v, %v", test.name, b, more, err, rerr)
		}
	}
	if asked := arguments(); !strings.Contains(asked, "--lines=all ") || !strings.Contains(asked, "pfar-mcp@b.service") {
		t.Errorf("it asks for %s", asked)
	}
	v := attach.View{What: attach.ViewLog, Subject: "../b"}
	if _, _, err := (shown{d}).view(t.Context(), control.Peer{UID: os.Getuid()}, v); !errors.Is(err, control.ErrNoServer) {
		t.Errorf("a strange name: %v", err)
	}
}

// TestViewChecks: everybody with a console sees what the checks of the machine found, as JSON.
func TestViewChecks(t *testing.T) {
	d, _, _ := fixture(t)
	d.servePages(&browsed{})
	for source, uid := range map[consoleSource]int{shown{d}: os.Getuid() + 4711, shownRemotely{shown: shown{d}}: nobody} {
		f, _, err := source.view(t.Context(), control.Peer{UID: uid}, attach.View{What: attach.ViewChecks})
		if err != nil {
			t.Fatal(err)
		}
		if found := decoded[health.Checks](t, f); found.Running || found.Error != "" || found.At.IsZero() {
			t.Errorf("uid %d: %+v", uid, found)
		}
	}
}
