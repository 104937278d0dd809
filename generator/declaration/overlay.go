package declaration

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// With is the folder as if one file had another text, or, for nil, were not there.
func (f Folder) With(entry string, text []byte) Folder {
	return Folder{f.Path, overlay{f.FS, entry, text}}
}

// overlay is a folder in which one file is not the one on the disk.
type overlay struct {
	fs.FS
	entry string
	text  []byte // nil: there is no file
}

func (o overlay) Open(name string) (fs.File, error) {
	if name != o.entry {
		return o.FS.Open(name)
	}
	info, err := o.Stat(name)
	if err != nil {
		return nil, err
	}
	return &memory{Reader: bytes.NewReader(o.text), info: info}, nil
}

func (o overlay) Stat(name string) (fs.FileInfo, error) {
	switch {
	case name != o.entry:
		return fs.Stat(o.FS, name)
	case o.text == nil:
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return memoryInfo{path.Base(name), int64(len(o.text))}, nil
}

func (o overlay) Lstat(name string) (fs.FileInfo, error) {
	if name == o.entry {
		return o.Stat(name)
	}
	return fs.Lstat(o.FS, name)
}

func (o overlay) ReadLink(name string) (string, error) {
	if name == o.entry {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return fs.ReadLink(o.FS, name)
}

func (o overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.FS, name)
	if name != path.Dir(o.entry) {
		return entries, err
	}
	base := path.Base(o.entry)
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == base })
	if o.text != nil {
		entries = append(entries, fs.FileInfoToDirEntry(memoryInfo{base, int64(len(o.text))}))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// memory is a file that is not on the disk.
type memory struct {
	*bytes.Reader
	info fs.FileInfo
}

func (m *memory) Stat() (fs.FileInfo, error) { return m.info, nil }
func (*memory) Close() error                 { return nil }

type memoryInfo struct {
	name string
	size int64
}

func (i memoryInfo) Name() string     { return i.name }
func (i memoryInfo) Size() int64      { return i.size }
func (memoryInfo) Mode() fs.FileMode  { return 0o644 }
func (memoryInfo) ModTime() time.Time { return time.Time{} }
func (memoryInfo) IsDir() bool        { return false }
func (memoryInfo) Sys() any           { return nil }
