package main

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Connections beyond the rate wait; none is refused.
func TestConnectionsBeyondTheRateWait(t *testing.T) {
	w := newWorld(t, func(w *world) { w.proxy.limits.rate = 1 }, "api.allowed.test")
	began := time.Now()
	if status, _ := outcome(w.ask(connectTo("evil.test:443"))); status != "403" {
		t.Fatalf("the first: %s", status)
	}
	second := w.connect()
	if _, err := io.WriteString(second, connectTo("evil.test:443")); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(second)
	if status, _ := outcome(string(b)); err != nil || status != "403" {
		t.Errorf("the second, in its time: %q, %v", b, err)
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("two of one a second are served within %v", took)
	}
}

// Of the first connections the kernel sizes the buffers, those of the others are bounded; what is released counts no
// more.
func TestBytesInFlightAreBounded(t *testing.T) {
	w := newWorld(t, func(w *world) { w.proxy.limits.tuned, w.proxy.limits.buffer = 1, 16<<10 })
	buffers := func(c *net.TCPConn) (sizes [2]int) {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			for i, option := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
				sizes[i], _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, option)
			}
		})
		return sizes
	}
	hold := func(bounded bool) (release func()) {
		c, _ := tcpPair(t)
		up, _ := tcpPair(t)
		before := [2][2]int{buffers(c), buffers(up)}
		release = w.proxy.hold(context.Background(), c, up)
		after := [2][2]int{buffers(c), buffers(up)}
		const doubled = 2 * 16 << 10 // socket(7)
		if want := [2][2]int{{doubled, doubled}, {doubled, doubled}}; bounded && after != want || !bounded && after != before {
			t.Errorf("bounded %t: the buffers were %v, are %v", bounded, before, after)
		}
		return release
	}
	first := hold(false)
	second := hold(true)
	first()
	second()
	hold(false)()
}
