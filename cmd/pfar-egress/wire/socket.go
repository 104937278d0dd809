package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"net/http"

	"github.com/pfar/pfar/policies/broker"
)

var (
	errNoSocket = errors.New("the host changes to a protocol that was not asked for")
	errFrame    = errors.New("a WebSocket frame is invalid or uses an extension (RFC 6455)")
)

const (
	maxFragment = 32 << 10 // octets of a frame that are passed on at once
	maxControl  = 125      // octets of a control frame (RFC 6455 section 5.5)
)

// socket has the messages of a WebSocket searched: what the host says as any response, what the server says as a body.
func (s *Source) socket(r *http.Response) error {
	conn, ok := r.Body.(io.ReadWriteCloser)
	if !ok || len(r.Header["Sec-Websocket-Extensions"]) > 0 {
		return errNoSocket
	}
	q, ok := r.Request.Context().Value(requestKey{}).(*Request)
	if !ok {
		return errNoSocket
	}
	now, host := q.set, q.host
	say := func() *patterns {
		if next := s.now.Load(); next != now {
			now, host = next, next.host(q.to, q.port)
		}
		return now.patterns(use{host: host, place: broker.Place{Part: broker.Body}})
	}
	r.Body = &socket{ReadWriteCloser: conn, q: q, in: frames{filter: filter{patterns: s.scrubbing}},
		out: frames{masked: true, filter: filter{patterns: say}}}
	return nil
}

// socket is a host's side of a WebSocket.
type socket struct {
	io.ReadWriteCloser
	q       *Request
	in, out frames
	buffer  [4096]byte
	read    []byte
	rest    []byte // of read
	written []byte
}

func (s *socket) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		n, err := s.ReadWriteCloser.Read(s.buffer[:])
		var ferr error
		if s.read, ferr = s.in.add(s.read[:0], s.buffer[:n]); ferr != nil {
			return 0, ferr
		}
		if s.rest = s.read; err != nil && len(s.rest) == 0 {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *socket) Write(p []byte) (int, error) {
	var err error
	if s.written, err = s.out.add(s.written[:0], p); err != nil {
		if refusal, ok := errors.AsType[*Refusal](err); ok {
			s.q.refusal.Store(refusal)
		}
		return 0, err
	}
	if _, err := s.ReadWriteCloser.Write(s.written); err != nil {
		return 0, err
	}
	return len(p), nil
}

// frames filters the messages in one direction of a WebSocket (RFC 6455 section 5). A message is one text, however it
// is cut into frames; what is held back of a frame comes with the next.
type frames struct {
	masked bool // as a client's are
	filter filter

	head    []byte // of the frame that has begun
	key     [4]byte
	opcode  byte
	final   bool
	left    uint64 // octets of it to come
	payload []byte // of it, unmasked, not passed on yet

	message byte // opcode of the message that is not whole, 0: none
	begun   bool // some of that has been passed on
}

// add appends to dst what src becomes.
func (f *frames) add(dst, src []byte) ([]byte, error) {
	var err error
	for len(src) > 0 {
		if need := f.need(); len(f.head) < need {
			n := min(need-len(f.head), len(src))
			f.head = append(f.head, src[:n]...)
			src = src[n:]
			if len(f.head) < f.need() {
				continue
			}
			if err := f.begin(); err != nil {
				return nil, err
			}
		}
		n := int(min(f.left, uint64(len(src)), uint64(maxFragment-len(f.payload))))
		for _, c := range src[:n] {
			f.payload = append(f.payload, c^f.key[len(f.payload)%4])
		}
		src = src[n:]
		if f.left -= uint64(n); f.left > 0 && len(f.payload) < maxFragment {
			return dst, nil
		}
		if dst, err = f.pass(dst); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// need returns how many octets the head has, as far as is known.
func (f *frames) need() int {
	if len(f.head) < 2 {
		return 2
	}
	n := 2
	switch f.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.masked {
		n += 4
	}
	return n
}

// begin reads a head that is whole.
func (f *frames) begin() error {
	h := f.head
	f.final, f.opcode = h[0]&0x80 != 0, h[0]&0x0f
	f.left = uint64(h[1] & 0x7f)
	switch f.left {
	case 126:
		f.left = uint64(binary.BigEndian.Uint16(h[2:]))
	case 127:
		f.left = binary.BigEndian.Uint64(h[2:])
	}
	if f.masked {
		f.key = [4]byte(h[len(h)-4:])
	}
	control := f.opcode >= 8
	switch {
	case h[0]&0x70 != 0 || (h[1]&0x80 != 0) != f.masked || f.left > 1<<62:
		return errFrame
	case control && (f.opcode > 10 || !f.final || f.left > maxControl):
		return errFrame
	case !control && (f.opcode > 2 || (f.opcode == 0) != (f.message != 0)):
		return errFrame
	case !control && f.opcode != 0:
		f.message, f.begun = f.opcode, false
	}
	return nil
}

// pass appends what has come of a frame, and ends the frame if that is all of it.
func (f *frames) pass(dst []byte) ([]byte, error) {
	whole := f.left == 0
	payload, opcode, last := f.payload, f.opcode, f.final && whole
	var err error
	if f.opcode >= 8 {
		var text string
		if text, err = f.filter.patterns().all(string(payload)); err == nil && len(text) > maxControl {
			text = text[:min(2, len(text))] // the reason of a close is for people
		}
		payload, last = []byte(text), true
	} else if payload, err = f.filter.add(nil, payload, last); err == nil {
		opcode = f.message
		if f.begun {
			opcode = 0
		}
	}
	if err != nil {
		return nil, err
	}
	if len(payload) > 0 || last {
		dst = f.frame(dst, opcode, last, payload)
		f.begun = f.begun || f.opcode < 8
	}
	if last && f.opcode < 8 {
		f.message = 0
	}
	f.rotate(len(f.payload))
	f.payload = f.payload[:0]
	if whole {
		f.head = f.head[:0]
	}
	return dst, nil
}

// rotate has the rest of a frame unmasked from where its key is.
func (f *frames) rotate(n int) {
	k := f.key
	for i := range k {
		f.key[i] = k[(i+n)%4]
	}
}

// frame appends one frame.
func (f *frames) frame(dst []byte, opcode byte, last bool, payload []byte) []byte {
	if last {
		opcode |= 0x80
	}
	var mask byte
	if f.masked {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, opcode, mask|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, opcode, mask|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, opcode, mask|127), uint64(n))
	}
	if !f.masked {
		return append(dst, payload...)
	}
	dst = append(dst, f.key[:]...)
	for i, c := range payload {
		dst = append(dst, c^f.key[i%4])
	}
	return dst
}
