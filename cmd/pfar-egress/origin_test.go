package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

const (
	declared = "api.allowed.test"
	getIt    = "GET /a?b HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n"
	putIt    = "PUT /a HTTP/1.1\r\nHost: api.allowed.test\r\nContent-Length: 5\r\n\r\nhello"
	chunkIt  = "POST /a HTTP/1.1\r\nHost: api.allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	fineIt   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

// passed is what came of one connection.
type passed struct {
	sent, received int64
	err            error
}

// passage leads each connection to addr through passRequests to the world's origin, as the bridge does.
type passage struct {
	addr   string
	ends   chan passed
	closed sync.WaitGroup
}

func (w *world) passTo(host string, port uint16, first int) *passage {
	w.t.Helper()
	d := w.proxy.policy.Decide(host, port)
	if d.Verdict != egress.Allow {
		w.t.Fatalf("%s is not declared: %s", host, d.Reason)
	}
	l := listen(w.t)
	p := &passage{addr: l.Addr().String(), ends: make(chan passed, 1000)}
	p.closed.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			p.closed.Go(func() { p.ends <- w.pass(c, d, port, first) })
		}
	})
	w.t.Cleanup(func() {
		l.Close()
		p.closed.Wait()
	})
	return p
}

// pass does what the caller of passRequests does.
func (w *world) pass(c *net.TCPConn, d egress.Decision, port uint16, first int) (p passed) {
	defer c.Close()
	conn, err := net.Dial("tcp", w.origin)
	if err != nil {
		return passed{err: err}
	}
	up := conn.(*net.TCPConn)
	defer up.Close()
	early := make([]byte, first)
	n, _ := io.ReadFull(c, early)
	var rec record
	p.err = w.proxy.passRequests(c, up, early[:n], d, port, &rec)
	p.sent, p.received = rec.sent.Load(), rec.received.Load()
	var ref *refusal
	if errors.As(p.err, &ref) {
		up.Close()
		w.proxy.answer(c, ref.response(display(d, target{d.Host, port}), false))
	}
	return p
}

func (p *passage) dial(t testing.TB) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// say writes, to a connection that may have been refused before all of it was written.
func say(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
}

func readAll(t testing.TB, c net.Conn) string {
	t.Helper()
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("%v after %q", err, b)
	}
	return string(b)
}

// transcript is what an origin read from one connection, and how it ended.
type transcript struct {
	raw string
	err error // nil: a clean end
}

