package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/pfar/pfar/cmd/pfar-egress/clienthello"
	"github.com/pfar/pfar/policies/egress"
)

// maxHello bounds a ClientHello. With post-quantum keys they are about 2 KiB.
const maxHello = 32 << 10

var (
	errSNIMissing = &refusal{403, "sni-missing", "The TLS handshake names no server."}
	errSNI        = &refusal{403, "sni-contradicts", "The TLS handshake names another server than the one that was " +
		"looked up."}
	errECH         = &refusal{403, "sni-encrypted", "The TLS handshake encrypts the server's name (ECH)."}
	errHelloTime   = &refusal{408, "hello-timeout", "The TLS handshake did not begin in time."}
	errNothingSent = errors.New("the client sent nothing")
)

// relay moves bytes between c and up until both sides have ended. What is said to port 443 has to be TLS for the host
// that was decided on, what is said to port 80 HTTP for it; everything else is the host's own affair. What secrets
// are put into is opened. first is what has been read of c already.
func (p *proxy) relay(
	ctx context.Context, c, up *net.TCPConn, d egress.Decision, port uint16, first []byte, rec *record,
) error {
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
