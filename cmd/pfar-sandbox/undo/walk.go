package undo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
)

// tree is one opened folder.
type tree struct {
	Folder
	at *os.File // O_PATH
}

func openTree(f Folder) (*tree, error) {
	at, err := units.OpenNoLinks(f.Source)
	if err != nil {
		return nil, err
	}
	return &tree{f, at}, nil
}

// beneath are the rules by which everything in a folder is opened.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS

// openBelow opens a path below an opened folder. It never blocks, and follows no link.
func openBelow(at int, below string, flags int, mode uint32) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Mode: uint64(mode), Resolve: beneath}
	if flags&(unix.O_PATH|unix.O_DIRECTORY) == 0 {
		how.Flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	const most = 2048 // bytes at once: a path may be longer than the kernel takes
	closing := -1
	defer func() {
		if closing >= 0 {
			unix.Close(closing)
		}
	}()
	for len(below) > most {
		cut := strings.LastIndexByte(below[:most], '/')
		if cut <= 0 {
			return nil, unix.ENAMETOOLONG
		}
		way := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath}
		next, err := openat2(at, below[:cut], &way)
		if err != nil {
			return nil, err
		}
		if closing >= 0 {
			unix.Close(closing)
		}
		at, closing, below = next, next, below[cut+1:]
	}
	fd, err := openat2(at, below, &how)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), below), nil
}

// openat2 asks again as long as the kernel says that something was renamed on the way (EAGAIN), a few times.
func openat2(at int, below string, how *unix.OpenHow) (fd int, err error) {
	for range 16 {
		fd, err = unix.Openat2(at, below, how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
	return fd, err
}

// found is a file that was seen.
type found struct {
	path   string // of the folder and below
	below  string // the folder; "." is the folder itself
	in     *tree
	entry  entry
	locked bool // neither the launcher nor the server, which is the same user, can read or change it
}

// walk is one look at all folders.
type walk struct {
	limits  Limits
	found   []found
	folders []int // of found: those that were listed
	bytes   int64
}

const statMask = unix.STATX_BASIC_STATS

// stat looks at a name in a folder, or with "" at what is opened.
func stat(at int, below string) (unix.Statx_t, entry, error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if below == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(at, below, flags, statMask, &st); err != nil {
		return st, entry{}, err
	}
	e := entry{
		Kind: kindOf(st.Mode), Mode: uint32(st.Mode) & 0o777, Mtime: nanoseconds(st.Mtime), Ctime: nanoseconds(st.Ctime),
		Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino,
	}
	if e.Kind == regular {
		e.Size = int64(min(st.Size, 1<<62))
	}
	return st, e, nil
}

func nanoseconds(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }

// look lists everything in a folder, and opens no file.
func (w *walk) look(t *tree) error {
	_, e, err := stat(int(t.at.Fd()), "")
	if err != nil {
		return fmt.Errorf("looking at %q: %w", t.Path, err)
	}
	if err := w.add(found{path: t.Path, below: ".", in: t, entry: e}); err != nil {
		return err
	}
	if e.Kind != directory {
		return nil
	}
	dir, err := openBelow(int(t.at.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("reading %q: %w", t.Path, err)
	}
	return w.list(t, dir, len(w.found)-1, 1)
}

// add takes a file as seen, within the limits.
func (w *walk) add(f found) error {
	if len(w.found) >= w.limits.Files {
		return fmt.Errorf("the server's directories have more than %d files", w.limits.Files)
	}
	w.found = append(w.found, f)
	if !f.locked {
		w.bytes += f.entry.Size
	}
	if f.entry.Size > w.limits.Bytes || w.bytes > w.limits.Bytes {
		return fmt.Errorf("the server's directories have more than %d MiB (undo_size)", w.limits.Bytes>>20)
	}
	return nil
}

// list adds what is in a folder, which it closes. me is its place in found.
func (w *walk) list(t *tree, dir *os.File, me, depth int) error {
	defer dir.Close()
	up := w.found[me]
	if depth > maxDepth {
		return fmt.Errorf("%q has more than %d directories in each other", t.Path, maxDepth)
	}
	_, is, err := stat(int(dir.Fd()), "")
	if err != nil {
		return fmt.Errorf("looking at %q: %w", up.path, err)
	}
	if is.Ino != up.entry.Ino || is.Dev != up.entry.Dev {
		return moved(up.path)
	}
	w.found[me].entry = is // from before it is read
	w.folders = append(w.folders, me)
	const some = 512
	for {
		names, err := dir.Readdirnames(some)
		for _, n := range names {
			if err := w.one(t, dir, up, n, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || err == nil && len(names) < some {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %q: %w", up.path, err)
		}
	}
}

// one adds a name in a folder.
func (w *walk) one(t *tree, dir *os.File, up found, n string, depth int) error {
	f := found{path: up.path + "/" + n, below: path.Join(up.below, n), in: t}
	st, e, err := stat(int(dir.Fd()), n)
	if errors.Is(err, unix.ENOENT) {
		return moved(f.path)
	}
	if err != nil {
		return fmt.Errorf("looking at %q: %w", f.path, err)
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return fmt.Errorf("something is mounted at %q", f.path)
	}
	f.entry = e
	switch e.Kind {
	case link:
		b := make([]byte, unix.PathMax)
		size, err := unix.Readlinkat(int(dir.Fd()), n, b)
		if err != nil {
			return moved(f.path)
		}
		f.entry.Target = name(b[:size])
	case regular:
		f.locked = locked(dir, n, st, unix.R_OK, unix.W_OK)
	case directory:
		sub, err := openBelow(int(dir.Fd()), n, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		switch {
		case errors.Is(err, unix.EACCES) && locked(dir, n, st, unix.R_OK, unix.X_OK):
			f.locked = true
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
			return moved(f.path)
		case err != nil:
			return fmt.Errorf("reading %q: %w", f.path, err)
		default:
			if err := w.add(f); err != nil {
				sub.Close()
				return err
			}
			return w.list(t, sub, len(w.found)-1, depth+1)
		}
	}
	return w.add(f)
}

// locked reports whether the server can neither change a file, or what is in a folder, nor take its place. The server
// is the user that asks: the kernel answers for both. What cannot be read, and is not locked, cannot be kept.
func locked(dir *os.File, n string, st unix.Statx_t, read, write uint32) bool {
	may := func(at int, below string, mode uint32) bool {
		return unix.Faccessat2(at, below, mode, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW) == nil
	}
	mine := uint32(os.Geteuid())
	if st.Uid == mine || may(int(dir.Fd()), n, read) { // the owner may change the mode
		return false
	}
	var up unix.Stat_t
	if unix.Fstat(int(dir.Fd()), &up) != nil || up.Uid == mine {
		return false
	}
	return !may(int(dir.Fd()), n, write) && unix.Faccessat2(int(dir.Fd()), ".", unix.W_OK, unix.AT_EACCESS) != nil
}

// still reports whether no folder has got or lost a name since it was listed: else a file that was moved meanwhile
// would seem to be gone.
func (w *walk) still() error {
	for _, i := range w.folders {
		f := w.found[i]
		at, err := openBelow(int(f.in.at.Fd()), f.below, unix.O_PATH, 0)
		if err != nil {
			return moved(f.path)
		}
		_, now, err := stat(int(at.Fd()), "")
		at.Close()
		if err != nil || now.Ctime != f.entry.Ctime || now.Ino != f.entry.Ino || now.Dev != f.entry.Dev {
			return moved(f.path)
		}
	}
	return nil
}
