package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tcpPair returns the two ends of a connection over loopback.
func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l := listen(t)
	accepted := make(chan *net.TCPConn, 1)
	go func() {
		c, _ := l.AcceptTCP()
		accepted <- c
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, b = c.(*net.TCPConn), <-accepted
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// spliced starts copying from the far end of src to the far end of dst.
func spliced(t testing.TB) (src, dst *net.TCPConn, count *atomic.Int64, done chan error) {
	t.Helper()
	src, from := tcpPair(t)
	to, dst := tcpPair(t)
	count, done = &atomic.Int64{}, make(chan error, 1)
	s := newSplicer()
	go func() {
		err := s.copy(to, from, count)
		if err == nil {
			err = to.CloseWrite()
		}
		done <- err
	}()
	return src, dst, count, done
}

func TestSpliceMovesEverything(t *testing.T) {
	src, dst, count, done := spliced(t)
	sent := make([]byte, 20<<20+7)
	if _, err := rand.Read(sent); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = src.Write(sent[:1])
		_, _ = src.Write(sent[1:])
		_ = src.CloseWrite()
	}()
	time.Sleep(50 * time.Millisecond) // the reader is late: both sockets and the pipe are full
	got, err := io.ReadAll(dst)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
	}
	if err := <-done; err != nil || count.Load() != int64(len(sent)) {
		t.Errorf("%v, counted %d", err, count.Load())
	}
}

// A reader that takes nothing costs the sender: what is under way is bounded by the sockets and one pipe.
func TestSpliceHoldsBack(t *testing.T) {
	src, dst, count, _ := spliced(t)
	if err := dst.SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Write(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the count", func() bool { return count.Load() > 0 })
	if err := src.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := src.Write(make([]byte, 256<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes went somewhere, %v", n, err)
	}
	if c := count.Load(); c == 0 || c > 64<<20 {
		t.Errorf("counted %d", c)
	}
}

func TestSpliceEndsWithAnError(t *testing.T) {
	src, dst, _, done := spliced(t)
	reset(dst)
	if err := src.SetWriteDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := src.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}()
	if err := <-done; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%v", err)
	}
}

// What follows urgent data is neither lost nor late, whether the end has come with it or not.
func TestSpliceUrgentData(t *testing.T) {
	for _, end := range []bool{true, false} {
		src, dst, _, done := spliced(t)
		raw, err := src.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(src, "before "); err != nil {
			t.Fatal(err)
		}
		if err := raw.Write(func(fd uintptr) bool {
			err = unix.Send(int(fd), []byte("!"), unix.MSG_OOB)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(src, "after"); err != nil {
			t.Fatal(err)
		}
		if end {
			if err := src.CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		if err := dst.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, len("before after"))
		if _, err := io.ReadFull(dst, b); err != nil || string(b) != "before after" {
			t.Errorf("end %t: %q, %v", end, b, err)
		}
		if end {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

// Connections that rest hold no pipe, of which a user may have few.
func TestIdleConnectionsHoldNoPipes(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test:7000")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	before := pipes(t)
	for range 60 {
		c := w.tunnelTo("api.allowed.test:7000")
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	// The test's own echo copies by io.Copy, which holds one for each.
	if n := pipes(t) - before; n > 60*2+2*2*sparePipes {
		t.Errorf("60 connections hold %d ends of pipes", n)
	}
}

func pipes(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(link, "pipe:") {
			n++
		}
	}
	return n
}

func BenchmarkSplice(b *testing.B) {
	for _, how := range []string{"splicer", "io.Copy"} {
		b.Run(how, func(b *testing.B) {
			src, from := tcpPair(b)
			to, dst := tcpPair(b)
			go func() {
				if how == "io.Copy" {
					_, _ = io.Copy(to, from)
				} else {
					_ = newSplicer().copy(to, from, &atomic.Int64{})
				}
				_ = to.CloseWrite()
			}()
			const size = 1 << 20
			b.SetBytes(size)
			go func() {
				for buf := make([]byte, size); ; {
					if _, err := src.Write(buf); err != nil {
						return
					}
				}
			}()
			buf := make([]byte, size)
			for b.Loop() {
				if _, err := io.ReadFull(dst, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSpliceRoundTrip is one small message each way.
func BenchmarkSpliceRoundTrip(b *testing.B) {
	for _, how := range []string{"splicer", "io.Copy"} {
		b.Run(how, func(b *testing.B) {
			client, a := tcpPair(b)
			up, server := tcpPair(b)
			s := newSplicer()
			move := func(dst, src *net.TCPConn) { _, _ = io.Copy(dst, src) }
			if how == "splicer" {
				move = func(dst, src *net.TCPConn) { _ = s.copy(dst, src, &atomic.Int64{}) }
			}
			go move(up, a)
			go move(a, up)
			go func() {
				for buf := make([]byte, 100); ; {
					if _, err := io.ReadFull(server, buf); err != nil {
						return
					}
					if _, err := server.Write(buf); err != nil {
						return
					}
				}
			}()
			buf := make([]byte, 100)
			for b.Loop() {
				if _, err := client.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(client, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
