package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

const (
	stagger      = 250 * time.Millisecond // RFC 8305 section 5, Connection Attempt Delay
	maxAddresses = 16                     // of one name that are tried
)

// keepAlive shows within two minutes that the other side is gone, and every minute to the NATs between that the
// connection is not; some forget it after four.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// dialer is the edge to the network.
type dialer struct {
	lookup func(ctx context.Context, name string) ([]netip.Addr, error) // name is fully qualified
	dial   func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)
	own    func(netip.Addr) bool // reports whether an address is this host's
	// upstream is the proxy that the host's network prescribes, or nil, and dialProxy connects to it.
	upstream  *upstream
	dialProxy func(ctx context.Context, address string) (*net.TCPConn, error)
	firewall  *attachment // nil: none that has to let connections through
}

// reach connects to the first of addrs that accepts, which are name's, through the firewall.
func (d dialer) reach(ctx context.Context, name string, port uint16, addrs []netip.Addr) (*net.TCPConn, error) {
	if d.firewall == nil {
		return d.race(ctx, addrs, port)
	}
	if err := d.firewall.allow(ctx, name, port, addrs); err != nil {
		return nil, notAllowed{err}
	}
	c, err := d.race(ctx, addrs, port)
	if err != nil {
		d.firewall.forget(name, port)
	}
	return c, err
}

// reachProxy connects to the proxy of the host's network at address. Its name may be one that only a search domain of
// resolv.conf(5) makes whole.
func (d dialer) reachProxy(ctx context.Context, address string) (*net.TCPConn, error) {
	if d.firewall == nil {
		return d.dialProxy(ctx, address)
	}
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n, ok := egress.ParsePort(port)
	if !ok {
		return nil, &net.AddrError{Err: "the port must be 1 to 65535", Addr: address}
	}
	addrs, err := d.lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	return d.reach(ctx, name, n, addrs[:min(len(addrs), maxAddresses)])
}

// notAllowed is the error of a connection that the firewall does not let through.
type notAllowed struct{ error }

func (n notAllowed) Unwrap() error { return n.error }

// refusal is what the program inside is told.
func (n notAllowed) refusal() *refusal {
	if errors.Is(n, errPfardAway) || errors.Is(n, context.DeadlineExceeded) || errors.Is(n, context.Canceled) {
		return errNotAllowedYet
	}
	return errFirewall
}

// newDialer returns the host's network. Queries go to where resolv.conf(5) says.
func newDialer() dialer {
	// The resolver in Go, so that what is looked up does not depend on nsswitch's modules, and no cgo is needed.
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return observed(ctx, c), nil
	}}
	d := net.Dialer{Resolver: &r, KeepAliveConfig: keepAlive} // TCP_NODELAY is net's default
	dial := func(ctx context.Context, address string) (*net.TCPConn, error) {
		// DialTCP would bind before it connects, and so use up a local port for all destinations.
		c, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	return dialer{
		lookup: func(ctx context.Context, name string) ([]netip.Addr, error) {
			addrs, err := r.LookupNetIP(ctx, "ip", name)
			for i := range addrs {
				addrs[i] = addrs[i].Unmap() // net represents an A record in either way
			}
			return addrs, err
		},
		dial:      func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) { return dial(ctx, to.String()) },
		own:       ownAddress,
		dialProxy: dial,
	}
}

// ownAddress reports whether a is this host's, also if that cannot be found out. Connecting a UDP socket sends nothing
// and shows the source address, which is the destination itself if the destination is here. Asking for all interfaces
// would need a netlink socket, and package net would have its poller look after a socket that lives for microseconds.
func ownAddress(a netip.Addr) bool {
	const discard = 9 // the port does not matter
	a = a.Unmap()
	family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: discard, Addr: a.As16()})
	if a.Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: discard, Addr: a.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return !errors.Is(err, unix.EAFNOSUPPORT)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, to); err != nil {
		// What has no route here is not here, and TCP has none either. Any other error is a want of memory, which may
		// be over when TCP asks.
		for _, e := range [...]unix.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.EACCES, unix.EPERM} {
			if errors.Is(err, e) {
				return false
			}
		}
		return true
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return true
	}
	switch l := local.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(l.Addr) == a
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(l.Addr).Unmap() == a.WithZone("")
	}
	return true
}

// interleave alternates between the families, beginning with the one that the resolver put first (RFC 8305 section 4).
func interleave(addrs []netip.Addr) []netip.Addr {
	var first, second []netip.Addr
	for _, a := range addrs {
		if a.Is4() == addrs[0].Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	mixed := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(first), len(second)) {
		if i < len(first) {
			mixed = append(mixed, first[i])
		}
		if i < len(second) {
			mixed = append(mixed, second[i])
		}
	}
	return mixed
}

// race tries the addresses in order, each a moment after the one before or as soon as that failed, and returns the
// first connection (RFC 8305 section 5). When it returns, every other attempt is cancelled, and what comes of it
// closed.
func (d dialer) race(ctx context.Context, addrs []netip.Addr, port uint16) (*net.TCPConn, error) {
	type result struct {
		c   *net.TCPConn
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results, done := make(chan result), make(chan struct{})
	defer close(done)
	attempt := func(to netip.AddrPort) {
		c, err := d.dial(ctx, to)
		select {
		case results <- result{c, err}:
		case <-done: // another one was faster, or ctx has ended
			if c != nil {
				c.Close()
			}
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	next, running := 0, 0
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case r := <-results:
			if r.err == nil {
				return r.c, nil
			}
			if running--; running == 0 && next == len(addrs) {
				return nil, r.err
			}
			timer.Reset(0)
		case <-timer.C:
			if next < len(addrs) {
				go attempt(netip.AddrPortFrom(addrs[next], port))
				next++
				running++
				timer.Reset(stagger)
			}
		}
	}
}
