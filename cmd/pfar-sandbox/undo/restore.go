package undo

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/handover"
)

// Restore makes what a question is about as it was, once what is there now is kept as well: it can be undone itself.
// Each file is restored for itself. What cannot be is told, and stays.
func (s *Store) Restore(q handover.Undo) (handover.History, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Since == "" && q.At.IsZero() && q.Path == "" {
		return handover.History{}, errors.New("restoring: it is not said since when, or which path")
	}
	if err := s.keep([]handover.Call{q.Call}, q.Discard); err != nil {
		return handover.History{}, fmt.Errorf("keeping what is there now: %w", err)
	}
	n, err := s.since(q)
	if err != nil {
		return handover.History{}, err
	}
	list := s.repairs(n, q)
	s.repair(list)
	h := handover.History{Bytes: s.bytes}
	for _, r := range list {
		h.Restores = append(h.Restores, r.change())
	}
	if err := s.keep(nil, q.Discard); err != nil {
		return h, fmt.Errorf("everything else was done, but what is there now could not be kept: %w", err)
	}
	return h, nil
}

// repair does all in an order in which each finds its folder: first it takes away, from the innermost on, then it makes
// folders, and then what is in them. The modes of folders come last, for one may forbid to write.
func (s *Store) repair(list []repair) {
	each := func(only func(*repair) bool, do func(*repair) error) {
		for i := range list {
			if r := &list[i]; r.err == nil && only(r) {
				err := s.step("restore a file")
				if err == nil {
					err = do(r)
				}
				if err != nil {
					r.err = fmt.Errorf("restoring it: %w", err)
				}
			}
		}
	}
	other := func(r *repair) bool {
		if r.now == nil || r.want == nil || r.now.Kind != r.want.Kind {
			return r.now != nil
		}
		return r.now.Kind != regular && r.now.Kind != directory
	}
	slices.Reverse(list)
	each(func(r *repair) bool { return other(r) && r.now.Kind != directory }, (*repair).remove)
	each(func(r *repair) bool { return other(r) && r.now.Kind == directory }, (*repair).remove)
	slices.Reverse(list)
	isFolder := func(r *repair) bool { return r.want != nil && r.want.Kind == directory }
	each(isFolder, (*repair).makeFolder)
	isFile := func(r *repair) bool { return r.want != nil && r.want.Kind != directory }
	each(isFile, func(r *repair) error { return r.make(s) })
	slices.Reverse(list)
	each(isFolder, (*repair).setFolder)
	slices.Reverse(list)
}

// below is the path in the folder, "." for the folder itself.
func (r *repair) below() string {
	if r.path == r.in.Path {
		return "."
	}
	return strings.TrimPrefix(r.path, r.in.Path+"/")
}

// folder opens the folder that a file is in.
func (r *repair) folder() (*os.File, string, error) {
	b := r.below()
	if b == "." {
		return nil, "", errors.New("the path is the directory itself")
	}
	up, err := openBelow(int(r.in.at.Fd()), path.Dir(b), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	return up, path.Base(b), err
}

// is reports whether at a name there is still what was kept last: anything else is not taken away.
func (r *repair) is(up *os.File, n string) bool {
	_, e, err := stat(int(up.Fd()), n)
	same := err == nil && r.now != nil && e.Kind == r.now.Kind && e.Ino == r.now.Ino && e.Dev == r.now.Dev
	return same && (e.Kind == directory || e.Ctime == r.now.Ctime)
}

func (r *repair) remove() error {
	up, n, err := r.folder()
	if err != nil {
		return err
	}
	defer up.Close()
	if !r.is(up, n) {
		return errMoved
	}
	flags := 0
	if r.now.Kind == directory {
		flags = unix.AT_REMOVEDIR
	}
	return unix.Unlinkat(int(up.Fd()), n, flags)
}

func (r *repair) makeFolder() error {
	if r.now != nil && r.now.Kind == directory {
		return nil
	}
	up, n, err := r.folder()
	if err != nil {
		return err
	}
	defer up.Close()
	return unix.Mkdirat(int(up.Fd()), n, 0o700)
}

func (r *repair) setFolder() error {
	dir, err := openBelow(int(r.in.at.Fd()), r.below(), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return setMode(dir, r.want.Mode)
}

// setMode changes permissions alone.
func setMode(f *os.File, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&0o777 == mode {
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= st.Mode & 0o7000
	}
	return unix.Fchmod(int(f.Fd()), mode)
}

// make makes what is no folder.
func (r *repair) make(s *Store) error {
	if r.want.Kind == regular && r.now != nil && r.now.Kind == regular {
		err := r.overwrite(s)
		barred := errors.Is(err, unix.EACCES) || errors.Is(err, unix.ETXTBSY) || errors.Is(err, unix.EPERM)
		if !barred || r.below() == "." {
			return err
		}
	}
	up, n, err := r.folder()
	if err != nil {
		return err
	}
	defer up.Close()
	switch r.want.Kind {
	case link:
		return unix.Symlinkat(string(r.want.Target), int(up.Fd()), n)
	case fifo:
		return unix.Mkfifoat(int(up.Fd()), n, r.want.Mode)
	}
	return r.replace(s, up, n)
}

// overwrite writes into the file that is there: it keeps its owner, its access control list and its other names.
func (r *repair) overwrite(s *Store) error {
	var f *os.File
	var err error
	if r.below() == "." {
		f, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", r.in.at.Fd()), os.O_WRONLY, 0)
	} else {
		f, err = openBelow(int(r.in.at.Fd()), r.below(), unix.O_WRONLY, 0)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, e, err := stat(int(f.Fd()), "")
	if err != nil || e.Kind != regular || e.Ino != r.now.Ino || e.Dev != r.now.Dev {
		return errMoved
	}
	return r.fill(s, f)
}

// replace puts a new file in the place of what is there.
func (r *repair) replace(s *Store, up *os.File, n string) error {
	unfinished := ".pfar-undo"
	if r.now != nil && r.now.Kind == regular && !r.is(up, n) {
		return errMoved
	}
	_ = unix.Unlinkat(int(up.Fd()), unfinished, 0) // of a launcher that was killed
	f, err := openBelow(int(up.Fd()), unfinished, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if errors.Is(err, unix.EEXIST) { // the server has put a folder there
		unfinished += "-" + rand.Text()
		f, err = openBelow(int(up.Fd()), unfinished, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	err = r.fill(s, f)
	if err == nil && (r.now == nil || r.now.Kind != regular) {
		err = unix.Renameat2(int(up.Fd()), unfinished, int(up.Fd()), n, unix.RENAME_NOREPLACE)
	} else if err == nil {
		err = unix.Renameat(int(up.Fd()), unfinished, int(up.Fd()), n)
	}
	if err != nil {
		_ = unix.Unlinkat(int(up.Fd()), unfinished, 0)
	}
	return err
}

// fill writes what is kept into a file.
func (r *repair) fill(s *Store, f *os.File) error {
	if r.want.Object == 0 {
		if err := f.Truncate(0); err != nil {
			return err
		}
	} else if in, err := os.Open(s.object(r.want.Object)); err != nil {
		return err
	} else {
		err := f.Truncate(0)
		_, failed := clone(f, in, r.want.Size, 0)
		if err := errors.Join(err, failed, in.Close()); err != nil {
			return err
		}
	}
	if err := setMode(f, r.want.Mode); err != nil {
		return err
	}
	at := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(r.want.Mtime)}
	// Only the owner of a file may say when it was changed.
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), at, 0)
	return nil
}
