package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

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
	bus, err := u.link.Bus(ctx)
	if err != nil {
		return nil, err
	}
	if err := (lone{u.log, bus}).write(ctx, unit, path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// lone runs units of which one at a time writes its file.
type lone struct {
	log   *slog.Logger
	units loneUnits
}

// loneUnits runs a unit until it has ended or the context has, and stops one; both return when it is so.
type loneUnits interface {
	RunUnit(ctx context.Context, unit string) error
	StopUnit(ctx context.Context, unit string) error
}

// loneStop is for a unit to stop. Its TimeoutStopSec= is shorter.
const loneStop = 15 * time.Second

// write runs a unit that writes a file anew. It returns when the unit has ended: with ctx, too, since the next one
// would get what this one still writes. What an earlier one has left running, if systemd could not be asked, ends
// before.
func (l lone) write(ctx context.Context, unit, path string) error {
	if err := l.units.StopUnit(ctx, unit); err != nil {
		return fmt.Errorf("ending the one before: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := l.units.RunUnit(ctx, unit)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loneStop)
		defer cancel()
		if stopped := l.units.StopUnit(ctx, unit); stopped != nil {
			l.log.Warn("ending a unit, ignoring", "unit", unit, "error", stopped)
		}
	}
	return fmt.Errorf("%w: journalctl -u %s", err, unit)
}

// runChecks runs the checks as a process of pfard's.
func (l localPages) runChecks(ctx context.Context) ([]byte, error) {
	return l.pfar(ctx, checksTime, "doctor", "--json")
}

// verifyAudit verifies the audit as a process of pfard's, which ends with ctx.
func (l localPages) verifyAudit(ctx context.Context) ([]byte, error) {
	return l.pfar(ctx, verifyTime, "audit", "verify", "--json")
}
