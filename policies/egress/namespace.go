package egress

import (
	"net/netip"
	"slices"
)

// What listens in a server's network namespace, on loopback. Of each the bridge holds the socket and is itself outside.
const (
	ProxyPort    = 9876 // TCP on 127.0.0.1: the explicit proxy, for programs that ask for one
	RedirectPort = 9877 // TCP on 127.0.0.1 and ::1: where the ruleset sends all other connections that may be allowed
	ResolverPort = 53   // UDP and TCP on 127.0.0.1: the resolver that resolv.conf(5) names
	LogGroup     = 9876 // NFLOG group to which the kernel reports what it rejects
)

// SyntheticIPv4 and SyntheticIPv6 are the ranges out of which each declared name has an address of its own, inside a
// server's namespace. They are reserved for benchmarks (RFC 2544, RFC 5180), so that nothing real is behind them.
func SyntheticIPv4() netip.Prefix { return p("198.18.0.0/15") }
func SyntheticIPv6() netip.Prefix { return p("2001:2::/48") }

// Literals are the endpoints that are addresses or prefixes: those that a program reaches without asking for a name.
func (p Policy) Literals() []Endpoint {
	var all []Endpoint
	for _, e := range p.Endpoints {
		if e.Host == "" && e.Prefix.IsValid() {
			all = append(all, e)
		}
	}
	return all
}

// MaxNames bounds Names.
const MaxNames = 4096

// Places are the names that have a synthetic address of their own, each by the place of its first mention; "" stands
// where there is none.
func (p Policy) Places() []string {
	if p.Names != nil {
		return p.Names
	}
	names, seen := make([]string, len(p.Endpoints)), map[string]bool{}
	for i, e := range p.Endpoints {
		if !e.Wildcard && !seen[e.Host] {
			names[i], seen[e.Host] = e.Host, true
		}
	}
	return names
}

// NamesAfter are the Names of p in the place of another policy, while the server goes on: no address that it has looked
// up is another name's now, nor one that has been another's before. nil: that is so without Names.
func (p Policy) NamesAfter(other Policy) []string {
	names, seen := slices.Clone(other.Places()), map[string]bool{"": true}
	for _, name := range names {
		seen[name] = true
	}
	for _, e := range p.Endpoints {
		if !e.Wildcard && !seen[e.Host] {
			names, seen[e.Host] = append(names, e.Host), true
		}
	}
	if slices.Equal(names, p.Places()) {
		return nil
	}
	return names
}
