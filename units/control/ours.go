package control

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// CheckOurs returns why a file or directory may be another user's word: it belongs to somebody else than root and this
// user, or its group or others may write it. Links are followed.
func CheckOurs(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if owner != 0 && owner != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%q could be another user's: it must belong to root or uid %d, and nobody else may write it "+
			"(owner %d, mode %v); chmod go-w it, or chown it", path, os.Getuid(), owner, info.Mode())
	}
	return nil
}

// OurDir is os.DirFS for a directory that pfar obeys. What others may write in it, or where its links lead to, is not
// read.
func OurDir(dir string) fs.FS { return ourDir{dir, os.DirFS(dir)} }

// OurFiles is os.DirFS("/") but for files that another user may have written, themselves or their folder, and for what
// is no file of at most a megabyte.
func OurFiles() fs.FS { return ourFiles{} }

type ourFiles struct{}

const ourMost = 1 << 20 // bytes

func (ourFiles) Open(name string) (fs.File, error) {
	at := filepath.Join("/", name)
	info, err := os.Stat(at) // a FIFO would be waited for
	if err == nil && (!info.Mode().IsRegular() || info.Size() > ourMost) {
		err = &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("not a file of at most %d bytes", ourMost)}
	}
	if err != nil {
		return nil, err
	}
	return OurDir(filepath.Dir(at)).Open(filepath.Base(at))
}

type ourDir struct {
	dir string
	fs.FS
}

func (d ourDir) Open(name string) (fs.File, error) {
	if err := d.check("open", name); err != nil {
		return nil, err
	}
	return d.FS.Open(name)
}

func (d ourDir) Stat(name string) (fs.FileInfo, error) {
	if err := d.check("stat", name); err != nil {
		return nil, err
	}
	return fs.Stat(d.FS, name)
}

func (d ourDir) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := d.check("readdir", name); err != nil {
		return nil, err
	}
	return fs.ReadDir(d.FS, name)
}

// ReadLink needs no look at where the link leads to: nothing of that is read.
func (d ourDir) ReadLink(name string) (string, error) {
	if err := d.check("readlink", filepath.Dir(name)); err != nil {
		return "", err
	}
	return fs.ReadLink(d.FS, name)
}

func (d ourDir) Lstat(name string) (fs.FileInfo, error) {
	if err := d.check("lstat", filepath.Dir(name)); err != nil {
		return nil, err
	}
	return fs.Lstat(d.FS, name)
}

// check looks at the directory, at those below it on the way, at the file, and at the directory that a link leads into.
// Of what is not there, the file system says so itself.
func (d ourDir) check(op, name string) error {
	paths := []string{d.dir}
	if name != "." {
		for below := filepath.Dir(name); below != "."; below = filepath.Dir(below) {
			paths = append(paths, filepath.Join(d.dir, below))
		}
		at := filepath.Join(d.dir, name)
		paths = append(paths, at)
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 { // resolving takes twenty system calls
			if real, err := filepath.EvalSymlinks(at); err == nil {
				paths = append(paths, filepath.Dir(real))
			}
		}
	}
	for _, path := range paths {
		if err := CheckOurs(path); err != nil && !os.IsNotExist(err) {
			return &fs.PathError{Op: op, Path: name, Err: err}
		}
	}
	return nil
}
