package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

var (
	errNotOrigin   = badRequest("These are not HTTP/1.1 requests. Port 80 of a declared host is for plain HTTP.")
	errTarget      = badRequest("The request's target is neither a path nor an http:// address.")
	errTargetChar  = badRequest("The request's target holds a character that belongs percent-encoded.")
	errHostMissing = badRequest("The field Host is missing.")
	errHostChar    = badRequest("The field Host holds a character that belongs to no host in ASCII; an international " +
		"name stands there in its A-label form.")
	errConnection   = badRequest("The field Connection names a field that is not of one connection.")
	errExpect       = badRequest("The only expectation that is passed on is 100-continue.")
	errTrailer      = badRequest("Trailers are not passed on.")
	errChunkRefused = badRequest("The " + errChunk.Error() + ".")
	errPassedMethod = &refusal{status: 501, reason: "method-not-allowed", detail: "This method is not passed on to " +
		"the host."}
	errPassedChange = &refusal{status: 400, reason: "upgrade", detail: "The only change of protocol that is passed on " +
		"is to WebSocket (RFC 6455), by a connection's first request."}
)

// refusedMethods are not passed on: CONNECT would have the host connect elsewhere, TRACE and its like send a request's
// own secrets back, PRI begins HTTP/2 (RFC 9113 section 3.4). Any other token may be one that the host knows.
var refusedMethods = [...]string{"CONNECT", "TRACE", "TRACK", "PRI"}

// passRequests holds every request of a connection to the host that the connection leads to, up, and passes it on with
// the bytes that were checked. first is what was read from c already. Responses are passed on unseen.
//
// A *refusal concerns the first request, or its response: it is not answered yet, and nothing of a refused request
// has reached up. Refusals of later requests are settled errors. Other errors mean that both connections were reset:
// a body that was cut short must not look like one that ended. rec counts octets, chunks without their framing.
func (b *carrier) passRequests(c, up *net.TCPConn, first []byte, d egress.Decision, port uint16, rec *record) error {
	s := &requestRelay{
		carrier: b, c: c, up: up, d: d, port: port, rec: rec, ended: make(chan struct{}),
		idle: watchIdle(b.limits.idle, c, up),
	}
	defer s.idle.stop()
	first = slices.Clone(first)
	s.in = headReader{src: c, limit: b.limits.head, begun: s.startClock, buf: first, w: len(first)}
	return s.run()
}

// requestRelay is one connection of passRequests. Two goroutines use it: one reads requests, one passes responses on.
type requestRelay struct {
	carrier *carrier
	c, up   *net.TCPConn
	d       egress.Decision
	port    uint16
	rec     *record
	in      headReader // of c
	idle    *idleWatch

	clocked   bool // c has a read deadline
	count     int  // requests that were sent, or begun
	finishing bool // the last of them was to be the connection's last, so its response may go to the connection's end

	last  atomic.Bool   // one of the two has taken the last word to c
	ended chan struct{} // the responses have; then what follows is set
	fault error
}

func (s *requestRelay) run() error {
	raw, r, err := s.next()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	case r.websocket:
		if opened, err := s.shakeHands(raw, r); opened || err != nil {
			return err
		}
		go s.passResponses()
	default:
		go s.passResponses()
		if err := s.send(raw, r); err != nil {
			return s.breakOff(err)
		}
	}
	for {
		if raw, r, err = s.next(); err != nil {
			return s.end(err, r)
		}
		if err := s.send(raw, r); err != nil {
			return s.breakOff(err)
		}
	}
}

// startClock bounds the time of a head from its first octet: between requests, a connection may rest.
func (s *requestRelay) startClock() error {
	s.clocked = true
	if err := s.c.SetReadDeadline(time.Now().Add(s.carrier.limits.headTime)); err != nil {
		return err
	}
	return s.interrupted()
}

func (s *requestRelay) stopClock() error {
	if !s.clocked {
		return nil
	}
	s.clocked = false
	if err := s.c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	return s.interrupted()
}

// errOver means that up has ended, and with it the connection.
var errOver = errors.New("the host has closed the connection")

// interrupted is asked whenever a deadline was set that may have replaced the one by which passResponses interrupts.
func (s *requestRelay) interrupted() error {
	if s.last.Load() {
		return errOver
	}
	return nil
}

