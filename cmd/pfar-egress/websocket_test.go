package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	shakeIt = "GET /chat HTTP/1.1\r\nHost: api.allowed.test\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
	openIt = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n" // the example of RFC 6455 section 1.3
)

// Only what the origin has agreed to is opaque: until then, and if it does not agree, each request is checked.
func TestPassRequestsWebSocket(t *testing.T) {
	early := "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX: " + strings.Repeat("y", 3000) + "\r\n\r\n"
	changed := func(old, with string) string { return strings.Replace(openIt, old, with, 1) }
	for _, c := range []struct {
		name, says string // the origin's answer to the handshake
		want       string // what the client gets first
		then       string // what it sends then
		status     string // of the refusal that follows; "opaque" if then reaches the origin; "passed" if it is a request that does
	}{
		{"opened", openIt, openIt, evilIt + "\x81\x00\xff", "opaque"}, {"opened, and more", openIt + "\x81\x02hi", openIt + "\x81\x02hi", "\x81\x80", "opaque"},
		{"interim responses first", early + early + openIt + "\x81\x00", early + early + openIt + "\x81\x00", evilIt, "opaque"},
		{"not opened, another host", fineIt, fineIt, evilIt, "403"}, {"not opened, not HTTP", fineIt, fineIt, "\x81\x80\x00", "400"},
		{"not opened, the same host", fineIt, fineIt, getIt, "passed"}, {"not opened, a second handshake", fineIt, fineIt, shakeIt, "400"},
		{"another version", "HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 8\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 8\r\nContent-Length: 0\r\n\r\n", evilIt, "403"},
		{"another key", changed("s3pP", "t3pP"), "", evilIt, "502"}, {"no accept", changed("Sec-WebSocket-Accept", "X"), "", evilIt, "502"}, {"two accepts", changed("Connection", "Sec-WebSocket-Accept: x\r\nConnection"), "", evilIt, "502"},
		{"another protocol", changed("websocket", "h2c"), "", evilIt, "502"}, {"no protocol", changed("Upgrade: websocket\r\n", ""), "", evilIt, "502"}, {"no Connection", changed("Connection: Upgrade\r\n", ""), "", evilIt, "502"},
		{"101 of HTTP/1.0", changed("HTTP/1.1", "HTTP/1.0"), "", evilIt, "502"}, {"1010", changed("101", "1010"), "", evilIt, "502"},
		{"no response", "SSH-2.0-OpenSSH\r\n\r\n", "", evilIt, "502"}, {"half a response", openIt[:len(openIt)-2], "", evilIt, "502"}, {"bare LF", strings.ReplaceAll(openIt, "\r", ""), "", evilIt, "502"}, {"nothing", "", "", evilIt, "502"},
		{"too large", "HTTP/1.1 101 Switching Protocols\r\nX: " + strings.Repeat("y", 17<<10), "", evilIt, "502"},
		{"too many interim responses", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim), strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim), evilIt, "502"},
	} {
		for _, pipelined := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", c.name, pipelined), func(t *testing.T) {
				w := newWorld(t, func(w *world) { w.proxy.limits.headTime = 200 * time.Millisecond }, declared)
				got := w.originSays(len(shakeIt), c.says, func(c2 *net.TCPConn) {
					if c.says == "" || c.status == "passed" {
						_ = c2.CloseWrite()
					}
				})
				p := w.passTo(declared, 80, 0)
				conn := p.dial(t)
				if pipelined {
					say(t, conn, shakeIt+c.then)
				} else {
					say(t, conn, shakeIt)
				}
				if b := readFull(t, conn, make([]byte, len(c.want))); b != c.want {
					t.Fatalf("the client got %q", b)
				}
				if !pipelined {
					say(t, conn, c.then)
				}
				if c.status == "opaque" || c.status == "passed" {
					if err := conn.CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) {
						t.Fatal(err)
					}
				}
				b := readAll(t, conn)
				conn.Close()
				seen, end := <-got, <-p.ends
				if c.status == "opaque" {
					if b != "" || seen.raw != shakeIt+c.then || seen.err != nil || end.err != nil {
						t.Errorf("the client got %q, the origin saw %q, %v, %v", b, seen.raw, seen.err, end.err)
					}
					if end.sent != int64(len(seen.raw)) || end.received != int64(len(c.want)) {
						t.Errorf("%d sent, %d received", end.sent, end.received)
					}
					return
				}
				if c.status == "passed" { // or not: the origin ends at the same time
					if b != "" || seen.raw != shakeIt && seen.raw != shakeIt+c.then {
						t.Errorf("the client got %q, the origin saw %q", b, seen.raw)
					}
					return
				}
				if status, _ := outcome(b); status != c.status || seen.raw != shakeIt {
					t.Errorf("the client got %q, the origin saw %q, want %s", b, seen.raw, c.status)
				}
			})
		}
	}
}

// A handshake is for the first request only: on a later one it is a refusal like any other.
func TestPassRequestsWebSocketIsFirst(t *testing.T) {
	for _, before := range []string{getIt, putIt, chunkIt} {
		w := newWorld(t, nil, declared)
		got := w.serveStrictly()
		c := w.passTo(declared, 80, 0).dial(t)
		say(t, c, before+shakeIt+evilIt)
		if status, reason := outcome(strings.TrimPrefix(readAll(t, c), fineIt)); status != "400" || reason != "upgrade" {
			t.Errorf("behind %q: %s %s", before, status, reason)
		}
		if seen := <-got; seen.raw != before {
			t.Errorf("the origin saw %q", seen.raw)
		}
	}
}
