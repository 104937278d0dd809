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
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
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
		{name: "behind a large body", raw: withHost("PUT / HTTP/1.1", "Content-Length: 70000\r\n") + strings.Repeat("x", 70000), count: 1},
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

// headOf returns a request without a body of n octets.
func headOf(n int) string {
	return withHost("GET / HTTP/1.1", "X: "+strings.Repeat("y", n-len(withHost("GET / HTTP/1.1", "X: \r\n")))+"\r\n")
}

func TestPassRequestsBoundsWhatWasReadBefore(t *testing.T) {
	for size, status := range map[int]string{16 << 10: "200", 16<<10 + 1: "431"} {
		w := newWorld(t, nil, declared)
		w.serveStrictly()
		c := w.passTo(declared, 80, 17<<10).dial(t)
		say(t, c, headOf(size)+strings.Repeat(getIt, 30))
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, _ := outcome(readAll(t, c)); got != status {
			t.Errorf("%d octets: %s", size, got)
		}
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
		{"a head of the largest size", getIt + headOf(16<<10) + getIt, ""},
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

// Once a response has begun, a body that is refused half way ends in a reset: a refusal would stand in the response.
func TestPassRequestsCutsBodiesBehindAResponse(t *testing.T) {
	const begun = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhel"
	head := withHost("POST / HTTP/1.1", "Transfer-Encoding: chunked\r\n") + "5\r\nhello\r\n"
	w := newWorld(t, nil, declared)
	got := w.originSays(len(head), begun, nil)
	c := w.passTo(declared, 80, 0).dial(t)
	say(t, c, head)
	if b := readFull(t, c, make([]byte, len(begun))); b != begun {
		t.Fatal(b)
	}
	say(t, c, "5;ext\r\n")
	if b, err := io.ReadAll(c); len(b) > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client got %q, %v", b, err)
	}
	if seen := <-got; seen.raw != head || !errors.Is(seen.err, syscall.ECONNRESET) {
		t.Errorf("the origin saw %+v", seen)
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
	const headTime = 200 * time.Millisecond
	w := newWorld(t, func(w *world) { w.proxy.limits.headTime = headTime }, declared)
	got := w.serveStrictly()
	p := w.passTo(declared, 80, 0)
	after := func(count int) *net.TCPConn { // nil: a head of ours took too long
		c := p.dial(t)
		for range count {
			time.Sleep(headTime + 50*time.Millisecond)
			began := time.Now()
			for _, part := range []string{getIt[:5], getIt[5:20], getIt[20:]} {
				say(t, c, part)
				time.Sleep(20 * time.Millisecond)
			}
			b := make([]byte, len(fineIt))
			if _, err := io.ReadFull(c, b); err == nil && string(b) == fineIt {
				continue
			} else if time.Since(began) < headTime {
				t.Fatalf("%q, %v", b, err)
			}
			c.Close()
			<-got
			<-p.ends
			return nil
		}
		return c
	}
	for _, count := range []int{0, 1, 3} {
		c := after(count)
		for n := 0; c == nil && n < 10; n++ { // as on a busy machine
			c = after(count)
		}
		if c == nil {
			t.Fatal("every try took too long")
		}
		began := time.Now()
		stop := make(chan struct{})
		go func() { // it trickles for ever
			defer close(stop)
			for i := 0; ; i++ {
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
		if d := time.Since(began); d < 100*time.Millisecond {
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
		began := time.Now()
		c := p.dial(t)
		_, gone := io.WriteString(c, raw) // on a busy machine the end may have come
		if _, err := io.ReadAll(c); !errors.Is(errors.Join(gone, err), syscall.ECONNRESET) {
			t.Errorf("%q ends with %v, %v", raw, gone, err)
		}
		if d := time.Since(began); d < 100*time.Millisecond {
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
