package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestTunnelKeepsHalfClose(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test:7000")
	w.serveOrigin(func(c *net.TCPConn) { // answers only once the request has ended
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "%d bytes", len(b))
	})
	w.answers["api.allowed.test."] = addrs(public)
	c := w.tunnelTo("api.allowed.test:7000")
	if _, err := c.Write(make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "100000 bytes" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestTunnelPassesTheOriginsEnd(t *testing.T) {
	got := make(chan string, 1)
	w := newWorld(t, nil, "api.allowed.test:7000")
	w.serveOrigin(func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "bye")
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	w.answers["api.allowed.test."] = addrs(public)
	c := w.tunnelTo("api.allowed.test:7000")
	if b, err := io.ReadAll(c); err != nil || string(b) != "bye" {
		t.Fatalf("%q, %v", b, err)
	}
	if _, err := io.WriteString(c, "still here"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if s := <-got; s != "still here" {
		t.Errorf("the origin got %q", s)
	}
}

// What a client sends with CONNECT belongs to the tunnel, and a second CONNECT inside it is the origin's.
func TestTunnelIsOpaque(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test:7000")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	inside := connectTo("evil.test:443") + strings.Repeat("x", 5000)
	c := w.connect()
	if _, err := io.WriteString(c, connectTo("api.allowed.test:7000")+inside); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if want := "HTTP/1.1 200 Connection established\r\n\r\n" + inside; err != nil || string(b) != want {
		t.Errorf("%d bytes, want %d, %v", len(b), len(want), err)
	}
	if lookups, _, _ := w.seen(); len(lookups) != 1 {
		t.Errorf("looked up %q", lookups)
	}
}

func TestTunnelsInParallel(t *testing.T) {
	w := newWorld(t, nil, "*.allowed.test:7000")
	w.serveOrigin(echo)
	var all sync.WaitGroup
	for i := range 40 {
		name := fmt.Sprintf("h%d.allowed.test", i)
		w.mu.Lock()
		w.answers[name+"."] = addrs(public)
		w.mu.Unlock()
		c := w.tunnelTo(name + ":7000")
		all.Go(func() {
			sent := bytes.Repeat([]byte{byte(i)}, 200_000)
			go func() {
				_, _ = c.Write(sent)
				_ = c.CloseWrite()
			}()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("tunnel %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	all.Wait()
}

func TestIdleTunnelEnds(t *testing.T) {
	const idle = 300 * time.Millisecond
	w := newWorld(t, func(w *world) { w.proxy.limits.idle = idle }, "api.allowed.test:7000")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	var c *net.TCPConn
	used := func() (gap time.Duration, err error) { // it lives longer than the limit while it is used
		began := time.Now()
		c = w.tunnelTo("api.allowed.test:7000")
		for range 10 {
			if _, err = c.Write([]byte("x")); err == nil {
				_, err = io.ReadFull(c, make([]byte, 1))
			}
			if err == nil {
				time.Sleep(50 * time.Millisecond)
			}
			if gap = max(gap, time.Since(began)); err != nil {
				break
			}
			began = time.Now()
		}
		return gap, err
	}
	gap, err := used()
	for n := 0; err != nil && gap >= idle && n < 10; n++ { // as on a busy machine
		gap, err = used()
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("%d, %v", n, err)
	}
	if d := time.Since(began); d > 2*time.Minute {
		t.Errorf("the idle tunnel lived on for %v", d)
	}
}

func TestTunnelIsCutWhenTheServiceEnds(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test:7000")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	l := listen(t)
	s := &service{sources: w.proxy.sources(sockets{proxy: []*net.TCPListener{l}}, w.table), log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	w.addr = l.Addr().String()
	c := w.tunnelTo("api.allowed.test:7000")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
	if !strings.Contains(w.logged.String(), "verdict=allow") {
		t.Errorf("the cut tunnel is not in the log: %s", w.logged)
	}
}

func BenchmarkConnect(b *testing.B) {
	w := newWorld(b, nil, "api.allowed.test:7000")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	request := []byte(connectTo("api.allowed.test:7000"))
	answer := make([]byte, 39)
	b.ReportAllocs()
	for b.Loop() {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

// BenchmarkConnectDirect is the same handshake without a proxy, for comparison.
func BenchmarkConnectDirect(b *testing.B) {
	w := newWorld(b, nil)
	w.serveOrigin(echo)
	for b.Loop() {
		c, err := net.Dial("tcp", w.origin)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Write(make([]byte, 39)); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 39)); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

func BenchmarkTunnel(b *testing.B)       { benchmarkBulk(b, true) }
func BenchmarkTunnelDirect(b *testing.B) { benchmarkBulk(b, false) }

func benchmarkBulk(b *testing.B, through bool) {
	const block = 1 << 20
	w := newWorld(b, nil, "api.allowed.test:7000")
	w.serveOrigin(func(c *net.TCPConn) {
		chunk := make([]byte, 64<<10)
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	})
	w.answers["api.allowed.test."] = addrs(public)
	var c net.Conn
	if through {
		c = w.tunnelTo("api.allowed.test:7000")
	} else {
		var err error
		if c, err = net.Dial("tcp", w.origin); err != nil {
			b.Fatal(err)
		}
		defer c.Close()
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, block)
	b.SetBytes(block)
	for b.Loop() {
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	w := newWorld(b, nil, "api.allowed.test:7000")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	c := w.tunnelTo("api.allowed.test:7000")
	if err := c.SetDeadline(time.Time{}); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 100)
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}
