package clienthello

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// sni makes a hello whose server_name extension has this body.
func sni(body string) string { return record(plain(ext{0, body}).message()) }

// entry is one entry of a server name list.
func entry(kind byte, name string) string { return string([]byte{kind}) + v16(name) }

// many makes n extensions of n kinds.
func many(n int) spec {
	s := plain()
	s.exts = nil
	for i := range n {
		s.exts = append(s.exts, ext{0x1000 + i, ""})
	}
	return s
}

// change returns s with the byte at i replaced.
func change(s string, i int, b byte) string { return s[:i] + string([]byte{b}) + s[i+1:] }

// TestReadRefuses has one row for each way of not being a hello with one name.
func TestReadRefuses(t *testing.T) {
	good := plain(names("api.example.com"))
	m, r, front := good.message(), string(good.bytes()), good.front()
	const body = headerSize + messageHeader
	with := func(change func(*spec)) string {
		s := plain(names("api.example.com"))
		change(&s)
		return string(s.bytes())
	}
	for _, c := range []struct {
		what string
		sent string
		want *Error
	}{
		// No TLS.
		{"HTTP", "GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", errNotTLS},
		{"CONNECT", "CONNECT api.example.com:443 HTTP/1.1\r\n\r\n", errNotTLS},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", errNotTLS},
		{"SSH", "SSH-2.0-OpenSSH_9.2\r\n", errNotTLS},
		{"SOCKS5", "\x05\x01\x00", errNotTLS},
		{"PostgreSQL's SSLRequest", "\x00\x00\x00\x08\x04\xd2\x16\x2f", errNotTLS},
		{"PROXY protocol in front", "PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n" + r, errNotTLS},
		{"a blank in front", " " + r, errNotTLS},
		{"SSLv2 hello", "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + strings.Repeat("x", 37), errNotTLS},
		{"SSLv2 hello that offers TLS", "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + strings.Repeat("x", 37), errNotTLS},
		{"SSLv2 hello with padding", "\x16\x2e\x01\x01\x03\x01", errNotVersion3},
		{"alert first", "\x15\x03\x01\x00\x02\x01\x00" + r, errNotTLS},
		{"application data first", "\x17\x03\x03\x00\x05hello" + r, errNotTLS},
		{"change_cipher_spec first", "\x14\x03\x03\x00\x01\x01" + r, errNotTLS},
		{"heartbeat first", "\x18\x03\x02\x00\x03\x01\x40\x00", errNotTLS},
		{"type 0", "\x00" + r[1:], errNotTLS},
		{"DTLS 1.2", "\x16\xfe\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x30\x01", errNotVersion3},
		{"DTLS 1.0", "\x16\xfe\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00\x30\x01", errNotVersion3},
		{"record version 2", change(r, 1, 2), errNotVersion3},
		{"record version 4", change(r, 1, 4), errNotVersion3},
		{"record version 0", change(r, 1, 0), errNotVersion3},

		// Records.
		{"empty record", "\x16\x03\x01\x00\x00" + r, errEmptyRecord},
		{"empty record within", string(cut(m, 100)[:105]) + "\x16\x03\x01\x00\x00" + string(cut(m, 100)[105:]), errEmptyRecord},
		{"record of 2^14+1", "\x16\x03\x01\x40\x01", errLongRecord},
		{"record of 2^14+256", "\x16\x03\x01\x41\x00", errLongRecord},
		{"record of 2^16-1", "\x16\x03\x01\xff\xff", errLongRecord},
		{"second record of 2^14+1", record(m[:50]) + "\x16\x03\x01\x40\x01", errLongRecord},
		{"alert within", record(m[:50]) + "\x15\x03\x01\x00\x02\x01\x00" + record(m[50:]), errInterleaved},
		{"application data within", record(m[:50]) + "\x17\x03\x03\x00\x01x" + record(m[50:]), errInterleaved},
		{"change_cipher_spec within", record(m[:50]) + "\x14\x03\x03\x00\x01\x01" + record(m[50:]), errInterleaved},
		{"HTTP within", record(m[:50]) + "GET / HTTP/1.1\r\n\r\n", errInterleaved},
		{"another record version within", record(m[:50]) + change(record(m[50:]), 1, 2), errInterleaved},
		{"one record too many", string(cut(padded(maxRecords+1), 1)), errManyRecords},

		// Messages.
		{"HelloRequest first", record(change(m, 0, 0)), errNotHello},
		{"ServerHello first", record(change(m, 0, 2)), errNotHello},
		{"Certificate first", record(change(m, 0, 11)), errNotHello},
		{"Finished first", record(change(m, 0, 20)), errNotHello},
		{"a second hello in the record", record(m + m), errBeyondMessage},
		{"a second hello for another name in the record", record(m + plain(names("evil.example")).message()), errBeyondMessage},
		{"one byte behind the hello in the record", record(m + "\x00"), errBeyondMessage},
		{"a byte behind the hello in the second record", record(m[:50]) + record(m[50:]+"\x00"), errBeyondMessage},
		{"over the limit", string(cut(padded(limit), maxPlaintext)), errTooLarge},
		{"of 2^24-1 bytes", record("\x01\xff\xff\xff"), errTooLarge},
		{"of 2^24-1 bytes, byte by byte", string(cut("\x01\xff\xff\xff", 1)), errTooLarge},
		{"of no bytes", record("\x01\x00\x00\x00"), errLength},
		{"of no bytes, and a hello", record("\x01\x00\x00\x00" + m), errBeyondMessage},
		{"of 40 bytes", record(message1(front[:40])), errLength},
		{"of a version of DTLS", change(r, body, 0xfe), errHelloVersion},
		{"of version 2", change(r, body, 2), errHelloVersion},
		{"ends with the random", record(message1(front[:34])), errLength},
		{"ends with the session", record(message1(front[:67])), errLength},
		{"ends with the suites", record(message1(front[:75])), errLength},
		{"session of 33 bytes", with(func(s *spec) { s.session = strings.Repeat("s", 33) }), errLength},
		{"no suites", with(func(s *spec) { s.suites = "" }), errLength},
		{"suites of 3 bytes", with(func(s *spec) { s.suites = "\x13\x01\x13" }), errLength},
		{"no compression methods", with(func(s *spec) { s.methods = "" }), errLength},
		{"half a length of extensions", record(message1(front + "\x00")), errLength},
		{"extensions longer than the message", record(message1(front + u16(len(good.extensions())+1) + good.extensions())), errLength},
		{"extensions shorter than the message", record(message1(front + u16(len(good.extensions())-1) + good.extensions())), errLength},
		{"no extensions, and a server name", record(message1(front + u16(0) + good.extensions())), errLength},
		{"half an extension", record(message1(front + v16("\x00\x0a\x00"))), errLength},
		{"last extension longer than the rest", record(message1(front + v16("\x00\x0a\x00\x03ab"))), errLength},
		{"too many extensions", string(many(maxExtensions + 1).bytes()), errManyExtensions},

		// Extensions twice.
		{"server_name twice", string(plain(names("api.example.com"), names("evil.example")).bytes()), errDuplicate},
		{"server_name twice, alike", string(plain(names("api.example.com"), names("api.example.com")).bytes()), errDuplicate},
		{"server_name first and last", with(func(s *spec) { s.exts = append(s.exts, names("evil.example")) }), errDuplicate},
		{"server_name twice, the second one empty", string(plain(names("api.example.com"), ext{0, ""}).bytes()), errDuplicate},
		{"supported_groups twice", string(plain(names("api.example.com"), ext{10, "\x00\x02\x00\x1d"}).bytes()), errDuplicate},
		{"GREASE twice", string(plain(ext{0x0a0a, ""}, ext{0x0a0a, "\x00"}).bytes()), errDuplicate},
		{"ECH twice", string(plain(ext{0xfe0d, "a"}, ext{0xfe0d, "b"}).bytes()), errDuplicate},
		{"the last one twice", with(func(s *spec) { s.exts = append(s.exts, s.exts[len(s.exts)-1]) }), errDuplicate},

		// The server name.
		{"extension empty, as servers send it", sni(""), errNameLength},
		{"extension of one byte", sni("\x00"), errNameLength},
		{"empty list", sni("\x00\x00"), errNameNotOne},
		{"list longer than the extension", sni("\x00\x05\x00\x00\x01a"), errNameLength},
		{"list shorter than the extension", sni("\x00\x03\x00\x00\x01a"), errNameLength},
		{"entry of one byte", sni(v16("\x00")), errNameLength},
		{"entry without a name", sni(v16("\x00\x00")), errNameLength},
		{"name longer than the list", sni(v16("\x00\x00\x05abcd")), errNameLength},
		{"name shorter than the list", sni(v16("\x00\x00\x03abcd")), errNameNotOne},
		{"two names", sni(v16(entry(0, "api.example.com") + entry(0, "evil.example"))), errNameNotOne},
		{"two names, alike", sni(v16(entry(0, "api.example.com") + entry(0, "api.example.com"))), errNameNotOne},
		{"a name and another type", sni(v16(entry(0, "api.example.com") + entry(1, "evil.example"))), errNameNotOne},
		{"another type and a name", sni(v16(entry(1, "evil.example") + entry(0, "api.example.com"))), errNameType},
		{"another type", sni(v16(entry(255, "api.example.com"))), errNameType},
		{"empty name", sni(v16(entry(0, ""))), errNameEmpty},
		{"empty name and another", sni(v16(entry(0, "") + entry(0, "evil.example"))), errNameNotOne},
		{"NUL within", sni(v16(entry(0, "api.example.com\x00.evil.example"))), errNameLetters},
		{"NUL behind", sni(v16(entry(0, "api.example.com\x00"))), errNameLetters},
		{"NUL alone", sni(v16(entry(0, "\x00"))), errNameLetters},
		{"line feed", sni(v16(entry(0, "api.example.com\nx"))), errNameLetters},
		{"CR LF", sni(v16(entry(0, "a\r\nHost: b"))), errNameLetters},
		{"tab", sni(v16(entry(0, "a\tb"))), errNameLetters},
		{"blank in front", sni(v16(entry(0, " api.example.com"))), errNameLetters},
		{"blank behind", sni(v16(entry(0, "api.example.com "))), errNameLetters},
		{"DEL", sni(v16(entry(0, "a\x7fb"))), errNameLetters},
		{"escape", sni(v16(entry(0, "\x1b[2J"))), errNameLetters},
		{"UTF-8", sni(v16(entry(0, "b\u00fccher.example"))), errNameLetters},
		{"fullwidth dot", sni(v16(entry(0, "api\uff0eexample"))), errNameLetters},
		{"zero width space", sni(v16(entry(0, "api\u200b.example"))), errNameLetters},
		{"not UTF-8", sni(v16(entry(0, "\xff\xfe"))), errNameLetters},
		{"trailing dot", sni(v16(entry(0, "api.example.com."))), errNameDot},
		{"dot alone", sni(v16(entry(0, "."))), errNameDot},
		{"IPv4 address", sni(v16(entry(0, "192.0.2.7"))), errNameAddress},
		{"metadata service", sni(v16(entry(0, "169.254.169.254"))), errNameAddress},
		{"IPv6 address", sni(v16(entry(0, "2001:db8::1"))), errNameAddress},
		{"IPv6 address in brackets", sni(v16(entry(0, "[2001:db8::1]"))), errNameAddress},
		{"IPv6 address with a zone", sni(v16(entry(0, "fe80::1%eth0"))), errNameAddress},
		{"IPv4 in IPv6", sni(v16(entry(0, "::ffff:192.0.2.7"))), errNameAddress},
		{"name and port", sni(v16(entry(0, "api.example.com:443"))), errNameAddress},
		{"name of 254 bytes", sni(v16(entry(0, strings.Repeat("a.", 126)+"aa"))), errNameLong},
		{"name of 16,000 bytes", sni(v16(entry(0, strings.Repeat("a", 16000)))), errNameLong},
		{"name announced as 65,535 bytes", record(message1(front + "\x00\x04\x00\x00\xff\xff")), errNameLong},

		// Ends.
		{"ends within the header", r[:3], errTruncated},
		{"ends within the message", r[:len(r)-1], errTruncated},
		{"ends between records", record(m[:50]), errTruncated},
		{"ends within the name", r[:strings.Index(r, "api")+3], errTruncated},
		{"message longer than the record, and no more", record(change(m, 3, m[3]+1)), errLength},
	} {
		t.Run(c.what, func(t *testing.T) {
			if h, err := readAlike(t, []byte(c.sent), limit); err != error(c.want) {
				t.Errorf("%+v, %v (%v), want %v", h, err, detail(err), c.want.Detail)
			}
		})
	}
}

func detail(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Detail
	}
	return ""
}

// TestReadLengthsThatLie gives every byte of every length field in a hello every other value.
func TestReadLengthsThatLie(t *testing.T) {
	good := plain(names("api.example.com"))
	b := good.bytes()
	const body = headerSize + messageHeader
	session := body + 34
	suites := session + 1 + len(good.session)
	methods := suites + 2 + len(good.suites)
	extensions := methods + 1 + len(good.methods)
	fields := map[string][]int{
		"record":      {3, 4},
		"message":     {6, 7, 8},
		"session":     {session},
		"suites":      {suites, suites + 1},
		"methods":     {methods},
		"extensions":  {extensions, extensions + 1},
		"server_name": {extensions + 4, extensions + 5},
		"list":        {extensions + 6, extensions + 7},
		"name":        {extensions + 9, extensions + 10},
	}
	at := extensions + 2
	for i, e := range good.exts {
		fields[fmt.Sprintf("extension %d", i)] = []int{at + 2, at + 3}
		at += 4 + len(e.body)
	}
	if at != len(b) {
		t.Fatalf("the extensions end at %d, the hello at %d", at, len(b))
	}
	realigns := map[string]bool{"suites": true, "methods": true, "extension": true}
	for what, offsets := range fields {
		for _, i := range offsets {
			for v := range 256 {
				if byte(v) == b[i] {
					continue
				}
				lie := []byte(change(string(b), i, byte(v)))
				h, err := readAlike(t, lie, limit)
				if err != nil {
					continue
				}
				// A vector that swallows just what follows it leaves a good hello of another meaning, with the
				// name or without one. Then a server has to read it in the same way.
				if !realigns[strings.Fields(what)[0]] || h.HasServerName && h.ServerName != "api.example.com" {
					t.Errorf("%s: byte %d set to %d is accepted as %+v", what, i, v, h)
				}
				agree(t, h, lie)
			}
		}
	}
}

// replay is a connection on which a client has sent b and waits.
type replay struct {
	net.Conn // nil: what is not below is not called
	r        io.Reader
}

func (c replay) Read(p []byte) (int, error)       { return c.r.Read(p) }
func (c replay) Write(p []byte) (int, error)      { return len(p), nil }
func (c replay) SetWriteDeadline(time.Time) error { return nil }
func (c replay) Close() error                     { return nil }
func (c replay) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c replay) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// serverSees returns the name that crypto/tls's server takes out of a hello, unless it refuses it.
func serverSees(b []byte) (name string, ok bool) {
	stop := errors.New("seen")
	server := tls.Server(replay{r: strings.NewReader(string(b))}, &tls.Config{
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			name, ok = i.ServerName, true
			return nil, stop
		},
	})
	_ = server.Handshake() // ends in an error in any case
	return name, ok
}