// next reads a request's head. Its octets are in front of what is pending.
func (s *requestRelay) next() ([]byte, *request, error) {
	raw, err := s.in.next()
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		if s.last.Load() {
			return nil, nil, errOver
		}
		return nil, nil, errHeadTimeout
	case errors.Is(err, errNotHTTP):
		return nil, nil, errNotOrigin
	case err != nil:
		return nil, nil, err
	}
	if err := s.stopClock(); err != nil {
		return nil, nil, err
	}
	r, err := parsePassed(raw, s.carrier.limits.fields, s.d, s.port, s.count == 0)
	if err == nil {
		err = s.carrier.secrets.mentioned(raw)
	}
	return raw, r, err
}

// send passes a checked request on: the head as it came, the body up to its end and nothing behind it.
func (s *requestRelay) send(raw []byte, r *request) error {
	s.count++
	s.finishing = r.finishing()
	part := int(min(int64(s.in.Buffered()), r.length))
	n, err := s.up.Write(raw[:len(raw)+part]) // head and body adjoin in the buffer, and need one segment
	s.in.r += part
	s.rec.sent.Add(int64(n))
	if err != nil {
		return err
	}
	if r.chunked {
		m, err := copyChunked(s.up, &s.in)
		s.rec.sent.Add(m)
		return err
	}
	const counted = 1 << 20 // octets, after which those who watch see that it moves
	for left := r.length - int64(part); left > 0; {
		m, err := io.CopyN(s.up, s.c, min(left, counted))
		s.rec.sent.Add(m)
		if left -= m; err != nil {
			return err
		}
	}
	return nil
}

// passResponses moves bytes until up ends, which ends the connection, unless a refusal is to follow.
func (s *requestRelay) passResponses() {
	defer close(s.ended)
	s.fault = s.carrier.splicer.copy(s.c, s.up, &s.rec.received)
	if !s.last.CompareAndSwap(false, true) {
		return
	}
	past := time.Unix(1, 0) // before c learns of the end: what it sends then is no request any more
	s.fault = errors.Join(s.fault, s.c.SetReadDeadline(past), s.up.SetWriteDeadline(past))
	if s.fault == nil {
		s.fault = s.c.CloseWrite()
	}
	if s.fault != nil {
		abort(s.c, s.up)
	}
}

// end is what follows when there is no further request.
func (s *requestRelay) end(err error, r *request) error {
	var ref *refusal
	switch {
	case errors.As(err, &ref):
		return s.refuse(ref, r)
	case errors.Is(err, io.EOF):
		if s.up.CloseWrite() != nil {
			abort(s.c, s.up)
		}
		s.idle.shorten(s.carrier.limits.orphan)
	case !s.last.Load():
		abort(s.c, s.up)
	}
	<-s.ended
	if s.fault == nil {
		s.carrier.linger(s.c)
	}
	return s.fault
}

// drain waits for the responses that are under way, and reports whether they came to an end in order.
func (s *requestRelay) drain() bool {
	t := time.AfterFunc(s.carrier.limits.linger, func() { abort(s.c, s.up) })
	<-s.ended
	return t.Stop() && s.fault == nil
}

// refuse answers a later request. Where one response ends is not known here, so up has to end first, and a response
// that the connection's end delimits cannot be followed by anything.
func (s *requestRelay) refuse(ref *refusal, r *request) error {
	if !s.last.CompareAndSwap(false, true) {
		<-s.ended // up has ended before: the refusal is no news
		s.carrier.linger(s.c)
		return settled{ref}
	}
	if s.up.CloseWrite() != nil || !s.drain() {
		abort(s.c, s.up)
		<-s.ended
		return settled{ref}
	}
	if s.finishing {
		if s.c.CloseWrite() == nil {
			s.carrier.linger(s.c)
		}
		return settled{ref}
	}
	s.answer(ref, r != nil && r.method == "HEAD")
	return settled{ref}
}

func (s *requestRelay) answer(ref *refusal, headOnly bool) {
	s.carrier.answer(s.c, ref.response(display(s.d, target{s.d.Host, s.port}), headOnly))
}

// breakOff is what follows a request that was not passed on whole: up is reset, or has ended itself.
func (s *requestRelay) breakOff(err error) error {
	switch {
	case errors.Is(err, errChunk):
		s.refuseBody()
		return settled{errChunkRefused}
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // c's
		abort(s.c, s.up)
		<-s.ended
		return io.ErrUnexpectedEOF
	}
	// A host that does not want the body answers and closes: the answer is what the client needs to see.
	ended := s.drain()
	_ = s.up.SetLinger(0) // the body is not to look whole, and up is closed by the caller
	if !ended {
		abort(s.c, s.up)
		return err
	}
	s.carrier.linger(s.c)
	return nil
}

