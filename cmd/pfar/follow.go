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

// dirWatch tells when something in a directory has changed (inotify(7)).
type dirWatch struct {
	ctx    context.Context
	dir    string
	events *os.File
	stop   func() bool
}

// watchDir watches until ctx ends, or it is closed. The directory reports for its files too, and outlives them.
func watchDir(ctx context.Context, dir string) (*dirWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("starting inotify: %w", err)
	}
	w := &dirWatch{ctx: ctx, dir: dir, events: os.NewFile(uintptr(fd), "inotify")}
	const mask = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, dir, mask); err != nil {
		w.events.Close()
		return nil, fmt.Errorf("watching %q: %w", dir, err)
	}
	w.stop = context.AfterFunc(ctx, func() { w.events.Close() })
	return w, nil
}

// wait returns when something has changed since the last time, or with the error of ctx when that ends.
func (w *dirWatch) wait() error {
	var events [64 << 10]byte // all that there are, and nothing of them is read
	if _, err := w.events.Read(events[:]); w.ctx.Err() != nil {
		return w.ctx.Err()
	} else if err != nil {
		return fmt.Errorf("watching %q: %w", w.dir, err)
	}
	return nil
}

func (w *dirWatch) close() {
	w.stop()
	w.events.Close()
}

// followFile copies what is appended to the file at path from offset on, until the context ends. A file that was
// truncated is read from its start, one that was replaced or made later is opened anew.
func followFile(ctx context.Context, path string, offset int64, w io.Writer) error {
	changed, err := watchDir(ctx, filepath.Dir(path)) // events of other files only cost a look
	if err != nil {
		return err
	}
	defer changed.close()
	t := tail{path: path, offset: offset}
	defer t.close()
	for {
		if err := t.copyNew(w); err != nil {
			return err
		}
		if err := changed.wait(); err != nil {
			return err
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
