package install

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/installer"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/durable"
)

// finish puts in place what a job has left. Until the last step nothing of it counts: a pfard that is killed leaves
// what was there before. finish returns the packages whose install scripts did not run.
func (j *Jobs) finish(p source.Package, stage string) (scripted []string, err error) {
	root, err := os.OpenRoot(stage)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	place := j.around.Settings().Host.Folder(p)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"check", func() (err error) {
			scripted, err = check(root, p, j.around.Integrity(p))
			return err
		}},
		{"own", func() error { return own(root) }},
		{"record", func() error { return write(stage, p) }},
		{"folder", func() error { return open(j.dir, filepath.Dir(place)) }},
		{"place", func() error { return put(stage, place) }},
	} {
		if j.steps != nil {
			if err := j.steps(step.name); err != nil {
				return nil, err
			}
		}
		if err := step.do(); err != nil {
			return nil, err
		}
	}
	return scripted, nil
}

// readLock reads what a job that has ended well says of its package.
func readLock(root *os.Root) ([]byte, error) {
	if _, err := root.Lstat(installer.Done); err != nil {
		return nil, errors.New("the job was stopped before its end")
	}
	info, err := root.Lstat(installer.Lock)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the lock file is missing: %w", err)
	case !info.Mode().IsRegular() || info.Size() > installer.MaxLock:
		return nil, fmt.Errorf("the lock is not a file, or has more than %d bytes", installer.MaxLock)
	}
	f, err := root.Open(installer.Lock)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, installer.MaxLock))
}

// newest reads which version of a package a job has found.
func newest(p source.Package, stage string) (source.Package, error) {
	root, err := os.OpenRoot(stage)
	if err != nil {
		return p, err
	}
	defer root.Close()
	b, err := readLock(root)
	if err != nil {
		return p, err
	}
	return installer.Newest(p, b)
}

// check wants the job to have ended well, its lock to be whole, and the package to be the one that is known. It returns
// the packages that have install scripts.
func check(root *os.Root, p source.Package, known string) (scripted []string, err error) {
	b, err := readLock(root)
	if err != nil {
		return nil, err
	}
	if err := installer.CheckLock(p, b, known); err != nil {
		return nil, err
	}
	return installer.Scripted(b), root.Remove(installer.Done)
}

// own makes all that a job has left pfard's, for everybody to read and for nobody to write. The job has ended: nothing
// changes meanwhile.
func own(root *os.Root) error {
	uid, gid := os.Getuid(), os.Getgid()
	return fs.WalkDir(root.FS(), ".", func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := root.Lstat(at)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o444)
		if info.Mode().Perm()&0o100 != 0 {
			mode = 0o555
		}
		switch {
		case info.IsDir():
			mode = 0o755 // or its owner could not remove it
		case info.Mode()&fs.ModeSymlink != 0:
			return root.Lchown(at, uid, gid)
		case !info.Mode().IsRegular():
			return fmt.Errorf("%q is neither a file nor a directory", at)
		}
		if err := root.Lchown(at, uid, gid); err != nil {
			return err
		}
		return root.Chmod(at, mode)
	})
}

// write has all reach the disk, and then the record, without which it is not a package.
func write(stage string, p source.Package) error {
	if err := flush(stage); err != nil {
		return err
	}
	return durable.WriteFileFor(filepath.Join(stage, "record.json"), generator.Record(p), 0o444, -1, -1)
}

// flush has all that was written to the file system of a folder reach the disk.
func flush(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("writing %q to the disk: %w", dir, err)
	}
	return nil
}

// open makes a folder and those on the way to it from another one, for everybody to read.
func open(from, to string) error {
	rest, err := filepath.Rel(from, to)
	if err != nil {
		return err
	}
	at := from
	for part := range strings.SplitSeq(rest, "/") {
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Chmod(at, 0o755); err != nil { // whatever the umask is
			return err
		}
	}
	return nil
}

// put makes a staged folder the package. What was there goes where it came from, to be removed.
func put(stage, place string) error {
	err := unix.Renameat2(unix.AT_FDCWD, stage, unix.AT_FDCWD, place, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) {
		err = os.Rename(stage, place)
	}
	if err != nil {
		return fmt.Errorf("putting %q in place: %w", place, err)
	}
	return durable.SyncDir(filepath.Dir(place))
}

// remedy says what to do about a full disk, and about a file that is not the published one. npm and pip say both in
// words.
func remedy(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || strings.Contains(err.Error(), "ENOSPC") ||
		strings.Contains(err.Error(), "npm error nospc") || strings.Contains(err.Error(), "No space left on device") {
		return fmt.Errorf("the disk is full; make room and run pfar install again: %w", err)
	}
	if strings.Contains(err.Error(), "DO NOT MATCH THE HASHES") { // pip speaks of a file of requirements
		return fmt.Errorf("a file is not the one that the index names; install another version, or tell who runs "+
			"the index: %w", err)
	}
	return err
}
