package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemoveTree: whatever a server has put into its home, that goes and nothing else does.
func TestRemoveTree(t *testing.T) {
	for name, fill := range map[string]func(t *testing.T, home, outside string){
		"nothing": func(*testing.T, string, string) {},
		"a link to a file": func(t *testing.T, home, outside string) {
			must(t, os.Symlink(filepath.Join(outside, "kept"), filepath.Join(home, "link")))
		},
		"a link to a directory": func(t *testing.T, home, outside string) {
			must(t, os.Symlink(outside, filepath.Join(home, "link")))
			must(t, os.Mkdir(filepath.Join(home, "dir"), 0o755))
			must(t, os.Symlink("../../outside", filepath.Join(home, "dir", "link")))
		},
		"a hard link": func(t *testing.T, home, outside string) {
			must(t, os.Link(filepath.Join(outside, "kept"), filepath.Join(home, "link")))
		},
		"what may not be read": func(t *testing.T, home, _ string) {
			must(t, os.MkdirAll(filepath.Join(home, "a", "b", "c"), 0o755))
			must(t, os.WriteFile(filepath.Join(home, "a", "b", "file"), nil, 0))
			must(t, os.Chmod(filepath.Join(home, "a", "b"), 0))
			must(t, os.Chmod(filepath.Join(home, "a"), 0o500))
		},
		"no files at all": func(t *testing.T, home, _ string) {
			must(t, unix.Mkfifo(filepath.Join(home, "fifo"), 0o600))
			must(t, unix.Mknod(filepath.Join(home, "socket"), unix.S_IFSOCK|0o600, 0))
		},
		"more than is read at once": func(t *testing.T, home, _ string) {
			for i := range 2*batch + 1 {
				must(t, os.WriteFile(filepath.Join(home, fmt.Sprint(i)), nil, 0o600))
			}
		},
		"names like those that are made": func(t *testing.T, home, _ string) {
			must(t, os.MkdirAll(filepath.Join(home, condemned+"1", condemned+"2", "x"), 0o755))
		},
		"more depth than a path or the descriptors": func(t *testing.T, home, _ string) {
			dir, err := unix.Open(home, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			for range 3000 {
				must(t, err)
				must(t, unix.Mkdirat(dir, "d", 0o700))
				below, err := unix.Openat(dir, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
				must(t, err)
				unix.Close(dir)
				dir = below
			}
			unix.Close(dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			home, outside := filepath.Join(base, "home"), filepath.Join(base, "outside")
			must(t, os.Mkdir(home, 0o700))
			must(t, os.Mkdir(outside, 0o755))
			must(t, os.WriteFile(filepath.Join(outside, "kept"), []byte("x"), 0o644))
			fill(t, home, outside)
			treeSize(home)
			must(t, removeTree(base, "home"))
			left, err := filepath.Glob(filepath.Join(base, "*"))
			if kept, _ := os.ReadFile(filepath.Join(outside, "kept")); err != nil || len(left) != 1 || string(kept) != "x" {
				t.Errorf("left %q, %q, %v", left, kept, err)
			}
			if st, err := os.Stat(outside); err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("%v, %v", st.Mode(), err)
			}
		})
	}
}

// TestRemoveTreeRefuses: a link in the place of the directory, and what is mounted in it.
func TestRemoveTreeRefuses(t *testing.T) {
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	must(t, os.Mkdir(outside, 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "kept"), nil, 0o644))
	must(t, os.Symlink(outside, filepath.Join(base, "link")))
	if err := removeTree(base, "link"); err == nil {
		t.Error("a link is deleted as what it leads to")
	}
	must(t, os.MkdirAll(filepath.Join(base, "home", "a", "mount"), 0o755))
	if os.Getuid() == 0 {
		inMounts(t, func() error {
			if err := unix.Mount(outside, filepath.Join(base, "home", "a", "mount"), "", unix.MS_BIND, ""); err != nil {
				return err
			}
			if err := removeTree(base, "home"); err == nil || !strings.Contains(err.Error(), "mounted on \"mount\"") {
				return fmt.Errorf("with a mount in it: %w", err)
			}
			return nil
		})
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Error(err)
	}
}

// inMounts runs f in a mount namespace of its own, on a thread that ends with it.
func inMounts(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	must(t, <-done)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
