package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-egress/clienthello"
	"github.com/pfar/pfar/policies/egress"
)

// maxHello bounds a ClientHello. With post-quantum keys they are about 2 KiB.
const maxHello = 32 << 10

var (
	errSNIMissing  = &refusal{403, "sni-missing", "The TLS handshake names no server."}
	errSNI         = &refusal{403, "sni-contradicts", "The TLS handshake names another server than the one that was looked up."}
	errECH         = &refusal{403, "sni-encrypted", "The TLS handshake encrypts the server's name (ECH)."}
	errHelloTime   = &refusal{408, "hello-timeout", "The TLS handshake did not begin in time."}
	errNothingSent = errors.New("the client sent nothing")
)

// relay moves bytes between c and up until both sides have ended. What is said to port 443 has to be TLS for the host
// that was decided on, what is said to port 80 HTTP for it; everything else is the host's own affair. What secrets
// are put into is opened. first is what has been read of c already.
func (p *proxy) relay(ctx context.Context, c, up *net.TCPConn, d egress.Decision, port uint16, first []byte, rec *record) error {
	if rec.brokered {
		hello, err := p.readHello(c, first, d)
		if err != nil {
			return err
		}
		return p.open(ctx, c, up, hello, d, port, rec)
	}
	switch port {
	case 80:
		return p.passRequests(c, up, first, d, port, rec)
	case 443:
		hello, err := p.readHello(c, first, d)
		if err != nil {
			return err
		}
		first = hello
	}
	return p.tunnel(c, up, first, rec)
}

// readHello reads a ClientHello, and refuses it if it is for another server: at one address there are many.
func (p *proxy) readHello(c *net.TCPConn, first []byte, d egress.Decision) ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(p.limits.headTime)); err != nil {
		return nil, err
	}
	h, raw, err := clienthello.Read(io.MultiReader(bytes.NewReader(first), c), maxHello)
	var bad *clienthello.Error
	var timeout net.Error
	switch {
	case errors.As(err, &bad):
		return nil, &refusal{403, bad.Reason, bad.Detail}
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, errHelloTime
	case err != nil:
		return nil, errNothingSent
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return raw, p.checkHello(h, d)
}

func (p *proxy) checkHello(h clienthello.Hello, d egress.Decision) error {
	switch {
	case h.ECH:
		return errECH
	case d.Addr.IsValid() && !h.HasServerName: // RFC 6066 section 3: addresses are not named
		return nil
	case d.Addr.IsValid(): // at a declared address, a declared name
		if p.policy.Decide(h.ServerName, 443).Verdict != egress.Allow {
			return errSNI
		}
	case !h.HasServerName:
		return errSNIMissing
	case !egress.SameHost(h.ServerName, d.Host):
		return errSNI
	}
	return nil
}

// tunnel moves bytes both ways, unopened, until both sides have ended or neither sends any more.
func (p *proxy) tunnel(c, up *net.TCPConn, first []byte, rec *record) error {
	w := watchIdle(p.limits.idle, c, up)
	defer w.stop()
	p.moveBoth(c, up, first, rec)
	return nil
}

// moveBoth moves bytes both ways. Each side's end is passed on by itself: a client may close its half and still read
// the answer.
func (p *proxy) moveBoth(c, up *net.TCPConn, first []byte, rec *record) {
	var back sync.WaitGroup
	back.Go(func() { p.move(c, up, &rec.received) })
	if n, err := up.Write(first); err == nil { // an empty write sends nothing
		rec.sent.Add(int64(n))
		p.move(up, c, &rec.sent)
	} else {
		abort(c, up)
	}
	back.Wait()
}

// move moves bytes until src ends, then ends dst's half.
func (p *proxy) move(dst, src *net.TCPConn, count *atomic.Int64) {
	if err := p.splicer.copy(dst, src, count); err != nil || dst.CloseWrite() != nil {
		abort(dst, src)
	}
}

// abort resets both connections: neither side takes what it has got for all there was.
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
