package main

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

// limits bound what one server can make this process hold. Beyond them, it is the server's own connections that wait.
type limits struct {
	conns    int           // served at once
	head     int           // octets of a request's or a response's head
	fields   int           // of a request's head; a response may have twice as many
	headTime time.Duration // from the connection to the end of the request's head, however slowly it trickles
	dialTime time.Duration // to resolve, and again to connect
	idle     time.Duration // without a byte either way
	orphan   time.Duration // the same, once the client of a forwarded request has closed its side
	linger   time.Duration // for the client to read a refusal
}

var defaultLimits = limits{
	conns: 256, head: 16 << 10, fields: 64,
	headTime: 10 * time.Second, dialTime: 10 * time.Second,
	idle:   time.Hour, // IMAP's IDLE is renewed every 29 minutes (RFC 2177), database pools rest as long
	orphan: time.Minute, linger: time.Second,
}

// proxy answers the explicit proxy's connections of one server.
type proxy struct {
	name    string // of the server
	file    string // base name of its declaration
	policy  egress.Policy
	out     dialer
	limits  limits
	journal *journal
}

// serveConn takes one request, decides, does it, records it, and closes.
func (p *proxy) serveConn(ctx context.Context, c *net.TCPConn) {
	defer c.Close()
	defer closeAtEnd(ctx, c)()
	rec := record{began: time.Now()}
	r, rest, err := p.readRequest(c)
	if r == nil && err != nil && !isRefusal(err) {
		return // it came and went without a word
	}
	var d egress.Decision
	if err == nil {
		d, err = p.serve(ctx, c, r, rest, &rec)
	}
	var ref *refusal
	refused := errors.As(err, &ref)
	rec.conclude(d, r, ref)
	p.journal.add(rec)
	if refused {
		p.answer(c, ref.response(display(d, r), r != nil && r.method == "HEAD"))
	}
}

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// closeAtEnd has ctx's end close c: a tunnel of a server that was stopped, or whose declaration changed, is cut at
// once (EG-304).
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
	return r, rest, err
}

// serve does what r asks, if it is allowed. A refusal that it returns has not been answered yet.
func (p *proxy) serve(ctx context.Context, c *net.TCPConn, r *request, rest []byte, rec *record) (egress.Decision, error) {
	d := p.policy.Decide(r.host, r.port)
	if d.Verdict != egress.Allow {
		return d, p.refuse(d, r)
	}
	up, err := p.connect(ctx, d, r.port, rec)
	if err != nil {
		return d, err
	}
	defer up.Close()
	defer closeAtEnd(ctx, up)()
	if r.tunnel {
		return d, p.tunnel(c, up, rest, rec)
	}
	return d, p.forward(c, up, r, d, rest, rec)
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
