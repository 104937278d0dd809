// Package image makes Debian root file systems for the tests that boot one, once for each recipe.
package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	suite  = "bookworm"
	mirror = "http://deb.debian.org/debian"
)

// account is the ordinary user of every image.
const account = "user:x:1000:1000::/home/user:/bin/sh\n"

// Recipe is all that an image is made of: another recipe is another image.
type Recipe struct {
	Packages []string          // beyond debootstrap's minimal base
	Files    map[string]string // path -> text
	More     string            // what else Keep puts into the image, to tell its versions apart
	// Keep turns the root file system, which lies in memory and goes, into what stays in dir.
	Keep func(ctx context.Context, dir, root string) error
}

// Make returns the directory of a recipe's image, which it builds below cache first if nobody has yet.
func Make(ctx context.Context, cache string, r Recipe) (string, error) {
	cache, err := filepath.Abs(cache) // debootstrap changes its directory
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("making %q: %w", cache, err)
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", fmt.Errorf("opening the lock of %q: %w", cache, err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // another test may be building it
		return "", fmt.Errorf("locking %q: %w", cache, err)
	}
	dir := filepath.Join(cache, r.key())
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := removeOld(cache); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return "", fmt.Errorf("making a directory for the image: %w", err)
	}
	defer os.RemoveAll(work)
	if err := inMountNamespace(func() error { return r.build(ctx, work) }); err != nil {
		return "", fmt.Errorf("building the image: %w", err)
	}
	if err := os.Rename(work, dir); err != nil {
		return "", fmt.Errorf("keeping the image: %w", err)
	}
	return dir, nil
}

// key names the image by all that goes into it from here.
func (r Recipe) key() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%q\n%s\n%q\n", suite, mirror, r.Packages, account, r.More)
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		fmt.Fprintf(h, "%q %q\n", name, r.Files[name])
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// removeOld removes images of other recipes, and what a run that was killed left. The lock is held.
func removeOld(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return fmt.Errorf("reading %q: %w", cache, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := os.RemoveAll(filepath.Join(cache, e.Name())); err != nil {
				return fmt.Errorf("removing an old image: %w", err)
			}
		}
	}
	return nil
}

// inMountNamespace runs f where no mount shows outside, and all of them end with f: debootstrap mounts /proc and /sys
// and leaves them when it is killed. f's commands are forked from the same thread, which dies with the goroutine.
func inMountNamespace(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			done <- fmt.Errorf("making a mount namespace: %w", err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			done <- fmt.Errorf("making mounts private: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// build fills work. The root is made in memory: dpkg waits for the disk after each file.
func (r Recipe) build(ctx context.Context, work string) error {
	root := filepath.Join(work, "memory")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=2g,mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs: %w", err)
	}
	defer func() {
		_ = unix.Unmount(root, unix.MNT_DETACH)
		_ = os.Remove(root)
	}()
	include := "--include=" + strings.Join(r.Packages, ",")
	if _, err := Run(ctx, work, "debootstrap", "--variant=minbase", include, suite, root, mirror); err != nil {
		return err
	}
	if err := r.finish(root); err != nil {
		return err
	}
	return r.Keep(ctx, work, root)
}

// finish writes the recipe's files and the user, and removes what only costs space.
func (r Recipe) finish(root string) error {
	for name, text := range r.Files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for name, line := range map[string]string{"passwd": account, "group": "user:x:1000:\n", "shadow": "user:*:19000:0:99999:7:::\n"} {
		f, err := os.OpenFile(filepath.Join(root, "etc", name), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(line)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("adding the user to %q: %w", name, err)
		}
	}
	home := filepath.Join(root, "home/user")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	if err := os.Chown(home, 1000, 1000); err != nil {
		return err
	}
	return Trim(root)
}

// Trim removes what a package manager leaves and a test does not read.
func Trim(root string) error {
	for _, dir := range []string{"var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man", "tmp"} {
		entries, err := filepath.Glob(filepath.Join(root, dir, "*"))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := os.RemoveAll(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// Run returns the command's output; an error carries the end of it.
func Run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		const tail = 2000
		return "", fmt.Errorf("running %s: %w: %s", name, err, out.Bytes()[max(0, out.Len()-tail):])
	}
	return out.String(), nil
}
