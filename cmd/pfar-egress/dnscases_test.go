package main

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/pfar/pfar/policies/egress"
)

// testPrivate is the allow_private of every case.
var testPrivate = []egress.Private{
	{Host: "lan.allowed.test", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	{Host: "self-range.allowed.test", Prefixes: []netip.Prefix{netip.MustParsePrefix("193.0.6.0/24")}},
	{Host: "self.allowed.test", Prefixes: []netip.Prefix{netip.MustParsePrefix(ownPublic + "/32")}},
}

var dnsCases = []dnsCase{
	// What resolves.
	{label: "v4", answer: records("A 1.2.3.4"), want: reached("1.2.3.4")},
	{label: "v6", answer: records("AAAA 2606:4700::1"), want: reached("2606:4700::1")},
	{label: "both", answer: records("A 1.2.3.4", "AAAA 2606:4700::1"), fails: "1.2.3.4 2606:4700::1", want: one("not-reached", "", bothTypes, "1.2.3.4 2606:4700::1")},
	{label: "next", answer: records("A 1.2.3.4", "A 1.2.3.5"), fails: "1.2.3.4", want: reached("1.2.3.4 1.2.3.5")},
	{label: "ttl0", answer: func(w dns.ResponseWriter, q *dns.Msg, _ int) { _ = w.WriteMsg(add(reply(q), 0, "A 1.2.3.4")) },
		want: append(reached("1.2.3.4"), reached("1.2.3.4")...)},
	{label: "ttl60", answer: kept("A 1.2.3.4"), want: append(reached("1.2.3.4"), one(egress.Declared, "", "", "1.2.3.4")...)},               // kept as long as it says
	{label: "ttl60-private", answer: kept("A 10.0.0.5"), want: append(refusedFor("private"), one("address-refused", "private", "", "")...)}, // vetted at each use
	{label: "ttl60-dead", answer: kept("A 1.2.3.4"), fails: "1.2.3.4", // what did not serve is asked for again
		want: append(one("not-reached", "", bothTypes, "1.2.3.4"), one("not-reached", "", bothTypes, "1.2.3.4")...)},
	{label: "ttl-mixed", answer: func(w dns.ResponseWriter, q *dns.Msg, _ int) { // the shortest counts
		_ = w.WriteMsg(add(add(reply(q), 60, "CNAME x.allowed.test."), 0, "x.allowed.test. A 1.2.3.4"))
	}, want: append(reached("1.2.3.4"), reached("1.2.3.4")...)},
	{label: "twice", answer: records("A 1.2.3.4", "A 1.2.3.4"), want: reached("1.2.3.4")},
	{label: "only-v4-fails", answer: records("A 1.2.3.4"), fails: "1.2.3.4", want: one("not-reached", "", bothTypes, "1.2.3.4")},

	// Single addresses that no name leads to.
	{label: "loopback", answer: records("A 127.0.0.1"), want: refusedFor("loopback")},
	{label: "loopback2", answer: records("A 127.8.8.8"), want: refusedFor("loopback")},
	{label: "this-host", answer: records("A 0.0.0.0"), want: refusedFor("unspecified")},
	{label: "this-net", answer: records("A 0.1.2.3"), want: refusedFor("unspecified")},
	{label: "ten", answer: records("A 10.0.0.5"), want: refusedFor("private")},
	{label: "one-seven-two", answer: records("A 172.31.255.255"), want: refusedFor("private")},
	{label: "one-nine-two", answer: records("A 192.168.1.1"), want: refusedFor("private")},
	{label: "cgnat", answer: records("A 100.64.0.1"), want: refusedFor("shared")},
	{label: "link-local", answer: records("A 169.254.1.1"), want: refusedFor("link-local")},
	{label: "metadata", answer: records("A 169.254.169.254"), want: refusedFor("metadata")},
	{label: "synthetic", answer: records("A 198.18.0.7"), want: refusedFor("benchmarking")},
	{label: "synthetic6", answer: records("AAAA 2001:2::7"), want: refusedFor("benchmarking")},
	{label: "documentation", answer: records("A 203.0.113.9"), want: refusedFor("documentation")},
	{label: "multicast", answer: records("A 224.0.0.251"), want: refusedFor("multicast")},
	{label: "broadcast", answer: records("A 255.255.255.255"), want: refusedFor("broadcast")},
	{label: "reserved", answer: records("A 240.0.0.1"), want: refusedFor("reserved")},
	{label: "loopback6", answer: records("AAAA ::1"), want: refusedFor("loopback")},
	{label: "unspecified6", answer: records("AAAA ::"), want: refusedFor("unspecified")},
	{label: "mapped-loopback", answer: records("AAAA ::ffff:127.0.0.1"), want: refusedFor("loopback")},
	{label: "mapped-private", answer: records("AAAA ::ffff:10.0.0.5"), want: refusedFor("private")},
	{label: "mapped-metadata", answer: records("AAAA ::ffff:169.254.169.254"), want: refusedFor("metadata")},
	{label: "mapped-public", answer: records("AAAA ::ffff:1.2.3.4"), want: reached("1.2.3.4")},
	{label: "compatible", answer: records("AAAA ::127.0.0.1"), want: refusedFor("ipv4-embedded")},
	{label: "nat64", answer: records("AAAA 64:ff9b::7f00:1"), want: refusedFor("ipv4-embedded")},
	{label: "nat64-local", answer: records("AAAA 64:ff9b:1::a00:5"), want: refusedFor("ipv4-embedded")},
	{label: "6to4", answer: records("AAAA 2002:7f00:1::1"), want: refusedFor("ipv4-embedded")},
	{label: "teredo", answer: records("AAAA 2001::7f00:1"), want: refusedFor("ipv4-embedded")},
	{label: "ula", answer: records("AAAA fd12::1"), want: refusedFor("private")},
	{label: "imds6", answer: records("AAAA fd00:ec2::254"), want: refusedFor("metadata")},
	{label: "link-local6", answer: records("AAAA fe80::1"), want: refusedFor("link-local")},
	{label: "multicast6", answer: records("AAAA ff02::1"), want: refusedFor("multicast")},
	{label: "own-public", answer: records("A " + ownPublic), want: refusedFor("own")},
	{label: "own-public-mapped", answer: records("AAAA ::ffff:" + ownPublic), want: refusedFor("own")},
	{label: "own-and-public", answer: records("A "+ownPublic, "A 1.2.3.4"), fails: "1.2.3.4", want: one("not-reached", "own", bothTypes, "1.2.3.4")},

	// Several answers: only what is public is dialled, also when it fails.
	{label: "private-and-public", answer: records("A 10.0.0.5", "A 1.2.3.4"), fails: "1.2.3.4", want: one("not-reached", "private", bothTypes, "1.2.3.4")},
	{label: "private-and-public6", answer: records("A 10.0.0.5", "AAAA 2606:4700::1"), want: one(egress.Declared, "private", bothTypes, "2606:4700::1")},
	{label: "all-private", answer: records("A 10.0.0.5", "A 10.0.0.6", "AAAA fd12::1"), want: one("address-refused", "private", bothTypes, "")},
	{label: "fails-then-loopback6", answer: records("A 1.2.3.4", "AAAA ::1"), fails: "1.2.3.4", want: one("not-reached", "loopback", bothTypes, "1.2.3.4")},
	{label: "fails-then-loopback", answer: records("A 127.0.0.1", "AAAA 2606:4700::1"), fails: "2606:4700::1", want: one("not-reached", "loopback", bothTypes, "2606:4700::1")},
	{label: "five-hundred", answer: byNetwork(changed(truncated), records(many(500, "A 1.2.%d.%d")...)), fails: strings.Join(many(500, "1.2.%d.%d"), " "),
		want: one("not-reached", "", "A A/tcp AAAA AAAA/tcp", strings.Join(sorted(many(maxAddresses, "1.2.%d.%d")), " "))},
	{label: "five-hundred-private", answer: byNetwork(changed(truncated), records(append(many(500, "A 10.2.%d.%d"), "A 1.2.3.4")...)), fails: "1.2.3.4",
		want: one("not-reached", "private", "A A/tcp AAAA AAAA/tcp", "1.2.3.4")},

	// Rebinding: each connection is one lookup, and what it was vetted for is what is dialled.
	{label: "rebinding", answer: inTurn(records("A 1.2.3.4"), records("A 127.0.0.1")), want: append(reached("1.2.3.4"), refusedFor("loopback")...)},
	{label: "rebinding-fails", answer: inTurn(records("A 1.2.3.4"), records("A 127.0.0.1")), fails: "1.2.3.4", want: one("not-reached", "", bothTypes, "1.2.3.4")},
	{label: "rebinding-family", answer: inTurn(records("A 1.2.3.4"), records("AAAA ::1")), want: append(reached("1.2.3.4"), refusedFor("loopback")...)},
	{label: "rebinding-back", answer: inTurn(records("A 169.254.169.254"), records("A 1.2.3.4")), want: append(refusedFor("metadata"), reached("1.2.3.4")...)},

	// Aliases: no name that they lead to is asked for, and only addresses count.
	{label: "alias", answer: records("CNAME cdn.elsewhere.test.", "cdn.elsewhere.test. A 1.2.3.4"), want: reached("1.2.3.4")},
	{label: "alias-chain", answer: records("CNAME a.elsewhere.test.", "a.elsewhere.test. CNAME b.elsewhere.test.", "b.elsewhere.test. CNAME c.elsewhere.test.", "c.elsewhere.test. A 1.2.3.4"), want: reached("1.2.3.4")},
	{label: "alias-internal", answer: records("CNAME git.corp.lan.", "git.corp.lan. A 10.0.0.5"), want: refusedFor("private")},
	{label: "alias-internal-bare", answer: records("CNAME git.corp.lan."), want: unresolved(bothTypes)},
	{label: "alias-localhost", answer: records("CNAME localhost.", "localhost. A 127.0.0.1", "localhost. AAAA ::1"), want: refusedFor("loopback")},
	{label: "alias-localhost-bare", answer: records("CNAME localhost."), want: unresolved(bothTypes)},
	{label: "alias-loop", answer: records("CNAME loop.elsewhere.test.", "loop.elsewhere.test. CNAME alias-loop.allowed.test."), want: unresolved(bothTypes)},
	{label: "alias-self", answer: records("CNAME alias-self.allowed.test."), want: unresolved(bothTypes)},
	{label: "alias-undeclared", answer: records("CNAME evil.test."), want: unresolved(bothTypes)},

	// Failures. None has a search domain asked for.
	{label: "absent", want: unresolved(bothTypes)},
	{label: "empty", answer: records(), want: unresolved(bothTypes)},
	{label: "servfail", answer: code(dns.RcodeServerFailure), want: unresolved("A A AAAA AAAA")},
	{label: "servfail-once", answer: inTurn(code(dns.RcodeServerFailure), records("A 1.2.3.4")), want: one(egress.Declared, "", "A A AAAA AAAA", "1.2.3.4")},
	{label: "servfail-loopback", answer: inTurn(code(dns.RcodeServerFailure), records("A 127.0.0.1")), want: one("address-refused", "loopback", "A A AAAA AAAA", "")},
	{label: "servfail-v6", answer: byType(records("A 1.2.3.4"), code(dns.RcodeServerFailure)), want: one(egress.Declared, "", "A AAAA AAAA", "1.2.3.4")},
	{label: "refused", answer: code(dns.RcodeRefused), want: unresolved("A A AAAA AAAA")},
	{label: "notimp", answer: code(dns.RcodeNotImplemented), want: unresolved("A A AAAA AAAA")},
	{label: "formerr", answer: code(dns.RcodeFormatError), want: unresolved("A A AAAA AAAA")},
	{label: "absent-with-answer", answer: code(dns.RcodeNameError, "A 1.2.3.4"), want: unresolved(bothTypes)},
	{label: "servfail-with-answer", answer: code(dns.RcodeServerFailure, "A 1.2.3.4"), want: unresolved("A A AAAA AAAA")},
	{label: "additional", answer: changed(func(m *dns.Msg) { m.Extra, m.Answer = m.Answer, nil }, "A 1.2.3.4"), want: unresolved(bothTypes)},
	{label: "authority", answer: changed(func(m *dns.Msg) { m.Ns, m.Answer = m.Answer, nil }, "A 1.2.3.4"), want: unresolved(bothTypes)},

	// Silence and answers that are none: in time, whichever of the two clocks ends first.
	{label: "dead", answer: silence, wait: 300 * time.Millisecond, want: one("lookup-timeout", "", bothTypes, "")},
	{label: "dead-long", answer: silence, want: one("lookup-timeout", "", "A A AAAA AAAA", "")},
	{label: "slow", answer: late(200*time.Millisecond, records("A 1.2.3.4")), want: reached("1.2.3.4")},
	{label: "too-slow", answer: late(400*time.Millisecond, records("A 1.2.3.4")), wait: 200 * time.Millisecond, want: one("lookup-timeout", "", bothTypes, "")},
	{label: "other-id", answer: changed(func(m *dns.Msg) { m.Id++ }, "A 6.6.6.6"), wait: 300 * time.Millisecond, want: one("lookup-timeout", "", bothTypes, "")},
	{label: "other-question", answer: changed(func(m *dns.Msg) { m.Question[0].Name = "evil.test." }, "A 6.6.6.6"), wait: 300 * time.Millisecond, want: one("lookup-timeout", "", bothTypes, "")},
	{label: "other-class", answer: changed(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, "A 6.6.6.6"), wait: 300 * time.Millisecond, want: one("lookup-timeout", "", bothTypes, "")},
	{label: "a-query", answer: changed(func(m *dns.Msg) { m.Response = false }, "A 6.6.6.6"), wait: 300 * time.Millisecond, want: one("lookup-timeout", "", bothTypes, "")},
	{label: "garbage", answer: raw("\x00\x01nonsense"), wait: 300 * time.Millisecond, want: one("lookup-timeout", "", bothTypes, "")},
	{label: "forged-first", answer: func(w dns.ResponseWriter, q *dns.Msg, nth int) {
		changed(func(m *dns.Msg) { m.Id++ }, "A 6.6.6.6")(w, q, nth)
		records("A 1.2.3.4")(w, q, nth)
	}, want: reached("1.2.3.4")},

	// Truncation: what came over UDP does not count.
	{label: "truncated", answer: byNetwork(changed(truncated), records("A 1.2.3.4")), want: one(egress.Declared, "", "A A/tcp AAAA AAAA/tcp", "1.2.3.4")},
	{label: "truncated-with-answer", answer: byNetwork(changed(func(m *dns.Msg) { m.Truncated = true }, "A 6.6.6.6"), records("A 1.2.3.4")), want: one(egress.Declared, "", "A A/tcp AAAA AAAA/tcp", "1.2.3.4")},
	{label: "truncated-loopback", answer: byNetwork(changed(truncated, "A 1.2.3.4"), records("A 127.0.0.1")), want: one("address-refused", "loopback", "A A/tcp AAAA AAAA/tcp", "")},
	{label: "truncated-dead", answer: byNetwork(changed(truncated), silence), wait: 300 * time.Millisecond, want: one("lookup-timeout", "", "A A/tcp AAAA AAAA/tcp", "")},
	{label: "truncated-hangup", answer: byNetwork(changed(truncated), hangUp), want: unresolved("A A A/tcp A/tcp AAAA AAAA AAAA/tcp AAAA/tcp")},

	// Oddities of a server that the operator trusts. What they lead to is vetted like all else.
	{label: "odd-case", answer: changed(func(m *dns.Msg) {
		m.Question[0].Name = "oDD-cASE.AllOwed.tEST."
		for _, rr := range m.Answer {
			rr.Header().Name = "ODD-CASE.allowed.TEST."
		}
	}, "A 1.2.3.4"), want: reached("1.2.3.4")},
	{label: "other-owner", answer: records("elsewhere.test. A 127.0.0.1"), want: refusedFor("loopback")},
	{label: "other-family", answer: changed(func(m *dns.Msg) {
		rr, _ := dns.NewRR(m.Question[0].Name + " 60 IN AAAA ::1")
		m.Answer = append(m.Answer, rr)
	}), want: refusedFor("loopback")},
	{label: "other-record-class", answer: changed(func(m *dns.Msg) {
		for _, rr := range m.Answer {
			rr.Header().Class = dns.ClassCHAOS
		}
	}, "A 127.0.0.1"), want: refusedFor("loopback")},

	// hosts(5) is the operator's, and yet it is vetted. Zones, which it may have, come to nothing.
	{label: "hosts-public", want: one(egress.Declared, "", "", "1.2.3.9")},
	{label: "hosts-private", want: one("address-refused", "private", "", "")},
	{label: "hosts-zone", want: one("address-refused", "link-local", "", "")},
	{label: "hosts-public-zone", want: one(egress.Declared, "", "", "2606:4700::9")},

	// allow_private: of this name, and these addresses. No other name gains by it.
	{label: "lan", answer: records("A 10.0.0.5", "A 192.168.1.1"), want: one(egress.Declared, "private", bothTypes, "10.0.0.5")},
	{label: "self-range", answer: records("A " + ownPublic), want: refusedFor("own")},
	{label: "self", answer: records("A " + ownPublic), want: reached(ownPublic)},

	// What is not declared is not asked for.
	{label: "secret.not", answer: records("A 1.2.3.4"), want: one(egress.NameNotDeclared, "", "", "")},
	{label: "::1%25", answer: records("A 1.2.3.4"), want: one(egress.AddressLiteral, "", "", "")}, // netip takes the rest for a zone
	{label: "fe80::1%lo", answer: records("A 1.2.3.4"), want: one(egress.AddressLiteral, "", "", "")},
	{label: "x%lo", answer: records("A 1.2.3.4"), want: one(egress.BadName, "", "", "")},
}
