package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

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
	return l.pfar(ctx, checksTime, "doctor", "--json")
}
