package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/monitor"
)

// ip6tOriginalDst is IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv6/ip6_tables.h; SO_ORIGINAL_DST has the same number.
const ip6tOriginalDst = 80

var (
	errUnknownAddress = &refusal{403, "unknown-address", "No declared name has this address. Names get theirs from " +
		"the resolver in the sandbox."}
	errDirect = &refusal{403, "not-redirected", "The port is for connections that the sandbox's ruleset sends " +
		"here."}
)

// serveRedirected takes a connection that the namespace's ruleset sent here: the program inside knows nothing of it.
func (p *proxy) serveRedirected(ctx context.Context, c *net.TCPConn) {
	defer c.Close()
	defer closeAtEnd(ctx, c)()
	rec := record{began: time.Now(), path: monitor.Redirect}
	to, release, err := p.destination(c)
	defer release()
	var d egress.Decision
	if err == nil {
		d = p.policy.Decide(to.host, to.port)
		if d.Verdict != egress.Allow {
			err = refuse(p.name, p.file, d, to)
		}
	}
	rec.target(d, to)
	if err == nil {
		err = p.carry(ctx, c, d, to, &rec)
	}
	ref := rec.conclude(err)
	p.journal.end(&rec)
	switch {
	case ref == nil:
	case to.port == 80:
		p.answer(c, ref.response(rec.host, false))
	default:
		reset(c)
	}
}

// carry connects and relays.
func (p *proxy) carry(ctx context.Context, c *net.TCPConn, d egress.Decision, to target, rec *record) error {
	up, err := p.connect(ctx, d, to.port, rec)
	if err != nil {
		return err
	}
	defer p.hold(ctx, c, up)()
	rec.opened(p.secrets.opened(d, to.port))
	p.journal.begin(rec)
	return p.relay(ctx, c, up, d, to.port, nil, rec)
}

// destination finds out where a redirected connection was going to. The address stays its name's until release is
// called.
func (p *proxy) destination(c *net.TCPConn) (to target, release func(), err error) {
	release = func() {}
	dst, err := originalDestination(c)
	if err != nil {
		return target{}, release, err
	}
	to = target{dst.Addr().String(), dst.Port()}
	l, ok := c.LocalAddr().(*net.TCPAddr)
	if ok && netip.AddrPortFrom(l.AddrPort().Addr().Unmap(), uint16(l.Port)) == dst {
		return to, release, errDirect // a loop to itself
	}
	if name, release, ok := p.addresses.Hold(dst.Addr()); ok {
		to.host = name
		return to, release, nil
	}
	if egress.SyntheticIPv4().Contains(dst.Addr()) || egress.SyntheticIPv6().Contains(dst.Addr()) {
		return to, release, errUnknownAddress
	}
	return to, release, nil // a declared literal, or what Decide refuses
}

// originalDestination asks the connection tracking of the connection's namespace what the redirect replaced.
func originalDestination(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	v4 := true
	if l, ok := c.LocalAddr().(*net.TCPAddr); ok {
		v4 = l.AddrPort().Addr().Unmap().Is4()
	}
	var dst netip.AddrPort
	var gerr error
	err = raw.Control(func(fd uintptr) {
		if v4 {
			var sa unix.RawSockaddrInet4
			gerr = getsockopt(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST, unsafe.Pointer(&sa), unsafe.Sizeof(sa))
			dst = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), bigEndian(sa.Port))
			return
		}
		var sa unix.RawSockaddrInet6
		gerr = getsockopt(fd, unix.SOL_IPV6, ip6tOriginalDst, unsafe.Pointer(&sa), unsafe.Sizeof(sa))
		dst = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), bigEndian(sa.Port))
	})
	if err = errors.Join(err, gerr); err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading the original destination: %w", err)
	}
	return dst, nil
}

func getsockopt(fd uintptr, level, option int, value unsafe.Pointer, size uintptr) error {
	length := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), uintptr(option),
		uintptr(value), uintptr(unsafe.Pointer(&length)), 0)
	switch {
	case errno != 0:
		return errno
	case uintptr(length) != size:
		return fmt.Errorf("%d bytes of a socket address, want %d", length, size)
	}
	return nil
}

// bigEndian reads a port that lies in memory as it goes over the wire.
func bigEndian(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}