// refuseBody ends a request in the midst of its body. Only if nothing at all came from up is it known what an answer
// answers.
func (s *requestRelay) refuseBody() {
	mine := s.last.CompareAndSwap(false, true)
	_ = s.up.SetLinger(0)
	s.up.Close()
	s.drain()
	if mine && s.count == 1 && s.rec.received.Load() == 0 {
		s.answer(errChunkRefused, false)
		return
	}
	abort(s.c, s.up)
}

// parsePassed reads a request that is passed on as it is. Everything that the host might read otherwise is refused,
// and every request names d's host and port, HTTP/1.0 as well: without the field, the host would choose one itself, and
// on a shared address it is another's.
func parsePassed(raw []byte, maxFields int, d egress.Decision, port uint16, first bool) (*request, error) {
	h, err := parseHead(raw, maxFields)
	if err != nil {
		return nil, err
	}
	r := &request{head: h, method: h.start[0], host: d.Host, port: port}
	if err := r.parseVersion(); err != nil {
		return r, err
	}
	if slices.Contains(refusedMethods[:], r.method) {
		return r, errPassedMethod
	}
	if err := r.parseTarget(); err != nil {
		return r, err
	}
	if err := checkPlain(raw); err != nil {
		return r, err
	}
	if err := r.namesHost(d, port); err != nil {
		return r, err
	}
	return r, r.passed(first)
}

// parseTarget reads the origin-form, the absolute-form, or the asterisk of OPTIONS (RFC 9112 section 3.2).
func (r *request) parseTarget() error {
	target := r.start[1]
	path, _, _ := strings.Cut(target, "?")
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '\\' && i < len(path) {
			return errTargetChar
		}
	}
	switch {
	case strings.HasPrefix(target, "/") || target == "*" && r.method == "OPTIONS":
		return nil
	case len(target) > len("http://") && strings.EqualFold(target[:len("http://")], "http://"):
		return r.parseAbsolute(target)
	}
	return errTarget
}

// checkPlain holds the lines of plainFields to one way of being written. Values are trimmed when they are parsed, so
// it reads the lines again.
func checkPlain(raw []byte) error {
	_, rest, _ := bytes.Cut(raw, []byte("\r\n"))
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		if underscored(string(name)) {
			return errUnplain
		}
		if !among(string(name), plainFields[:]) {
			continue
		}
		for _, c := range value {
			if c < ' ' || c >= 0x7f {
				return unplain(string(name))
			}
		}
	}
	return nil
}

func unplain(name string) error {
	if strings.EqualFold(name, "Host") {
		return errHostChar
	}
	return errUnplain
}

// namesHost holds target and Host to the host that the connection leads to.
func (r *request) namesHost(d egress.Decision, port uint16) error {
	if r.port != port || r.host != d.Host && !egress.SameHost(r.host, d.Host) {
		return contradicts(d, port)
	}
	if !r.has("Host") {
		return errHostMissing
	}
	err := r.checkHost()
	if errors.Is(err, errHostContradicts) {
		return contradicts(d, port)
	}
	return err
}

// contradicts is the policy's refusal, unlike errHostContradicts: the other host was never decided on.
func contradicts(d egress.Decision, port uint16) error {
	return &refusal{403, errHostContradicts.reason, fmt.Sprintf(
		"The connection leads to %s, and a request on it names another host or port. Each host needs a connection of its "+
			"own.",
		display(d, target{d.Host, port}))}
}

// passed checks what else the host acts on, and finds the body's end.
func (r *request) passed(first bool) error {
	for _, option := range connectionOptions(r.fields) {
		if among(option, framing[:]) { // some program on the way would strip it (RFC 9110 section 7.6.1)
			return errConnection
		}
	}
	if expect, found, err := r.only("Expect"); err != nil || found && !strings.EqualFold(expect, "100-continue") {
		return errExpect
	}
	if r.has("Trailer") {
		return errTrailer
	}
	if r.has("Upgrade") || r.has("HTTP2-Settings") {
		if !first || !r.isHandshake() {
			return errPassedChange
		}
		r.websocket = true
	}
	if err := r.parseFraming(); err != nil {
		return err
	}
	if length, _, _ := r.only("Content-Length"); len(length) > 1 && length[0] == '0' { // octal, to strtol(3) with base 0
		return errUnplain
	}
	return nil
}

// finishing reports whether r says that it is its connection's last (RFC 9112 section 9.3).
func (r *request) finishing() bool {
	options := connectionOptions(r.fields)
	return among("close", options) || r.minor == 0 && !among("keep-alive", options)
}
