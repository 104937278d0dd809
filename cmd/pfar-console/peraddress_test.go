package main

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
)

// callers is a listener to which peers connect in turn.
type callers struct {
	net.Listener
	peers []string
	ends  []net.Conn // the peers' own
}

// from is a connection from an address.
type from struct {
	net.Conn
	peer net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.peer }

func (c *callers) Accept() (net.Conn, error) {
	if len(c.peers) == 0 {
		return nil, net.ErrClosed
	}
	peer := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.peers[0]))
	ours, theirs := net.Pipe()
	c.peers, c.ends = c.peers[1:], append(c.ends, theirs)
	return from{ours, peer}, nil
}

// TestPerAddress: of one address, or of one network of IPv6, there are so many connections and no more. Another address
// has its own, and one that is closed makes room, once.
func TestPerAddress(t *testing.T) {
	for name, c := range map[string]struct{ one, same, other string }{
		"IPv4":         {"192.0.2.7:1000", "192.0.2.7:2000", "192.0.2.8:1000"},
		"IPv4 in IPv6": {"192.0.2.7:1000", "[::ffff:192.0.2.7]:2000", "[::ffff:192.0.2.8]:1000"},
		"IPv6":         {"[2001:db8::1]:1000", "[2001:db8::2:1]:1000", "[2001:db8:0:1::1]:1000"},
		"a zone":       {"[fe80::1%a]:1000", "[fe80::2%b]:1000", "[2001:db8::1]:1000"},
	} {
		t.Run(name, func(t *testing.T) {
			in := new(callers)
			l := newPerAddress(in)
			var open []net.Conn
			comes := func(peer string) (accepted bool) {
				t.Helper()
				in.peers = append(in.peers, peer)
				conn, err := l.Accept()
				if err == nil {
					open = append(open, conn)
					return true
				}
				if !errors.Is(err, net.ErrClosed) {
					t.Fatal(err)
				}
				if _, err := in.ends[len(in.ends)-1].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("a connection too many is not closed: %v", err)
				}
				return false
			}
			for n := range maxOfOne {
				if !comes(c.one) {
					t.Fatalf("connection %d is refused", n+1)
				}
			}
			if comes(c.same) || !comes(c.other) {
				t.Error("one too many is taken, or another address is refused")
			}
			open[0].Close()
			open[0].Close()
			if !comes(c.same) || comes(c.one) {
				t.Error("a closed connection does not make room for one")
			}
			for _, conn := range open {
				conn.Close()
			}
			if len(l.open) > 0 {
				t.Errorf("it remembers %v", l.open)
			}
		})
	}
}
