package clienthello

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

const limit = 32 << 10 // as the bridge has it

// segments returns at most n bytes per Read, and counts all that it has returned.
type segments struct {
	b     []byte
	n     int
	taken int
}

func (s *segments) Read(p []byte) (int, error) {
	if s.taken == len(s.b) {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.n)], s.b[s.taken:])
	s.taken += n
	return n, nil
}

// reason returns the Error's reason, "" of no error, and the text of any other.
func reason(err error) string {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Reason
	}
	return err.Error()
}

// readAlike reads b whole and in segments, and wants the same each time.
func readAlike(t *testing.T, b []byte, limit int) (Hello, error) {
	t.Helper()
	whole := &segments{b: b, n: 1 << 20}
	h, raw, err := Read(whole, limit)
	if whole.taken > limit || !bytes.Equal(raw, b[:whole.taken]) {
		t.Fatalf("%d bytes taken and %d returned, or others; the limit is %d", whole.taken, len(raw), limit)
	}
	if err != nil && h != (Hello{}) {
		t.Fatalf("%+v beside error %v", h, err)
	}
	for _, n := range []int{1, 2, 7, 100} {
		r := &segments{b: b, n: n}
		again, raw, e := Read(r, limit)
		if again != h || e != err {
			t.Fatalf("in segments of %d: %+v, %v; whole: %+v, %v", n, again, e, h, err)
		}
		if !bytes.Equal(raw, b[:r.taken]) {
			t.Fatalf("in segments of %d: %d bytes taken, %d returned, or others", n, r.taken, len(raw))
		}
	}
	return h, err
}

func TestReadName(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 49)+".", 5) + "com"
	for _, name := range []string{"api.example.com", "API.Example.COM", "xn--bcher-kva.example", "a", "_x.example.com", "1.2.3.4.example", "1.2.3", long} {
		h, err := readAlike(t, plain(names(name)).bytes(), limit)
		if err != nil || h != (Hello{ServerName: name, HasServerName: true}) {
			t.Errorf("%q: %+v, %v", name, h, err)
		}
	}
}

func TestReadHelloOfEveryShape(t *testing.T) {
	name := names("api.example.com")
	noExtensions, last, no := plain(), plain(), plain()
	last.exts = append(last.exts, name)
	session := plain(name)
	session.session = ""
	full := padded(limit - 2*headerSize - headerSize)
	for _, c := range []struct {
		what string
		b    []byte
		name bool
	}{
		{"one record", plain(name).bytes(), true},
		{"the name last", last.bytes(), true},
		{"no name", no.bytes(), false},
		{"no extensions at all", []byte(record(message1(noExtensions.front()))), false},
		{"an empty list of extensions", []byte(record(message1(noExtensions.front() + "\x00\x00"))), false},
		{"no session", session.bytes(), true},
		{"eight records", cut(plain(name).message(), len(plain(name).message())/8+1), true},
		{"hundreds of records of one byte", cut(plain(name).message(), 1), true},
		{"as many records as may be", cut(padded(maxRecords), 1), true},
		{"a header in two records", []byte(record(plain(name).message()[:2]) + record(plain(name).message()[2:])), true},
		{"a full record", []byte(record(padded(maxPlaintext))), true},
		{"all that the limit allows", cut(full, maxPlaintext), true},
		{"record version of SSL 3.0", append([]byte{22, 3, 0}, plain(name).bytes()[3:]...), true},
		{"record version of TLS 1.3", append([]byte{22, 3, 4}, plain(name).bytes()[3:]...), true},
		{"record version of none", append([]byte{22, 3, 255}, plain(name).bytes()[3:]...), true},
		{"early data behind it", append(plain(name).bytes(), "\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x05early"...), true},
	} {
		h, err := readAlike(t, c.b, limit)
		if want := (Hello{HasServerName: c.name, ServerName: map[bool]string{true: "api.example.com"}[c.name]}); err != nil || h != want {
			t.Errorf("%s: %+v, %v", c.what, h, err)
		}
	}
}

func TestReadECH(t *testing.T) {
	for _, kind := range []int{0xfe08, 0xfe09, 0xfe0a, 0xfe0b, 0xfe0c, 0xfe0d, 0xff02, 0xff03, 0xffce, 0xfd00} {
		if h, err := readAlike(t, plain(ext{kind, "noise"}, names("public.example")).bytes(), limit); err != nil || !h.ECH || h.ServerName != "public.example" {
			t.Errorf("%#x: %+v, %v", kind, h, err)
		}
		if h, err := readAlike(t, plain(ext{kind, ""}).bytes(), limit); err != nil || !h.ECH || h.HasServerName {
			t.Errorf("%#x without a name: %+v, %v", kind, h, err)
		}
	}
	for _, kind := range []int{0xfe07, 0xfe0e, 0xff01, 0xffcd, 0x0a0a} { // the last is GREASE, ff01 renegotiation_info
		if h, err := readAlike(t, plain(ext{kind, "\x00"}).bytes(), limit); err != nil || h.ECH {
			t.Errorf("%#x: %+v, %v", kind, h, err)
		}
	}
}

func TestReadTakesNoMoreThanOneReadBeyondTheHello(t *testing.T) {
	hello := plain(names("api.example.com")).bytes()
	r := &segments{b: append(bytes.Clone(hello), "and what follows"...), n: len(hello)}
	if _, raw, err := Read(r, limit); err != nil || !bytes.Equal(raw, hello) || r.taken != len(hello) {
		t.Errorf("%d bytes taken, %d returned, %v; the hello has %d", r.taken, len(raw), err, len(hello))
	}
}

