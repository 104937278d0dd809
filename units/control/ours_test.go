package control

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOurFiles: what others may write, or put there, is not read, whatever leads to it.
func TestOurFiles(t *testing.T) {
	dir, open := t.TempDir(), t.TempDir()
	put := func(path string, mode fs.FileMode) string {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(to, at string) string {
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	own, theirs := put(dir+"/own", 0o644), put(open+"/own", 0o644)
	fifo := dir + "/fifo"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		own: true, link(own, dir+"/link"): true, theirs: false, link(theirs, dir+"/out"): false,
		put(dir+"/group", 0o664): false, put(dir+"/world", 0o646): false, dir: false, dir + "/none": false, fifo: false,
		"/dev/zero": false,
	} {
		if _, err := fs.ReadFile(OurFiles(), path[1:]); (err == nil) != want {
			t.Errorf("%s: %v; want it read: %v", path, err, want)
		}
	}
}

// TestWhatOthersMayWriteIsNotRead: a file, the directory, and what a link leads to; root's and one's own are.
func TestWhatOthersMayWriteIsNotRead(t *testing.T) {
	dir, store := t.TempDir(), t.TempDir()
	for path, mode := range map[string]fs.FileMode{dir + "/own": 0o644, dir + "/group": 0o664, dir + "/world": 0o646, store + "/own": 0o600, store + "/world": 0o602} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"own", "world"} {
		if err := os.Symlink(filepath.Join(store, name), filepath.Join(dir, "to-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(name string, want bool) {
		t.Helper()
		fsys := OurDir(dir)
		_, err := fs.ReadFile(fsys, name)
		if _, serr := fs.Stat(fsys, name); (err == nil) != want || (serr == nil) != want {
			t.Errorf("%s: %v, %v; want it read: %v", name, err, serr, want)
		}
		if !want && !strings.Contains(err.Error(), "could be another user's") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]bool{"own": true, "to-own": true, "group": false, "world": false, "to-world": false} {
		reads(name, want)
	}
	if entries, err := fs.ReadDir(OurDir(dir), "."); err != nil || len(entries) != 5 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.Symlink("/dev/null", dir+"/masked"); err != nil {
		t.Fatal(err)
	}
	if to, err := fs.ReadLink(OurDir(dir), "masked"); err != nil || to != "/dev/null" {
		t.Errorf("a link to /dev/null: %q, %v", to, err)
	}
	if err := os.Remove(dir + "/masked"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/open", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/open/own", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	reads("open/own", true)
	if err := os.Chmod(dir+"/open", 0o777); err != nil {
		t.Fatal(err)
	}
	reads("open/own", false)
	if _, err := fs.ReadLink(OurDir(dir), "open/own"); err == nil || !strings.Contains(err.Error(),
		"could be another user's") {
		t.Errorf("a link where others may write: %v", err)
	}
	if err := os.Chmod(store, 0o777); err != nil { // anybody may put another file in the place of the link's target
		t.Fatal(err)
	}
	reads("to-own", false)
	if err := os.Chmod(dir, 0o775); err != nil {
		t.Fatal(err)
	}
	reads("own", false)
	if _, err := fs.ReadDir(OurDir(dir), "."); err == nil {
		t.Error("a directory that its group may write is read")
	}
	if os.Getuid() == 0 {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir+"/own", 4242, -1); err != nil {
			t.Fatal(err)
		}
		reads("own", false)
	}
	if _, err := fs.ReadDir(OurDir(dir+"/none"), "."); !os.IsNotExist(err) {
		t.Errorf("of none: %v", err)
	}
}
