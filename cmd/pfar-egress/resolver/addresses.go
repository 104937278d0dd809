package resolver

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/pfar/pfar/policies/egress"
)

const (
	firstExact = 0xc6120101 // 198.18.1.1, of the first endpoint; 198.18.0.1 is the namespace's own
	lastExact  = 0xc612ffff // 198.18.255.255
	firstLease = 0xc6130001 // 198.19.0.1

	// maxLeases bounds what a server can have this process remember, and how much is in the file. With so many, those that
	// were used least recently end, evicted of them at a time: each time the file is written anew.
	maxLeases = 4096
	evicted   = 256
)

// Errors of Addresses.Of.
var (
	ErrNotDeclared = errors.New("name is not declared")
	ErrTooMany     = fmt.Errorf("%d names that no entry has by itself have open connections", maxLeases)
)

// Addresses gives each declared name a synthetic address of its own, for as long as its server runs.
type Addresses struct {
	policy egress.Policy
	places []string          // of the policy
	exact  map[string]uint32 // address of each name that an endpoint has by itself

	mu     sync.Mutex
	names  []string          // by lease, from firstLease on; "" where there is none
	uses   []use             // likewise
	moment uint64            // counts uses
	leased map[string]uint32 // address of each of names
	file   *os.File          // nil: memory only
	path   string            // of the file
	size   int64             // octets of the file: whole lines
}

// use says when a lease was last used, and by how many connections it is.
type use struct {
	last uint64
	open int
}

// NewAddresses returns the addresses of p's names. A name that an endpoint has by itself has one its place
// (egress.Policy.Places); a name under a wildcard, or any name with Policy.Learn, gets a lease at its first use. Leases
// are appended to the file leases, and read from it now; "" keeps them in memory only.
func NewAddresses(p egress.Policy, leases string) (*Addresses, error) {
	a := &Addresses{policy: p, places: p.Places(), exact: map[string]uint32{}, leased: map[string]uint32{}}
	open := p.Learn
	alone := map[string]bool{}
	for _, e := range p.Endpoints {
		open = open || e.Host != "" && e.Wildcard
		alone[e.Host] = alone[e.Host] || !e.Wildcard
	}
	for i, name := range a.places {
		if name == "" || !alone[name] {
			continue
		}
		if i > lastExact-firstExact {
			return nil, fmt.Errorf("%q is entry %d of the policy: there are addresses for %d", name, i+1, lastExact-firstExact+1)
		}
		a.exact[name] = firstExact + uint32(i)
	}
	if leases == "" || !open {
		return a, nil
	}
	if err := a.openLeases(leases); err != nil {
		return nil, err
	}
	return a, nil
}

// Close closes the file of leases. No name gets a lease after it.
func (a *Addresses) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	return a.file.Close()
}

// Of returns the addresses of a name in canonical form (egress.Decision.Host), which may be its first use. The error is
// ErrNotDeclared, ErrTooMany, or that of writing the lease: a name whose lease is not written has no address, since
// another name would have it after the next start.
func (a *Addresses) Of(name string) (v4, v6 netip.Addr, err error) {
	n, ok := a.exact[name]
	if !ok {
		a.mu.Lock()
		if n, ok = a.leased[name]; ok {
			a.used(n)
		}
		a.mu.Unlock()
	}
	if !ok {
		if n, err = a.lease(name); err != nil {
			return netip.Addr{}, netip.Addr{}, err
		}
	}
	v4, v6 = synthetic(n)
	return v4, v6, nil
}

// Name returns the name that has an address: IPv4, IPv6, or IPv4-mapped.
func (a *Addresses) Name(addr netip.Addr) (name string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nameOf(addr)
}

// nameOf is Name; the lock is held.
func (a *Addresses) nameOf(addr netip.Addr) (name string, ok bool) {
	n, ok := number(addr)
	if !ok {
		return "", false
	}
	if n >= firstExact && n <= lastExact {
		i := int(n - firstExact)
		if i >= len(a.places) || a.exact[a.places[i]] != n { // no name has this address, or none has it any longer
			return "", false
		}
		return a.places[i], true
	}
	if n < firstLease || n-firstLease >= uint32(len(a.names)) {
		return "", false
	}
	name = a.names[n-firstLease]
	return name, name != ""
}

// Hold is Name for a connection: the address stays the name's until release is called.
func (a *Addresses) Hold(addr netip.Addr) (name string, release func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name, ok = a.nameOf(addr); !ok {
		return "", func() {}, false
	}
	n, _ := number(addr)
	if n < firstLease {
		return name, func() {}, true
	}
	a.uses[n-firstLease].open++
	return name, sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.uses[n-firstLease].open--
		a.used(n)
	}), true
}

