package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/tests/vm"
)

const (
	secretOfTrial = "the secret of before"

	stateDir  = "/var/lib/pfar"
	trial     = stateDir + "/trial"          // files that only the migration of the test knows
	holdFile  = "/run/pfar-vm-hold"          // stops that migration in the middle
	firstFile = trial + "/new/first"         // of the migration's, before it stops
	gateway   = "/usr/lib/pfar/pfar-gateway" // dpkg renames programs by name: some come before it, others after
)

// upgraded are the servers of the machine that is upgraded.
var upgraded = []string{"calm", "changing", "keyed"}

// upgrade installs the first version, then the second, then the third, whose state has another format, and marks the
// disk where the test cuts the power.
func upgrade([]string) error {
	out, err := shell("mkdir -p " + programs + "; cp programs/* " + programs + "; dpkg -i packages/first.deb")
	if err != nil {
		return fmt.Errorf("installing: %w: %s", err, out)
	}
	reportAll("upgrade", []check{
		{"the first version runs", firstRuns},
		{"the second is unpacked", unpackSecond},
		{"the second is configured", configureSecond},
		{"the third is installed", installThird},
	})
	return nil
}

// firstRuns stores a secret, accepts a changed tool, makes a call, and writes files for the migration.
func firstRuns() (string, error) {
	set := exec.Command("pfar", "vault", "set", "token")
	set.Stdin = strings.NewReader(secretOfTrial)
	if out, err := set.CombinedOutput(); err != nil {
		return "", fmt.Errorf("pfar vault set: %w: %s", err, out)
	}
	for _, name := range upgraded {
		more := ""
		if name == "keyed" {
			more = `auth = { TOKEN = "vault:token" }`
		}
		if err := declare(name, echoServer(more, "")); err != nil {
			return "", err
		}
	}
	if err := allRun(upgraded...); err != nil {
		return "", err
	}
	out, err := shell(`pfar call changing.change
pfar pins accept changing --yes
pfar call calm.echo --message "said before"
mkdir ` + trial + `
printf once >` + trial + `/changed
printf old >` + trial + `/gone
echo safe >` + safeFile + `
sync`)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return versionIs("first")
}

// unpackSecond marks the disk while dpkg has renamed some files and not others, and again when dpkg has unpacked them
// all.
func unpackSecond() (string, error) {
	before := launchers(upgraded...)
	err := stopAt(gateway, tool("dpkg", "--unpack", "packages/second.deb"), func() error { return mark("renaming") })
	if err == nil {
		err = mark("unpacked")
	}
	return "", errors.Join(err, unchanged(before))
}

func configureSecond() (string, error) {
	before := launchers(upgraded...)
	if out, err := output("dpkg", "--configure", "pfar"); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return runsOn("second", before)
}

// installThird marks the disk in the middle of the migration that pfard makes when the package's script restarts it.
func installThird() (string, error) {
	before := launchers(upgraded...)
	if err := os.WriteFile(holdFile, nil, 0o644); err != nil {
		return "", err
	}
	dpkg := tool("dpkg", "-i", "packages/third.deb")
	var out bytes.Buffer
	dpkg.Stdout, dpkg.Stderr = &out, &out
	if err := dpkg.Start(); err != nil {
		return "", err
	}
	err := eventually(func() error { _, err := os.Stat(firstFile); return err })
	if err == nil {
		err = mark("migrating")
	}
	err = errors.Join(err, os.Remove(holdFile))
	if werr := dpkg.Wait(); werr != nil {
		err = errors.Join(err, fmt.Errorf("dpkg: %w: %s", werr, &out))
	}
	if err != nil {
		return "", err
	}
	if _, err := runsOn("third", before); err != nil {
		return "", err
	}
	return migrated()
}

// stopAt starts a program and stops it, while f runs, once it has renamed a file to path.
func stopAt(path string, cmd *exec.Cmd, f func() error) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_MOVED_TO); err != nil {
		return err
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		_ = events.SetReadDeadline(time.Now()) // ends Read: no more events come
	}()
	for b := make([]byte, 4096); ; {
		n, err := events.Read(b)
		if err != nil {
			return fmt.Errorf("waiting until %q is renamed: %w, %w: %s", path, err, <-ended, &out)
		}
		if bytes.Contains(b[:n], []byte(filepath.Base(path)+"\x00")) {
			break
		}
	}
	err = errors.Join(cmd.Process.Signal(unix.SIGSTOP), f(), cmd.Process.Signal(unix.SIGCONT))
	if werr := <-ended; werr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", werr, &out))
	}
	return err
}

// mark marks the place in the log of the disk where the test cuts the power. By then the disk has the new names of
// files, but not the bytes that no program has synced.
func mark(name string) error {
	f, err := os.OpenFile("/var/mark-"+name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // commits the journal of the file system, with all renames so far
		return err
	}
	if err := os.WriteFile(lostFile+name, []byte("lost\n"), 0o644); err != nil {
		return err
	}
	_, err = f.Write(vm.Mark(name))
	return errors.Join(err, f.Sync())
}

// runsOn wants another version, and the same processes of servers.
func runsOn(version, before string) (string, error) {
	said, err := versionIs(version)
	if err != nil {
		return said, err
	}
	if err := allRun(upgraded...); err != nil {
		return said, err
	}
	out, err := output("pfar", "call", "calm.echo", "--message", version)
	if err = errors.Join(err, contains(out, version)); err != nil {
		return said, fmt.Errorf("pfar call: %w", err)
	}
	return said, unchanged(before)
}

func unchanged(before string) error {
	if after := launchers(upgraded...); after != before {
		return fmt.Errorf("servers were %s and are %s", before, after)
	}
	return nil
}
