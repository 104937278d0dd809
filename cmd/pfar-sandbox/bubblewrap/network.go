package bubblewrap

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/firewall"
)

// Network says what Enter finds or makes.
type Network struct {
	Own      bool              // a namespace of the server's own, to be prepared; otherwise that of the unit, which is
	Literals []egress.Endpoint // declared addresses
}

// noNetwork is a Network in JSON that needs nothing.
const noNetwork = "null"

// MarshalJSON writes null for a namespace that needs nothing.
func (n Network) MarshalJSON() ([]byte, error) {
	if !n.Own {
		return []byte(noNetwork), nil
	}
	return json.Marshal(egress.Policy{Endpoints: n.Literals})
}

// prepareNetwork makes the network of the namespace that this process is in, and returns the sockets on which the
// bridge, outside, answers whatever may leave it. text is a Network in JSON.
//
// The ruleset is there before the first socket: nothing is ever open that it does not know of.
func prepareNetwork(text string) ([]*os.File, error) {
	if text == noNetwork {
		return nil, nil
	}
	var policy egress.Policy
	if err := json.Unmarshal([]byte(text), &policy); err != nil {
		return nil, fmt.Errorf("reading the declared addresses: %w", err)
	}
	ipv6, err := firewall.Loopback()
	if err != nil {
		return nil, powerless{err} // it is the first to need a capability
	}
	if err := firewall.Apply(policy.Ruleset()); err != nil {
		return nil, err
	}
	log, err := firewall.OpenLog(egress.LogGroup)
	if err != nil {
		return nil, err
	}
	sockets := []*os.File{log}
	for _, s := range loopbackSockets(ipv6) {
		fd, err := s.open()
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, os.NewFile(uintptr(fd), s.what))
	}
	return sockets, nil
}

// loopbackSocket is one socket in the namespace.
type loopbackSocket struct {
	what    string
	kind    int // SOCK_STREAM, which listens, or SOCK_DGRAM
	address unix.Sockaddr
}

func loopbackSockets(ipv6 bool) []loopbackSocket {
	v4 := func(port int) unix.Sockaddr { return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}} }
	all := []loopbackSocket{
		{"the proxy's socket", unix.SOCK_STREAM, v4(egress.ProxyPort)},
		{"the redirect's socket", unix.SOCK_STREAM, v4(egress.RedirectPort)},
		{"the resolver's socket", unix.SOCK_STREAM, v4(egress.ResolverPort)},
		{"the resolver's socket", unix.SOCK_DGRAM, v4(egress.ResolverPort)},
	}
	if ipv6 {
		v6 := &unix.SockaddrInet6{Port: egress.RedirectPort, Addr: [16]byte{15: 1}}
		all = append(all, loopbackSocket{"the redirect's socket", unix.SOCK_STREAM, v6})
	}
	return all
}

func (l loopbackSocket) open() (int, error) {
	family := unix.AF_INET
	if _, ok := l.address.(*unix.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, l.kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("opening %s: %w", l.what, err)
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return -1, fmt.Errorf("preparing %s: %w", l.what, err)
		}
	}
	if err := unix.Bind(fd, l.address); err != nil {
		return -1, fmt.Errorf("binding %s: %w", l.what, err)
	}
	if l.kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
			return -1, fmt.Errorf("listening on %s: %w", l.what, err)
		}
	}
	return fd, nil
}
