// Package resolver answers DNS queries from inside a server's network namespace: messages in, synthetic addresses of
// declared names or immediate refusals out.
package resolver

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/pfar/pfar/policies/egress"
)

// Reasons of a Question beside those of an egress.Decision. They are stable, as those are.
const (
	Loopback     = "loopback"            // localhost or a name below it
	BadQuery     = "bad-query"           // no message that asks one question
	NotSupported = "query-not-supported" // an operation, class or version of EDNS that a stub resolver has no use for
	TooManyNames = "too-many-names"      // no address is left for a name under a wildcard
	NoLease      = "lease-not-written"   // Question.Err says why
)

// TTLs, in seconds.
const (
	ttl        = 60
	refusedTTL = 1 // the owner may declare the name at any moment
)

// Question is what was asked and what came of it. The zero value is no question at all.
type Question struct {
	Name    string // canonical without a trailing dot; escaped and shortened if it has no canonical form; "" if there is none
	Type    string // "A", "HTTPS", "TYPE4711"; "" if there is none
	Refused bool
	Learned bool   // answered although it is not declared (Policy.Learn)
	Reason  string // an egress.Decision's, or one of the constants above
	Err     error  // of NoLease
}

// Resolver answers by itself: it has no upstream to which a query could go.
type Resolver struct {
	policy    egress.Policy
	addresses *Addresses
	ipv6      bool
}

// New returns a resolver for the names of p. Without ipv6 no name has an IPv6 address.
func New(p egress.Policy, a *Addresses, ipv6 bool) *Resolver {
	return &Resolver{policy: p, addresses: a, ipv6: ipv6}
}

// Answer returns the response to a message, both without the length that TCP puts in front. A nil response means: send
// nothing. It is safe for concurrent use.
func (r *Resolver) Answer(message []byte, tcp bool) (response []byte, asked Question) {
	if len(message) < headerSize || message[2]&0x80 != 0 { // answering responses makes loops
		return nil, Question{}
	}
	var q query
	err := q.read(message)
	a := newAnswer(&q)
	if err != nil {
		a.refuse(dns.RcodeFormatError, BadQuery)
	} else if !a.unsupported() {
		r.resolve(a)
	}
	return a.pack(maxSize(q.opt, tcp)), a.asked
}

func (r *Resolver) resolve(a *answer) {
	// In the escaped form, what no host name holds stands behind a backslash, which none holds either: a dot within a
	// label ends no label. The dot at the end is left on the name: with it, hardly anything is an address.
	d := declared(r.policy, a.question.Name)
	if d.Host != "" {
		a.asked.Name = d.Host
	}
	switch {
	case d.Reason == egress.BadName:
		a.prohibit(d.Reason, "pfar: "+a.asked.Name+" is not a host name")
	case loopback(d.Host):
		a.asked.Reason = Loopback
		a.addresses(netip.AddrFrom4([4]byte{127, 0, 0, 1}), r.only6(netip.IPv6Loopback()))
	case d.Reason == egress.Declared:
		a.asked.Reason = d.Reason
		r.name(a, d.Host)
	case reverse(d.Host):
		r.reverse(a, d)
	case d.Reason == egress.NameBlocked:
		a.prohibit(d.Reason, "pfar: "+d.Host+" is in blocked_domains")
	case r.policy.Learn:
		a.asked.Reason, a.asked.Learned = d.Reason, true
		r.name(a, d.Host)
	default:
		a.prohibit(d.Reason, "pfar: "+d.Host+" is not in allowed_domains")
	}
}

// name answers with the addresses of a name, and gives it some only when it is asked for them.
func (r *Resolver) name(a *answer, name string) {
	if t := a.question.Qtype; t != dns.TypeA && t != dns.TypeAAAA || t == dns.TypeAAAA && !r.ipv6 {
		a.addresses(netip.Addr{}, netip.Addr{})
		return
	}
	v4, v6, err := r.addresses.Of(name)
	switch {
	case err == nil:
		a.addresses(v4, v6)
	case errors.Is(err, ErrTooMany):
		a.exhaust(TooManyNames, nil)
	default:
		a.exhaust(NoLease, err)
	}
}

// reverse answers with the name of a synthetic address. To know other addresses' names would be a lookup.
func (r *Resolver) reverse(a *answer, d egress.Decision) {
	if addr, ok := parseReverse(d.Host); ok {
		if name, ok := r.addresses.Name(addr); ok {
			a.asked.Reason = egress.Declared
			a.pointer(name)
			return
		}
	}
	a.prohibit(d.Reason, "pfar: "+d.Host+" is not in allowed_domains")
}

func (r *Resolver) only6(addr netip.Addr) netip.Addr {
	if !r.ipv6 {
		return netip.Addr{}
	}
	return addr
}

// parseReverse reads a canonical name of the reverse tree that stands for one address.
func parseReverse(name string) (netip.Addr, bool) {
	if labels, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		parts := strings.Split(labels, ".")
		if len(parts) != 4 {
			return netip.Addr{}, false
		}
		addr, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
		return addr, err == nil
	}
	labels, ok := strings.CutSuffix(name, ".ip6.arpa")
	if !ok || len(labels) != 63 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i := range 32 {
		n := strings.IndexByte("0123456789abcdef", labels[62-2*i])
		if n < 0 || i > 0 && labels[63-2*i] != '.' {
			return netip.Addr{}, false
		}
		b[i/2] |= byte(n << (4 * (1 - i%2)))
	}
	return netip.AddrFrom16(b), true
}
