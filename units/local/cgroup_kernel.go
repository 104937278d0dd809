package local

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kernel is what limits need of the host: where its file systems are, and the few calls that plain files cannot stand
// in for.
type kernel struct {
	proc     string                 // proc(5)
	booted   string                 // exists if systemd is PID 1 (sd_booted(3))
	mkdir    func(dir string) error // in a cgroup file system the new directory has its files
	rmdir    func(dir string) error // and goes with them
	kill     func(pid int) error
	writable func(path string) bool
	delegate func(g group, path string) bool // whether systemd gave the group away by Delegate=yes
	uid      int
}

func newKernel() kernel {
	return kernel{
		proc:   "/proc",
		booted: "/run/systemd/system",
		mkdir:  func(dir string) error { return os.Mkdir(dir, 0o755) },
		rmdir:  unix.Rmdir,
		kill:   func(pid int) error { return unix.Kill(pid, unix.SIGKILL) },
		// With the effective ids and for what the mount allows: /sys/fs/cgroup is read-only in most containers.
		writable: func(path string) bool { return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil },
		delegate: func(g group, _ string) bool { return g.marked() },
		uid:      os.Geteuid(),
	}
}

// cgroupOf returns the path of pid's cgroup v2 below the hierarchy's root as this process sees it ("self" for its own).
func (k kernel) cgroupOf(pid string) (string, error) {
	b, err := os.ReadFile(filepath.Join(k.proc, pid, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("reading the cgroup of process %s: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, nil
		}
	}
	return "", errors.New("this kernel offers only cgroup v1")
}

// cgroupMount returns where cgroup v2 is mounted, and which part of the hierarchy that shows.
func (k kernel) cgroupMount() (point, root string, err error) {
	b, err := os.ReadFile(filepath.Join(k.proc, "self", "mountinfo"))
	if err != nil {
		return "", "", fmt.Errorf("reading the mounts: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		left, right, ok := strings.Cut(line, " - ")
		fields := strings.Fields(left)
		if ok && len(fields) > 4 && strings.HasPrefix(right, "cgroup2 ") {
			return unescapeMount(fields[4]), unescapeMount(fields[3]), nil
		}
	}
	return "", "", errors.New("cgroup v2 is not mounted")
}

// unescapeMount undoes the octal escapes of /proc/PID/mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// group returns the directory of a cgroup path.
func (k kernel) group(path string) (group, error) {
	point, root, err := k.cgroupMount()
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", fmt.Errorf("cgroup %q is outside of what is mounted at %q", path, point)
	}
	return group(filepath.Join(point, rel)), nil
}

func (k kernel) hasChildren(pid int) (bool, error) {
	tasks := filepath.Join(k.proc, strconv.Itoa(pid), "task")
	list, err := os.ReadDir(tasks)
	if err != nil {
		return false, fmt.Errorf("looking for process %d: %w", pid, err)
	}
	for _, t := range list {
		b, err := os.ReadFile(filepath.Join(tasks, t.Name(), "children"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without CONFIG_PROC_CHILDREN cannot say
		}
		if err != nil {
			return false, fmt.Errorf("looking for children of process %d: %w", pid, err)
		}
		if len(bytes.TrimSpace(b)) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// group is the directory of one cgroup.
type group string

func (g group) read(file string) (string, error) {
	b, err := os.ReadFile(filepath.Join(string(g), file))
	return strings.TrimSpace(string(b)), err
}

// write does not create: a file that is missing is a controller that is missing.
func (g group) write(file, value string) error {
	f, err := os.OpenFile(filepath.Join(string(g), file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (g group) exists() bool {
	_, err := os.Stat(string(g))
	return err == nil
}

// controllers returns those that may be used in the group.
func (g group) controllers() controllers {
	text, _ := g.read("cgroup.controllers") // unreadable: none
	var c controllers
	for _, name := range strings.Fields(text) {
		switch name {
		case "memory":
			c.memory = true
		case "pids":
			c.pids = true
		case "cpu":
			c.cpu = true
		}
	}
	return c
}

func (g group) pids() ([]int, error) {
	text, err := g.read("cgroup.procs")
	if err != nil {
		return nil, err
	}
	var list []int
	for _, field := range strings.Fields(text) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("reading the processes of %q: %w", g, err)
		}
		list = append(list, pid)
	}
	return list, nil
}

// event returns a counter of a file like memory.events or cgroup.events.
func (g group) event(file, name string) (int, error) {
	text, err := g.read(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && key == name {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("%s has no %q", file, name)
}

// marked reports whether the group has the mark of PID 1 for Delegate=yes; user.* anyone can read, but only newer ones
// of systemd and Linux have it. A user's systemd sets no mark (252).
func (g group) marked() bool {
	value := make([]byte, 8)
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(string(g), name, value); err == nil {
			return string(value[:n]) == "1"
		}
	}
	return false
}

// lock takes the group for this process until the file is closed, or this process has died: so a later pfard can tell
// what an earlier one left from what another one uses.
func (g group) lock() (*os.File, error) {
	fd, err := unix.Open(string(g), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", g, err)
	}
	f := os.NewFile(uintptr(fd), string(g))
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %q: %w", g, err)
	}
	return f, nil
}

// removeTimeout bounds the wait for killed processes to go; one in uninterruptible sleep may never.
const removeTimeout = 5 * time.Second

// remove kills all that is in the group, waits for its end, and removes it.
func (g group) remove(k kernel) error {
	err := g.killAll(k)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("emptying the cgroup %q: %w", g, err)
	}
	if err := k.rmdir(string(g)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the cgroup %q: %w", g, err)
	}
	return nil
}

// killAll kills until the group is empty. The kernel says by an inotify event when that is (cgroups(7)).
func (g group) killAll(k kernel) error {
	changed, err := g.watch("cgroup.events")
	if err != nil {
		return err
	}
	defer changed.Close()
	if err := changed.SetReadDeadline(time.Now().Add(removeTimeout)); err != nil {
		return err
	}
	killErr := g.write("cgroup.kill", "1") // Linux 5.14 and later
	if killErr != nil && !errors.Is(killErr, fs.ErrNotExist) {
		return killErr
	}
	signalled := map[int]bool{}
	for event := make([]byte, 4096); ; {
		if killErr != nil {
			if err := g.killEach(k, signalled); err != nil {
				return err
			}
		}
		populated, err := g.event("cgroup.events", "populated")
		if err != nil || populated == 0 {
			return err
		}
		if _, err := changed.Read(event); err != nil {
			return fmt.Errorf("waiting for its processes to end: %w", err)
		}
	}
}

// killEach sends SIGKILL to every process, until a whole round meets none that it has not been sent to: a process with
// SIGKILL pending can fork no more.
func (g group) killEach(k kernel, signalled map[int]bool) error {
	for again := true; again; {
		again = false
		pids, err := g.pids()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if signalled[pid] {
				continue
			}
			signalled[pid], again = true, true
			if err := k.kill(pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("killing process %d: %w", pid, err)
			}
		}
	}
	return nil
}

// watch returns an inotify descriptor that becomes readable when the file changes.
func (g group) watch(file string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("making an inotify descriptor: %w", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, filepath.Join(string(g), file), unix.IN_MODIFY); err != nil {
		f.Close()
		return nil, fmt.Errorf("watching %q: %w", file, err)
	}
	return f, nil
}