// agree wants crypto/tls's server to see what Read has accepted, if it accepts it too.
func agree(t *testing.T, h Hello, raw []byte) (compared bool) {
	t.Helper()
	name, ok := serverSees(raw)
	if ok && name != h.ServerName {
		t.Errorf("%q is accepted, and crypto/tls's server sees %q in %x", h.ServerName, name, raw)
	}
	return ok
}

func FuzzRead(f *testing.F) {
	good := plain(names("api.example.com"))
	f.Add(good.bytes(), uint16(limit), uint8(0))
	f.Add(cut(good.message(), 20), uint16(limit), uint8(1))
	f.Add(plain(ext{0xfe0d, "x"}, names("a.example")).bytes(), uint16(500), uint8(9))
	f.Add([]byte(sni(v16(entry(0, "a")+entry(0, "b")))), uint16(limit), uint8(3))
	f.Add([]byte(record(padded(1500))), uint16(1504), uint8(200))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(10), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, most uint16, segment uint8) {
		h, err := readAlike(t, b, int(most))
		r := &segments{b: b, n: int(segment) + 1}
		again, raw, e := Read(r, int(most))
		if again != h || e != err || string(raw) != string(b[:r.taken]) || r.taken > int(most) {
			t.Fatalf("in segments of %d: %+v, %v after %d; whole: %+v, %v", r.n, again, e, r.taken, h, err)
		}
		if err != nil {
			return
		}
		if h.HasServerName != (h.ServerName != "") {
			t.Fatalf("%+v", h)
		}
		if h.HasServerName {
			agree(t, h, raw)
		}
	})
}

// The comparison above is worth something only if both sides read common hellos.
func TestServerSees(t *testing.T) {
	for _, c := range []struct {
		b    []byte
		want string
		ok   bool
	}{
		{plain(names("api.example.com")).bytes(), "api.example.com", true},
		{plain().bytes(), "", true},
		{cut(plain(names("api.example.com")).message(), 1), "api.example.com", true},
		{[]byte(sni(v16(entry(0, "a") + entry(0, "b")))), "", false},
	} {
		if name, ok := serverSees(c.b); name != c.want || ok != c.ok {
			t.Errorf("%x: %q, %v; want %q, %v", c.b, name, ok, c.want, c.ok)
		}
	}
}
