// Package durable writes files that are whole or not there: bytes in, a file that only its owner may read out.
package durable

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// Prefix begins the names of files that are not yet whole. A crash leaves them.
const Prefix = ".new-"

// Stage writes a file that is whole on the disk, and returns its name.
func Stage(dir string, b []byte) (string, error) { return stage(dir, b, (*os.File).Sync) }

func stage(dir string, b []byte, sync func(*os.File) error) (string, error) {
	f, err := os.CreateTemp(dir, Prefix+"*") // 0600, and no other user's
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err == nil {
		err = sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil { // a full disk
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// Replace replaces path with a file that only its owner may read: a reader finds the old text or the new one. After a
// power cut there may be neither. It is for files that nobody needs after one.
func Replace(path string, b []byte) error {
	name, err := stage(filepath.Dir(path), b, func(*os.File) error { return nil })
	if err != nil {
		return err
	}
	if err = os.Rename(name, path); err != nil {
		os.Remove(name)
	}
	return err
}

// WriteFile replaces path with a file that only its owner may read, at once and for good: file, then name, then
// directory reach the disk in this order.
func WriteFile(path string, b []byte) error { return WriteFileFor(path, b, 0o600, -1, -1) }

// WriteFileFor is WriteFile for a file of another mode and owner, which -1 leaves as they are (chown(2)).
func WriteFileFor(path string, b []byte, mode fs.FileMode, uid, gid int) error {
	dir := filepath.Dir(path)
	name, err := Stage(dir, b)
	if err != nil {
		return err
	}
	if uid != -1 || gid != -1 {
		err = os.Lchown(name, uid, gid)
	}
	if err == nil && mode.Perm() != 0o600 {
		err = os.Chmod(name, mode.Perm())
	}
	if err == nil {
		err = os.Rename(name, path)
	}
	if err != nil {
		os.Remove(name)
		return err
	}
	return SyncDir(dir)
}

// WriteLink replaces path with a symbolic link, at once and for good.
func WriteLink(path, to string) error {
	dir := filepath.Dir(path)
	name := filepath.Join(dir, Prefix+rand.Text())
	if err := os.Symlink(to, name); err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		os.Remove(name)
		return err
	}
	return SyncDir(dir)
}

// Remove removes a file for good.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// unfinished are the names of what is staged.
var unfinished = regexp.MustCompile(`^` + regexp.QuoteMeta(Prefix) + `([0-9]+|[A-Z2-7]{26})$`)

// Sweep removes what a crash has left in a directory before it was whole. Nobody may write there meanwhile.
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if unfinished.MatchString(e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// SyncDir has the names in a directory reach the disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
