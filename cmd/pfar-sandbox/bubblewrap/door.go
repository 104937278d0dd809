package bubblewrap

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/sandbox"
)

// ErrDoor is temporary: the server behind a socket or FIFO of the host is not there, or is another one.
var ErrDoor = errors.New("the server is not reached")

// Doors returns why a server cannot be reached that runs on the host without pfar, nil if it can.
func Doors(mounts []sandbox.Mount) error {
	for _, m := range mounts {
		if m.Door == nil {
			continue
		}
		f, err := openSource(m)
		if err != nil {
			return err
		}
		err = listens(f, m)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// openSource opens the source of a bind, without following any link (a server may have planted one since the plan was
// made; bwrap compares device and inode after the mount). The source is a file or folder, or the one socket or FIFO
// that the declaration names: whoever may write to its folder may have put another one there.
func openSource(m sandbox.Mount) (*os.File, error) {
	f, err := units.OpenNoLinks(m.Source)
	if err == nil {
		if err = judge(f, m); err == nil {
			return f, nil
		}
		f.Close()
	}
	if m.Door != nil {
		err = fmt.Errorf("%w: %w", ErrDoor, err)
	}
	return nil, err
}

func judge(f *os.File, m sandbox.Mount) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("looking at %q: %w", m.Source, err)
	}
	kind := st.Mode & unix.S_IFMT
	if m.Door == nil {
		if kind != unix.S_IFDIR && kind != unix.S_IFREG {
			return fmt.Errorf("showing %q: it is neither a file nor a directory: a socket or a device leads out of the sandbox",
				m.Source)
		}
		return nil
	}
	want, what := uint32(unix.S_IFSOCK), "socket"
	if m.Door.FIFO {
		want, what = unix.S_IFIFO, "FIFO"
	}
	switch {
	case kind != want:
		return fmt.Errorf("%q is not a %s", m.Source, what)
	case !slices.Contains(m.Door.Owners, st.Uid):
		return fmt.Errorf("%q belongs to user %d; the server's own user is to be named by owner in its declaration", m.Source,
			st.Uid)
	}
	return nil
}

// listens asks who listens at a socket. The answer holds for as long as the socket is bound into the sandbox: another
// server at the same path has another socket.
func listens(f *os.File, m sandbox.Mount) error {
	if m.Door.FIFO {
		return mayUse(f, m)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDoor, err)
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d", f.Fd())})
	switch {
	case errors.Is(err, unix.EACCES):
		return mayUse(f, m)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: nobody listens at %q", ErrDoor, m.Source)
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("%w: too many connections wait at %q", ErrDoor, m.Source)
	case err != nil:
		return fmt.Errorf("%w: connecting to %q: %w", ErrDoor, m.Source, err)
	}
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	switch {
	case err != nil:
		return fmt.Errorf("%w: asking who listens at %q: %w", ErrDoor, m.Source, err)
	case !slices.Contains(m.Door.Owners, peer.Uid):
		return fmt.Errorf("%w: user %d listens at %q; the server's own user is to be named by owner in its declaration",
			ErrDoor, peer.Uid, m.Source)
	}
	return nil
}

// mayUse reports a socket or FIFO that does not let this user in, who is the server's on the host.
func mayUse(f *os.File, m sandbox.Mount) error {
	const rights = unix.R_OK | unix.W_OK
	if unix.Faccessat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), rights, unix.AT_EACCESS) == nil {
		return nil
	}
	return fmt.Errorf("%w: %q does not let user %d in, who this server runs as here. Have its server make it with "+
		"mode 0666 in a directory that nobody else may enter, or, after each of its starts: setfacl -m u:%d:rw %s",
		ErrDoor, m.Source, os.Geteuid(), os.Geteuid(), m.Source)
}
