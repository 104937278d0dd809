package events

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// all reads a stream to its end.
func all(r *Reader) ([]string, error) {
	var list []string
	for {
		e, err := r.Next()
		if err != nil {
			return list, err
		}
		text := e.Type + "|none"
		if e.Data != nil {
			text = e.Type + "|" + string(e.Data)
		}
		list = append(list, text)
	}
}

// TestEvents reads what the standard says, in one piece and byte by byte.
func TestEvents(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
		at   Cursor
	}{
		{"", nil, Cursor{}},
		{"data: a\n\n", []string{"|a"}, Cursor{}},
		{"data:a\n\ndata:  b\n\n", []string{"|a", "| b"}, Cursor{}},
		{"data: a\ndata: b\n\n", []string{"|a\nb"}, Cursor{}},
		{"data: a\r\ndata: b\r\n\r\n", []string{"|a\nb"}, Cursor{}},
		{"data: a\rdata: b\r\r", []string{"|a\nb"}, Cursor{}},
		{"data: a\n\r\ndata: b\r\n\n", []string{"|a", "|b"}, Cursor{}},
		{"\ufeffdata: a\n\n", []string{"|a"}, Cursor{}},
		{"\ufeff\ufeffdata: a\n\n", nil, Cursor{}},
		{"\xefdata: a\n\ndata: b\n\n", []string{"|b"}, Cursor{}},
		{"\xef", nil, Cursor{}},
		{"data\n\n", []string{"|"}, Cursor{}},
		{"data:\n\n", []string{"|"}, Cursor{}},
		{"data\ndata\n\n", []string{"|\n"}, Cursor{}},
		{"data: a", nil, Cursor{}},
		{"data: a\n", nil, Cursor{}},
		{": data: a\n\n:\n\n", nil, Cursor{}},
		{"event: x\ndata: a\n\ndata: b\n\n", []string{"x|a", "|b"}, Cursor{}},
		{"event: x\n\ndata: b\n\n", []string{"|b"}, Cursor{}},
		{"Data: a\nother: b\n data: c\n\n", nil, Cursor{}},
		{"id: 1\ndata: a\n\nid: 2\ndata: b\n", []string{"|a"}, Cursor{Last: "1"}},
		{"id: 1\n\n", []string{"|none"}, Cursor{Last: "1"}},
		{"id: 1\ndata: a\n\nid\ndata: b\n\n", []string{"|a", "|b"}, Cursor{}},
		{"id: 1\x00\ndata: a\n\n", []string{"|a"}, Cursor{}},
		{"id: 1\ndata: a\n\ndata: b\n\n", []string{"|a", "|b"}, Cursor{Last: "1"}},
		{"retry: 10\n\n", nil, Cursor{Retry: 10 * time.Millisecond, Asked: true}},
		{"retry: 1e3\nretry: -1\nretry:\nretry: +5\n\n", nil, Cursor{}},
		{"retry: 99999999999999999999999999\n\n", nil, Cursor{Retry: 5 * time.Minute, Asked: true}},
		{"retry: 0\n\n", nil, Cursor{Asked: true}},
		{"data: a:b: c\n\n", []string{"|a:b: c"}, Cursor{}},
	} {
		for name, from := range map[string]io.Reader{
			"whole": strings.NewReader(test.text), "bytes": iotest.OneByteReader(strings.NewReader(test.text)),
		} {
			r := NewReader(from, DefaultLimits(100), Cursor{})
			got, err := all(r)
			if !errors.Is(err, io.EOF) || !slices.Equal(got, test.want) || r.Cursor() != test.at {
				t.Errorf("%q, %s: events %q at %+v: %v; want %q at %+v", test.text, name, got, r.Cursor(), err, test.want, test.at)
			}
		}
	}
}

// TestWaitsForNothing: an event is there when its last byte is.
func TestWaitsForNothing(t *testing.T) {
	for _, text := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r"} {
		from, to := io.Pipe()
		r := NewReader(from, DefaultLimits(100), Cursor{})
		go io.WriteString(to, text)
		if e, err := r.Next(); err != nil || string(e.Data) != "a" {
			t.Errorf("%q: %q, %v", text, e.Data, err)
		}
		to.Close()
	}
}

// TestLimits: a stream without end costs bounded memory.
func TestLimits(t *testing.T) {
	for _, text := range []string{
		":", ": comment\n", "\n", "data:", "data: x\n", "event: x", "event: xxxxxxxx", "id: y", "data", "retry: 1\n", "\r",
	} {
		r := NewReader(&endless{text: text}, DefaultLimits(1<<10), Cursor{})
		if _, err := all(r); !errors.Is(err, ErrLimit) {
			t.Errorf("%q without end: %v", text, err)
		}
		if size := cap(r.row) + cap(r.data); size > 8<<10 {
			t.Errorf("%q without end: %d bytes are kept", text, size)
		}
	}
	most := strings.Repeat("x", 1<<20-1)
	r := NewReader(strings.NewReader("data: "+most+"\n\n"), DefaultLimits(1<<20), Cursor{})
	if e, err := r.Next(); err != nil || string(e.Data) != most {
		t.Errorf("an event of the most bytes: %d bytes, %v", len(e.Data), err)
	}
}

// TestBroken: an error of the connection's is passed on.
func TestBroken(t *testing.T) {
	broken := errors.New("broken")
	from := io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken))
	r := NewReader(from, DefaultLimits(100), Cursor{})
	if got, err := all(r); !errors.Is(err, broken) || !slices.Equal(got, []string{"|a"}) {
		t.Errorf("%q, %v", got, err)
	}
}

type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[e.at]
		e.at = (e.at + 1) % len(e.text)
	}
	return len(p), nil
}

// plain reads a whole stream as the standard's text has it, line by line.
func plain(text []byte) (list []string, last string) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	text = bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
	lines := strings.Split(string(text), "\n")
	var data, kind, id string
	had := false
	for _, line := range lines[:len(lines)-1] {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			moved := id != last
			last = id
			switch {
			case had:
				list = append(list, kind+"|"+strings.TrimSuffix(data, "\n"))
			case moved:
				list = append(list, kind+"|none")
			}
			data, kind, had = "", "", false
		case name == "data":
			data, had = data+value+"\n", true
		case name == "event":
			kind = value
		case name == "id" && !strings.Contains(value, "\x00"):
			id = value
		}
	}
	return list, last
}

// FuzzEvents compares the reader with a plain one, however the bytes come.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		"data: a\n\n", "\ufeffid: 1\r\rdata: x\r\n\r\n", ": c\nevent: e\ndata\n\nretry: 5\n\n",
		"data: a\n\r\ndata: b\r\n\n", "\xef\xbbdata: a\n\n",
	} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		want, last := plain(text)
		limits := DefaultLimits(len(text) + 100)
		limits.Name = len(text) + 1
		r := NewReader(&pieces{text, int(size)%7 + 1}, limits, Cursor{})
		got, err := all(r)
		if !errors.Is(err, io.EOF) || !slices.Equal(got, want) || r.Cursor().Last != last {
			t.Errorf("events %q, last id %q, %v; want %q, %q", got, r.Cursor().Last, err, want, last)
		}
	})
}

// pieces gives a text in pieces.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

func BenchmarkEvents(b *testing.B) {
	for _, size := range []int{200, 1 << 20} {
		text := []byte("id: 1\ndata: " + strings.Repeat("x", size) + "\n\n")
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r := NewReader(bytes.NewReader(text), DefaultLimits(2<<20), Cursor{})
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
