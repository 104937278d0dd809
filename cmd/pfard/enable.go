package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/durable"
)

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
	return errors.Join(durable.SyncDir(filepath.Dir(path)), durable.SyncDir(filepath.Dir(filepath.Dir(path))))
}

func unmark(path string) error {
	if err := durable.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
