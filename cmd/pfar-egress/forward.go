package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/pfar/pfar/policies/egress"
)

// maxInterim bounds the 1xx responses before the one that counts.
const maxInterim = 8

// hop are the fields that concern one connection and not the request (RFC 9110 section 7.6.1), and those that this
// proxy writes itself.
var hop = [...]string{"Connection", "Proxy-Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "HTTP2-Settings",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info"}

var framing = [...]string{"Host", "Content-Length", "Transfer-Encoding"}

// forward sends one request and streams the response, then closes both connections. To keep the client's connection
// for another request would save a handshake on loopback, and cost a parser of every response's framing whose mistakes
// would be response splitting; plain HTTP is the rare case.
func (b *carrier) forward(c, up *net.TCPConn, r *request, d egress.Decision, rest []byte, rec *record) error {
	w := watchIdle(b.limits.idle, c, up)
	defer w.stop()
	if _, err := up.Write(r.render(d)); err != nil {
		return errNotReached
	}
	sent := make(chan int64, 1)
	go func() { sent <- b.sendBody(c, up, r, rest, w) }()
	n, err := b.relayResponse(c, up, r)
	rec.received.Store(n)
	up.Close()
	if isRefusal(err) {
		return err // answered while the body's sender may still wait for the client; it ends with the connection
	}
	if rec.err = err; err == nil {
		b.linger(c)
		c.Close()
	} else {
		abort(c, up) // a body cut short must not look like one that ended
	}
	rec.sent.Store(<-sent)
	return nil
}

// sendBody passes the request's body on, and nothing after it. Then it waits for the client's end: a client that has
// gone is noticed, one that has only closed its half still gets its response.
func (b *carrier) sendBody(c, up *net.TCPConn, r *request, rest []byte, w *idleWatch) int64 {
	var n int64
	var err error
	switch {
	case r.chunked:
		n, err = copyChunked(up, bufio.NewReaderSize(io.MultiReader(bytes.NewReader(rest), c), 4096))
	case r.length > 0:
		n, err = copyLength(up, c, rest, r.length)
	}
	if err != nil {
		up.Close() // an incomplete body is no request
		return n
	}
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
		w.shorten(b.limits.orphan)
	}
	return n
}

func copyLength(up *net.TCPConn, c io.Reader, rest []byte, length int64) (int64, error) {
	rest = rest[:min(int64(len(rest)), length)]
	n, err := up.Write(rest)
	if err != nil {
		return int64(n), err
	}
	m, err := io.CopyN(up, c, length-int64(n))
	return int64(n) + m, err
}

// render writes the request as the origin is to read it. Host comes from the target that was decided on.
func (r *request) render(d egress.Decision) []byte {
	var b bytes.Buffer
	host := d.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if r.port != 80 {
		host += ":" + strconv.Itoa(int(r.port))
	}
	path := r.path
	if r.method == "OPTIONS" && path == "/" && !strings.HasSuffix(r.start[1], "/") {
		path = "*" // RFC 9112 section 3.2.4
	}
	b.WriteString(r.method + " " + path + " " + r.start[2] + "\r\nHost: " + host + "\r\n")
	writeFields(&b, r.fields, framing[:])
	switch {
	case r.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case r.has("Content-Length"):
		b.WriteString("Content-Length: " + strconv.FormatInt(r.length, 10) + "\r\n")
	}
	b.WriteString("Connection: close\r\n\r\n")
	return b.Bytes()
}

// writeFields writes all fields but those of one hop, those that Connection names, and those in without.
func writeFields(b *bytes.Buffer, fields []field, without []string) {
	named := connectionOptions(fields)
	for _, f := range fields {
		if among(f.name, hop[:]) || among(f.name, without) || among(f.name, named) && !among(f.name, framing[:]) {
			continue
		}
		b.WriteString(f.name + ": " + f.value + "\r\n")
	}
}

func connectionOptions(fields []field) []string {
	var names []string
	for _, f := range fields {
		if !strings.EqualFold(f.name, "Connection") {
			continue
		}
		for name := range strings.SplitSeq(f.value, ",") {
			names = append(names, strings.Trim(name, " \t"))
		}
	}
	return names
}

// relayResponse passes the response's heads on, then its body as it comes, to the end of the connection. The error is
// a refusal if the client still waits for the head of its response.
func (b *carrier) relayResponse(c, up *net.TCPConn, r *request) (int64, error) {
	from := headReader{src: up, limit: b.limits.head}
	for range maxInterim {
		raw, err := from.next()
		if err != nil {
			return 0, errBadResponse
		}
		h, status, err := parseResponse(raw, 2*b.limits.fields)
		if err != nil {
			return 0, errBadResponse
		}
		if status >= 200 {
			body := from.pending()
			return b.relayBody(c, up, append(renderResponse(h, true), body...), len(body))
		}
		if r.minor == 0 {
			continue // RFC 9110 section 15.2: HTTP/1.0 has no interim responses
		}
		if _, err := c.Write(renderResponse(h, false)); err != nil {
			return 0, err
		}
	}
	return 0, errBadResponse
}

// relayBody writes first, of which the last part is body already, and then the rest of the body.
func (b *carrier) relayBody(c, up *net.TCPConn, first []byte, part int) (int64, error) {
	if _, err := c.Write(first); err != nil {
		return 0, err
	}
	var n atomic.Int64
	err := b.splicer.copy(c, up, &n)
	if err == nil {
		err = c.CloseWrite()
	}
	return int64(part) + n.Load(), err
}

// parseResponse checks what decides where the response ends, for the client's sake.
func parseResponse(raw []byte, maxFields int) (head, int, error) {
	h, err := parseHead(raw, maxFields)
	if err != nil {
		return h, 0, err
	}
	if h.start[0] != "HTTP/1.1" && h.start[0] != "HTTP/1.0" {
		return h, 0, errVersion
	}
	status, err := strconv.Atoi(h.start[1])
	if err != nil || len(h.start[1]) != 3 || status < 100 || status == 101 {
		return h, 0, errBadResponse
	}
	_, hasLength, err := h.only("Content-Length")
	if err != nil {
		return h, 0, err
	}
	if hasLength && h.has("Transfer-Encoding") {
		return h, 0, errBadResponse
	}
	return h, status, nil
}

func renderResponse(h head, last bool) []byte {
	var b bytes.Buffer
	b.WriteString(h.start[0] + " " + h.start[1] + " " + h.start[2] + "\r\n")
	writeFields(&b, h.fields, nil)
	if last {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}
