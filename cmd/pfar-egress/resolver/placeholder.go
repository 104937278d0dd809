// Placeholder until the real package is committed: delete this file with the change that brings it.

package resolver

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/miekg/dns"
	"github.com/pfar/pfar/policies/egress"
)

type Addresses struct {
	mu     sync.Mutex
	p      egress.Policy
	byName map[string]netip.Addr
	byAddr map[netip.Addr]string
	next   int
}

func at(base netip.Addr, n int) netip.Addr {
	b := base.As4()
	b[2] += byte(n >> 8)
	b[3] += byte(n)
	return netip.AddrFrom4(b)
}

func NewAddresses(p egress.Policy, leases string) (*Addresses, error) {
	a := &Addresses{p: p, byName: map[string]netip.Addr{}, byAddr: map[netip.Addr]string{}}
	n := 0
	for _, e := range p.Endpoints {
		if e.Host != "" && !e.Wildcard && !a.byName[e.Host].IsValid() {
			ad := at(netip.MustParseAddr("198.18.1.1"), n)
			n++
			a.byName[e.Host], a.byAddr[ad] = ad, e.Host
		}
	}
	return a, nil
}
func (a *Addresses) Of(name string) (v4, v6 netip.Addr, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ad := a.byName[name]
	if !ad.IsValid() {
		if a.next > 4000 {
			return v4, v6, fmt.Errorf("too many")
		}
		ad = at(netip.MustParseAddr("198.19.0.1"), a.next)
		a.next++
		a.byName[name], a.byAddr[ad] = ad, name
	}
	b := egress.SyntheticIPv6().Addr().As16()
	f := ad.As4()
	copy(b[12:], f[:])
	return ad, netip.AddrFrom16(b), nil
}
func (a *Addresses) Name(addr netip.Addr) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	addr = addr.Unmap()
	if addr.Is6() && egress.SyntheticIPv6().Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	n, ok := a.byAddr[addr]
	return n, ok
}

type Resolver struct {
	p    egress.Policy
	a    *Addresses
	ipv6 bool
}

func New(p egress.Policy, a *Addresses, ipv6 bool) *Resolver { return &Resolver{p, a, ipv6} }

type Question struct {
	Name, Type, Reason string
	Refused            bool
}

func (r *Resolver) Answer(query []byte, tcp bool) ([]byte, Question) {
	m := new(dns.Msg)
	if m.Unpack(query) != nil || len(m.Question) != 1 {
		return nil, Question{}
	}
	q := m.Question[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name, "."))
	resp := new(dns.Msg)
	resp.SetReply(m)
	asked := Question{Name: name}
	ok := false
	for _, port := range []uint16{443} {
		d := r.p.Decide(name, port)
		ok = ok || d.Verdict == egress.Allow || d.Reason == egress.PortNotDeclared || r.p.Learn
	}
	if !ok {
		resp.Rcode = dns.RcodeNameError
		asked.Refused, asked.Reason = true, egress.NameNotDeclared
	} else {
		v4, v6, err := r.a.Of(name)
		if err == nil {
			h := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 60}
			switch q.Qtype {
			case dns.TypeA:
				resp.Answer = append(resp.Answer, &dns.A{Hdr: h, A: v4.AsSlice()})
			case dns.TypeAAAA:
				if r.ipv6 {
					resp.Answer = append(resp.Answer, &dns.AAAA{Hdr: h, AAAA: v6.AsSlice()})
				}
			}
		}
	}
	b, _ := resp.Pack()
	return b, asked
}
