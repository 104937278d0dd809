package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/pfar/pfar/cmd/pfar-egress/wire"
)

// fail answers a request that could not be passed on, or whose response cannot be.
func (o *opened) fail(w http.ResponseWriter, r *http.Request, err error) {
	if ref := wire.Refused(r.Context()); ref != nil { // serve notes it
		o.answer(w, r, refused(ref))
		return
	}
	var bad *wire.Refusal
	var ref *refusal
	var certificate *tls.CertificateVerificationError
	var other *unpinned
	var alert tls.AlertError
	var header tls.RecordHeaderError
	switch {
	case r.Context().Err() != nil: // the program has gone
		panic(http.ErrAbortHandler)
	case errors.As(err, &bad):
		ref = refused(bad)
	case errors.As(err, &ref):
	case errors.As(err, &other):
		ref = other.refusal(o.p.file)
	case errors.As(err, &certificate):
		ref = errCertificate
	case errors.As(err, &alert), errors.As(err, &header):
		ref = errUpstreamTLS
	case errors.Is(err, wire.ErrEncoding):
		ref = errEncoding
	case errors.Is(err, wire.ErrBody):
		ref = errTruncated
	default:
		ref = errBadResponse
	}
	o.note(r, ref, cause(err))
	o.answer(w, r, ref)
}

// cause is what of an error may be in the log; nil: nothing. Others may quote what the host says.
func cause(err error) error {
	var certificate *tls.CertificateVerificationError
	var other *unpinned
	var alert tls.AlertError
	var header tls.RecordHeaderError
	var errno syscall.Errno
	switch {
	case errors.As(err, &other):
		return other
	case errors.As(err, &certificate):
		return certificate
	case errors.As(err, &alert):
		return alert
	case errors.As(err, &header):
		return header
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	}
	return nil
}

// note records a refusal of one request. The connection has a record of its own.
func (o *opened) note(r *http.Request, ref *refusal, err error) {
	rec := record{began: time.Now(), path: o.rec.path, brokered: true, err: err}
	rec.target(o.d, target{o.d.Host, o.port})
	rec.protocol = "https"
	if token(r.Method) && ref.reason != wire.WrongPlace && ref.reason != wire.WrongHost {
		rec.method = escape(r.Method)
	}
	rec.conclude(ref)
	o.p.journal.end(&rec)
}

// answer tells the server of a refusal.
func (o *opened) answer(w http.ResponseWriter, r *http.Request, ref *refusal) {
	text := ref.text(o.rec.host)
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	h.Set("X-Pfar-Reason", ref.reason)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	w.WriteHeader(ref.status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, text)
	}
}

// clientConn is the server's side of an opened connection: it begins with what was read already, and is counted.
type clientConn struct {
	*net.TCPConn
	first []byte
	rec   *record
	once  sync.Once
	done  chan struct{} // closed when it is
}

func (c *clientConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		c.rec.sent.Add(int64(n))
		return n, nil
	}
	n, err := c.TCPConn.Read(b)
	c.rec.sent.Add(int64(n))
	return n, err
}

func (c *clientConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.rec.received.Add(int64(n))
	return n, err
}

func (c *clientConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.TCPConn.Close()
}

// watch closes the connection when nothing has moved on it for limit, and at the latest after twice as long.
func (c *clientConn) watch(limit time.Duration) {
	tick := time.NewTicker(limit)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-c.done:
			return
		case <-tick.C:
		}
		moved := c.rec.sent.Load() + c.rec.received.Load()
		if moved == last {
			c.Close()
			return
		}
		last = moved
	}
}

// single is a listener of one connection, which has come. It ends with it.
type single struct {
	conn net.Conn // nil: it was accepted
	done <-chan struct{}
	ctx  context.Context // of its requests
}

func (l *single) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, io.EOF
}

func (l *single) Close() error   { return nil }
func (l *single) Addr() net.Addr { return &net.TCPAddr{} }
