package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/broker/rootca"
	"github.com/pfar/pfar/policies/egress"
)

var (
	errCertificate = &refusal{502, "certificate", "The host has no certificate that this machine trusts for its name."}
	errUpstreamTLS = &refusal{502, "upstream-tls", "The host does not speak TLS 1.2 or later."}
	errUntrusted   = &refusal{403, "handshake", "The TLS handshake failed: the program has to trust the certificates " +
		"of its system, as NODE_EXTRA_CA_CERTS and SSL_CERT_FILE say."}
	errManyOpened = &refusal{503, "too-many", "Too many connections to hosts with brokered secrets are open."}
	errEncoding   = &refusal{502, "encoding", "The host's response is encoded in a way that it was not asked for, " +
		"and cannot be searched for secrets."}
	errMisdirected = &refusal{421, errHostContradicts.reason, "The request names another host or port than the one " +
		"that the connection leads to. Each host needs a connection of its own."}
	errOpenedChange = &refusal{400, "upgrade", "The only change of protocol that is passed on is to WebSocket (RFC " +
		"6455), in HTTP/1.1."}
)

// staleAfter is how long a connection that was made for the first request may wait for it: hosts do not wait long for
// TLS.
const staleAfter = 5 * time.Second

// opener answers for hosts that secrets are put on the wire for: it ends the server's TLS, and begins its own.
type opener struct {
	server   *http.Server
	proxy    *httputil.ReverseProxy
	sessions tls.ClientSessionCache
	slots    chan struct{} // of connections that are open at once
	requests chan struct{} // of requests under way at once
	dials    chan struct{} // of connections outside beyond the first of each
}

// openedKey is of a context: its *opened.
type openedKey struct{}

func newOpener(l limits) *opener {
	quiet := log.New(io.Discard, "", 0) // what it would say is in the records
	o := &opener{
		sessions: tls.NewLRUClientSessionCache(64), requests: make(chan struct{}, 2*l.opened),
		slots: make(chan struct{}, l.opened), dials: make(chan struct{}, l.opened),
	}
	o.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", of(r.In).authority(), of(r.In).authority()
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			r.Out.Trailer = r.In.Trailer // is filled as the body ends
		},
		Transport:     roundTrip(func(r *http.Request) (*http.Response, error) { return of(r).roundTrip(r) }),
		FlushInterval: -1, ErrorLog: quiet, BufferPool: copies{},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { of(r).fail(w, r, err) },
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	o.server = &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { of(r).serve(w, r) }),
		Protocols: protocols, ReadHeaderTimeout: l.headTime, IdleTimeout: l.idle, MaxHeaderBytes: l.openedHead,
		ErrorLog: quiet,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 50, MaxReadFrameSize: 16 << 10,
			MaxReceiveBufferPerConnection: 256 << 10, MaxReceiveBufferPerStream: 64 << 10,
		},
		BaseContext: func(l net.Listener) context.Context { return l.(*single).ctx },
	}
	return o
}

func of(r *http.Request) *opened { return r.Context().Value(openedKey{}).(*opened) }

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// copies are the buffers of bodies under way.
type copies struct{}

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func (copies) Get() []byte  { return *copyBuffers.Get().(*[]byte) }
func (copies) Put(b []byte) { copyBuffers.Put(&b) }

// opened is one of the server's connections to such a host.
type opened struct {
	p    *proxy
	d    egress.Decision
	port uint16
	rec  *record
	ctx  context.Context
	both *http.Transport // HTTP/2 or HTTP/1.1
	old  *http.Transport // HTTP/1.1, for WebSockets and expectations

	mu    sync.Mutex
	first *net.TCPConn // that nothing was sent on yet
	since time.Time
	more  map[*hostConn]struct{} // beyond it
}

