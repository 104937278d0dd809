package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/sandbox"
)

// library is a folder of the host with a note, which a server may read, and the server's sandbox.
func library(t *testing.T, text string) (dir string, s sandbox.Sandbox) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfar-library")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s = script(text)
	s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.ROOverlay, Source: dir, Dest: "/library", Live: true})
	replace(t, filepath.Join(dir, "note"), "first")
	replace(t, filepath.Join(dir, "open"), "first")
	return dir, s
}

// replace does what an editor does.
func replace(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path+"~", []byte(text+"\n"), 0o644)
	if err == nil {
		err = os.Rename(path+"~", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// librarian answers each line with what the note and a file that is not there yet say, and at the end with what a file
// that it opened first does.
const librarian = `exec 3</library/open; while read _; do
	new=none; [ -e /library/below/new ] && new=$(cat /library/below/new)
	echo "$(cat /library/note) $new"
done; cat <&3`

// reader asks a server for a line, as often as it is called.
func reader(t *testing.T, r *run) (out *bufio.Scanner, ask func() string) {
	out = bufio.NewScanner(r.stdout)
	return out, func() string {
		t.Helper()
		if _, err := io.WriteString(r.stdin, "what?\n"); err != nil || !out.Scan() {
			t.Fatalf("asking: %v\n%s", err, r.logged())
		}
		return out.Text()
	}
}

// A server sees what the host replaces and makes while it runs, and keeps what it has open.
func followsTheHost(t *testing.T, begin func(sandbox.Sandbox) *run) {
	t.Helper()
	dir, s := library(t, librarian)
	r := begin(s)
	r.hello()
	out, ask := reader(t, r)
	if got := ask(); got != "first none" {
		t.Fatalf("at first it reads %q", got)
	}
	replace(t, filepath.Join(dir, "note"), "second")
	replace(t, filepath.Join(dir, "open"), "second")
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(dir, "below", "new"), "made")
	eventually(t, r, func() bool { return ask() == "second made" })
	r.stdin.Close()
	if !out.Scan() || out.Text() != "first" {
		t.Errorf("what it has open reads %q", out.Text())
	}
}

func TestViewsFollowTheHost(t *testing.T) {
	followsTheHost(t, func(s sandbox.Sandbox) *run { return begin(t, s, nil) })
}

func TestViewsOfServerApartFollowTheHost(t *testing.T) {
	followsTheHost(t, func(s sandbox.Sandbox) *run { return beginApartIn(t, s, mapsIDs) })
}

// TestViewsThatStay: a server does not see that the host replaces a file that is listed itself, or a listed folder as a
// whole.
func TestViewsThatStay(t *testing.T) {
	dir, s := library(t, `while read _; do echo $(cat /file) $(cat /whole/note) $(cat /library/note); done`)
	single, whole := filepath.Join(dir, "single"), filepath.Join(dir, "whole")
	for _, folder := range []string{single, whole} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		replace(t, filepath.Join(folder, "note"), "first")
	}
	s.Mounts = append(s.Mounts,
		sandbox.Mount{Kind: sandbox.ROOverlay, Source: filepath.Join(single, "note"), Dest: "/file"},
		sandbox.Mount{Kind: sandbox.ROOverlay, Source: whole, Dest: "/whole", Live: true})
	r := begin(t, s, nil)
	r.hello()
	_, ask := reader(t, r)
	if got := ask(); got != "first first first" {
		t.Fatalf("at first it reads %q", got)
	}
	replace(t, filepath.Join(single, "note"), "second")
	if err := os.Rename(whole, whole+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(whole, 0o755); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(whole, "note"), "second")
	for _, text := range []string{"second", "third"} { // so the view was refreshed since
		replace(t, filepath.Join(dir, "note"), text)
		eventually(t, r, func() bool { return strings.HasSuffix(ask(), text) })
	}
	if got := ask(); got != "first first third" {
		t.Errorf("it reads %q", got)
	}
}
