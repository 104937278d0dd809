package trail

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Files are what a log writes to, opened already: W to append (O_WRONLY, O_APPEND), R to read the same file. Before
// reads the file before it; nil if there is none.
type Files struct{ W, R, Before *os.File }

// Pair is what the two descriptors of one file are that a log before this one had.
func Pair(a, b *os.File) Files {
	mode := unix.O_WRONLY
	_ = kernel{}.call(a, func(fd int) (err error) {
		mode, err = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		return err
	})
	if mode&unix.O_ACCMODE == unix.O_RDONLY {
		a, b = b, a
	}
	return Files{W: a, R: b}
}

// Close closes them.
func (f Files) Close() {
	for _, one := range []*os.File{f.W, f.R, f.Before} {
		if one != nil {
			one.Close()
		}
	}
}

// disk is the outermost edge: what the kernel does with a file.
type disk interface {
	Write([]byte) (int, error) // one write(2)
	Sync() error               // fdatasync(2)
	Size() (int64, error)
	io.ReaderAt
	io.Closer
}

// file is what a log writes to.
type file struct {
	disk
	size int64 // as written by us, and found at first
	room int64 // up to where the disk has blocks for it, as far as we know
	last int64 // how much was reserved last
}

const (
	mostRoom  = 4 << 20 // bytes ahead of a file's end: some thousand records
	leastRoom = 64 << 10
	roomShare = 1024 // one part in so many of the disk is reserved at most
)

// roomier is a disk with blocks that can be reserved ahead of a file's end.
type roomier interface {
	Blocks() (int64, error) // bytes that it has in all
	Reserve(from, bytes int64) error
}

// reserve keeps blocks ahead of the file's end, so that records are written for a while on a disk that others have
// filled. fallocate(2) has them without root on ext4, xfs, btrfs and tmpfs; on others the file has what there is.
func (f *file) reserve() {
	r, ok := f.disk.(roomier)
	if !ok || f.room-f.size > f.last/2 {
		return
	}
	all, err := r.Blocks()
	want := min(mostRoom, all/roomShare)
	for ; err == nil && want >= leastRoom; want /= 2 {
		if r.Reserve(f.size, want) == nil {
			f.room, f.last = f.size+want, want
			return
		}
	}
	f.room, f.last = f.size+leastRoom, leastRoom // again when half of that is written
}

// kernel is the disk that there is.
type kernel struct{ w, r *os.File }

func (k kernel) call(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		for inner = do(int(fd)); errors.Is(inner, unix.EINTR); inner = do(int(fd)) {
		}
	})
	return errors.Join(err, inner)
}

func (k kernel) Write(b []byte) (n int, err error) {
	err = k.call(k.w, func(fd int) (err error) {
		n, err = unix.Write(fd, b)
		n = max(n, 0)
		return err
	})
	return n, err
}

// Blocks returns how much the file system has in all.
func (k kernel) Blocks() (int64, error) {
	var s unix.Statfs_t
	err := k.call(k.w, func(fd int) error { return unix.Fstatfs(fd, &s) })
	return int64(s.Blocks) * s.Frsize, err
}

// Reserve leaves the file's size as it is, which append-only files allow as well.
func (k kernel) Reserve(from, bytes int64) error {
	return k.call(k.w, func(fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, from, bytes) })
}

func (k kernel) Sync() error { return k.call(k.w, unix.Fdatasync) }

func (k kernel) Size() (int64, error) {
	var st unix.Stat_t
	err := k.call(k.w, func(fd int) error { return unix.Fstat(fd, &st) })
	return st.Size, err
}

func (k kernel) ReadAt(b []byte, at int64) (int, error) { return k.r.ReadAt(b, at) }

func (k kernel) Close() error { return errors.Join(k.w.Close(), k.r.Close()) }

// ErrTaken is wrapped when another process writes to the file.
var ErrTaken = errors.New("another process writes to it")

// checked makes sure that what was handed over is what a log may write to, and takes the lock. It is the description's
// (flock(2)): who gets that from the writer before has the lock already.
func (f Files) checked() error {
	var w, r unix.Stat_t
	k := kernel{f.W, f.R}
	err := errors.Join(k.call(f.W, func(fd int) error { return unix.Fstat(fd, &w) }),
		k.call(f.R, func(fd int) error { return unix.Fstat(fd, &r) }))
	if err != nil {
		return err
	}
	if w.Mode&unix.S_IFMT != unix.S_IFREG || w.Ino != r.Ino || w.Dev != r.Dev {
		return errors.New("two files, or no regular one")
	}
	return k.call(f.W, func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return err
		}
		if flags&unix.O_APPEND == 0 || flags&unix.O_ACCMODE != unix.O_WRONLY {
			return fmt.Errorf("opened with flags %#x: want O_WRONLY and O_APPEND", flags)
		}
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrTaken
		}
		return err
	})
}

// same reports whether two descriptors are of one file.
func same(a, b *os.File) bool {
	x, err := a.Stat()
	y, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(x, y)
}