// used takes it that a lease is used now. The lock is held.
func (a *Addresses) used(n uint32) {
	a.moment++
	a.uses[n-firstLease].last = a.moment
}

func (a *Addresses) lease(name string) (uint32, error) {
	if !a.leasable(name) {
		return 0, ErrNotDeclared
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n, ok := a.leased[name]; ok { // another query was first
		return n, nil
	}
	i := len(a.names)
	if i == maxLeases {
		if err := a.makeRoom(); err != nil {
			return 0, err
		}
		i = slices.Index(a.names, "")
	}
	n := firstLease + uint32(i)
	if err := a.record(n, name); err != nil {
		return 0, err
	}
	a.keep(n, name)
	return n, nil
}

// keep takes a lease into names, which has room for it or grows. The lock is held.
func (a *Addresses) keep(n uint32, name string) {
	i := int(n - firstLease)
	for len(a.names) <= i {
		a.names, a.uses = append(a.names, ""), append(a.uses, use{})
	}
	a.names[i], a.leased[name] = name, n
	a.used(n)
}

// makeRoom leaves a gap in names. A program may still hold an address that is another name's by then: that name is
// declared as well, and the bridge wants TLS and Host to be for it.
func (a *Addresses) makeRoom() error {
	if slices.Contains(a.names, "") { // a line that the file lost has left one
		return nil
	}
	var idle []int
	for i := range a.names {
		if a.uses[i].open == 0 {
			idle = append(idle, i)
		}
	}
	if len(idle) == 0 {
		return ErrTooMany
	}
	slices.SortFunc(idle, func(i, j int) int { return cmp.Compare(a.uses[i].last, a.uses[j].last) })
	ending := idle[:min(len(idle), evicted)]
	names := slices.Clone(a.names)
	for _, i := range ending {
		names[i] = ""
	}
	if err := a.rewrite(names); err != nil {
		return err
	}
	for _, i := range ending {
		delete(a.leased, a.names[i])
	}
	a.names = names
	return nil
}

// leasable reports whether a name has its address by a lease: it is canonical, and a wildcard or Learn lets it have
// one.
func (a *Addresses) leasable(name string) bool {
	if _, ok := a.exact[name]; ok {
		return false
	}
	d := declared(a.policy, name)
	return d.Host == name && (d.Reason == egress.Declared || a.policy.Learn && d.Reason == egress.NameNotDeclared && !special(name))
}

// declared judges a name without a port. The Reason is egress.Declared, NameNotDeclared, NameBlocked or BadName.
func declared(p egress.Policy, name string) egress.Decision {
	d := p.Decide(name, 0)
	switch {
	case d.Host == "" || d.Addr.IsValid(): // an address is no name, also where an entry has it
		return egress.Decision{Reason: egress.BadName}
	case d.Reason == egress.PortNotDeclared: // no entry has port 0, so this one has the name
		d.Reason = egress.Declared
	}
	return d
}

// special reports whether a name is loopback or in the reverse tree, and so never one to be learnt.
func special(name string) bool { return loopback(name) || reverse(name) }

// loopback reports whether a canonical name means the namespace itself (RFC 6761 section 6.3).
func loopback(name string) bool { return within(name, "localhost") }

// reverse reports whether a canonical name is in the tree of addresses (RFC 1035 section 3.5, RFC 3596 section 2.5).
func reverse(name string) bool { return within(name, "in-addr.arpa") || within(name, "ip6.arpa") }

// within reports whether a name is top, or below it.
func within(name, top string) bool {
	rest, ok := strings.CutSuffix(name, top)
	return ok && (rest == "" || rest[len(rest)-1] == '.')
}

func synthetic(n uint32) (v4, v6 netip.Addr) {
	b := egress.SyntheticIPv6().Addr().As16()
	binary.BigEndian.PutUint32(b[12:], n)
	return netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom16(b)
}

// number is the inverse of synthetic.
func number(addr netip.Addr) (n uint32, ok bool) {
	zone := addr.Zone()
	addr = addr.Unmap() // drops the zone of a mapped address
	switch {
	case zone != "":
		return 0, false
	case addr.Is4():
		b := addr.As4()
		n = binary.BigEndian.Uint32(b[:])
	case addr.Is6():
		b := addr.As16()
		n = binary.BigEndian.Uint32(b[12:])
	}
	v4, v6 := synthetic(n)
	return n, addr == v4 || addr == v6
}
