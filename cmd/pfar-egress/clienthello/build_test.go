package clienthello

import (
	"bytes"
	"slices"
	"strings"
)

// ext is one extension of a hello that a test makes.
type ext struct {
	kind int
	body string
}

// spec is a hello that a test makes; each field is what the wire has, without its length.
type spec struct {
	session string
	suites  string
	methods string
	exts    []ext
}

func u16(n int) string    { return string([]byte{byte(n >> 8), byte(n)}) }
func v8(s string) string  { return string([]byte{byte(len(s))}) + s }
func v16(s string) string { return u16(len(s)) + s }

func names(list ...string) ext {
	var b strings.Builder
	for _, n := range list {
		b.WriteString("\x00" + v16(n))
	}
	return ext{0, v16(b.String())}
}

// plain is what a small TLS 1.3 client sends, with the given extensions in front.
func plain(exts ...ext) spec {
	return spec{
		session: strings.Repeat("s", 32),
		suites:  "\x13\x01\x13\x02\xc0\x2f",
		methods: "\x00",
		exts: append(slices.Clip(exts),
			ext{0x000a, v16("\x00\x1d\x00\x17")},
			ext{0x000d, v16("\x04\x03\x08\x04")},
			ext{0x002b, v8("\x03\x04\x03\x03")},
			ext{0x0033, v16("\x00\x1d" + v16(strings.Repeat("k", 32)))}),
	}
}

func (s spec) extensions() string {
	var b strings.Builder
	for _, e := range s.exts {
		b.WriteString(u16(e.kind) + v16(e.body))
	}
	return b.String()
}

// front is the body of a hello up to its extensions.
func (s spec) front() string {
	return "\x03\x03" + strings.Repeat("r", 32) + v8(s.session) + v16(s.suites) + v8(s.methods)
}

func (s spec) body() string { return s.front() + v16(s.extensions()) }

func (s spec) message() string { return message1(s.body()) }

func (s spec) bytes() []byte { return []byte(record(s.message())) }

func message1(body string) string {
	return string([]byte{1, byte(len(body) >> 16)}) + u16(len(body)) + body
}

func record(payload string) string { return "\x16\x03\x01" + v16(payload) }

// cut puts a message into records of at most n bytes.
func cut(message string, n int) []byte {
	var b bytes.Buffer
	for chunk := range slices.Chunk([]byte(message), n) {
		b.WriteString(record(string(chunk)))
	}
	return b.Bytes()
}

// padded is a plain hello for a name with as much padding (RFC 7685) as makes a message of size bytes.
func padded(size int) string {
	s := plain(names("api.example.com"), ext{21, ""})
	s.exts[1].body = strings.Repeat("\x00", size-len(s.message()))
	return s.message()
}