// open serves the requests of c to what was decided on. Up is connected to it; hello is what was read of c.
func (p *proxy) open(
	ctx context.Context, c, up *net.TCPConn, hello []byte, d egress.Decision, port uint16, rec *record,
) error {
	select {
	case p.opener.slots <- struct{}{}:
		defer func() { <-p.opener.slots }()
	default:
		return errManyOpened
	}
	config, err := p.secrets.wire.Config(d.Host)
	if err != nil {
		return err
	}
	o := &opened{p: p, d: d, port: port, rec: rec, first: up, since: time.Now(), more: map[*hostConn]struct{}{}}
	ctx, cancel := context.WithCancel(ctx)
	o.ctx = context.WithValue(ctx, openedKey{}, o)
	o.both, o.old = o.transport(true), o.transport(false)
	defer o.close()
	defer cancel() // first, so that nothing is dialled any more
	conn := &clientConn{TCPConn: c, first: hello, rec: rec, done: make(chan struct{})}
	defer conn.Close()
	go conn.watch(p.limits.idle)
	shaken, stop := context.WithTimeout(ctx, p.limits.headTime)
	secure := tls.Server(conn, config)
	err = secure.HandshakeContext(shaken)
	stop()
	if err != nil {
		rec.err = err
		return errUntrusted
	}
	_ = p.opener.server.Serve(&single{conn: secure, done: conn.done, ctx: o.ctx}) // io.EOF, when the connection has ended
	return nil
}

// close ends what is left outside.
func (o *opened) close() {
	o.both.CloseIdleConnections()
	o.old.CloseIdleConnections()
	o.mu.Lock()
	more := slices.Collect(maps.Keys(o.more))
	o.mu.Unlock()
	for _, c := range more {
		c.Close()
	}
}

// authority is the host as requests name it.
func (o *opened) authority() string {
	host := target{o.d.Host, o.port}
	if o.port == 443 {
		host.port = 0
	}
	return display(o.d, host)
}

// tlsConfig is how the host has to prove who it is.
func (o *opened) tlsConfig() *tls.Config {
	roots := o.p.roots
	if own, ok := o.p.trusted[o.d.Host]; ok {
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(own))
	}
	return &tls.Config{
		ServerName: o.d.Host, RootCAs: roots, MinVersion: tls.VersionTLS12,
		ClientSessionCache: o.p.opener.sessions, VerifyConnection: o.pinned,
	}
}

func (o *opened) transport(h2 bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(h2)
	l := o.p.limits
	return &http.Transport{
		DialContext: o.dial, Protocols: protocols, DisableCompression: true,
		TLSClientConfig:     o.tlsConfig(),
		TLSHandshakeTimeout: l.dialTime, ExpectContinueTimeout: l.continueTime, IdleConnTimeout: 90 * time.Second,
		MaxConnsPerHost: 32, MaxIdleConnsPerHost: 4, MaxResponseHeaderBytes: int64(l.openedHead),
		WriteBufferSize: 4 << 10, ReadBufferSize: 4 << 10,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 512 << 10, MaxReadFrameSize: 16 << 10,
		},
	}
}

// dial is how the transports reach the host: by the connection that is there, or as every connection is made.
func (o *opened) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	o.mu.Lock()
	first := o.first
	o.first = nil
	o.mu.Unlock()
	if first != nil && time.Since(o.since) < staleAfter {
		return first, nil
	}
	select {
	case o.p.opener.dials <- struct{}{}:
	default:
		return nil, errManyOpened
	}
	free := func() { <-o.p.opener.dials }
	c, err := o.p.connect(o.ctx, o.d, o.port, &record{})
	if err != nil {
		free()
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		c.Close()
		free()
		return nil, o.ctx.Err()
	}
	_ = c.SetReadBuffer(o.p.limits.buffer) // fails only if it is closed already
	_ = c.SetWriteBuffer(o.p.limits.buffer)
	counted := &hostConn{TCPConn: c}
	counted.closed = sync.OnceFunc(func() {
		free()
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.more, counted)
	})
	o.more[counted] = struct{}{}
	return counted, nil
}

// hostConn is a connection that is counted.
type hostConn struct {
	*net.TCPConn
	closed func()
}

func (c *hostConn) Close() error {
	defer c.closed()
	return c.TCPConn.Close()
}

