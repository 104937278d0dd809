package main

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"time"

	"github.com/pfar/pfar/cmd/pfar-egress/resolver"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/monitor"
)

// proxy answers one server's connections.
type proxy struct {
	*route
	name      string // of the server
	file      string // base name of its declaration
	addresses *resolver.Addresses
	journal   *journal
	opener    *opener
	roots     *x509.CertPool          // nil: the system's
	pins      map[string][]broker.Pin // by host that is opened; its certificates have one of them. None: any will do
	trusted   map[string]string       // by host that is opened: authorities in PEM, in place of roots
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
				err = refuse(p.name, p.file, d, r.target())
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
func (p *proxy) serve(
	ctx context.Context, c *net.TCPConn, r *request, d egress.Decision, rest []byte, rec *record,
) (opened bool, err error) {
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
