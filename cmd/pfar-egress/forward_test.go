package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// originThat answers every request with response and returns what it was sent, up to the request's end by marker.
func (w *world) originThat(response, marker string) <-chan string {
	got := make(chan string, 8)
	w.serveOrigin(func(c *net.TCPConn) {
		var seen strings.Builder
		buf := make([]byte, 4096)
		for !strings.HasSuffix(seen.String(), marker) {
			n, err := c.Read(buf)
			seen.Write(buf[:n])
			if err != nil {
				break
			}
		}
		_, _ = io.WriteString(c, response)
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c) // what came besides
		seen.Write(b)
		got <- seen.String()
	})
	return got
}

func TestForward(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	const okClosed = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
	for _, c := range []struct {
		name, request, marker, want string
		response, gets              string
	}{
		{name: "rewritten",
			request: "GET http://API.allowed.test/a/../b?q=1 HTTP/1.1\r\nHost: api.allowed.test\r\nAccept: */*\r\n\r\n", marker: "\r\n\r\n",
			want:     "GET /a/../b?q=1 HTTP/1.1\r\nHost: api.allowed.test\r\nAccept: */*\r\nConnection: close\r\n\r\n",
			response: ok, gets: okClosed},
		{name: "no path", request: "GET http://api.allowed.test?q HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n", marker: "\r\n\r\n",
			want: "GET /?q HTTP/1.1\r\nHost: api.allowed.test\r\nConnection: close\r\n\r\n", response: ok, gets: okClosed},
		{name: "options", request: "OPTIONS http://api.allowed.test HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n", marker: "\r\n\r\n",
			want: "OPTIONS * HTTP/1.1\r\nHost: api.allowed.test\r\nConnection: close\r\n\r\n", response: ok, gets: okClosed},
		{name: "other port", request: "GET http://api.allowed.test:443/ HTTP/1.1\r\nHost: api.allowed.test:443\r\n\r\n", marker: "\r\n\r\n",
			want: "GET / HTTP/1.1\r\nHost: api.allowed.test:443\r\nConnection: close\r\n\r\n", response: ok, gets: okClosed},
		{name: "http/1.0 without host", request: "GET http://api.allowed.test/ HTTP/1.0\r\n\r\n", marker: "\r\n\r\n",
			want: "GET / HTTP/1.0\r\nHost: api.allowed.test\r\nConnection: close\r\n\r\n", response: ok, gets: okClosed},
		{name: "hop by hop",
			request: "GET http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\n" +
				"Connection: keep-alive, X-Secret, Host\r\nKeep-Alive: 5\r\nTE: trailers\r\nX-Secret: 1\r\nX-Kept: 1\r\n\r\n", marker: "\r\n\r\n",
			want:     "GET / HTTP/1.1\r\nHost: api.allowed.test\r\nX-Kept: 1\r\nConnection: close\r\n\r\n",
			response: "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			gets:     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n"},
		{name: "body by length, and a pipelined request that is not one",
			request: "POST http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\nContent-Length: 5\r\n\r\nhelloGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", marker: "hello",
			want:     "POST / HTTP/1.1\r\nHost: api.allowed.test\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
			response: ok, gets: okClosed},
		{name: "body in chunks, written anew",
			request: "POST http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\nTransfer-Encoding: Chunked\r\n\r\n005\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: other.vhost\r\n\r\n", marker: "0\r\n\r\n",
			want:     "POST / HTTP/1.1\r\nHost: api.allowed.test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\na\r\n0123456789\r\n0\r\n\r\n",
			response: ok, gets: okClosed},
		{name: "continue", request: "POST http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", marker: "hi",
			want:     "POST / HTTP/1.1\r\nHost: api.allowed.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
			response: "HTTP/1.1 100 Continue\r\n\r\n" + ok, gets: "HTTP/1.1 100 Continue\r\n\r\n" + okClosed},
		{name: "no length", request: "GET http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n", marker: "\r\n\r\n",
			want:     "GET / HTTP/1.1\r\nHost: api.allowed.test\r\nConnection: close\r\n\r\n",
			response: "HTTP/1.0 200\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nto the end", gets: "HTTP/1.0 200 \r\nSet-Cookie: a\r\nSet-Cookie: b\r\nConnection: close\r\n\r\nto the end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil, "api.allowed.test")
			w.answers["api.allowed.test."] = addrs(public)
			got := w.originThat(c.response, c.marker)
			if b := w.ask(c.request); b != c.gets {
				t.Errorf("the client got  %q\nwant            %q", b, c.gets)
			}
			if s := <-got; s != c.want {
				t.Errorf("the origin got %q\nwant           %q", s, c.want)
			}
		})
	}
}