// serveStrictly answers each request that net/http reads with fineIt, and tells what it got.
func (w *world) serveStrictly() <-chan transcript {
	got := make(chan transcript, 1000)
	w.serveOrigin(func(c *net.TCPConn) {
		var raw bytes.Buffer
		r := bufio.NewReader(io.TeeReader(c, &raw))
		var err error
		for err == nil {
			var req *http.Request
			if req, err = http.ReadRequest(r); err != nil {
				break
			}
			if _, err = io.Copy(io.Discard, req.Body); err == nil {
				_, err = io.WriteString(c, fineIt)
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		got <- transcript{raw.String(), err}
	})
	return got
}

type hostile struct{ raw, status, reason string }

func withHost(line, fields string) string {
	return line + "\r\nHost: api.allowed.test\r\n" + fields + "\r\n"
}

// hostileRequests are refused wherever they stand in a connection to api.allowed.test.
func hostileRequests() []hostile {
	get := func(fields string) string { return withHost("GET / HTTP/1.1", fields) }
	post := func(fields, body string) string { return withHost("POST / HTTP/1.1", fields) + body }
	host := func(value string) string { return "GET / HTTP/1.1\r\nHost: " + value + "\r\n\r\n" }
	line := func(line string) string { return withHost(line, "") }
	const shake = "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
	return []hostile{
		// Another host.
		{host("evil.test"), "403", "host-contradicts"}, {host("evil.test:80"), "403", "host-contradicts"},
		{host("api.allowed.test:443"), "403", "host-contradicts"}, {host("api.allowed.test:8080"), "403", "host-contradicts"},
		{host("allowed.test"), "403", "host-contradicts"}, {host("x.api.allowed.test"), "403", "host-contradicts"},
		{host("api.allowed.test.evil.test"), "403", "host-contradicts"}, {host("evilapi.allowed.test"), "403", "host-contradicts"},
		{host("93.184.216.34"), "403", "host-contradicts"}, {host("127.0.0.1"), "403", "host-contradicts"}, {host("[::1]"), "403", "host-contradicts"},
		{host("169.254.169.254"), "403", "host-contradicts"}, {host("localhost"), "403", "host-contradicts"}, {host("*"), "403", "host-contradicts"},
		{host("api..allowed.test"), "403", "host-contradicts"}, {host("api.allowed.test.."), "403", "host-contradicts"},
		{host("api%2eallowed.test"), "403", "host-contradicts"}, {host("api.allowed.test,evil.test"), "403", "host-contradicts"},
		{host("xn--pi-7sb.allowed.test"), "403", "host-contradicts"},
		{host("api.allowed.test evil.test"), "400", "bad-request"}, {host("api.allowed.test, evil.test"), "400", "bad-request"},
		{host("evil.test@api.allowed.test"), "400", "bad-request"}, {host("api.allowed.test@evil.test"), "400", "bad-request"},
		{host("api.allowed.test/evil.test"), "400", "bad-request"}, {host("evil.test#api.allowed.test"), "400", "bad-request"},
		{host("evil.test\\api.allowed.test"), "400", "bad-request"}, {host("http://api.allowed.test"), "400", "bad-request"},
		{host("api.allowed.test:"), "400", "bad-request"}, {host("api.allowed.test:080"), "400", "bad-request"}, {host("api.allowed.test:65616"), "400", "bad-request"},
		{host("api.allowed.test:80:80"), "400", "bad-request"}, {host("[api.allowed.test]"), "400", "bad-request"}, {host(""), "400", "bad-request"}, {host(":80"), "400", "bad-request"},
		{host("\u0430pi.allowed.test"), "400", "bad-request"}, {host("ａpi.allowed.test"), "400", "bad-request"}, {host("api。allowed.test"), "400", "bad-request"},
		{host("api.allowed.test\xff"), "400", "bad-request"}, {host("\tapi.allowed.test"), "400", "bad-request"}, {host("api.allowed.test\x00"), "400", "bad-request"}, {host("api.allowed.test\x0b"), "400", "bad-request"},

		// No host, two hosts, a host in disguise.
		{"GET / HTTP/1.1\r\n\r\n", "400", "bad-request"}, {"GET / HTTP/1.0\r\n\r\n", "400", "bad-request"}, {"GET / HTTP/1.1\r\nX-Forwarded-Host: api.allowed.test\r\n\r\n", "400", "bad-request"},
		{get("Host: api.allowed.test\r\n"), "400", "bad-request"}, {get("Host: evil.test\r\n"), "400", "bad-request"}, {get("hOST: evil.test\r\n"), "400", "bad-request"},
		{"GET / HTTP/1.1\r\nHost: evil.test\r\nHost: api.allowed.test\r\n\r\n", "400", "bad-request"},
		{"GET / HTTP/1.1\r\nHost : api.allowed.test\r\n\r\n", "400", "bad-request"}, {"GET / HTTP/1.1\r\n Host: api.allowed.test\r\n\r\n", "400", "bad-request"},
		{"GET / HTTP/1.1\r\nX: y\r\n Host: evil.test\r\nHost: api.allowed.test\r\n\r\n", "400", "bad-request"},
		{"GET / HTTP/1.1\r\nHost:\r\n api.allowed.test\r\n\r\n", "400", "bad-request"}, {get("X: y\rHost: evil.test\r\n"), "400", "bad-request"},
		{get("X: y\nHost: evil.test\r\n"), "400", "bad-request"}, {get("X: y\n\nGET / HTTP/1.1\r\nHost: evil.test\r\n"), "400", "bad-request"},
		{get("Host\x00: evil.test\r\n"), "400", "bad-request"}, {get("Connection: close, Host\r\n"), "400", "bad-request"}, {get("Connection: host\r\n"), "400", "bad-request"},
		{get(": evil.test\r\n"), "400", "bad-request"}, {get("X\r\n"), "400", "bad-request"}, {get("H st: x\r\n"), "400", "bad-request"}, {get("(Host): x\r\n"), "400", "bad-request"},

		// Targets.
		{line("GET http://evil.test/ HTTP/1.1"), "403", "host-contradicts"}, {line("GET http://api.allowed.test:81/ HTTP/1.1"), "403", "host-contradicts"},
		{"GET http://api.allowed.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403", "host-contradicts"}, {"GET http://api.allowed.test/ HTTP/1.1\r\n\r\n", "400", "bad-request"},
		{line("GET http://evil.test@api.allowed.test/ HTTP/1.1"), "400", "bad-authority"}, {line("GET http://evil.test\\@api.allowed.test/ HTTP/1.1"), "400", "bad-request"},
		{line("GET http://evil.test#@api.allowed.test/ HTTP/1.1"), "400", "bad-request"}, {line("GET http:///evil.test/ HTTP/1.1"), "400", "bad-authority"},
		{line("GET http://[::1]/ HTTP/1.1"), "403", "host-contradicts"}, {line("GET http://evil.test?api.allowed.test HTTP/1.1"), "403", "host-contradicts"},
		{line("GET https://api.allowed.test/ HTTP/1.1"), "400", "bad-request"}, {line("GET ws://api.allowed.test/ HTTP/1.1"), "400", "bad-request"}, {line("GET http:/api.allowed.test/ HTTP/1.1"), "400", "bad-request"},
		{line("GET api.allowed.test HTTP/1.1"), "400", "bad-request"}, {line("GET * HTTP/1.1"), "400", "bad-request"}, {line("OPTIONS ** HTTP/1.1"), "400", "bad-request"}, {line("GET evil.test:80 HTTP/1.1"), "400", "bad-request"},
		{line("GET  HTTP/1.1"), "400", "bad-request"}, {line("GET /a b HTTP/1.1"), "400", "bad-request"}, {line("GET /\ta HTTP/1.1"), "400", "bad-request"}, {line("GET /\xc3\xbc HTTP/1.1"), "400", "bad-request"},
		{line("GET /#a HTTP/1.1"), "400", "bad-request"}, {line("GET /\\evil.test HTTP/1.1"), "400", "bad-request"}, {line("GET / HTTP/1.1 HTTP/1.1"), "400", "bad-request"},

		// First lines.
		{line("GET /"), "400", "bad-request"}, {line("GET / HTTP/1.1 "), "400", "bad-request"}, {line("GET  / HTTP/1.1"), "400", "bad-request"}, {line("GET\t/\tHTTP/1.1"), "400", "bad-request"},
		{line("GET / HTTP/2.0"), "505", "bad-version"}, {line("GET / HTTP/1.2"), "505", "bad-version"}, {line("GET / HTTP/01.1"), "505", "bad-version"}, {line("GET / http/1.1"), "400", "bad-request"}, {line("GET / ICY/1.1"), "400", "bad-request"},
		{line(" GET / HTTP/1.1"), "400", "bad-request"}, {line("get / HTTP/1.1"), "400", "bad-request"}, {"\r\n" + getIt, "400", "bad-request"}, {"\n" + getIt, "400", "bad-request"}, {"\x00" + getIt, "400", "bad-request"},
		{line("GE(T / HTTP/1.1"), "400", "bad-request"}, {"GET / HTTP/1.1\nHost: api.allowed.test\n\n", "400", "bad-request"}, {"\xef\xbb\xbf" + getIt, "400", "bad-request"},
		{"\x16\x03\x01\x02\x00\x01\x00\x01", "400", "bad-request"}, {"\x05\x01\x00", "400", "bad-request"}, {"SSH-2.0-OpenSSH\r\n\r\n", "400", "bad-request"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505", "bad-version"}, {line("PRI * HTTP/1.1"), "501", "method-not-allowed"}, {line("TRACE / HTTP/1.1"), "501", "method-not-allowed"}, {line("TRACK / HTTP/1.1"), "501", "method-not-allowed"},
		{"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "501", "method-not-allowed"}, {line("CONNECT api.allowed.test:80 HTTP/1.1"), "501", "method-not-allowed"},

		// Framing.
		{post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+getIt), "400", "bad-request"}, {post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"), "400", "bad-request"}, {post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: 5, 5\r\n", "hello"), "400", "bad-request"},
		{post("Content-Length: +5\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: -1\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: 0x5\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: 5 \t\r\n", "hello"), "400", "bad-request"},
		{post("Content-Length: 010\r\n", "hellohello"), "400", "bad-request"}, {post("Content-Length: 5;\r\n", "hello"), "400", "bad-request"}, {post("Content-Length:\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: ５\r\n", "hello"), "400", "bad-request"},
		{post("Content-Length: 9223372036854775808\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: 18446744073709551621\r\n", "hello"), "400", "bad-request"}, {post("Content-Length: 1e1\r\n", "hello"), "400", "bad-request"},
		{post("Content_Length: 5\r\n", "hello"), "400", "bad-request"}, {post("Transfer_Encoding: chunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Content-Length: 5\r\nTransfer_Encoding: chunked\r\n", "hello"), "400", "bad-request"},
		{post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Transfer-Encoding: identity\r\n", ""), "400", "bad-request"}, {post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Transfer-Encoding: chun\u212aed\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding:\tchunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), "400", "bad-request"}, {post("Transfer-Encoding:\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{withHost("POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n", "400", "bad-request"}, {post("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400", "bad-request"},
		{post("Connection: close, content-length\r\nContent-Length: 5\r\n", "hello"), "400", "bad-request"}, {post("Transfer-Encoding: chunked\r\nTrailer: Host\r\n", "0\r\nHost: evil.test\r\n\r\n"), "400", "bad-request"},
		{post("Expect: 100-continue, 200-ok\r\nContent-Length: 5\r\n", "hello"), "400", "bad-request"}, {post("Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 5\r\n", "hello"), "400", "bad-request"},

		// Other protocols.
		{get("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), "400", "upgrade"}, {get("Upgrade: h2c\r\n"), "400", "upgrade"}, {get("HTTP2-Settings: AAMAAABkAAQAAP__\r\n"), "400", "upgrade"},
		{get("Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n"), "400", "upgrade"}, {get(shake + "Upgrade: websocket, h2c\r\n"), "400", "upgrade"}, {get(shake + "Upgrade: websocket\r\nUpgrade: h2c\r\n"), "400", "upgrade"},
		{get(shake + "Upgrade: web\u017focket\r\n"), "400", "bad-request"}, {get(shake + "Upgrade: websocket\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), "400", "upgrade"},
		{get("Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"), "400", "upgrade"}, {get("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"), "400", "upgrade"},
		{get("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: a\r\nSec-WebSocket-Version: 8\r\n"), "400", "upgrade"}, {get(shake + "Upgrade: websocket\r\nContent-Length: 5\r\n"), "400", "upgrade"},
		{withHost("POST / HTTP/1.1", shake+"Upgrade: websocket\r\n"), "400", "upgrade"}, {withHost("GET / HTTP/1.0", shake+"Upgrade: websocket\r\n"), "400", "upgrade"},
		{"GET / HTTP/1.1\r\nHost: evil.test\r\n" + shake + "Upgrade: websocket\r\n\r\n", "403", "host-contradicts"},

		// Bounds.
		{get("X: " + strings.Repeat("y", 17<<10) + "\r\n"), "431", "head-too-large"}, {get(strings.Repeat("X: y\r\n", 64)), "431", "head-too-large"}, {"GET /" + strings.Repeat("a", 17<<10), "431", "head-too-large"},
	}
}

// Wherever a request stands that is refused, nothing of it reaches the origin, and nothing that comes after it.
func TestPassRequestsRefuses(t *testing.T) {
	for _, before := range []struct {
		name, raw string
		count     int
		wait      bool
	}{
		{name: "first"},
		{name: "pipelined", raw: getIt + putIt, count: 2},
		{name: "behind chunks", raw: chunkIt, count: 1},
		{name: "kept alive", raw: putIt, count: 1, wait: true},
	} {
		t.Run(before.name, func(t *testing.T) {
			w := newWorld(t, nil, declared)
			got := w.serveStrictly()
			p := w.passTo(declared, 80, 0)
			for _, h := range hostileRequests() {
				c := p.dial(t)
				answers := strings.Repeat(fineIt, before.count)
				if before.wait {
					say(t, c, before.raw)
					if b := make([]byte, len(answers)); readFull(t, c, b) != answers {
						t.Fatalf("%.100q before %.100q", b, h.raw)
					}
					answers = ""
					say(t, c, h.raw+getIt)
				} else {
					say(t, c, before.raw+h.raw+getIt)
				}
				b, ordered := strings.CutPrefix(readAll(t, c), answers)
				if status, reason := outcome(b); !ordered || status != h.status || reason != h.reason {
					t.Errorf("%.200q is answered with %q, want %s %s", h.raw, b, h.status, h.reason)
				}
				c.Close()
				end := <-p.ends
				if seen := <-got; seen.raw != before.raw {
					t.Errorf("%.200q: the origin saw %q", h.raw, seen.raw)
				}
				var ref *refusal
				var after settled
				if errors.As(end.err, &ref) != (before.count == 0) || errors.As(end.err, &after) != (before.count > 0) {
					t.Errorf("%.200q ends with %T %v", h.raw, end.err, end.err)
				}
			}
		})
	}
}

func readFull(t testing.TB, c net.Conn, b []byte) string {
	t.Helper()
	if n, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("%v after %q", err, b[:n])
	}
	return string(b)
}

func TestHostileRequestsAreMany(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range hostileRequests() {
		if seen[h.raw] {
			t.Errorf("%.100q is there twice", h.raw)
		}
		seen[h.raw] = true
	}
	if len(seen) < 150 {
		t.Errorf("%d of 150", len(seen))
	}
}

// What is passed on is what came, but for the framing of chunks.
func TestPassRequestsPassesOn(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 100_000)
	for _, c := range []struct{ name, raw, want string }{
		{"one", getIt, ""}, {"pipelined", getIt + putIt + chunkIt + getIt, ""}, {"a hundred", strings.Repeat(getIt, 100), ""},
		{"case and trailing dot", "GET / HTTP/1.1\r\nhost:API.Allowed.TEST.:80 \r\n\r\n", ""},
		{"absolute-form", "GET HTTP://API.allowed.test:80/a?b=//evil.test HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n", ""},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n", ""},
		{"a method of WebDAV's", withHost("VERSION-CONTROL /a HTTP/1.1", "Depth: 1\r\n"), ""}, {"two slashes", withHost("GET //evil.test/a HTTP/1.1", ""), ""},
		{"a query that is not encoded", withHost("GET /?a=\\b|{c}\"<>'^`[] HTTP/1.1", ""), ""},
		{"HTTP/1.0", withHost("GET / HTTP/1.0", "Connection: keep-alive\r\n") + getIt, ""},
		{"fields of all kinds", withHost("GET / HTTP/1.1", "A:\tb\tc \r\nB_c: d\r\nX-Forwarded-Host: evil.test\r\nProxy-Authorization: x\r\nConnection: keep-alive, TE\r\nTE: trailers\r\nCookie: \xff\r\nE:\r\n"), ""},
		{"64 fields", withHost("GET / HTTP/1.1", strings.Repeat("X: y\r\n", 63)), ""},
		{"a head of the largest size", withHost("GET / HTTP/1.1", "X: "+strings.Repeat("y", 16<<10-len(withHost("GET / HTTP/1.1", "X: \r\n")))+"\r\n") + getIt, ""},
		{"a body that looks like a request", withHost("POST / HTTP/1.1", "Content-Length: 38\r\n") + "GET / HTTP/1.1\r\nHost: evil.test\r\nA: b\r\n\r\n"[:38] + getIt, ""},
		{"a GET with a body", withHost("GET / HTTP/1.1", "Content-Length: 5\r\n") + "hello" + getIt, ""}, {"an empty body", withHost("POST / HTTP/1.1", "Content-Length: 0\r\n") + getIt, ""},
		{"a large body", withHost("POST / HTTP/1.1", fmt.Sprintf("Content-Length: %d\r\n", len(large))) + large + getIt, ""},
		{"a large chunk", withHost("POST / HTTP/1.1", "Transfer-Encoding: Chunked\r\n") + fmt.Sprintf("%X\r\n%s\r\n00\r\n\r\n", len(large), large) + getIt,
			withHost("POST / HTTP/1.1", "Transfer-Encoding: Chunked\r\n") + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(large), large) + getIt},
		{"chunks that look like a request", withHost("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\n") + "02\r\n\r\n\r\n24\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n\n\r\n0\r\n\r\n" + getIt,
			withHost("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\n") + "2\r\n\r\n\r\n24\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n\n\r\n0\r\n\r\n" + getIt},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want == "" {
				c.want = c.raw
			}
			for _, first := range []int{0, 1, len(getIt), 100} {
				w := newWorld(t, nil, declared)
				got := w.serveStrictly()
				p := w.passTo(declared, 80, first)
				conn := p.dial(t)
				go func() {
					_, _ = io.WriteString(conn, c.raw)
					_ = conn.CloseWrite()
				}()
				answers := readAll(t, conn)
				seen, end := <-got, <-p.ends
				if seen.raw != c.want || seen.err != nil {
					t.Errorf("the origin saw %.300q, %v\nwant           %.300q", seen.raw, seen.err, c.want)
				}
				if n := strings.Count(answers, fineIt); n == 0 || answers != strings.Repeat(fineIt, n) {
					t.Errorf("the client got %q", answers)
				}
				if end.err != nil || end.received != int64(len(answers)) {
					t.Errorf("%d received, want %d, %v", end.received, len(answers), end.err)
				}
			}
		})
	}
}

// A body that is refused half way, or cut short, never looks whole to the origin: its connection is reset.
func TestPassRequestsCutsBodies(t *testing.T) {
	chunked := withHost("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\n")
	long := withHost("POST / HTTP/1.1", "Content-Length: 100\r\n")
	for _, before := range []string{"", getIt} {
		for _, c := range []struct {
			head, body, seen string // of the body
			status           string // of a refusal, if nothing came before; otherwise there is a reset
		}{
			{chunked, "5;ext=1\r\nhello\r\n0\r\n\r\n", "", "400"}, {chunked, "5;\nxx\r\nhello\r\n0\r\n\r\n", "", "400"}, {chunked, "5 \r\nhello\r\n0\r\n\r\n", "", "400"}, {chunked, " 5\r\nhello\r\n0\r\n\r\n", "", "400"},
			{chunked, "5\nhello\r\n0\r\n\r\n", "", "400"}, {chunked, "5\rhello\r\n0\r\n\r\n", "", "400"}, {chunked, "0x5\r\nhello\r\n0\r\n\r\n", "", "400"}, {chunked, "+5\r\nhello\r\n0\r\n\r\n", "", "400"}, {chunked, "-5\r\nhello\r\n0\r\n\r\n", "", "400"},
			{chunked, "5_0\r\nhello\r\n0\r\n\r\n", "", "400"}, {chunked, "\r\nhello\r\n0\r\n\r\n", "", "400"}, {chunked, "\r\n\r\n" + getIt, "", "400"}, {chunked, "fffffffffffffffff\r\n", "", "400"}, {chunked, "0000000000000000000005\r\nhello\r\n0\r\n\r\n", "", "400"},
			{chunked, "10000000000000005\r\nhello\r\n0\r\n\r\n", "", "400"}, {chunked, "5\r\nhello0\r\n\r\n" + getIt, "5\r\nhello", "400"}, {chunked, "5\r\nhello\n0\r\n\r\n", "5\r\nhello", "400"}, {chunked, "5\r\nhello!\r\n0\r\n\r\n", "5\r\nhello", "400"},
			{chunked, "0\r\nHost: evil.test\r\n\r\n", "0\r\n", "400"}, {chunked, "0\r\nX: y\r\n\r\n" + getIt, "0\r\n", "400"}, {chunked, "5\r\nhello\r\n0\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "5\r\nhello\r\n0\r\n", "400"}, {chunked, "0\n\n", "", "400"},
			{chunked, "0\r\n\n", "0\r\n", "400"}, {chunked, "0\r\n\r\r\n", "0\r\n", "400"}, {chunked, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "", "400"},
			{chunked, "", "", ""}, {chunked, "5\r\nhel", "5\r\nhel", ""}, {chunked, "5\r\nhello\r\n0\r\n", "5\r\nhello\r\n0\r\n", ""}, {chunked, "5", "", ""}, {chunked, "5\r\nhello\r\n0\r\n\r", "5\r\nhello\r\n0\r\n\r", ""},
			{long, "", "", ""}, {long, getIt, getIt, ""}, {long, strings.Repeat("x", 99), strings.Repeat("x", 99), ""},
		} {
			w := newWorld(t, nil, declared)
			got := make(chan transcript, 1)
			w.serveOrigin(func(c *net.TCPConn) { // says nothing
				b, err := io.ReadAll(c)
				got <- transcript{string(b), err}
			})
			p := w.passTo(declared, 80, 0)
			conn := p.dial(t)
			say(t, conn, before+c.head+c.body)
			if c.status == "" {
				if err := conn.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			b, err := io.ReadAll(conn)
			switch status, reason := outcome(string(b)); {
			case before == "" && c.status != "":
				if status != c.status || reason != "bad-request" || err != nil {
					t.Errorf("%q: the client got %q, %v", c.body, b, err)
				}
			case len(b) > 0 || !errors.Is(err, syscall.ECONNRESET):
				t.Errorf("%q: the client got %q, %v", c.body, b, err)
			}
			conn.Close()
			seen := <-got
			if !strings.HasPrefix(before+c.head+c.seen, seen.raw) || !errors.Is(seen.err, syscall.ECONNRESET) {
				t.Errorf("%q: the origin saw %q, %v", c.body, seen.raw, seen.err)
			}
			end := <-p.ends
			if after := (settled{}); errors.As(end.err, &after) != (c.status != "") || end.err == nil {
				t.Errorf("%q ends with %T %v", c.body, end.err, end.err)
			}
		}
	}
}

// A head that the client cuts short is refused, and nothing of it is passed on.
func TestPassRequestsTruncatedHead(t *testing.T) {
	for _, before := range []string{"", getIt, putIt} {
		for _, cut := range []string{"G", "GET / HTTP/1.1", "GET / HTTP/1.1\r\nHost: api.allowed.test\r\n", "GET / HTTP/1.1\r\nHost: api.allowed.test\r\n\r"} {
			w := newWorld(t, nil, declared)
			got := w.serveStrictly()
			c := w.passTo(declared, 80, 0).dial(t)
			say(t, c, before+cut)
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			b := readAll(t, c)
			if status, _ := outcome(strings.TrimPrefix(b, fineIt)); status != "400" {
				t.Errorf("%q: the client got %q", cut, b)
			}
			if seen := <-got; seen.raw != before {
				t.Errorf("%q: the origin saw %q", cut, seen.raw)
			}
		}
	}
}

// The time of a head counts from its first octet, on every request; a connection may rest in between.
func TestPassRequestsSlowHead(t *testing.T) {
	w := newWorld(t, func(w *world) { w.proxy.limits.headTime = 150 * time.Millisecond }, declared)
	got := w.serveStrictly()
	p := w.passTo(declared, 80, 0)
	for _, count := range []int{0, 1, 3} {
		c := p.dial(t)
		for range count {
			time.Sleep(200 * time.Millisecond) // longer than a head may take
			for _, part := range []string{getIt[:5], getIt[5:20], getIt[20:]} {
				say(t, c, part)
				time.Sleep(20 * time.Millisecond)
			}
			if b := readFull(t, c, make([]byte, len(fineIt))); b != fineIt {
				t.Fatalf("%q", b)
			}
		}
		began := time.Now()
		stop := make(chan struct{})
		go func() { // it trickles for ever
			defer close(stop)
			for i := range 1000 {
				if _, err := io.WriteString(c, getIt[i%3:i%3+1]); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		b := readAll(t, c)
		if status, reason := outcome(b); status != "408" || reason != "head-timeout" {
			t.Errorf("after %d requests: %q", count, b)
		}
		if d := time.Since(began); d < 100*time.Millisecond || d > 3*time.Second {
			t.Errorf("after %v", d)
		}
		c.Close()
		<-stop
		if seen := <-got; seen.raw != strings.Repeat(getIt, count) {
			t.Errorf("the origin saw %q", seen.raw)
		}
		<-p.ends
	}
}

func TestPassRequestsIdleEnds(t *testing.T) {
	w := newWorld(t, func(w *world) { w.proxy.limits.idle = 250 * time.Millisecond }, declared)
	w.serveStrictly()
	p := w.passTo(declared, 80, 0)
	for _, raw := range []string{"", getIt} {
		c := p.dial(t)
		say(t, c, raw)
		began := time.Now()
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q ends with %v", raw, err)
		}
		if d := time.Since(began); d < 100*time.Millisecond || d > 5*time.Second {
			t.Errorf("%q ends after %v", raw, d)
		}
		if end := <-p.ends; end.err == nil {
			t.Errorf("%q is not said to have been cut", raw)
		}
	}
}

// Before the first request is checked, the origin neither hears nor says anything.
func TestPassRequestsNothingSaid(t *testing.T) {
	w := newWorld(t, nil, declared)
	w.serveOrigin(func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "220 smtp.evil.test\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	p := w.passTo(declared, 80, 0)
	c := p.dial(t)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b := readAll(t, c); b != "" {
		t.Errorf("the client got %q", b)
	}
	if end := <-p.ends; end != (passed{}) {
		t.Errorf("%+v", end)
	}
	c = p.dial(t)
	say(t, c, "HELO x\r\n\r\n")
	if status, _ := outcome(readAll(t, c)); status != "400" {
		t.Errorf("status %s", status)
	}
}

// originSays serves each connection: it reads as many octets as a request has, says what it has to say, and goes on as
// then tells.
func (w *world) originSays(octets int, says string, then func(*net.TCPConn)) <-chan transcript {
	got := make(chan transcript, 100)
	w.serveOrigin(func(c *net.TCPConn) {
		b := make([]byte, octets)
		n, err := io.ReadFull(c, b)
		if err == nil {
			_, err = io.WriteString(c, says)
		}
		if err == nil && then != nil {
			then(c)
		}
		var rest []byte
		if err == nil {
			rest, err = io.ReadAll(c)
		}
		got <- transcript{string(b[:n]) + string(rest), err}
	})
	return got
}

const evilIt = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"

// A refusal stands behind the responses that are under way. Where it cannot, the connection is reset or just ends.
func TestPassRequestsRefusalInOrder(t *testing.T) {
	closing := withHost("GET / HTTP/1.1", "Connection: close\r\n")
	for _, c := range []struct {
		name, raw, says string
		then            func(*net.TCPConn)
		want            string // before the refusal
		status          string
		reset           bool
	}{
		{name: "a late response", raw: getIt, then: func(c *net.TCPConn) {
			time.Sleep(50 * time.Millisecond)
			_, _ = io.WriteString(c, fineIt)
		}, want: fineIt, status: "403"},
		{name: "a response that does not end", raw: getIt, says: "HTTP/1.1 200 OK\r\n\r\ndata", then: func(c *net.TCPConn) { _, _ = io.ReadAll(c); time.Sleep(time.Second) }, want: "HTTP/1.1 200 OK\r\n\r\ndata", reset: true},
		{name: "a response that breaks off", raw: getIt, says: "HTTP/1.1 200 OK\r\n\r\nda", then: func(c *net.TCPConn) { _, _ = io.ReadAll(c); _ = c.SetLinger(0); c.Close() }, want: "HTTP/1.1 200 OK\r\n\r\nda", reset: true},
		{name: "the last response", raw: closing, says: "HTTP/1.1 200 OK\r\n\r\nto the end", want: "HTTP/1.1 200 OK\r\n\r\nto the end"},
		{name: "the last response of HTTP/1.0", raw: withHost("GET / HTTP/1.0", ""), says: "HTTP/1.0 200 OK\r\n\r\nto the end", want: "HTTP/1.0 200 OK\r\n\r\nto the end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil, declared)
			got := w.originSays(len(c.raw), c.says, c.then)
			p := w.passTo(declared, 80, 0)
			conn := p.dial(t)
			say(t, conn, c.raw+evilIt)
			b, err := io.ReadAll(conn)
			rest, ok := strings.CutPrefix(string(b), c.want)
			if status, _ := outcome(rest); status != c.status || c.status == "" && rest != "" || !ok || errors.Is(err, syscall.ECONNRESET) != c.reset {
				t.Errorf("the client got %q, %v", b, err)
			}
			conn.Close()
			if seen := <-got; seen.raw != c.raw {
				t.Errorf("the origin saw %q", seen.raw)
			}
			end := <-p.ends
			if after := (settled{}); !errors.As(end.err, &after) || after.ref.reason != "host-contradicts" {
				t.Errorf("it ends with %T %v", end.err, end.err)
			}
		})
	}
}

func TestPassRequestsRefusalSaysWhatToDo(t *testing.T) {
	w := newWorld(t, nil, declared)
	w.serveStrictly()
	p := w.passTo(declared, 80, 0)
	c := p.dial(t)
	say(t, c, evilIt)
	b := readAll(t, c)
	for _, want := range []string{"pfar refuses api.allowed.test:80: host-contradicts\n", "names another host or port", "a connection of its own"} {
		if !strings.Contains(b, want) {
			t.Errorf("%q says nothing of %q", b, want)
		}
	}
	c = p.dial(t)
	say(t, c, getIt+"HEAD / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if b := strings.TrimPrefix(readAll(t, c), fineIt); !strings.HasPrefix(b, "HTTP/1.1 403 ") || !strings.HasSuffix(b, "\r\n\r\n") {
		t.Errorf("HEAD is answered with %q", b)
	}
}

// An address that is declared is named by itself, in any spelling that is the same address.
func TestPassRequestsToAddressesAndPorts(t *testing.T) {
	for _, c := range []struct {
		entry, host string
		port        uint16
		field       string
		status      string
	}{
		{"93.184.216.34", "93.184.216.34", 80, "93.184.216.34", "200"}, {"93.184.216.34", "93.184.216.34", 80, "93.184.216.35", "403"}, {"93.184.216.34", "93.184.216.34", 80, "api.allowed.test", "403"},
		{"93.184.216.34", "93.184.216.34", 80, "[::ffff:93.184.216.34]", "403"}, {"93.184.216.34", "93.184.216.34", 80, "1572395042", "403"},
		{"2606:2800::1", "2606:2800::1", 80, "[2606:2800::1]", "200"}, {"2606:2800::1", "2606:2800::1", 80, "[2606:2800:0::0001]:80", "200"}, {"2606:2800::1", "2606:2800::1", 80, "[2606:2800::2]", "403"},
		{"2606:2800::1", "2606:2800::1", 80, "2606:2800::1", "400"}, {"2606:2800::1", "2606:2800::1", 80, "[2606:2800::1%25lo]", "400"},
		{"api.allowed.test:8080", declared, 8080, "api.allowed.test:8080", "200"}, {"api.allowed.test:8080", declared, 8080, "api.allowed.test", "403"}, {"api.allowed.test:8080", declared, 8080, "api.allowed.test:80", "403"},
		{"*.allowed.test", declared, 80, "api.allowed.test", "200"}, {"*.allowed.test", declared, 80, "other.allowed.test", "403"}, {"bücher.allowed.test", "bücher.allowed.test", 80, "xn--bcher-kva.allowed.test", "200"},
	} {
		w := newWorld(t, nil, c.entry)
		w.serveStrictly()
		conn := w.passTo(c.host, c.port, 0).dial(t)
		say(t, conn, "GET / HTTP/1.1\r\nHost: "+c.field+"\r\n\r\n")
		b, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Status[:3]; got != c.status {
			t.Errorf("%q of %s:%d: %s, want %s", c.field, c.host, c.port, got, c.status)
		}
		b.Body.Close()
		conn.Close()
	}
}
