package main

import (
	"net"
	"net/netip"
	"sync"
)

// maxOfOne is how many connections from one address there are at once.
const maxOfOne = 32

// perAddress is a listener that closes further connections from an address which has maxOfOne. Other addresses keep
// their room.
type perAddress struct {
	net.Listener
	mu   sync.Mutex
	open map[netip.Prefix]int
}

func newPerAddress(l net.Listener) *perAddress {
	return &perAddress{Listener: l, open: map[netip.Prefix]int{}}
}

func (l *perAddress) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := origin(c.RemoteAddr())
		if l.enter(from) {
			return &guest{Conn: c, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		c.Close()
	}
}

// enter counts a connection, if there is room for it.
func (l *perAddress) enter(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] >= maxOfOne {
		return false
	}
	l.open[from]++
	return true
}

func (l *perAddress) leave(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// guest is a connection that makes room when it is closed.
type guest struct {
	net.Conn
	leave func()
}

func (c *guest) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// origin is the address of a peer. Of IPv6 it is the network: a machine there has 2^64 addresses.
func origin(peer net.Addr) netip.Prefix {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address, bits := tcp.AddrPort().Addr().Unmap().WithZone(""), 64
	if address.Is4() {
		bits = 32
	}
	p, _ := address.Prefix(bits) // an address has so many
	return p
}