func TestForwardBadResponses(t *testing.T) {
	for _, response := range []string{
		"", "garbage\r\n\r\n", "HTTP/1.1 200 OK\n\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/2 200\r\n\r\n",
		"HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 +20 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 20<<10), "HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9), "HTTP/1.1 100 Continue\r\n\r\nSSH-2.0\r\n\r\n", "SSH-2.0-OpenSSH\r\n",
	} {
		w := newWorld(t, nil, "api.allowed.test")
		w.answers["api.allowed.test."] = addrs(public)
		w.originThat(response, "\r\n\r\n")
		b := w.ask("GET http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n")
		for strings.HasPrefix(b, "HTTP/1.1 100") {
			_, b, _ = strings.Cut(b, "\r\n\r\n")
		}
		if status, reason := outcome(b); status != "502" || reason != "bad-response" {
			t.Errorf("%.60q: the client got %q", response, b)
		}
	}
}

func TestForwardRefusesBadChunks(t *testing.T) {
	for _, body := range []string{
		"5;ext=1\r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n",
		"\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n", "fffffffffffffffff\r\n", "00000000000000000005\r\nhello\r\n0\r\n\r\n", "5\r\nhel",
	} {
		w := newWorld(t, nil, "api.allowed.test")
		w.answers["api.allowed.test."] = addrs(public)
		got := make(chan string, 1)
		w.serveOrigin(func(c *net.TCPConn) {
			b, _ := io.ReadAll(c)
			got <- string(b)
		})
		c := w.connect()
		fmt.Fprintf(c, "POST http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n%s", body)
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(c)
		if status, _ := outcome(string(b)); status != "502" {
			t.Errorf("%q: the client got %q", body, b)
		}
		if s := <-got; strings.HasSuffix(s, "0\r\n\r\n") {
			t.Errorf("%q is passed on as a whole body: %q", body, s)
		}
	}
}

func TestForwardStreams(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test")
	w.answers["api.allowed.test."] = addrs(public)
	proceed := make(chan struct{})
	w.serveOrigin(func(c *net.TCPConn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
		<-proceed
		_, _ = io.WriteString(c, "data: 2\n\n")
	})
	c := w.connect()
	if _, err := io.WriteString(c, "GET http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	for _, want := range []string{"data: 1\n", "data: 2\n"} {
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == want {
				break
			}
		}
		if want == "data: 1\n" {
			close(proceed)
		}
	}
}

// A response that breaks off must not look like one that has ended.
func TestForwardPassesAResetOn(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test")
	w.answers["api.allowed.test."] = addrs(public)
	w.serveOrigin(func(c *net.TCPConn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhalf")
		time.Sleep(50 * time.Millisecond) // let it arrive before the reset overtakes it
		_ = c.SetLinger(0)
	})
	c := w.connect()
	if _, err := io.WriteString(c, "GET http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err == nil {
		t.Errorf("a clean end after %q", b)
	}
}

func TestForwardOrphanEnds(t *testing.T) {
	w := newWorld(t, func(w *world) { w.proxy.limits.orphan = 200 * time.Millisecond }, "api.allowed.test")
	w.answers["api.allowed.test."] = addrs(public)
	ended := make(chan struct{})
	w.serveOrigin(func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c)
		close(ended)
	})
	c := w.connect()
	if _, err := io.WriteString(c, "GET http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Error("the origin's connection outlives the client's")
	}
}

// What comes with a large interim response is not lost.
func TestForwardLargeInterimResponse(t *testing.T) {
	body := strings.Repeat("x", 5000)
	w := newWorld(t, nil, "api.allowed.test")
	w.answers["api.allowed.test."] = addrs(public)
	w.serveOrigin(func(c *net.TCPConn) {
		if _, err := c.Read(make([]byte, 4096)); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("y", 2100)+"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"+body)
		_ = c.CloseWrite()
	})
	answer := w.ask("GET http://api.allowed.test/ HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n")
	if !strings.HasPrefix(answer, "HTTP/1.1 103 ") || !strings.HasSuffix(answer, "\r\n\r\n"+body) {
		t.Errorf("%d octets: %.100q ... %.100q", len(answer), answer, answer[max(0, len(answer)-100):])
	}
}
