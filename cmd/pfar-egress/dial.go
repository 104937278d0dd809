package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

const (
	stagger      = 250 * time.Millisecond // RFC 8305 section 5, Connection Attempt Delay
	maxAddresses = 16                     // of one name that are tried
)

// dialer is the edge to the network.
type dialer struct {
	lookup func(ctx context.Context, name string) ([]netip.Addr, error) // name is fully qualified
	dial   func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)
	own    func(netip.Addr) bool // reports whether an address is this host's
}

// newDialer returns the host's network. Queries go to dns, or if it is nil, to where resolv.conf(5) says.
func newDialer(dns func(ctx context.Context, network, address string) (net.Conn, error)) dialer {
	var d net.Dialer
	// The resolver in Go, so that what is looked up does not depend on nsswitch's modules, and no cgo is needed.
	r := net.Resolver{PreferGo: true, Dial: dns}
	return dialer{
		lookup: func(ctx context.Context, name string) ([]netip.Addr, error) {
			addrs, err := r.LookupNetIP(ctx, "ip", name)
			for i := range addrs {
				addrs[i] = addrs[i].Unmap() // net represents an A record in either way
			}
			return addrs, err
		},
		dial: func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
			return d.DialTCP(ctx, "tcp", netip.AddrPort{}, to)
		},
		own: func(a netip.Addr) bool {
			// Connecting a UDP socket sends nothing and shows the source address, which is the destination itself if
			// the destination is here. Asking for all interfaces would need a netlink socket.
			c, err := d.DialUDP(context.Background(), "udp", netip.AddrPort{}, netip.AddrPortFrom(a, 9))
			if err != nil {
				return false
			}
			defer c.Close()
			local, ok := c.LocalAddr().(*net.UDPAddr)
			return ok && local.AddrPort().Addr().Unmap() == a
		},
	}
}

// connect opens the connection that d allows, to an address that has been vetted and to no other: there is no second
// lookup whose answer could differ (EG-135).
func (p *proxy) connect(ctx context.Context, d egress.Decision, port uint16, rec *record) (*net.TCPConn, error) {
	addrs := []netip.Addr{d.Addr}
	if !d.Addr.IsValid() {
		var err error
		if addrs, err = p.resolve(ctx, d.Host, rec); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.limits.dialTime)
	defer cancel()
	c, err := p.out.race(ctx, addrs, port)
	if err != nil {
		rec.err = err
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, errDialTimeout
		}
		return nil, errNotReached
	}
	if to, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		rec.address = to.AddrPort()
	}
	return c, nil
}

// resolve looks a declared name up and returns the addresses that it may lead to. Which ones it may not is for the
// log only.
func (p *proxy) resolve(ctx context.Context, name string, rec *record) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.dialTime)
	defer cancel()
	// The dot makes it fully qualified: no search domain is appended (EG-139).
	answers, err := p.out.lookup(ctx, name+".")
	if err != nil || len(answers) == 0 {
		rec.err = err
		if ctx.Err() != nil {
			return nil, errLookupTimeout
		}
		return nil, errNotResolved
	}
	var good []netip.Addr
	for _, a := range answers {
		reason, ok := egress.Vet(a)
		if ok && p.out.own(a) {
			reason, ok = "own", false
		}
		if !ok {
			rec.skipped, rec.special = a, reason
			continue
		}
		if len(good) < maxAddresses {
			good = append(good, a)
		}
	}
	if len(good) == 0 {
		return nil, errAddressRefused
	}
	return interleave(good), nil
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
// first connection (RFC 8305 section 5).
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
		case <-done: // another one was faster
			if c != nil {
				c.Close()
			}
		}
	}
	timer := time.NewTimer(stagger)
	defer timer.Stop()
	var last error
	for next, running := 0, 0; ; {
		if next < len(addrs) {
			go attempt(netip.AddrPortFrom(addrs[next], port))
			next++
			running++
			timer.Reset(stagger)
		}
	wait:
		for {
			select {
			case r := <-results:
				if r.err == nil {
					return r.c, nil
				}
				last = r.err
				if running--; running == 0 && next == len(addrs) {
					return nil, last
				}
				if next < len(addrs) {
					break wait
				}
			case <-timer.C:
				if next < len(addrs) {
					break wait
				}
			}
		}
	}
}
