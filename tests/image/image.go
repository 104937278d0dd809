// Package image makes a Debian root file system, and images of it, for the tests that boot one.
package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const mirror = "http://deb.debian.org/debian"

// suiteVariable names in the environment the release of Debian whose images are made: that of Suites which comes first
// if it says nothing.
const suiteVariable = "PFAR_TEST_DEBIAN"

// Suites are the releases of Debian that pfar supports.
var Suites = []string{"bookworm", "trixie"}

// Suite is the release that this run of the tests is about.
func Suite() (string, error) {
	name := cmp.Or(os.Getenv(suiteVariable), Suites[0])
	if !slices.Contains(Suites, name) {
		return "", fmt.Errorf("reading %s: no release %q; use one of %s", suiteVariable, name, strings.Join(Suites, ", "))
	}
	return name, nil
}

// account is the ordinary user of every image.
const account = "user:x:1000:1000::/home/user:/bin/sh\n"

// packages are what the root file system has beyond debootstrap's minimal base. There is no libnss-systemd: pfar has to
// work without.
var packages = []string{"systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "bubblewrap", "nftables", "iproute2",
	"procps", "kmod", "nodejs", "python3", "ca-certificates", "e2fsprogs"}

// Root returns the directory of a root file system, which it makes first if nobody has yet. Nobody may write to it: all
// images are made of it. More packages make another one.
func Root(ctx context.Context, more ...string) (string, error) {
	suite, err := Suite()
	if err != nil {
		return "", err
	}
	packages := slices.Concat(packages, more)
	dir, err := made("root", key(suite, mirror, packages, account), func(work string) error {
		return inMemory(work, func(memory string) error {
			include := "--include=" + strings.Join(packages, ",")
			if _, err := Run(ctx, work, "debootstrap", "--variant=minbase", include, suite, memory, mirror); err != nil {
				return err
			}
			if err := finish(memory); err != nil {
				return err
			}
			_, err := Run(ctx, work, "cp", "-a", memory, filepath.Join(work, "root"))
			return err
		})
	})
	return filepath.Join(dir, "root"), err
}

// Recipe is what makes an image of the root file system: another recipe of that name is another image in its place.
type Recipe struct {
	Name  string
	Files map[string]string // path -> text
	More  string            // what else Keep puts into the image, to tell its versions apart
	// Keep turns a copy of the root file system, which lies in memory and goes, into what stays in dir.
	Keep func(ctx context.Context, dir, root string) error
}

// Make returns the directory of a recipe's image, which it builds first if nobody has yet.
func Make(ctx context.Context, r Recipe) (string, error) {
	root, err := Root(ctx)
	if err != nil {
		return "", err
	}
	return made(r.Name, key(filepath.Base(filepath.Dir(root)), r.Files, r.More), func(work string) error {
		return inMemory(work, func(memory string) error {
			if _, err := Run(ctx, work, "cp", "-a", root+"/.", memory); err != nil {
				return err
			}
			if err := WriteFiles(memory, r.Files); err != nil {
				return err
			}
			return r.Keep(ctx, work, memory)
		})
	})
}

// key names a version by all that goes into it from here.
func key(parts ...any) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%q\n", p) // maps in the order of their keys
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
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

// inMemory gives f an empty directory in memory, below work: dpkg waits for the disk after each file.
func inMemory(work string, f func(memory string) error) error {
	memory := filepath.Join(work, "memory")
	if err := os.Mkdir(memory, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", memory, "tmpfs", 0, "size=2g,mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs: %w", err)
	}
	defer func() {
		_ = unix.Unmount(memory, unix.MNT_DETACH)
		_ = os.Remove(memory)
	}()
	return f(memory)
}

// WriteFiles writes texts to paths below root.
func WriteFiles(root string, files map[string]string) error {
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// finish makes the user, and removes what only costs space.
func finish(root string) error {
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
