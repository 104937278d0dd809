package keep

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is what belongs to one server process.
type Process struct {
	Launcher *net.UnixConn
	Stdin    *os.File // write end
	Stdout   *os.File // read end
	Memory   *Memory
}

// Take takes over what was stored of one process, and the files with it. They are told apart by what they are: systemd
// keeps no order. It is an error if something is missing, or if the launcher or the server's end of stdin is gone.
func Take(files []*os.File) (p Process, err error) {
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	for _, f := range files {
		if terr := p.take(f); err == nil {
			err = terr
		}
	}
	switch {
	case err != nil:
		return p, err
	case p.Launcher == nil || p.Stdin == nil || p.Stdout == nil || p.Memory == nil:
		return p, fmt.Errorf("of the %d descriptors of a process some are missing", len(files))
	}
	return p, p.check()
}

// Only takes over memory that is stored alone.
func Only(files []*os.File) (*Memory, error) {
	var p Process
	for _, f := range files {
		if err := p.take(f); err != nil {
			p.Close()
			return nil, err
		}
	}
	if p.Launcher != nil || p.Stdin != nil || p.Stdout != nil {
		p.Close()
		return nil, errors.New("taking memory over: there is more than that")
	}
	return p.Memory, nil
}

// take finds the place for one descriptor, and closes it here.
func (p *Process) take(f *os.File) error {
	fd, err := pollable(f)
	if err != nil {
		return fmt.Errorf("taking a descriptor over: %w", err)
	}
	file := os.NewFile(uintptr(fd), f.Name())
	if _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil && p.Launcher == nil {
		defer file.Close()
		c, err := net.FileConn(file)
		if err != nil {
			return fmt.Errorf("taking a launcher's connection over: %w", err)
		}
		u, ok := c.(*net.UnixConn)
		if !ok {
			c.Close()
			return fmt.Errorf("taking a launcher's connection over: it is of %s", c.LocalAddr().Network())
		}
		p.Launcher = u
		return nil
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		switch mode := flags & unix.O_ACCMODE; {
		case err == nil && mode == unix.O_WRONLY && p.Stdin == nil:
			p.Stdin = file
			return nil
		case err == nil && mode == unix.O_RDONLY && p.Stdout == nil:
			p.Stdout = file
			return nil
		}
	} else if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err == nil && p.Memory == nil {
		p.Memory, err = open(file)
		return err
	}
	file.Close()
	return errors.New("taking a descriptor over: it is of a kind that is not stored, or one of its kind too many")
}

// pollable returns a copy of a descriptor that the runtime can wait on, and closes the file: whoever passed it may have
// made it a blocking one.
func pollable(f *os.File) (int, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// check looks whether the other ends are there. What the server has said last may still be in stdout.
func (p *Process) check() error {
	for _, end := range []struct {
		what string
		conn syscall.Conn
		gone int16
	}{{"the launcher", p.Launcher, unix.POLLHUP}, {"the server's end of stdin", p.Stdin, unix.POLLERR}} {
		raw, err := end.conn.SyscallConn()
		if err != nil {
			return err
		}
		var events int16
		if err := raw.Control(func(fd uintptr) {
			state := []unix.PollFd{{Fd: int32(fd)}}
			if _, err := unix.Poll(state, 0); err == nil {
				events = state[0].Revents
			}
		}); err != nil {
			return err
		}
		if events&end.gone != 0 {
			return fmt.Errorf("%s is gone", end.what)
		}
	}
	return nil
}

// Close gives all of it up, as far as it is there.
func (p *Process) Close() {
	if p.Launcher != nil {
		p.Launcher.Close()
	}
	for _, f := range []*os.File{p.Stdin, p.Stdout} {
		if f != nil {
			f.Close()
		}
	}
	if p.Memory != nil {
		p.Memory.Close()
	}
}
