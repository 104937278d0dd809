package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
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

// TestViewsAreForPeople: only who runs pfard sees the log of a server, and nobody sees what pfard does not know.
func TestViewsAreForPeople(t *testing.T) {
	d, _, _ := fixture(t)
	for _, test := range []struct {
		uid  int
		view attach.View
		want error
	}{
		{os.Getuid() + 4711, attach.View{What: attach.ViewLog, Subject: "b"}, control.ErrDenied},
		{nobody, attach.View{What: attach.ViewLog, Subject: "b"}, control.ErrDenied},
		{os.Getuid(), attach.View{What: attach.ViewLog, Subject: "nothing"}, control.ErrNoServer},
		{os.Getuid(), attach.View{Subject: "b"}, control.ErrInvalid},
		{os.Getuid(), attach.View{What: "vault", Subject: "b"}, control.ErrInvalid},
	} {
		f, _, err := shown{d}.view(t.Context(), control.Peer{UID: test.uid}, test.view)
		if f != nil || !errors.Is(err, test.want) {
			t.Errorf("uid %d, %+v: %v", test.uid, test.view, err)
		}
	}
}
