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

// Where units write what they find, in the directory of pfard's sockets: only its user writes there.
const (
	checksFile   = "checks.json"
	verifiedFile = "verified.json"
)

// runChecks has systemd run the checks in a unit of their own.
func (u *taskUnits) runChecks(ctx context.Context) ([]byte, error) {
	return u.written(ctx, systemd.DoctorUnit, checksFile, maxChecks)
}

// verifyAudit has systemd verify the audit in a unit of its own, which ends with ctx.
func (u *taskUnits) verifyAudit(ctx context.Context) ([]byte, error) {
	return u.written(ctx, systemd.VerifyUnit, verifiedFile, maxPrinted)
}

// written has systemd run a unit until it ends or ctx does, and returns at most so many bytes of what it wrote to a
// file.
func (u *taskUnits) written(ctx context.Context, unit, name string, most int64) ([]byte, error) {
	path := filepath.Join(u.run, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	bus, err := u.link.Bus(ctx)
	if err != nil {
		return nil, err
	}
	if err := bus.RunUnit(ctx, unit); err != nil {
		if ctx.Err() != nil {
			tellSystemd(u.log, u.link, "ending", unit, func(ctx context.Context, bus *systemd.Bus) error {
				return bus.StopUnit(ctx, unit)
			})
		}
		return nil, fmt.Errorf("%w: journalctl -u %s", err, unit)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// runChecks runs the checks as a process of pfard's.
func (l localPages) runChecks(ctx context.Context) ([]byte, error) {
	return l.pfar(ctx, checksTime, "doctor", "--json")
}

// verifyAudit verifies the audit as a process of pfard's, which ends with ctx.
func (l localPages) verifyAudit(ctx context.Context) ([]byte, error) {
	return l.pfar(ctx, verifyTime, "audit", "verify", "--json")
}