// serve passes one request on.
func (o *opened) serve(w http.ResponseWriter, r *http.Request) {
	if ref := o.check(r); ref != nil {
		o.note(r, ref, nil)
		o.answer(w, r, ref)
		return
	}
	select {
	case o.p.opener.requests <- struct{}{}:
		defer func() { <-o.p.opener.requests }()
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
	out, to := *r, *r.URL // r is net/http's: it looks into it for what it has to do about the body
	out.URL = &to
	put, err := o.p.secrets.wire.Put(&out, o.d, o.port)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	defer func() {
		if ref := put.Refused(); ref != nil {
			o.note(r, refused(ref), nil)
		}
		if fault := recover(); fault != nil {
			if fault != http.ErrAbortHandler { // what it says may quote a request
				o.p.journal.log.Error("a request failed in the bridge, "+
					"ignoring", "fault", fmt.Sprintf("%T", fault), "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}
	}()
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(w).EnableFullDuplex() // else it could not answer while a body comes
	}
	w.Header()["Date"], w.Header()["Content-Type"] = nil, nil // net/http would add what the host did not say
	o.p.opener.proxy.ServeHTTP(w, out.WithContext(put.Context()))
}

// check holds a request to the host that the connection leads to. What it says is only read in one way from here on: it
// is written anew.
func (o *opened) check(r *http.Request) *refusal {
	host, port, hasPort, err := parseAuthority(r.Host)
	if !hasPort {
		port = 443
	}
	named := r.Header["Host"] // of HTTP/2, beside :authority
	for name := range r.Header {
		if underscored(name) {
			return errUnplain
		}
	}
	switch {
	case among(r.Method, refusedMethods[:]):
		return errPassedMethod
	case err != nil || port != o.port || host != o.d.Host && !egress.SameHost(host, o.d.Host):
		return errMisdirected
	case len(named) > 1 || len(named) == 1 && named[0] != r.Host:
		return errMisdirected
	case r.URL.Scheme != "" && r.URL.Scheme != "https":
		return errMisdirected
	case r.URL.Opaque != "": // "https:target", which is neither a path nor an address
		return errTarget
	case strings.ContainsAny(r.URL.RawQuery, " #"): // of a path they are written percent-encoded
		return errTargetChar
	case len(r.Header["Upgrade"]) > 0 && !isWebSocket(r) || len(r.Header["Http2-Settings"]) > 0:
		return errOpenedChange
	}
	return nil
}

// isWebSocket reports whether r is the handshake of RFC 6455 section 4.1.
func isWebSocket(r *http.Request) bool {
	h := head{}
	for name, values := range r.Header {
		for _, v := range values {
			h.fields = append(h.fields, field{name, v})
		}
	}
	handshake := request{head: h, method: r.Method, minor: r.ProtoMinor}
	return r.ProtoMajor == 1 && handshake.isHandshake() && r.ContentLength == 0
}

// roundTrip sends a request and takes the secrets out of what comes back.
func (o *opened) roundTrip(r *http.Request) (*http.Response, error) {
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error { // before it is passed on
			o.p.secrets.wire.Header(http.Header(header))
			return nil
		},
	}))
	via := o.both
	if r.Header.Get("Upgrade") != "" || r.Header.Get("Expect") != "" { // net/http waits a second for 100 of HTTP/2
		via = o.old
	}
	resp, err := via.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := o.p.secrets.wire.Response(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// pinned holds the certificates of a host, which the system trusts already, to its pins. It also sees connections that
// resume a session. What is sent along without being part of a chain that was verified counts for nothing (RFC 7469
// section 2.6).
func (o *opened) pinned(state tls.ConnectionState) error {
	pins, ok := o.p.pins[o.d.Host]
	if !ok {
		return nil
	}
	var seen []broker.Pin
	for _, chain := range state.VerifiedChains {
		for _, c := range chain {
			pin := rootca.PinOf(c)
			if slices.Contains(pins, pin) {
				return nil
			}
			if !slices.Contains(seen, pin) {
				seen = append(seen, pin)
			}
		}
	}
	return &unpinned{seen}
}
