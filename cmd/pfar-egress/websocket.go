package main

import (
	"crypto/sha1" // RFC 6455 section 4.2.2 names it; nothing is kept secret by it
	"encoding/base64"
	"strings"
	"time"
)

// shakeHands passes the handshake of a WebSocket on, and reads nothing more from c until up has answered: what follows
// is opaque if up agrees, and another request to be checked if it does not.
func (s *requestRelay) shakeHands(raw []byte, r *request) (opened bool, err error) {
	s.count++
	s.finishing = r.finishing()
	n, err := s.up.Write(raw)
	if s.rec.sent.Add(int64(n)); err != nil {
		return false, errNotReached
	}
	from := headReader{src: s.up, limit: s.carrier.limits.head, begun: func() error {
		return s.up.SetReadDeadline(time.Now().Add(s.carrier.limits.headTime))
	}}
	for range maxInterim {
		head, err := from.next()
		if err != nil || s.up.SetReadDeadline(time.Time{}) != nil {
			return false, errBadResponse
		}
		opened, status, err := parseAnswer(head, 2*s.carrier.limits.fields, r)
		if err != nil {
			return false, errBadResponse
		}
		last := opened || status >= 200
		if last {
			head = head[:len(head)+from.Buffered()]
		}
		n, err := s.c.Write(head)
		if s.rec.received.Add(int64(n)); err != nil {
			abort(s.c, s.up)
			return false, err
		}
		if opened {
			s.tunnel()
		}
		if last {
			return opened, nil
		}
	}
	return false, errBadResponse
}

// tunnel moves a WebSocket's bytes as those of CONNECT are moved.
func (s *requestRelay) tunnel() {
	s.carrier.moveBoth(s.c, s.up, s.in.pending(), s.rec)
}

// parseAnswer reads the answer to a handshake. It opens the WebSocket only by proving that it read this handshake: a
// host that answers 101 for another reason would read what follows as requests.
func parseAnswer(raw []byte, maxFields int, r *request) (opened bool, status int, err error) {
	h, err := parseHead(raw, maxFields)
	if err != nil {
		return false, 0, err
	}
	if h.start[0] != "HTTP/1.1" || h.start[1] != "101" {
		_, status, err = parseResponse(raw, maxFields)
		return false, status, err
	}
	key, _, err := r.only("Sec-WebSocket-Key")
	if err != nil {
		return false, 0, err
	}
	accept, _, err := h.only("Sec-WebSocket-Accept")
	if err != nil {
		return false, 0, err
	}
	protocol, _, err := h.only("Upgrade")
	if err != nil {
		return false, 0, err
	}
	if accept != acceptKey(key) || !strings.EqualFold(protocol, "websocket") ||
		!among("upgrade", connectionOptions(h.fields)) {
		return false, 0, errBadResponse
	}
	return true, 101, nil
}

// acceptKey is of RFC 6455 section 4.2.2.
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// isHandshake reports whether r is the handshake of RFC 6455 section 4.1, without a body.
func (r *request) isHandshake() bool {
	protocol, _, err := r.only("Upgrade")
	key, keyed, kerr := r.only("Sec-WebSocket-Key")
	version, _, verr := r.only("Sec-WebSocket-Version")
	return err == nil && kerr == nil && verr == nil && r.method == "GET" && r.minor == 1 &&
		strings.EqualFold(protocol, "websocket") && keyed && key != "" && version == "13" &&
		among("upgrade", connectionOptions(r.fields)) &&
		!r.has("Content-Length") && !r.has("Transfer-Encoding") && !r.has("HTTP2-Settings")
}
