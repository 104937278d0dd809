package main

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
)

// head is the head of a request or a response: what stands before the body. It is parsed by hand because everything
// that two parsers may read in two ways is to be refused, not repaired (RFC 9112 section 11.2); net/http repairs.
type head struct {
	start  [3]string // method, target, version, or version, status, reason
	fields []field
}

type field struct{ name, value string }

// Faults of a head. They are refusals of the request, or reasons why a response is not passed on.
var (
	errHeadTooLarge = &refusal{status: 431, reason: "head-too-large", detail: "The request's head exceeds the proxy's " +
		"bounds."}
	errHeadTimeout = &refusal{status: 408, reason: "head-timeout", detail: "The request's head did not arrive in time."}
	errLineEnd     = badRequest("A line does not end in CR LF, or a carriage return stands alone.")
	errControl     = badRequest("The head holds a control character.")
	errStart       = badRequest("The first line is not of the form METHOD SP TARGET SP HTTP/1.1.")
	errNotHTTP     = badRequest("These are not HTTP/1.1 requests. The proxy takes CONNECT host:port and absolute " +
		"http:// addresses.")
	errVersion   = &refusal{status: 505, reason: "bad-version", detail: "The proxy speaks HTTP/1.1 and HTTP/1.0."}
	errFold      = badRequest("A header field is folded over two lines.")
	errField     = badRequest("A header field is not of the form NAME: VALUE.")
	errTruncated = badRequest("The connection ended within the head.")
)

func badRequest(detail string) *refusal {
	return &refusal{status: 400, reason: "bad-request", detail: detail}
}

// readHead reads up to and including the empty line. What came after it is rest. A reader that ended before it sent
// anything yields io.EOF. Faults are found as the bytes arrive: whoever sends nonsense need not send all of it.
func readHead(r io.Reader, limit int) (raw, rest []byte, err error) {
	h := headReader{src: r, limit: limit}
	raw, err = h.next()
	return raw, h.pending(), err
}

// headReader reads one head after another, and what stands between them.
type headReader struct {
	src   io.Reader
	limit int          // octets of a head
	begun func() error // called once for each head that has begun and is not whole, before more of it is read; may be nil
	buf   []byte
	r, w  int // buf[r:w] is read and not consumed
}

// smallHead is what is held for a connection that waits for its next head; most heads are no larger.
const smallHead = 2048

// next is readHead for each head of a connection. What it returns is good until something more is read, and it lies in
// front of what is pending.
func (h *headReader) next() (raw []byte, err error) {
	seen, told := 0, h.begun == nil
	for {
		end, fault := scanHead(h.pending(), seen)
		if fault == nil && max(end, seen) > h.limit {
			fault = errHeadTooLarge
		}
		if fault != nil {
			return nil, fault
		}
		if end > 0 {
			raw = h.buf[h.r : h.r+end]
			h.r += end
			return raw, nil
		}
		if seen = h.Buffered(); seen > 0 && !told {
			told = true
			if err := h.begun(); err != nil {
				return nil, err
			}
		}
		err := h.fill()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && seen > 0:
			return nil, errTruncated
		default:
			return nil, err
		}
	}
}

// fill reads once, behind what is pending.
func (h *headReader) fill() error {
	if h.r == h.w {
		h.r, h.w = 0, 0
		if len(h.buf) > smallHead {
			h.buf = nil
		}
	}
	switch {
	case h.w < len(h.buf):
	case h.r > 0:
		h.w, h.r = copy(h.buf, h.pending()), 0
	case len(h.buf) >= h.limit && h.w > 0:
		return errHeadTooLarge
	default:
		larger := make([]byte, min(h.limit, max(smallHead, 4*len(h.buf))))
		copy(larger, h.buf)
		h.buf = larger
	}
	n, err := h.src.Read(h.buf[h.w:])
	if h.w += n; n > 0 {
		return nil // an error comes again
	}
	return err
}

func (h *headReader) pending() []byte { return h.buf[h.r:h.w] }

// Buffered returns the number of octets that are pending.
func (h *headReader) Buffered() int { return h.w - h.r }

// Read reads what is pending, and when that is spent, from the source.
func (h *headReader) Read(b []byte) (int, error) {
	if h.r == h.w {
		return h.src.Read(b)
	}
	n := copy(b, h.pending())
	h.r += n
	return n, nil
}

// ReadByte reads one octet.
func (h *headReader) ReadByte() (byte, error) {
	for h.r == h.w {
		if err := h.fill(); err != nil {
			return 0, err
		}
	}
	h.r++
	return h.buf[h.r-1], nil
}

// scanHead looks at b[from:] and returns where the head ends, or 0.
func scanHead(b []byte, from int) (end int, err error) {
	for i := from; i < len(b); i++ {
		c := b[i]
		switch {
		case i == 0 && (c < 'A' || c > 'Z'): // TLS and SOCKS begin with a binary byte, a blank line with a CR
			return 0, errNotHTTP
		case i > 0 && b[i-1] == '\r':
			if c != '\n' {
				return 0, errLineEnd
			}
			if i >= 3 && b[i-3] == '\r' && b[i-2] == '\n' {
				return i + 1, nil
			}
		case c == '\n':
			return 0, errLineEnd
		case c == '\r' || c == '\t' || c >= ' ' && c != 0x7f:
		default:
			return 0, errControl
		}
	}
	return 0, nil
}

// parseHead splits what readHead returned. The start line is cut at its first two spaces and judged by the caller.
func parseHead(raw []byte, maxFields int) (head, error) {
	text, ok := bytes.CutSuffix(raw, []byte("\r\n\r\n"))
	if !ok {
		return head{}, errTruncated
	}
	first, rest, _ := strings.Cut(string(text), "\r\n")
	var h head
	var found bool
	if h.start[0], first, found = strings.Cut(first, " "); !found {
		return head{}, errStart
	}
	h.start[1], h.start[2], _ = strings.Cut(first, " ")
	if rest == "" {
		return h, nil
	}
	lines := strings.Count(rest, "\r\n") + 1
	if lines > maxFields {
		return head{}, errHeadTooLarge
	}
	h.fields = make([]field, 0, lines)
	for line := range strings.SplitSeq(rest, "\r\n") {
		f, err := parseField(line)
		if err != nil {
			return head{}, err
		}
		h.fields = append(h.fields, f)
	}
	return h, nil
}

// parseField reads RFC 9112 section 5: no white space before the colon, none in front of the name.
func parseField(line string) (field, error) {
	if line == "" || line[0] == ' ' || line[0] == '\t' {
		return field{}, errFold
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || !token(name) {
		return field{}, errField
	}
	return field{name, strings.Trim(value, " \t")}, nil
}

// only returns the value of a field that may be there once at most.
func (h *head) only(name string) (value string, found bool, err error) {
	for _, f := range h.fields {
		if !strings.EqualFold(f.name, name) {
			continue
		}
		if found {
			return "", true, badRequest("The field " + name + " is there twice.")
		}
		value, found = f.value, true
	}
	return value, found, nil
}

func (h *head) has(name string) bool {
	return slices.ContainsFunc(h.fields, func(f field) bool { return strings.EqualFold(f.name, name) })
}

// token reports whether s is a token of RFC 9110 section 5.6.2.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

func among(name string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(name, n) })
}
