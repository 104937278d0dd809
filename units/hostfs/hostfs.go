// Package hostfs follows paths of the host as the kernel does, in any file system that is rooted at "/".
package hostfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Link is a symbolic link that was met on the way to a file.
type Link struct{ At, Text string }

// File is a path on the host with every symbolic link resolved.
type File struct {
	Written string
	Real    string
	Links   []Link
	Info    fs.FileInfo // nil if it does not exist
}

// Regular reports whether a regular file is there.
func (f File) Regular() bool { return f.Info != nil && f.Info.Mode().IsRegular() }

// Directory reports whether a directory is there.
func (f File) Directory() bool { return f.Info != nil && f.Info.IsDir() }

// Executable reports whether anybody may execute the file.
func (f File) Executable() bool { return f.Regular() && f.Info.Mode().Perm()&0o111 != 0 }

// maxLinks is the kernel's own limit (path_resolution(7)).
const maxLinks = 40

var errLoop = errors.New("more than 40 symbolic links")

// Resolve follows an absolute path as the kernel does. Where something is missing, Real is what it would be, and the
// error is fs.ErrNotExist.
func Resolve(host fs.ReadLinkFS, written string) (File, error) {
	f := File{Written: written, Real: "/"}
	rest := strings.Split(written, "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			f.Real = path.Dir(f.Real)
			continue
		}
		next := path.Join(f.Real, part)
		info, err := host.Lstat(In(next))
		if err != nil {
			f.Real, f.Info = path.Join(append([]string{next}, rest...)...), nil
			return f, missing(written, next, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			f.Real, f.Info = next, info
			continue
		}
		text, err := host.ReadLink(In(next))
		if err != nil {
			return f, fmt.Errorf("reading the link %q: %w", next, reason(err))
		}
		if f.Links = append(f.Links, Link{next, text}); len(f.Links) > maxLinks {
			return f, fmt.Errorf("%q: %w", written, errLoop)
		}
		if path.IsAbs(text) {
			f.Real = "/"
		}
		rest = append(strings.Split(text, "/"), rest...)
	}
	if f.Real == "/" || f.Info == nil {
		info, err := host.Lstat(In(f.Real))
		if err != nil {
			return f, fmt.Errorf("looking at %q: %w", f.Real, reason(err))
		}
		f.Info = info
	}
	return f, nil
}

// maxRead bounds what is read of one file that says something about programs.
const maxRead = 1 << 20

// Read returns a file that is at most maxRead long.
func Read(host fs.ReadLinkFS, real string) ([]byte, bool) {
	info, err := host.Lstat(In(real))
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxRead { // a FIFO would be waited for
		return nil, false
	}
	f, err := host.Open(In(real))
	if err != nil {
		return nil, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	return b, err == nil && len(b) <= maxRead
}

// In is an absolute path as package fs has it.
func In(p string) string {
	if p == "/" {
		return "."
	}
	return strings.TrimPrefix(p, "/")
}

// reason drops the path that fs.PathError repeats.
func reason(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// missing says what of a path is not there.
func missing(written, at string, err error) error {
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("looking at %q: %w", at, reason(err))
	case written == at:
		return fmt.Errorf("%q: %w", written, reason(err))
	}
	return fmt.Errorf("%q: %q: %w", written, at, reason(err))
}
