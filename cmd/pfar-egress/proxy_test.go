package main

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Rows of the EG attacks that are refused before any name is looked up.
func TestRefusedWithoutLookup(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test", "*.wild.allowed.test", "only443.test:443", "bücher.allowed.test")
	const host = "Host: api.allowed.test\r\n"
	get := func(target, fields string) string { return "GET " + target + " HTTP/1.1\r\n" + fields + "\r\n" }
	for _, c := range []struct{ raw, status, reason string }{
		{connectTo("evil.test:443"), "403", "name-not-declared"},
		{connectTo("c2VjcmV0.evil.test:443"), "403", "name-not-declared"},
		{connectTo("api.allowed.test.evil.test:443"), "403", "name-not-declared"},
		{connectTo("evilapi.allowed.test:443"), "403", "name-not-declared"},
		{connectTo("www.allowed.test:443"), "403", "name-not-declared"},
		{connectTo("allowed.test:443"), "403", "name-not-declared"},
		{connectTo("wild.allowed.test:443"), "403", "name-not-declared"},
		{connectTo("a.b.wild.allowed.test:443"), "403", "name-not-declared"},
		{connectTo("*.wild.allowed.test:443"), "400", "bad-name"},
		{connectTo("api..allowed.test:443"), "400", "bad-name"},
		{connectTo("api.allowed.test..:443"), "400", "bad-name"},
		{connectTo(".wild.allowed.test:443"), "400", "bad-name"},
		{connectTo("evil.test\x00.wild.allowed.test:443"), "400", "bad-request"},
		{connectTo("api%2eallowed.test:443"), "400", "bad-name"},
		{connectTo("evil.test#.wild.allowed.test:443"), "400", "bad-authority"},
		{connectTo("evil.test/.wild.allowed.test:443"), "400", "bad-authority"},
		{connectTo("evil.test\\.wild.allowed.test:443"), "400", "bad-authority"},
		{connectTo("evil.test?.wild.allowed.test:443"), "400", "bad-authority"},
		{connectTo("evil.test;.wild.allowed.test:443"), "400", "bad-name"},
		{connectTo("evil.test,api.allowed.test:443"), "400", "bad-name"},
		{connectTo("evil.test .wild.allowed.test:443"), "400", "bad-request"},
		{connectTo("evil.test\r.wild.allowed.test:443"), "400", "bad-request"},
		{connectTo("evil.test\t.wild.allowed.test:443"), "400", "bad-authority"},
		{connectTo("api.allowed.test@evil.test:443"), "400", "bad-authority"},
		{connectTo("evil.test:443@api.allowed.test:443"), "400", "bad-authority"},
		{connectTo("u:p@api.allowed.test:443"), "400", "bad-authority"},
		{connectTo("[::1%25.wild.allowed.test]:443"), "400", "bad-authority"},
		{connectTo("[fe80::1%25lo]:443"), "400", "bad-authority"},
		{connectTo("[api.allowed.test]:443"), "400", "bad-authority"},
		{connectTo("[127.0.0.1]:443"), "400", "bad-authority"},
		{connectTo("[::1:443"), "400", "bad-authority"},
		{connectTo("[::1]x:443"), "400", "bad-authority"},
		{connectTo("::1:443"), "400", "bad-authority"},
		{connectTo("\u0430pi.allowed.test:443"), "403", "name-not-declared"}, // Cyrillic
		{connectTo("evil.test。wild.allowed.test:443"), "403", "name-not-declared"},
		{connectTo("xn--.wild.allowed.test:443"), "400", "bad-name"},
		{connectTo("\xff\xfe.wild.allowed.test:443"), "400", "bad-authority"},
		{connectTo(strings.Repeat("a", 64) + ".wild.allowed.test:443"), "400", "bad-name"},
		{connectTo(strings.Repeat("a.", 130) + "wild.allowed.test:443"), "400", "bad-name"},
		{connectTo(strings.Repeat("a", 8000) + ".wild.allowed.test:443"), "400", "bad-name"},

		{connectTo("api.allowed.test:22"), "403", "port-not-declared"},
		{connectTo("only443.test:80"), "403", "port-not-declared"},
		{connectTo("api.allowed.test:0"), "400", "bad-authority"},
		{connectTo("api.allowed.test:65536"), "400", "bad-authority"},
		{connectTo("api.allowed.test:65979"), "400", "bad-authority"}, // 443 modulo 2^16
		{connectTo("api.allowed.test:4294967739"), "400", "bad-authority"},
		{connectTo("api.allowed.test:-443"), "400", "bad-authority"},
		{connectTo("api.allowed.test:+443"), "400", "bad-authority"},
		{connectTo("api.allowed.test:0x1bb"), "400", "bad-authority"},
		{connectTo("api.allowed.test:22#:443"), "400", "bad-authority"},
		{connectTo("api.allowed.test:22:443"), "400", "bad-authority"},
		{connectTo("api.allowed.test"), "400", "bad-authority"},
		{connectTo("api.allowed.test:"), "400", "bad-authority"},
		{connectTo(":443"), "400", "bad-authority"},
		{connectTo("api.allowed.test:0443"), "400", "bad-authority"},
		{connectTo("api.allowed.test:https"), "400", "bad-authority"},
		{connectTo("api.allowed.test:４４３"), "400", "bad-authority"},

		{connectTo("93.184.216.34:443"), "403", "address-literal"}, // the allowed host's own
		{connectTo("169.254.169.254:80"), "403", "address-literal"},
		{connectTo("2130706433:80"), "400", "bad-name"}, {connectTo("0x7f000001:80"), "400", "bad-name"},
		{connectTo("0177.0.0.1:80"), "400", "bad-name"}, {connectTo("127.1:80"), "400", "bad-name"}, {connectTo("0:80"), "400", "bad-name"},
		{connectTo("2852039166:80"), "400", "bad-name"}, {connectTo("127.0.0.1.:80"), "400", "bad-name"}, {connectTo("１２７.0.0.1:80"), "400", "bad-name"},
		{connectTo("127.0.0.1:80"), "403", "address-literal"}, {connectTo("[::1]:80"), "403", "address-literal"},
		{connectTo("[::ffff:127.0.0.1]:80"), "403", "address-literal"}, {connectTo("[::ffff:93.184.216.34]:443"), "403", "address-literal"},
		{connectTo("[64:ff9b::7f00:1]:80"), "403", "address-literal"}, {connectTo("[::]:80"), "403", "address-literal"},
		{connectTo("localhost:80"), "403", "name-not-declared"}, {connectTo("localhost.localdomain:80"), "403", "name-not-declared"},

		{"CONNECT api.allowed.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "400", "host-contradicts"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\nHost: api.allowed.test:22\r\n\r\n", "400", "host-contradicts"},
		{"CONNECT evil.test:443 HTTP/1.1\r\nHost: api.allowed.test:443\r\n\r\n", "400", "host-contradicts"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\nHost: api.allowed.test:443\r\nHost: api.allowed.test:443\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\nHost: api.allowed.test:443\r\nhOST: evil.test\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\nHost:\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\nHost: api.allowed.test, evil.test\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443/path HTTP/1.1\r\n" + host + "\r\n", "400", "bad-authority"},
		{"CONNECT http://api.allowed.test:443 HTTP/1.1\r\n" + host + "\r\n", "400", "bad-authority"},
		{"CONNECT http://api.allowed.test:443/ HTTP/1.1\r\n" + host + "\r\n", "400", "bad-authority"},
		{"CONNECT / HTTP/1.1\r\n" + host + "\r\n", "400", "bad-authority"},
		{"CONNECT * HTTP/1.1\r\n" + host + "\r\n", "400", "bad-authority"},
		{"CONNECT  HTTP/1.1\r\n" + host + "\r\n", "400", "bad-authority"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\nhello", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "Upgrade: h2c\r\n\r\n", "400", "upgrade"},
		{"CONNECT api.allowed.test:443 HTTP/1.1 \r\n" + host + "\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/2.0\r\n" + host + "\r\n", "505", "bad-version"},
		{"CONNECT api.allowed.test:443 HTTP/1.2\r\n" + host + "\r\n", "505", "bad-version"},
		{"CONNECT api.allowed.test:443 http/1.1\r\n" + host + "\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443\r\n" + host + "\r\n", "400", "bad-request"},
		{"CONNECT\tapi.allowed.test:443\tHTTP/1.1\r\n" + host + "\r\n", "400", "bad-request"},
		{"connect api.allowed.test:443 HTTP/1.1\r\n" + host + "\r\n", "400", "bad-request"},
		{" CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "\r\n", "400", "bad-request"},
		{"\r\nCONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "X: a\r\n folded\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n folded: x\r\n" + host + "\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\nHost : api.allowed.test\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "X\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + ": x\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "X\x01: x\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "X: a\rY: b\r\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\n" + "Host: api.allowed.test\n\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\nHost: api.allowed.test\n\r\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\n" + host + "\n", "400", "bad-request"},
		{"CONNECT api.allowed.test:443 HTTP/1.1\r\r\n" + host + "\r\n", "400", "bad-request"},

		{get("http://api.allowed.test/", "Host: evil.test\r\n"), "400", "host-contradicts"},
		{get("http://api.allowed.test/", "Host: api.allowed.test:8080\r\n"), "400", "host-contradicts"},
		{get("http://api.allowed.test:443/", "Host: api.allowed.test\r\n"), "400", "host-contradicts"},
		{get("http://evil.test/", host), "400", "host-contradicts"},
		{get("http://api.allowed.test/", host+host), "400", "bad-request"},
		{get("http://api.allowed.test/", ""), "400", "bad-request"},
		{get("http://evil.test/", "Host: evil.test\r\n"), "403", "name-not-declared"},
		{get("http://169.254.169.254/latest/meta-data/", "Host: 169.254.169.254\r\n"), "403", "address-literal"},
		{get("http://api.allowed.test:9876/", "Host: api.allowed.test:9876\r\n"), "403", "port-not-declared"},
		{get("http://127.0.0.1:9876/", "Host: 127.0.0.1:9876\r\n"), "403", "address-literal"}, // the proxy itself
		{get("http://u:p@api.allowed.test/", host), "400", "bad-authority"},
		{get("http://api.allowed.test@evil.test/", host), "400", "bad-authority"},
		{get("http://evil.test\\@api.allowed.test/", host), "400", "bad-authority"},
		{get("http:///", host), "400", "bad-authority"},
		{get("http://", host), "400", "bad-authority"},
		{get("http:api.allowed.test/", host), "400", "not-a-proxy-request"},
		{get("http:/api.allowed.test/", host), "400", "not-a-proxy-request"},
		{get("//api.allowed.test/", host), "400", "not-a-proxy-request"},
		{get("/", host), "400", "not-a-proxy-request"},
		{get("/http://api.allowed.test/", host), "400", "not-a-proxy-request"},
		{get("*", host), "400", "not-a-proxy-request"},
		{get("api.allowed.test:80", host), "400", "not-a-proxy-request"},
		{get("https://api.allowed.test/", host), "400", "bad-scheme"},
		{get("ftp://api.allowed.test/", host), "400", "bad-scheme"},
		{get("gopher://api.allowed.test/", host), "400", "bad-scheme"},
		{get("http://api.allowed.test/a b", host), "400", "bad-request"},
		{get("http://api.allowed.test/#x", host), "400", "bad-request"},
		{get("http://api.allowed.test/\xc3\xbc", host), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMA\r\n"), "400", "upgrade"},
		{get("http://api.allowed.test/", host+"Upgrade: websocket\r\nConnection: Upgrade\r\n"), "400", "upgrade"},
		{get("http://api.allowed.test/", host+"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Content-Length: 5\r\nContent-Length: 5\r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Content-Length: 5\r\nTransfer_Encoding: chunked\r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"content_length: 5\r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Content-Length: 5, 5\r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Content-Length: +5\r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Content-Length: 0x5\r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Content-Length: \r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Content-Length: 99999999999999999999\r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Transfer-Encoding: gzip, chunked\r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "400", "bad-request"},
		{get("http://api.allowed.test/", host+"Transfer-Encoding: xchunked\r\n"), "400", "bad-request"},
		{"POST http://api.allowed.test/ HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", "400", "bad-request"},
		{"TRACE http://api.allowed.test/ HTTP/1.1\r\n" + host + "\r\n", "501", "method-not-allowed"},
		{"TRACK http://api.allowed.test/ HTTP/1.1\r\n" + host + "\r\n", "501", "method-not-allowed"},
		{"FOO http://api.allowed.test/ HTTP/1.1\r\n" + host + "\r\n", "501", "method-not-allowed"},
		{"GET http://api.allowed.test/\r\n\r\n", "400", "bad-request"}, // HTTP/0.9
		{"GET\r\n\r\n", "400", "bad-request"},

		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505", "bad-version"},
		{"\x05\x01\x00", "400", "bad-request"},                                 // SOCKS5
		{"\x04\x01\x01\xbb\x01\x01\x01\x01\x00", "400", "bad-request"},         // SOCKS4
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400", "bad-request"}, // TLS
		{"PROXY TCP4 1.1.1.1 2.2.2.2 1 443\r\n" + connectTo("api.allowed.test:443"), "400", "bad-request"},
		{"GET http://api.allowed.test/" + strings.Repeat("a", 64<<10), "431", "head-too-large"},
		{"GET http://api.allowed.test/ HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 65) + "\r\n", "431", "head-too-large"},
		{"GET http://api.allowed.test/ HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 10000), "431", "head-too-large"},
		{strings.Repeat("\r\n", 10000), "400", "bad-request"},
		{connectTo("evil.test:443") + "GET http://api.allowed.test/ HTTP/1.1\r\n" + host + "\r\n", "403", "name-not-declared"}, // pipelined
	} {
		response := w.ask(c.raw)
		status, reason := outcome(response)
		if status != c.status || reason != c.reason {
			t.Errorf("%.120q: %s %q, want %s %q", c.raw, status, reason, c.status, c.reason)
		}
		if strings.Count(response, "X-Pfar-Reason: ") != 1 || !strings.Contains(response, "Connection: close\r\n") {
			t.Errorf("%.120q: not one response and its end: %q", c.raw, response)
		}
	}
	if lookups, dials, _ := w.seen(); len(lookups)+len(dials) > 0 {
		t.Errorf("looked up %q and dialled %v", lookups, dials)
	}
}

// A name that is declared but leads to where it must not: refused, and the answer does not say where.
func TestAddressesRefused(t *testing.T) {
	for _, answer := range [][]string{
		{"127.0.0.1"}, {"0.0.0.0"}, {"0.1.2.3"}, {"10.0.0.1"}, {"172.16.0.1"}, {"192.168.1.1"}, {"169.254.169.254"}, {"169.254.1.1"}, {"100.64.0.1"},
		{"198.18.0.1"}, {"240.0.0.1"}, {"255.255.255.255"}, {"224.0.0.1"}, {"192.0.2.1"}, {"203.0.113.9"}, {"100.100.100.200"}, {"168.63.129.16"},
		{"::1"}, {"::"}, {"::ffff:127.0.0.1"}, {"::ffff:93.184.216.34"}, {"::7f00:1"}, {"64:ff9b::7f00:1"}, {"64:ff9b:1::7f00:1"}, {"2002:7f00:1::"}, {"2001:0:7f00:1::"},
		{"fd00::1"}, {"fe80::1"}, {"fec0::1"}, {"ff02::1"}, {"fd00:ec2::254"}, {"2001:db8::1"}, {"4000::1"},
		{"5.6.7.8"}, // the host's own
		{"127.0.0.1", "::1", "10.0.0.1"},
	} {
		w := newWorld(t, nil, "api.allowed.test")
		w.own = netip.MustParseAddr("5.6.7.8")
		w.answers["api.allowed.test."] = addrs(answer...)
		for _, raw := range []string{connectTo("api.allowed.test:443"), "GET http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n"} {
			response := w.ask(raw)
			if status, reason := outcome(response); status != "403" || reason != "address-refused" {
				t.Errorf("%v: %q", answer, response)
			}
			for _, a := range answer {
				if strings.Contains(response, a) {
					t.Errorf("the refusal names %s: %q", a, response)
				}
			}
		}
		if _, dials, _ := w.seen(); len(dials) > 0 {
			t.Errorf("%v: dialled %v", answer, dials)
		}
		if !strings.Contains(w.logged.String(), "skipped="+answer[len(answer)-1]) && !strings.Contains(w.logged.String(), `skipped="`) {
			t.Errorf("%v: the log does not tell the owner: %s", answer, w.logged)
		}
	}
}

func TestOnlyVettedAddressesAreDialled(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs("127.0.0.1", "2606:4700::1", public, "::1", "10.0.0.1")
	w.refuses[netip.MustParseAddr("2606:4700::1")] = syscall.ECONNREFUSED
	w.tunnelTo("api.allowed.test:443").Close()
	_, dials, _ := w.seen()
	want := []netip.AddrPort{netip.MustParseAddrPort("[2606:4700::1]:443"), netip.MustParseAddrPort(public + ":443")}
	if !slices.Equal(dials, want) {
		t.Errorf("dialled %v, want %v", dials, want)
	}
}

func TestRebindingOnTheSecondLookup(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	w.tunnelTo("api.allowed.test:443").Close()
	if lookups, _, _ := w.seen(); len(lookups) != 1 {
		t.Fatalf("one connection made the lookups %q", lookups)
	}
	w.mu.Lock()
	w.answers["api.allowed.test."] = addrs("127.0.0.1")
	w.mu.Unlock()
	if status, reason := outcome(w.ask(connectTo("api.allowed.test:443"))); status != "403" || reason != "address-refused" {
		t.Errorf("after rebinding: %s %s", status, reason)
	}
}

func TestLookupIsFullyQualified(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test", "bücher.test")
	for target, name := range map[string]string{
		"api.allowed.test:443": "api.allowed.test.", "API.Allowed.TEST.:443": "api.allowed.test.",
		"bücher.test:443": "xn--bcher-kva.test.", "xn--bcher-kva.test:80": "xn--bcher-kva.test.", "api。allowed.test:443": "api.allowed.test.",
	} {
		if status, reason := outcome(w.ask(connectTo(target))); status != "502" || reason != "not-resolved" {
			t.Errorf("%s: %s %s", target, status, reason)
		}
		lookups, _, _ := w.seen()
		if last := lookups[len(lookups)-1]; last != name {
			t.Errorf("%s is looked up as %q, want %q", target, last, name)
		}
	}
}

func TestDeadResolverAndDeadTarget(t *testing.T) {
	short := func(w *world) { w.proxy.limits.dialTime = 100 * time.Millisecond }
	w := newWorld(t, short, "api.allowed.test")
	w.answers["api.allowed.test."] = addrs(public)
	w.refuses[netip.MustParseAddr(public)] = nil
	status, reason := outcome(w.ask(connectTo("api.allowed.test:443")))
	for n := 0; reason == "lookup-timeout" && n < 10; n++ { // as on a busy machine
		status, reason = outcome(w.ask(connectTo("api.allowed.test:443")))
	}
	if status != "504" || reason != "dial-timeout" {
		t.Errorf("dead target: %s %s", status, reason)
	}
	w.proxy.limits.dialTime = defaultLimits.dialTime
	w.mu.Lock()
	w.refuses[netip.MustParseAddr(public)] = syscall.ECONNREFUSED
	w.mu.Unlock()
	if status, reason := outcome(w.ask(connectTo("api.allowed.test:443"))); status != "502" || reason != "not-reached" {
		t.Errorf("closed port: %s %s", status, reason)
	}
	dead := newWorld(t, func(w *world) {
		short(w)
		w.proxy.out.lookup = func(ctx context.Context, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}, "api.allowed.test")
	if status, reason := outcome(dead.ask(connectTo("api.allowed.test:443"))); status != "504" || reason != "lookup-timeout" {
		t.Errorf("dead resolver: %s %s", status, reason)
	}
}

func TestDeclaredAddressNeedsNoLookup(t *testing.T) {
	w := newWorld(t, nil, "10.1.0.0/16:5432", "[fd00::1]:443")
	w.serveOrigin(echo)
	for _, target := range []string{"10.1.2.3:5432", "[fd00::1]:443"} {
		w.tunnelTo(target).Close()
	}
	lookups, dials, _ := w.seen()
	if len(lookups) > 0 || len(dials) != 2 {
		t.Errorf("looked up %q, dialled %v", lookups, dials)
	}
	if status, reason := outcome(w.ask(connectTo("10.2.0.1:5432"))); status != "403" || reason != "address-literal" {
		t.Errorf("the neighbour: %s %s", status, reason)
	}
}

func TestRefusalSaysWhatToDo(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test", "*.wild.test", "lan.test")
	w.answers["lan.test."] = addrs("10.0.0.1")
	for target, says := range map[string][]string{
		"lan.test:443":              {"address-refused", "allow_private", "allowed_domains"},
		"evil.test:443":             {"refuses evil.test:443: name-not-declared", `server "notion"`, `"evil.test"`, "notion.hcl"},
		"db.test:5432":              {`"db.test:5432"`},
		"api.allowed.test:22":       {"may reach api.allowed.test", `"api.allowed.test:22"`},
		"1.2.3.4:443":               {"address-literal", `"1.2.3.4"`},
		"[::ffff:1.2.3.4]:8080":     {`"1.2.3.4:8080"`},
		"\u0430pi.allowed.test:443": {"xn--pi-6kc.allowed.test:443"},
	} {
		response := w.ask(connectTo(target))
		for _, s := range says {
			if !strings.Contains(response, s) {
				t.Errorf("%s: %q does not say %q", target, response, s)
			}
		}
	}
	if strings.Contains(w.ask("HEAD http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"), "pfar refuses") {
		t.Error("HEAD is answered with a body")
	}
}

func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	w := newWorld(t, func(w *world) { w.proxy.limits.conns = 2 }, "api.allowed.test")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	first, second := w.tunnelTo("api.allowed.test:443"), w.tunnelTo("api.allowed.test:443")
	third := w.connect()
	if _, err := io.WriteString(third, connectTo("api.allowed.test:443")); err != nil {
		t.Fatal(err)
	}
	if err := third.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := third.Read(make([]byte, 1)); n > 0 {
		t.Fatalf("the third is served beside two, %v", err)
	}
	first.Close()
	if err := third.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := third.Read(make([]byte, 1)); err != nil {
		t.Errorf("the third is not served after the first: %v", err)
	}
	second.Close()
}

func TestSlowHead(t *testing.T) {
	w := newWorld(t, func(w *world) { w.proxy.limits.headTime = 300 * time.Millisecond }, "api.allowed.test")
	c := w.connect()
	began := time.Now()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // a byte at a time does not extend the time
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				if _, err := c.Write([]byte{"GET http://api.allowed.test/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"[i%80]}); err != nil {
					return
				}
			case <-stop:
				return
			}
		}
	}()
	b, _ := io.ReadAll(c)
	if status, reason := outcome(string(b)); status != "408" || reason != "head-timeout" {
		t.Errorf("%s %s", status, reason)
	}
	if d := time.Since(began); d > 2*time.Minute {
		t.Errorf("it took %v", d)
	}
}

func TestHeadArrivesInPieces(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	c := w.connect()
	for _, b := range []byte(connectTo("api.allowed.test:443")) {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 12)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "HTTP/1.1 200" {
		t.Errorf("%q, %v", b, err)
	}
}
