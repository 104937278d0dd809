package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/systemd"
)

// checksFile is where the unit that runs the checks writes what they find, in the directory of pfard's sockets: only
// its user writes there.
const checksFile = "checks.json"

// runChecks has systemd run the checks in a unit of their own.
func (u *taskUnits) runChecks(ctx context.Context) ([]byte, error) {
	path := filepath.Join(u.run, checksFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	bus, err := u.link.Bus(ctx)
	if err != nil {
		return nil, err
	}
	if err := bus.RunUnit(ctx, systemd.DoctorUnit); err != nil {
		return nil, fmt.Errorf("%w: journalctl -u %s", err, systemd.DoctorUnit)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxChecks))
}

// runChecks runs the checks as a process of pfard's.
func (l localPages) runChecks(ctx context.Context) ([]byte, error) {
	program, err := doctor()
	if err != nil {
		return nil, err
	}
	return runDoctor(ctx, program)
}

// doctor finds pfar: beside this program, or where packages put it.
func doctor() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding pfar: %w", err)
	}
	beside := filepath.Join(filepath.Dir(self), "pfar")
	for _, path := range []string{beside, "/usr/bin/pfar"} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no pfar at %s", beside)
}

// runDoctor runs a program as pfar doctor.
func runDoctor(ctx context.Context, program string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, "doctor", "--json")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "NOTIFY_SOCKET=") })
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // what it leaves running may hold its output open
	var out, complaints head
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	const failed = 1 // the exit code if a check has failed
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == failed && len(out) > 0 {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("running %s doctor: %w: %s", program, err, bytes.TrimSpace(complaints))
	}
	return out, nil
}

// head keeps the first bytes of what it is given.
type head []byte

func (h *head) Write(b []byte) (int, error) {
	*h = append(*h, b[:min(len(b), maxChecks-len(*h))]...)
	return len(b), nil
}
