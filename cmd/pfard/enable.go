package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

// disable stops a server and keeps it off, whatever its file says, also after pfard or the machine were started again.
func (d *daemon) disable(name string) error {
	s := d.servers[name]
	if s == nil || s.want == nil {
		return fmt.Errorf("%w: %q", control.ErrNoServer, name)
	}
	if err := mark(d.options.dirs.Disabled(name)); err != nil {
		return fmt.Errorf("remembering that %q is disabled: %w", name, err)
	}
	d.atBoot()
	s.off, s.run, s.asleep = true, false, false
	d.tokens.use(d.keysInUse())
	s.dismiss(fmt.Errorf("%w: somebody else disabled %q", control.ErrStopped, name))
	d.converge(s)
	d.tell()
	return nil
}

// enable takes that back, and starts the server as if it had never crashed.
func (d *daemon) enable(name string) error {
	s := d.servers[name]
	if s == nil || s.want == nil {
		return fmt.Errorf("%w: %q", control.ErrNoServer, name)
	}
	if err := unmark(d.options.dirs.Disabled(name)); err != nil {
		return fmt.Errorf("forgetting that %q is disabled: %w", name, err)
	}
	d.atBoot()
	s.off = false
	d.tokens.use(d.keysInUse())
	err := d.turn(control.Start, name)
	if err != nil { // its file disables it as well; it is to say so
		d.converge(s)
		d.tell()
	}
	return err
}

// disabled reports whether the operator has disabled a server. If that cannot be known, it has been.
func (d *daemon) disabled(name string) bool {
	_, err := os.Lstat(d.options.dirs.Disabled(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Error("looking whether a server is disabled", "server", name, "error", err)
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// mark makes an empty file that is there after a power failure as well.
func mark(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return errors.Join(syncDir(filepath.Dir(path)), syncDir(filepath.Dir(filepath.Dir(path))))
}

func unmark(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncDir(filepath.Dir(path)))
}

// syncDir has the names in a directory written to the disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