// A peer that sends something wrong and then waits is refused at once.
func TestReadRefusesAtTheFirstWrongByte(t *testing.T) {
	hello := string(plain(names("api.example.com")).bytes())
	message := headerSize + messageHeader
	for _, c := range []struct {
		sent string
		want *Error
	}{
		{"G", errNotTLS},
		{"\x80", errNotTLS},
		{"\x16\xfe", errNotVersion3},
		{"\x16\x03\x01\x41", errLongRecord},
		{"\x16\x03\x01\x00\x00", errEmptyRecord},
		{hello[:headerSize] + "\x02", errNotHello},
		{hello[:headerSize] + "\x01\x00\x00\x50", errBeyondMessage},
		{hello[:headerSize] + "\x01\xff\xff\xff", errTooLarge},
		{hello[:message] + "\xfe\xff", errHelloVersion},
		{hello[:message+2+randomSize] + "\x21", errLength},
		{hello[:message+2+randomSize+1+32] + "\x00\x05", errLength},
	} {
		here, there := net.Pipe()
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := range len(c.sent) {
				if _, err := io.WriteString(there, c.sent[i:i+1]); err != nil {
					t.Errorf("%x: %v at byte %d", c.sent, err, i)
				}
			}
		})
		if err := here.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, raw, err := Read(here, limit); err != error(c.want) || string(raw) != c.sent {
			t.Errorf("%x: %v after %x, want %v", c.sent, err, raw, c.want)
		}
		writer.Wait()
		here.Close()
		there.Close()
	}
}

func TestReadPassesErrorsOfTheReader(t *testing.T) {
	hello := plain(names("api.example.com")).bytes()
	broken := errors.New("broken")
	for _, c := range []struct {
		what string
		r    io.Reader
		want error
		raw  int
	}{
		{"nothing sent", bytes.NewReader(nil), io.EOF, 0},
		{"ended within", bytes.NewReader(hello[:60]), errTruncated, 60},
		{"ended after one byte", bytes.NewReader(hello[:1]), errTruncated, 1},
		{"broken within", io.MultiReader(bytes.NewReader(hello[:60]), iotest.ErrReader(broken)), broken, 60},
		{"broken at once", iotest.ErrReader(broken), broken, 0},
		{"end together with the last byte", iotest.DataErrReader(bytes.NewReader(hello)), nil, len(hello)},
		{"nothing, without end", nothing{}, io.ErrNoProgress, 0},
	} {
		if _, raw, err := Read(c.r, limit); err != c.want || len(raw) != c.raw {
			t.Errorf("%s: %v after %d bytes, want %v after %d", c.what, err, len(raw), c.want, c.raw)
		}
	}

	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if err := here.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	_, _, err := Read(here, limit)
	if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() { // itself, not wrapped
		t.Errorf("a timeout came out as %v", err)
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

func TestReadLimit(t *testing.T) {
	message := padded(2000)
	hello := []byte(record(message))
	for _, c := range []struct {
		b     []byte
		limit int
		want  string
	}{
		{hello, len(hello), ""},
		{hello, len(hello) - 1, TooLarge},
		{hello[:headerSize+messageHeader], len(hello) - 1, TooLarge}, // the length field alone
		{hello[:headerSize+messageHeader], len(hello), Truncated},
		{cut(message, 1000), 2 * (headerSize + 1000), ""},
		{cut(message, 1000), 2*(headerSize+1000) - 1, TooLarge},
		{cut(message, 1000)[:2*headerSize+1000], 2*(headerSize+1000) - 1, TooLarge},
		{cut(message, 1000)[:headerSize+1000], 2*(headerSize+1000) - 1, TooLarge}, // another record has to come
		{cut(message, 1000)[:headerSize+1000], 2 * (headerSize + 1000), Truncated},
		{hello, 8, TooLarge},
		{hello, 1, TooLarge},
		{hello, 0, TooLarge},
		{hello, -1, TooLarge},
		{[]byte("GET / HTTP/1.1\r\n\r\n"), 8, NotTLS},
	} {
		if _, raw, err := Read(bytes.NewReader(c.b), c.limit); reason(err) != c.want || len(raw) > max(0, c.limit) {
			t.Errorf("%d bytes, limit %d: %v after %d", len(c.b), c.limit, err, len(raw))
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		what string
		b    []byte
	}{
		{"small", plain(names("api.example.com")).bytes()},
		{"post-quantum", []byte(record(padded(1800)))},
		{"eight records", cut(padded(1800), 225)},
		{"refused", []byte("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n")},
	} {
		b.Run(c.what, func(b *testing.B) {
			r := bytes.NewReader(c.b)
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(c.b)
				if _, _, err := Read(r, limit); (err == nil) != (c.what != "refused") {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestReadAllocates(t *testing.T) {
	hello := []byte(record(padded(1800)))
	r := bytes.NewReader(hello)
	n := testing.AllocsPerRun(100, func() {
		r.Reset(hello)
		if _, _, err := Read(r, limit); err != nil {
			t.Fatal(err)
		}
	})
	if n > 4 {
		t.Errorf("%v allocations", n)
	}
}
