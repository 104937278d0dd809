package main

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
		{name: "a response that does not end", raw: getIt, says: "HTTP/1.1 200 OK\r\n\r\ndata", then: func(c *net.TCPConn) { _, _ = io.ReadAll(c); time.Sleep(5 * time.Second) }, want: "HTTP/1.1 200 OK\r\n\r\ndata", reset: true},
		{name: "a response that breaks off", raw: getIt, says: "HTTP/1.1 200 OK\r\n\r\nda", then: func(c *net.TCPConn) { _, _ = io.ReadAll(c); _ = c.SetLinger(0); c.Close() }, want: "HTTP/1.1 200 OK\r\n\r\nda", reset: true},
		{name: "the last response", raw: closing, says: "HTTP/1.1 200 OK\r\n\r\nto the end", want: "HTTP/1.1 200 OK\r\n\r\nto the end"},
		{name: "the last response of HTTP/1.0", raw: withHost("GET / HTTP/1.0", ""), says: "HTTP/1.0 200 OK\r\n\r\nto the end", want: "HTTP/1.0 200 OK\r\n\r\nto the end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				if c.reset {
					w.proxy.limits.linger = 100 * time.Millisecond
				}
			}, declared)
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

// The client's end reaches the origin, which still answers; the origin's end reaches the client, and ends the
// connection.
func TestPassRequestsEnds(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		w := newWorld(t, nil, declared)
		got := make(chan transcript, 1)
		w.serveOrigin(func(c *net.TCPConn) {
			b, err := io.ReadAll(c)
			_, _ = io.WriteString(c, fineIt)
			got <- transcript{string(b), err}
		})
		p := w.passTo(declared, 80, 0)
		c := p.dial(t)
		say(t, c, getIt)
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b := readAll(t, c); b != fineIt {
			t.Errorf("the client got %q", b)
		}
		if seen, end := <-got, <-p.ends; seen != (transcript{getIt, nil}) || end != (passed{int64(len(getIt)), int64(len(fineIt)), nil}) {
			t.Errorf("the origin saw %+v, %+v", seen, end)
		}
	})
	t.Run("client gone", func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.proxy.limits.orphan = 100 * time.Millisecond }, declared)
		release := make(chan struct{})
		got := w.originSays(len(getIt), "", func(*net.TCPConn) { <-release })
		p := w.passTo(declared, 80, 0)
		c := p.dial(t)
		say(t, c, getIt)
		c.Close()
		if end := <-p.ends; end.err == nil {
			t.Error("no error")
		}
		close(release)
		if seen := <-got; seen.raw != getIt {
			t.Errorf("the origin saw %+v", seen)
		}
	})
	t.Run("client resets", func(t *testing.T) {
		w := newWorld(t, nil, declared)
		got := w.originSays(len(getIt), fineIt, nil)
		p := w.passTo(declared, 80, 0)
		c := p.dial(t)
		say(t, c, getIt)
		if b := readFull(t, c, make([]byte, len(fineIt))); b != fineIt {
			t.Fatal(b)
		}
		_ = c.SetLinger(0)
		c.Close()
		if seen := <-got; seen.raw != getIt || !errors.Is(seen.err, syscall.ECONNRESET) {
			t.Errorf("the origin saw %+v", seen)
		}
		if end := <-p.ends; end.err == nil {
			t.Error("no error")
		}
	})
	t.Run("origin", func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.proxy.limits.linger = 100 * time.Millisecond }, declared)
		got := w.originSays(len(getIt), fineIt, func(c *net.TCPConn) { _ = c.CloseWrite() })
		p := w.passTo(declared, 80, 0)
		c := p.dial(t)
		say(t, c, getIt)
		if b := readAll(t, c); b != fineIt {
			t.Errorf("the client got %q", b)
		}
		say(t, c, getIt+evilIt) // too late: the connection has ended
		if seen := <-got; seen.raw != getIt {
			t.Errorf("the origin saw %+v", seen)
		}
		if end := <-p.ends; end.err != nil {
			t.Error(end.err)
		}
	})
	t.Run("origin, and a client that stays", func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.proxy.limits.linger = 100 * time.Millisecond }, declared)
		w.originSays(len(getIt), fineIt, func(c *net.TCPConn) { _ = c.CloseWrite() })
		p := w.passTo(declared, 80, 0)
		c := p.dial(t)
		say(t, c, getIt)
		if b := readAll(t, c); b != fineIt {
			t.Errorf("the client got %q", b)
		}
		select {
		case end := <-p.ends:
			if end.err != nil {
				t.Error(end.err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("the connection outlives the origin's end")
			c.Close()
		}
	})
	t.Run("origin resets", func(t *testing.T) {
		w := newWorld(t, nil, declared)
		w.originSays(len(getIt), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", func(c *net.TCPConn) {
			time.Sleep(50 * time.Millisecond) // let it arrive before the reset overtakes it
			_ = c.SetLinger(0)
			c.Close()
		})
		p := w.passTo(declared, 80, 0)
		c := p.dial(t)
		say(t, c, getIt)
		if b, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client got %q, %v", b, err)
		}
		if end := <-p.ends; end.err == nil {
			t.Error("no error")
		}
	})
	t.Run("origin does not want the body", func(t *testing.T) {
		const no = "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
		w := newWorld(t, nil, declared)
		head := withHost("POST / HTTP/1.1", "Content-Length: 1000000000\r\n")
		release := make(chan struct{})
		w.serveOrigin(func(c *net.TCPConn) { // and reads nothing of it
			_, _ = io.ReadFull(c, make([]byte, len(head)))
			time.Sleep(50 * time.Millisecond) // let it fill the buffers
			_, _ = io.WriteString(c, no)
			_ = c.CloseWrite()
			<-release
		})
		p := w.passTo(declared, 80, 0)
		c := p.dial(t)
		say(t, c, head)
		go func() { _, _ = io.CopyN(c, zeros{}, 1e9) }()
		if b := readFull(t, c, make([]byte, len(no))); b != no {
			t.Errorf("the client got %q", b)
		}
		select {
		case <-p.ends:
		case <-time.After(2 * time.Minute):
			t.Error("the connection outlives the origin's end")
			c.Close()
		}
		close(release)
	})
}
