package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// tunnel answers CONNECT and moves bytes both ways until both sides have ended. Each side's end is passed on by itself:
// a client may close its half and still read the answer.
func (p *proxy) tunnel(c, up *net.TCPConn, rest []byte, rec *record) error {
	w := watchIdle(p.limits.idle, c, up)
	defer w.stop()
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return err
	}
	var back sync.WaitGroup
	back.Go(func() { rec.received = pump(c, up) })
	if n, err := up.Write(rest); err == nil { // what the client sent without waiting for the answer
		rec.sent = int64(n) + pump(up, c)
	} else {
		abort(c, up)
	}
	back.Wait()
	return nil
}

// pump moves bytes until src ends, then ends dst's half. Between two *net.TCPConn, io.Copy splices (splice(2)): hence
// no deadline that each read would have to move, see watchIdle.
func pump(dst, src *net.TCPConn) int64 {
	n, err := io.Copy(dst, src)
	if err != nil || dst.CloseWrite() != nil {
		abort(dst, src)
	}
	return n
}

// abort resets both connections: neither side takes what it has got for all there was.
func abort(a, b *net.TCPConn) {
	for _, c := range [...]*net.TCPConn{a, b} {
		_ = c.SetLinger(0) // of a closed connection there is nothing to reset
		c.Close()
	}
}

// idleWatch closes two connections when neither has received anything for a while. It asks the kernel, which keeps the
// time of each connection's last segment (TCP_INFO, tcp(7)), so that bytes need not pass through this process.
type idleWatch struct {
	limit atomic.Int64 // time.Duration
	a, b  *net.TCPConn

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func watchIdle(limit time.Duration, a, b *net.TCPConn) *idleWatch {
	w := &idleWatch{a: a, b: b}
	w.limit.Store(int64(limit))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(limit, w.check)
	return w
}

func (w *idleWatch) check() {
	quiet := min(sinceReceived(w.a), sinceReceived(w.b))
	left := time.Duration(w.limit.Load()) - quiet
	if left <= 0 {
		abort(w.a, w.b)
		return
	}
	w.reset(left)
}

// shorten replaces the limit.
func (w *idleWatch) shorten(limit time.Duration) {
	w.limit.Store(int64(limit))
	w.reset(limit)
}

func (w *idleWatch) reset(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.timer.Reset(d)
	}
}

func (w *idleWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// sinceReceived returns how long ago c last received data; of a closed connection, forever ago.
func sinceReceived(c *net.TCPConn) time.Duration {
	const forever = 1<<63 - 1
	raw, err := c.SyscallConn()
	if err != nil {
		return forever
	}
	quiet := time.Duration(forever)
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			quiet = time.Duration(info.Last_data_recv) * time.Millisecond
		}
	}) // a closed connection leaves quiet as it is
	return quiet
}
