package egress

import (
	"fmt"
	"net/netip"
	"strings"
)

// Ports of this host's loopback on which one-time pages of set-ups listen (package page). No declaration leads there,
// not even "127.0.0.1:*" of a server that tries what a developer runs: a model may have read the link of a page, and
// who opens that answers for the person.
const (
	FirstPagePort = 19275
	LastPagePort  = 19338
)

// IsPagePort reports whether a one-time page may listen on a port.
func IsPagePort(port uint16) bool { return port >= FirstPagePort && port <= LastPagePort }

// Reach reports whether a connection that d allows may go to addr: a literal's own address, or one of those that d's
// name has. If not, it says what addr is. Own reports whether an address is this host's: whoever declares a network
// means the other hosts in it, and what listens here trusts who comes from here. Who means this host declares
// the very address, or loopback, which is no other host's.
func (p Policy) Reach(d Decision, port uint16, addr netip.Addr, own func(netip.Addr) bool) (reason string, ok bool) {
	switch {
	case d.Verdict != Allow:
		return d.Reason, false
	case IsPagePort(port) && addr.Unmap().IsLoopback():
		return "page", false
	case d.Addr.IsValid() && addr != d.Addr:
		return "another-address", false
	case d.Addr.IsValid():
		if addr.IsLoopback() || !own(addr) || p.literally(addr, port) {
			return "", true
		}
		return "own", false
	}
	reason, ok = p.Vet(d.Host, addr)
	if ok && !p.NamedExactly(d.Host, addr) && own(addr) {
		return "own", false
	}
	return reason, ok
}

// literally reports whether an entry is addr itself, not a range that holds it.
func (p Policy) literally(addr netip.Addr, port uint16) bool {
	var exact Policy
	for _, e := range p.Endpoints {
		if e.Host == "" && e.Prefix.IsSingleIP() {
			exact.Endpoints = append(exact.Endpoints, e)
		}
	}
	return exact.Decide(addr.String(), port).Verdict == Allow
}

// Proxy is one of the host's network, through which bridges are to go (HTTPS_PROXY, HTTP_PROXY).
type Proxy struct {
	Host string // a name as the operator wrote it, or an address without brackets
	Port uint16
}

// Admit returns nil if the firewall may let a server's bridge connect to all of addrs, which it says that name has:
// where the bridge's own rule would, or to a proxy of the host's network, at that proxy's port. Where names lead is the
// bridge's word, as the firewall looks none up: but for their owner's resolver nobody else could say it better.
func (p Policy) Admit(name string, port uint16, addrs []netip.Addr, proxies []Proxy, own func(netip.Addr) bool) error {
	if len(addrs) == 0 {
		return fmt.Errorf("%s comes without an address", quote(name))
	}
	for _, proxy := range proxies {
		if proxy.Port == port && port != 0 && proxy.Host != "" && strings.EqualFold(proxy.Host, name) {
			return proxy.admit(addrs)
		}
	}
	d := p.Decide(name, port)
	if d.Verdict != Allow {
		return fmt.Errorf("%s, port %d: %s", quote(name), port, d.Reason)
	}
	for _, a := range addrs {
		if reason, ok := p.Reach(d, port, a, own); !ok {
			return fmt.Errorf("%s at %s: %s", quote(name), a, reason)
		}
	}
	return nil
}

// admit holds addrs to what a proxy can have. Its address is the operator's word, and mostly a private one; but no
// proxy is a metadata service.
func (proxy Proxy) admit(addrs []netip.Addr) error {
	literal, err := netip.ParseAddr(proxy.Host)
	for _, a := range addrs {
		reason, _ := Vet(a)
		switch {
		case err == nil && a != literal:
			return fmt.Errorf("%s is not the address of the proxy %s", a, quote(proxy.Host))
		case neverADestination(a) || a.Zone() != "" || reason == "metadata":
			return fmt.Errorf("%s is not the address of a proxy", a)
		}
	}
	return nil
}
