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
)

// followFile copies what is appended to the file at path from offset on, until the context ends. A file that was
// truncated is read from its start, one that was replaced or made later is opened anew. inotify(7) wakes it.
func followFile(ctx context.Context, path string, offset int64, w io.Writer) error {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("starting inotify: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	// The directory reports for its files too, and outlives them; events of other files only cost a look.
	const mask = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), mask); err != nil {
		return fmt.Errorf("watching %q: %w", filepath.Dir(path), err)
	}
	defer context.AfterFunc(ctx, func() { events.Close() })()
	t := tail{path: path, offset: offset}
	defer t.close()
	buffer := make([]byte, 64<<10)
	for {
		if err := t.copyNew(w); err != nil {
			return err
		}
		if _, err := events.Read(buffer); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("reading inotify: %w", err)
		}
	}
}

// tail is a file that is read as it grows.
type tail struct {
	path   string
	offset int64
	file   *os.File
}

func (t *tail) close() {
	if t.file != nil {
		t.file.Close()
	}
}

// copyNew copies what was written since the last time.
func (t *tail) copyNew(w io.Writer) error {
	if t.file == nil {
		f, err := os.Open(t.path)
		if errors.Is(err, fs.ErrNotExist) {
			t.offset = 0
			return nil
		}
		if err != nil {
			return err
		}
		t.file = f
	}
	if err := t.drain(w); err != nil {
		return err
	}
	now, err := os.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if held, err := t.file.Stat(); err == nil && os.SameFile(held, now) {
		return nil
	}
	t.file.Close()
	t.file, t.offset = nil, 0
	return t.copyNew(w)
}

func (t *tail) drain(w io.Writer) error {
	info, err := t.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < t.offset {
		t.offset = 0
	}
	n, err := io.Copy(w, io.NewSectionReader(t.file, t.offset, info.Size()-t.offset))
	t.offset += n
	return err
}
