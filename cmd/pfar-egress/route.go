package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/pfar/pfar/policies/egress"
)

// route leads to the hosts that a policy allows.
type route struct {
	carrier
	policy  egress.Policy
	out     dialer
	lookups *lookups
}

func newRoute(policy egress.Policy, out dialer) *route {
	return &route{
		carrier: carrier{limits: defaultLimits, splicer: newSplicer()},
		policy:  policy, out: out, lookups: newLookups(out.lookup),
	}
}

// connect opens the connection that d allows. It connects to the address that it has checked: a second lookup could
// have another answer.
func (r *route) connect(ctx context.Context, d egress.Decision, port uint16, rec *record) (*net.TCPConn, error) {
	if err := r.secrets.ready(ctx, d, port); err != nil {
		return nil, err
	}
	addrs := []netip.Addr{d.Addr}
	if d.Addr.IsValid() {
		if reason, ok := r.policy.Reach(d, port, d.Addr, r.out.own); !ok {
			// It is answered like an address where nothing listens: the server would learn this machine's addresses by asking.
			rec.skipped, rec.special = d.Addr, reason
			return nil, errNotReached
		}
	}
	if s := r.via(d, port); s != nil {
		return r.connectVia(ctx, s, d, port, rec)
	}
	if !d.Addr.IsValid() {
		var err error
		if addrs, err = r.resolve(ctx, d, port, rec); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.limits.dialTime)
	defer cancel()
	name := d.Host
	if d.Addr.IsValid() {
		name = d.Addr.String()
	}
	c, err := r.out.reach(ctx, name, port, addrs)
	if err != nil {
		r.lookups.forget(d.Host + ".")
		rec.err = err
		if no, ok := errors.AsType[notAllowed](err); ok {
			return nil, no.refusal()
		}
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
func (r *route) resolve(ctx context.Context, d egress.Decision, port uint16, rec *record) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limits.dialTime)
	defer cancel()
	// The dot makes it fully qualified: no search domain is appended.
	answers, err := r.lookups.lookup(ctx, d.Host+".")
	if err != nil || len(answers) == 0 {
		rec.err = err
		// The resolver may give up before ctx does: resolv.conf(5) has timeouts of its own.
		var dns *net.DNSError
		if ctx.Err() != nil || errors.As(err, &dns) && dns.IsTimeout {
			return nil, errLookupTimeout
		}
		return nil, errNotResolved
	}
	var good []netip.Addr
	for _, a := range answers {
		reason, ok := r.policy.Reach(d, port, a, r.out.own)
		if !ok {
			rec.skipped, rec.special = a, reason
			continue
		}
		if good = append(good, a); len(good) == maxAddresses {
			break
		}
	}
	if len(good) == 0 {
		return nil, errAddressRefused
	}
	return interleave(good), nil
}

// expect looks a name up ahead: the server has just got an address for it. It asks only for names that are declared
// whole. The server chooses the other names, also those that a wildcard covers, and could send data out in the queries;
// they wait for a connection, which is recorded.
func (r *route) expect(name string) {
	exact := slices.ContainsFunc(r.policy.Endpoints, func(e egress.Endpoint) bool {
		return !e.Wildcard && e.Host != "" && e.Host == name
	})
	if exact && r.out.upstream == nil {
		r.lookups.ahead(context.Background(), name+".")
	}
}

// via returns the upstream proxy to ask for a connection that d allows, or nil for a direct one. What the operator
// declared of the own network is never the proxy's: a private address would mean another host there, if any.
func (r *route) via(d egress.Decision, port uint16) *proxyServer {
	u := r.out.upstream
	if u == nil {
		return nil
	}
	if d.Addr.IsValid() {
		if _, ok := egress.Vet(d.Addr); !ok || r.out.own(d.Addr) {
			return nil
		}
		return u.choose(d.Addr.String(), port)
	}
	for _, e := range r.policy.Private {
		named := egress.Policy{Endpoints: []egress.Endpoint{{Host: e.Host, Wildcard: e.Wildcard, Port: port}}}
		if named.Decide(d.Host, port).Verdict == egress.Allow {
			return nil
		}
	}
	return u.choose(d.Host, port)
}

// connectVia opens a tunnel through s to what d allows.
//
// The name is the proxy's to look up: behind such a proxy the internet's names often do not resolve at all, or only
// after a timeout, the proxy's own policy is by name, and an address of ours would only be a second opinion. So the
// vetting of addresses is the proxy's part, too; it stands outside, where the host's own network is not.
func (r *route) connectVia(
	ctx context.Context, s *proxyServer, d egress.Decision, port uint16, rec *record,
) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.limits.dialTime) // it looks up and connects
	defer cancel()
	c, err := r.out.reachProxy(ctx, s.address)
	if err != nil {
		rec.err = fmt.Errorf("connecting to the upstream proxy: %w", err)
		var timeout net.Error
		if ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout() {
			return nil, errUpstreamTimeout
		}
		return nil, errUpstreamNotReached
	}
	if to, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		rec.address = to.AddrPort()
	}
	host := d.Host
	if d.Addr.IsValid() {
		host = d.Addr.String()
	}
	if err := s.tunnel(ctx, c, net.JoinHostPort(host, strconv.Itoa(int(port))), r.limits.head); err != nil {
		c.Close()
		rec.err = fmt.Errorf("asking the upstream proxy: %w", err)
		var ref *refusal
		switch {
		case errors.As(err, &ref):
			return nil, ref
		case ctx.Err() != nil:
			return nil, errUpstreamTimeout
		}
		return nil, errUpstreamNotReached
	}
	return c, nil
}
