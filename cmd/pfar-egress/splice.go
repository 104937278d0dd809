package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	spliceSize = 256 << 10 // bytes that one splice(2) moves at most, and the pipe's capacity where the user may have it
	sparePipes = 16        // that are kept for the next transfer
)

// splicer moves bytes between TCP connections by splice(2): they stay in the kernel. A pipe is held only while bytes
// are under way; io.Copy between two connections holds one for as long as the copy lasts, which of a thousand resting
// connections are two thousand, all charged to the user (pipe(7), pipe-user-pages-soft).
type splicer struct{ spare chan *pipe }

type pipe struct{ r, w int }

func newSplicer() *splicer { return &splicer{spare: make(chan *pipe, sparePipes)} }

func (s *splicer) take() (*pipe, error) {
	select {
	case p := <-s.spare:
		return p, nil
	default:
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, spliceSize) // without it, it is only slower
	return &pipe{fds[0], fds[1]}, nil
}

func (s *splicer) give(p *pipe) {
	select {
	case s.spare <- p:
	default:
		p.close()
	}
}

func (p *pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

// copy moves what src receives to dst until src ends, and adds to count as it goes.
func (s *splicer) copy(dst, src *net.TCPConn, count *atomic.Int64) error {
	in, err := src.SyscallConn()
	if err != nil {
		return err
	}
	out, err := dst.SyscallConn()
	if err != nil {
		return err
	}
	stray := make([]byte, 512)
	for {
		p, n, err := s.fill(in, stray)
		switch {
		case err != nil || n == 0:
			return err
		case p == nil:
			m, err := dst.Write(stray[:n])
			if count.Add(int64(m)); err != nil {
				return err
			}
		default:
			if err := drain(out, p, n, count); err != nil {
				p.close() // what is left in it is nobody's any more
				return err
			}
			s.give(p)
		}
	}
}

// fill waits until there is something to move. It is then in a pipe, or in stray if there is none; n is 0 at the end.
//
// At the mark of urgent data splice(2) says that src has ended, or that there is nothing, whatever follows the mark.
// recv(2) passes over it, and only its word counts.
func (s *splicer) fill(in interface {
	Read(func(uintptr) bool) error
}, stray []byte) (p *pipe, n int64, err error) {
	var serr error
	err = in.Read(func(fd uintptr) bool {
		if p, serr = s.take(); serr != nil {
			return true
		}
		n, serr = splice(int(fd), p.w, spliceSize)
		if serr == nil && n > 0 {
			return true
		}
		s.give(p) // it is empty; the wait may be long
		p = nil
		if serr != nil && !errors.Is(serr, unix.EAGAIN) {
			return true
		}
		var m int
		m, serr = receive(int(fd), stray)
		n = int64(m)
		return !errors.Is(serr, unix.EAGAIN)
	})
	if err = errors.Join(err, serr); err != nil {
		if p != nil {
			s.give(p)
		}
		return nil, 0, err
	}
	return p, n, nil
}

func receive(fd int, b []byte) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// drain moves the n bytes that p holds.
func drain(out interface {
	Write(func(uintptr) bool) error
}, p *pipe, n int64, count *atomic.Int64) error {
	for n > 0 {
		var m int64
		var serr error
		err := out.Write(func(fd uintptr) bool {
			m, serr = splice(p.r, int(fd), int(n))
			return !errors.Is(serr, unix.EAGAIN)
		})
		if err = errors.Join(err, serr); err != nil {
			return err
		}
		if m == 0 {
			return io.ErrUnexpectedEOF
		}
		n -= m
		count.Add(m)
	}
	return nil
}

func splice(from, to, size int) (int64, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, size, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return n, err
		}
	}
}
