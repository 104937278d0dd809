package migrate

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pfar/pfar/units/durable"
)

// What changes the disk is here. Each change is on it, whole, before the next begins.

// done ends a change. A test is cut there.
func (m migration) done(err error) error {
	if err == nil && m.cut != nil {
		err = m.cut()
	}
	return err
}

// put writes a file with the mode and the owner of another.
func (m migration) put(path string, b []byte, like fs.FileInfo) error {
	uid, gid := owner(like)
	return m.done(durable.WriteFileFor(path, b, like.Mode(), uid, gid))
}

// write writes a file of this package's own.
func (m migration) write(name string, v any, mode fs.FileMode) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return m.done(durable.WriteFileFor(m.at(name), append(b, '\n'), mode, -1, -1))
}

// apply makes one file that of the next format.
func (m migration) apply(e Edit) error {
	if e.Gone {
		return m.remove(e.Path)
	}
	_, like, err := m.file(e.Path)
	if err == nil {
		return m.put(m.at(e.Path), e.Data, like)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, err := os.Lstat(filepath.Dir(m.at(e.Path)))
	if err != nil {
		return err
	}
	uid, gid := owner(dir)
	return m.done(durable.WriteFileFor(m.at(e.Path), e.Data, 0o600, uid, gid))
}

// remove removes a file or an empty directory, which may be gone already.
func (m migration) remove(path string) error {
	err := os.Remove(m.at(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = durable.SyncDir(filepath.Dir(m.at(path)))
	}
	return m.done(err)
}

// mkdir makes a directory for the owner of the one above it.
func (m migration) mkdir(path string) error {
	above := filepath.Dir(m.at(path))
	info, err := os.Lstat(above)
	if err != nil {
		return err
	}
	uid, gid := owner(info)
	if err = os.Mkdir(m.at(path), 0o700); err == nil {
		err = os.Lchown(m.at(path), uid, gid)
	}
	if err == nil {
		err = durable.SyncDir(above)
	}
	return m.done(err)
}

// mkdirAll makes directories of the backup.
func (m migration) mkdirAll(path string) error {
	relative, err := filepath.Rel(m.dir, path)
	if err != nil {
		return err
	}
	for at := range prefixes(relative) {
		if err := os.Mkdir(m.at(at), 0o700); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := durable.SyncDir(filepath.Dir(m.at(at))); err != nil {
			return err
		}
	}
	return m.done(nil)
}

func owner(info fs.FileInfo) (uid, gid int) {
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid)
}

// unstage removes what a cut has left of files that were being written.
func (m migration) unstage(dir string) error {
	entries, err := os.ReadDir(m.at(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if err == nil && strings.HasPrefix(e.Name(), durable.Prefix) && e.Type().IsRegular() {
			err = os.Remove(filepath.Join(m.at(dir), e.Name()))
		}
	}
	return err
}
