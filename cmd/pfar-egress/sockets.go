package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// passedSockets sorts what LISTEN_FDS brought. The sockets of the namespace all have one name, as those of one socket
// unit do, and are told apart by their addresses.
func passedSockets() (sockets, error) {
	files, err := units.Descriptors()
	if err != nil {
		return sockets{}, err
	}
	defer func() {
		for _, named := range files {
			for _, f := range named {
				f.Close() // there are copies of all of them
			}
		}
	}()
	var all sockets
	for _, f := range files[units.FDEgress] {
		if err := all.add(f); err != nil {
			return sockets{}, err
		}
	}
	for _, f := range files[units.FDMonitor] {
		l, err := net.FileListener(f)
		if err != nil {
			return sockets{}, fmt.Errorf("taking the descriptor %q: %w", units.FDMonitor, err)
		}
		u, ok := l.(*net.UnixListener)
		if !ok {
			l.Close()
			return sockets{}, fmt.Errorf("taking the descriptor %q: it is %s, not unix", units.FDMonitor, l.Addr().Network())
		}
		u.SetUnlinkOnClose(false) // it outlives this process
		all.monitor = append(all.monitor, u)
	}
	if f := files[units.FDPfard]; len(f) == 1 {
		if all.pfard, err = attach.FromFile(f[0]); err != nil {
			return sockets{}, fmt.Errorf("taking the descriptor %q: %w", units.FDPfard, err)
		}
	}
	return all, nil
}

var errOddSocket = errors.New("not a listener of TCP, a socket of UDP, or one of netfilter's log")

// take adds the sockets of the namespace that pfard has sent, and closes the files.
func (s *sockets) take(files []*os.File) error {
	defer attach.CloseAll(files)
	for _, f := range files {
		if err := s.add(f); err != nil {
			return err
		}
	}
	return nil
}

// add takes TCP, UDP and netlink only: over a Unix socket a server could pass descriptors to this process.
func (s *sockets) add(f *os.File) error {
	fd := int(f.Fd())
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("taking the descriptor %q: %w", units.FDEgress, err)
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return fmt.Errorf("taking the descriptor %q: %w", units.FDEgress, err)
	}
	ip := domain == unix.AF_INET || domain == unix.AF_INET6
	switch {
	case ip && kind == unix.SOCK_STREAM:
		return s.addListener(f)
	case ip && kind == unix.SOCK_DGRAM:
		c, err := net.FilePacketConn(f)
		if err != nil {
			return fmt.Errorf("taking the resolver's socket: %w", err)
		}
		u, ok := c.(*net.UDPConn)
		if !ok {
			c.Close()
			return fmt.Errorf("taking the descriptor %q: %w", units.FDEgress, errOddSocket)
		}
		s.datagrams = append(s.datagrams, u)
		return nil
	case domain == unix.AF_NETLINK:
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			err = unix.SetNonblock(copied, true)
		}
		if err != nil {
			return fmt.Errorf("taking the socket of netfilter's log: %w", err)
		}
		s.rejected = append(s.rejected, os.NewFile(uintptr(copied), "nflog"))
		return nil
	}
	return fmt.Errorf("taking the descriptor %q: %w", units.FDEgress, errOddSocket)
}

func (s *sockets) addListener(f *os.File) error {
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("taking a listener of the namespace: %w", err)
	}
	t, ok := l.(*net.TCPListener)
	if !ok {
		l.Close()
		return fmt.Errorf("taking the descriptor %q: %w", units.FDEgress, errOddSocket)
	}
	a, _ := t.Addr().(*net.TCPAddr)
	switch a.Port {
	case egress.RedirectPort:
		s.redirect = append(s.redirect, t)
	case egress.ResolverPort:
		s.names = append(s.names, t)
	default:
		s.proxy = append(s.proxy, t)
	}
	return nil
}
