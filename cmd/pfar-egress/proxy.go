package main

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-egress/resolver"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/monitor"
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

	opened     int // connections to hosts that secrets are put on the wire for, as many outside beyond them, and half of the requests on them
	openedHead int // octets of a head there

	continueTime time.Duration // for a host there to say that it wants a body that is held back until it does (RFC 9110 section 10.1.1)
}

var defaultLimits = limits{
	conns: 2048, rate: 2000, tuned: 64, buffer: 128 << 10, head: 16 << 10, fields: 64,
	headTime: 10 * time.Second, dialTime: 10 * time.Second,
	idle:   time.Hour, // IMAP's IDLE is renewed every 29 minutes (RFC 2177), database pools rest as long
	orphan: time.Minute, linger: time.Second, opened: 256, openedHead: 32 << 10, continueTime: time.Second,
}

// proxy answers one server's connections.
type proxy struct {
	name      string // of the server
	file      string // base name of its declaration
	policy    egress.Policy
	addresses *resolver.Addresses
	out       dialer
	lookups   *lookups
	limits    limits
	splicer   *splicer
	journal   *journal
	tunnels   atomic.Int64 // that are open
	secrets   *secrets     // nil: none are put on the wire
	opener    *opener
	roots     *x509.CertPool          // nil: the system's
	pins      map[string][]broker.Pin // by host that is opened; its certificates have one of them. None: any will do
}

// serveConn takes one request to the explicit proxy, decides, does it, records it, and closes.
func (p *proxy) serveConn(ctx context.Context, c *net.TCPConn) {
	defer c.Close()
	defer closeAtEnd(ctx, c)()
	rec := record{began: time.Now(), path: monitor.Proxy}
	r, rest, err := p.readRequest(c)
	if r == nil && err != nil && !isRefusal(err) {
		return // it came and went without a word
	}
	var d egress.Decision
	if r != nil {
		if token(r.method) {
			rec.method = escape(r.method)
		}
		if err == nil {
			if d = p.policy.Decide(r.host, r.port); d.Verdict != egress.Allow {
				err = p.refuse(d, r.target())
			}
		}
		rec.target(d, r.target())
	}
	opened := false
	if err == nil {
		opened, err = p.serve(ctx, c, r, d, rest, &rec)
	}
	ref := rec.conclude(err)
	p.journal.end(&rec)
	switch {
	case ref == nil:
	case opened && r.port != 80:
		reset(c)
	default:
		p.answer(c, ref.response(rec.host, r != nil && r.method == "HEAD"))
	}
}

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// closeAtEnd has ctx's end close c: a tunnel of a server that was stopped, or whose declaration changed, is cut at
// once.
func closeAtEnd(ctx context.Context, c *net.TCPConn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.Close() })
}

func (p *proxy) readRequest(c *net.TCPConn) (*request, []byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(p.limits.headTime)); err != nil {
		return nil, nil, err
	}
	raw, rest, err := readHead(c, p.limits.head)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return nil, nil, errHeadTimeout
	}
	if err != nil {
		return nil, nil, err
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	r, err := parseRequest(raw, p.limits.fields)
	if err == nil && !r.tunnel {
		err = p.secrets.mentioned(raw)
	}
	return r, rest, err
}

// serve does what r asks. Of a refusal that it returns, the client has not been told; opened says that it has been told
// of a tunnel that is open.
func (p *proxy) serve(ctx context.Context, c *net.TCPConn, r *request, d egress.Decision, rest []byte, rec *record) (opened bool, err error) {
	up, err := p.connect(ctx, d, r.port, rec)
	if err != nil {
		return false, err
	}
	defer p.hold(ctx, c, up)()
	rec.opened(r.tunnel && p.secrets.opened(d, r.port))
	p.journal.begin(rec)
	if !r.tunnel {
		return false, p.forward(c, up, r, d, rest, rec)
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return true, err
	}
	return true, p.relay(ctx, c, up, d, r.port, rest, rec)
}

// hold bounds what a connected pair holds, and returns what ends it. With connections whose buffers the kernel sizes, a
// server could have gigabytes under way; the first ones are enough for a download to be fast.
func (p *proxy) hold(ctx context.Context, c, up *net.TCPConn) (release func()) {
	if p.tunnels.Add(1) > int64(p.limits.tuned) {
		for _, conn := range [...]*net.TCPConn{c, up} {
			_ = conn.SetReadBuffer(p.limits.buffer) // fails only if it is closed already
			_ = conn.SetWriteBuffer(p.limits.buffer)
		}
	}
	stop := closeAtEnd(ctx, up)
	return func() {
		stop()
		up.Close()
		p.tunnels.Add(-1)
	}
}

// answer sends a refusal.
func (p *proxy) answer(c *net.TCPConn, response []byte) {
	if c.SetWriteDeadline(time.Now().Add(p.limits.linger)) != nil {
		return
	}
	if _, err := c.Write(response); err != nil {
		return
	}
	if c.CloseWrite() == nil {
		p.linger(c)
	}
}

// linger gives the client the time to read the last that it was sent: to close with its bytes unread would reset the
// connection (RFC 9112 section 9.6), and what is under way would be lost. It reads until the client closes, sends too
// much, or time is up.
func (p *proxy) linger(c *net.TCPConn) {
	const unread = 64 << 10
	if c.SetReadDeadline(time.Now().Add(p.limits.linger)) == nil {
		_, _ = io.CopyN(io.Discard, c, unread)
	}
}
