package main

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// limits bound what one server can make this process hold. Beyond them, it is the server's own connections that wait.
type limits struct {
	conns    int           // served at once
	rate     rate.Limit    // new connections a second, and as many at once
	tuned    int           // connections whose buffers the kernel may size, see hold
	buffer   int           // octets of each buffer of the others
	head     int           // octets of a request's or a response's head
	fields   int           // of a request's head; a response may have twice as many
	headTime time.Duration // from the connection to the end of the request's head, however slowly it trickles
	dialTime time.Duration // to resolve, and again to connect
	idle     time.Duration // without a byte either way
	orphan   time.Duration // the same, once the client of a forwarded request has closed its side
	linger   time.Duration // for the client to read a refusal

	// Connections to hosts that secrets are put on the wire for, as many outside beyond them, and half of the requests
	// on them.
	opened     int
	openedHead int // octets of a head there
	// For a host there to say that it wants a body that is held back until it does (RFC 9110 section 10.1.1).
	continueTime time.Duration
}

var defaultLimits = limits{
	conns: 2048, rate: 2000, tuned: 64, buffer: 128 << 10, head: 16 << 10, fields: 64,
	headTime: 10 * time.Second, dialTime: 10 * time.Second,
	idle:   time.Hour, // IMAP's IDLE is renewed every 29 minutes (RFC 2177), database pools rest as long
	orphan: time.Minute, linger: time.Second, opened: 256, openedHead: 32 << 10, continueTime: time.Second,
}

// carrier moves what one server and a host say to each other, within limits.
type carrier struct {
	limits  limits
	splicer *splicer
	tunnels atomic.Int64 // that are open
	secrets *secrets     // nil: none are put on the wire
}

// closeAtEnd has ctx's end close c: a tunnel of a server that was stopped, or whose declaration changed, is cut at
// once.
func closeAtEnd(ctx context.Context, c *net.TCPConn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.Close() })
}

// hold bounds what a connected pair holds, and returns what ends it. With connections whose buffers the kernel sizes, a
// server could have gigabytes under way; the first ones are enough for a download to be fast.
func (b *carrier) hold(ctx context.Context, c, up *net.TCPConn) (release func()) {
	if b.tunnels.Add(1) > int64(b.limits.tuned) {
		for _, conn := range [...]*net.TCPConn{c, up} {
			_ = conn.SetReadBuffer(b.limits.buffer) // fails only if it is closed already
			_ = conn.SetWriteBuffer(b.limits.buffer)
		}
	}
	stop := closeAtEnd(ctx, up)
	return func() {
		stop()
		up.Close()
		b.tunnels.Add(-1)
	}
}

// answer sends a refusal.
func (b *carrier) answer(c *net.TCPConn, response []byte) {
	if c.SetWriteDeadline(time.Now().Add(b.limits.linger)) != nil {
		return
	}
	if _, err := c.Write(response); err != nil {
		return
	}
	if c.CloseWrite() == nil {
		b.linger(c)
	}
}

// linger gives the client time to read the last bytes that it was sent. A close while the client's own bytes are unread
// resets the connection, and loses bytes on their way (RFC 9112 section 9.6). linger reads until the client closes,
// sends too much, or time is up.
func (b *carrier) linger(c *net.TCPConn) {
	const unread = 64 << 10
	if c.SetReadDeadline(time.Now().Add(b.limits.linger)) == nil {
		_, _ = io.CopyN(io.Discard, c, unread)
	}
}

// tunnel moves bytes both ways, unopened, until both sides have ended or neither sends any more.
func (b *carrier) tunnel(c, up *net.TCPConn, first []byte, rec *record) error {
	defer watchIdle(b.limits.idle, c, up).stop()
	b.moveBoth(c, up, first, rec)
	return nil
}

// moveBoth moves bytes both ways. Each side's end is passed on by itself: a client may close its half and still read
// the answer.
func (b *carrier) moveBoth(c, up *net.TCPConn, first []byte, rec *record) {
	var back sync.WaitGroup
	back.Go(func() { b.move(c, up, &rec.received) })
	if n, err := up.Write(first); err == nil { // an empty write sends nothing
		rec.sent.Add(int64(n))
		b.move(up, c, &rec.sent)
	} else {
		abort(c, up)
	}
	back.Wait()
}

// move moves bytes until src ends, then ends dst's half.
func (b *carrier) move(dst, src *net.TCPConn, count *atomic.Int64) {
	if err := b.splicer.copy(dst, src, count); err != nil || dst.CloseWrite() != nil {
		abort(dst, src)
	}
}

// abort resets both connections, so that neither side takes the bytes that it has for the whole.
func abort(a, b *net.TCPConn) {
	reset(a)
	reset(b)
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

// reset ends a connection so that its program sees an error and not the end of the data.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // of a closed connection there is nothing to reset
	c.Close()
}
