package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// rotate moves what a log holds to PATH.1 if it has grown past max bytes. The file stays the same one: its writer has
// it open for appending, so truncation is safe and loses at most a line that is written in that moment.
func rotate(path string, max int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() < max {
		return err
	}
	old, err := os.OpenFile(path+".1", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("opening the old log: %w", err)
	}
	if _, err = io.Copy(old, f); err == nil {
		err = f.Truncate(0)
	}
	return errors.Join(err, old.Close())
}
