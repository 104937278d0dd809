package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// condemned begins the names of directories that are being deleted; a server's name has no dot.
const condemned = ".removed-"

// condemn renames a directory, so that nobody finds it half deleted, and returns its new name; "": it is not there.
func condemn(dir, name string) (string, error) {
	to := condemned + name + "." + rand.Text()
	err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, to))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return to, err
}

// condemnedOf are the directories of a server that were condemned and not yet deleted.
func condemnedOf(dir, server string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if ofCondemned(e.Name()) == server {
			names = append(names, e.Name())
		}
	}
	return names
}

// ofCondemned is the server whose directory has been condemned under a name; "": none.
func ofCondemned(name string) string {
	rest, ok := strings.CutPrefix(name, condemned)
	server, _, dot := strings.Cut(rest, ".")
	if !ok || !dot {
		return ""
	}
	return server
}

// removal deletes one directory whose content a server has chosen. It follows no link and enters no mount. It moves
// each directory to the top before it empties it, so that depth costs neither descriptors nor stack.
type removal struct {
	top   *os.File
	moved int
}

// removeTree deletes the directory name in dir, with all that is in it. What is mounted there stays, and is the error.
func removeTree(dir, name string) error {
	above, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer above.Close()
	top, err := openBelow(above, name)
	if err != nil {
		return err
	}
	defer top.Close()
	r := &removal{top: top}
	if err := r.empty(top); err != nil {
		return fmt.Errorf("deleting %q: %w", filepath.Join(dir, name), err)
	}
	if err := unix.Unlinkat(int(above.Fd()), name, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("deleting %q: %w", filepath.Join(dir, name), err)
	}
	return above.Sync()
}

// openBelow opens a directory that is an entry of another one, and neither a link nor a mount. Whoever owns it may read
// and change it from then on.
func openBelow(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", name, err)
	}
	at := os.NewFile(uintptr(fd), name)
	defer at.Close()
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st); err != nil {
		return nil, fmt.Errorf("looking at %q: %w", name, err)
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return nil, fmt.Errorf("something is mounted on %q: umount it first", name)
	}
	self := "/proc/self/fd/" + strconv.Itoa(fd) // the directory itself, by whatever name
	if err := os.Chmod(self, 0o700); err != nil {
		return nil, fmt.Errorf("opening %q: %w", name, errors.Unwrap(err))
	}
	fd, err = unix.Open(self, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// batch is how many names are read at once.
const batch = 1024

// empty deletes all that is in a directory: of the top, whatever is moved there meanwhile too.
func (r *removal) empty(dir *os.File) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := dir.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := r.delete(dir, name); err != nil {
				return err
			}
		}
	}
}

// delete deletes one entry. Of a directory within a directory it moves it to the top, for later.
func (r *removal) delete(dir *os.File, name string) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) { // of a directory, EPERM by POSIX
		return fmt.Errorf("deleting %q: %w", name, err)
	}
	sub, err := openBelow(dir, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	if dir != r.top {
		r.moved++
		to := condemned + strconv.Itoa(r.moved) + "." + rand.Text()
		if err := unix.Renameat(int(dir.Fd()), name, int(r.top.Fd()), to); err != nil {
			return fmt.Errorf("moving %q: %w", name, err)
		}
		return nil
	}
	if err := r.empty(sub); err != nil {
		return err
	}
	if err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("deleting %q: %w", name, err)
	}
	return nil
}

// treeSize returns how much of the disk a directory takes and how many files are in it. whole is false if it could not
// see all of it. It follows no links and stays on one file system.
func treeSize(dir string) (bytes int64, files int, whole bool) {
	var device uint64
	whole = true
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			whole = false
			return nil
		case path == dir:
			device = st.Dev
		case st.Dev != device:
			whole = false
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				return fs.SkipDir
			}
			return nil
		}
		const block = 512 // stat(2)
		bytes += st.Blocks * block
		if path != dir {
			files++
		}
		return nil
	})
	return bytes, files, whole
}
