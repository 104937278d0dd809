// Package bed boots real systemds as PID 1 of machines of their own for tests, and takes them away without a trace.
//
// Each machine is one systemd-nspawn, in namespaces and a cgroup that end with it. Three processes belong to it: the
// test; the guardian, which outlives the test however that ends, and removes what the kernel does not; and the keeper,
// PID 1 of a PID namespace, whose mount namespace has the machine's root and hides the host's /run and cgroups from
// systemd-nspawn.
package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/tests/image"
)

// files are what machines have besides Debian and what is installed. Empty ones mask: nothing is to start by itself in
// the middle of a test.
var files = map[string]string{
	"etc/machine-id":                     "0b8c3f4d5e6a47f19c2d8e7b6a5f4e3d\n",
	"etc/hostname":                       "pfar-bed\n",
	"etc/hosts":                          "127.0.0.1 localhost pfar-bed\n::1 localhost\n",
	"etc/systemd/system/apt-daily.timer": "",
	"etc/systemd/system/apt-daily-upgrade.timer":      "",
	"etc/systemd/system/dpkg-db-backup.timer":         "",
	"etc/systemd/system/e2scrub_all.timer":            "",
	"etc/systemd/system/systemd-tmpfiles-clean.timer": "",
	"etc/systemd/system/console-getty.service":        "",
	"etc/systemd/system/systemd-sysctl.service":       "", // the kernel is the host's
	"etc/systemd/system.conf.d/bed.conf":              "[Manager]\nDefaultEnvironment=" + gorace + "\n",
	"etc/systemd/user.conf.d/bed.conf":                "[Manager]\nDefaultEnvironment=" + gorace + "\n",
	// The journal is there after a boot, too.
	"etc/systemd/journald.conf.d/bed.conf": "[Journal]\nStorage=persistent\nSystemMaxUse=64M\n",
}

// gorace has programs with the race detector end at once: by themselves they sleep for a second first.
const gorace = "GORACE=atexit_sleep_ms=0"

// Bed is what machines are made from.
type Bed struct {
	image     string // root file system of Debian, which nobody writes to
	installed string // pfar and what else the tests bring, over it
	cgroups   string // where the hierarchy of version 2 is mounted
	lock      *os.File
}

// Open makes Debian's root file system, if it is not there, and has install write pfar into a directory of its own
// below cache. Packages are what Debian's root file system has besides the usual ones.
func Open(ctx context.Context, cache string, install func(context.Context, string) error, packages ...string) (*Bed, error) {
	brought, err := image.Install(ctx, map[string]string{"systemd-nspawn": "systemd-container", "nsenter": "util-linux", "nft": "nftables"})
	if err != nil {
		return nil, err
	}
	if len(brought) > 0 {
		fmt.Fprintf(os.Stderr, "installed on this machine: %s\n", strings.Join(brought, " "))
	}
	b, err := Reopen(ctx, cache, packages...)
	if err != nil {
		return nil, err
	}
	cache = filepath.Dir(b.installed)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	removeStale(b.cgroups)
	if b.lock, err = os.OpenFile(filepath.Join(cache, "lock"), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, fmt.Errorf("opening the lock of %q: %w", cache, err)
	}
	// Another run in this directory has its machines on what is installed here.
	if err := unix.Flock(int(b.lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("locking %q: %w", cache, err)
	}
	if err := os.RemoveAll(b.installed); err != nil {
		return nil, fmt.Errorf("removing what was installed: %w", err)
	}
	if err := image.WriteFiles(b.installed, files); err != nil {
		return nil, err
	}
	if err := install(ctx, b.installed); err != nil {
		return nil, fmt.Errorf("installing pfar: %w", err)
	}
	return b, nil
}

// Reopen is for another process while one has the bed open: what is installed stays as it is.
func Reopen(ctx context.Context, cache string, packages ...string) (*Bed, error) {
	root, err := image.Root(ctx, packages...)
	if err != nil {
		return nil, err
	}
	suite, err := image.Suite()
	if err != nil {
		return nil, err
	}
	b := &Bed{image: root}
	// Of each suite its own: both are tested side by side.
	if b.installed, err = filepath.Abs(filepath.Join(cache, suite, "installed")); err != nil {
		return nil, err
	}
	b.cgroups, err = cgroups()
	return b, err
}

// Close lets another run have the directory.
func (b *Bed) Close() error { return b.lock.Close() }

// Installed is the directory with what was installed, as the machines' root file system has it.
func (b *Bed) Installed() string { return b.installed }

// layers are the lower layers of a machine's root, the uppermost first, as overlayfs wants them.
func (b *Bed) layers() string { return b.installed + ":" + b.image }

// cgroups finds the hierarchy of version 2, wherever it is mounted.
func cgroups() (string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if before, after, ok := strings.Cut(line, " - "); ok && strings.HasPrefix(after, "cgroup2 ") {
			if fields := strings.Fields(before); fields[3] == "/" {
				return fields[4], nil
			}
		}
	}
	return "", fmt.Errorf("finding cgroup version 2: it is mounted nowhere")
}

// groupName is the cgroup of a test's machine, all of them if guardian is "*".
func groupName(cgroups string, test int, guardian string) string {
	return filepath.Join(cgroups, fmt.Sprintf("pfar-bed-%d-%s", test, guardian))
}

// removeStale removes the cgroups of machines whose guardian was killed, and the test too, so that nobody did.
func removeStale(cgroups string) {
	list, _ := filepath.Glob(filepath.Join(cgroups, "pfar-bed-*"))
	for _, dir := range list {
		var test, guardian int
		if _, err := fmt.Sscanf(filepath.Base(dir), "pfar-bed-%d-%d", &test, &guardian); err == nil && dead(test) && dead(guardian) {
			_ = removeCgroup(dir)
		}
	}
}

func dead(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

// removeCgroup removes a cgroup with all below it, whose processes have been killed: the kernel is through with one a
// little later than whoever waits for it.
func removeCgroup(dir string) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		err := removeEmptyCgroup(dir)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

func removeEmptyCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeEmptyCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		return fmt.Errorf("removing the cgroup %q: %w", dir, err)
	}
	return nil
}
