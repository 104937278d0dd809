package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadEvents(t *testing.T) {
	tests := []struct{ name, stream, want string }{
		{"one", "data: {}\n\n", "{}"},
		{"named message", "event: message\ndata: 1\n\n", "1"},
		{"other types are not messages", "event: ping\ndata: 1\n\ndata: 2\n\n", "2"},
		{"several data lines", "data: {\ndata: }\n\n", "{\n}"},
		{"no space, two spaces", "data:a\n\ndata:  b\n\n", "a| b"},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", "a|b"},
		{"CR", "data: a\r\rdata: b\r\r", "a|b"},
		{"comments, unknown fields, retry", ": hi\nfoo: x\nretry: 1\ndata: a\n\n", "a"},
		{"byte order mark", "\ufeffdata: a\n\n", "a"},
		{"ids last", "id: 7\ndata: a\n\ndata: b\n\nid:\ndata: c\n\nid: 1\x00\ndata: d\n\n", "7:a|7:b|c|d"},
		{"empty data is an event", "data\n\n", ""},
		{"no data is none", "id: 1\n\nevent: x\n\n", "none"},
		{"what the end cuts is none", "data: a\n\ndata: b\n", "a"},
		{"cut within a line", "data: a\n\ndata: b", "a"},
		{"nothing", "", "none"},
	}
	for _, tt := range tests {
		for _, slow := range []bool{false, true} {
			var r io.Reader = strings.NewReader(tt.stream)
			if slow {
				r = iotest.OneByteReader(r)
			}
			var got []string
			err := readEvents(r, func(e event) {
				s := string(e.data)
				if e.id != "" {
					s = e.id + ":" + s
				}
				got = append(got, s)
			})
			text := strings.Join(got, "|")
			if got == nil {
				text = "none"
			}
			if err != nil || text != tt.want {
				t.Errorf("%s: got %q, %v; want %q", tt.name, text, err, tt.want)
			}
		}
	}
}

func TestEventWithCRIsNotHeldBack(t *testing.T) {
	r, w := io.Pipe()
	seen := make(chan string, 1)
	go readEvents(r, func(e event) { seen <- string(e.data) })
	io.WriteString(w, "data: now\r\r") // and nothing more
	if got := <-seen; got != "now" {
		t.Errorf("got %q", got)
	}
	w.Close()
}

func TestEventsThatBreakOff(t *testing.T) {
	broken := errors.New("reset")
	if err := readEvents(io.MultiReader(strings.NewReader("data: a\n"), iotest.ErrReader(broken)), func(event) {}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	endless := io.MultiReader(strings.NewReader("data: "), endlessReader{})
	if err := readEventsUpTo(endless, 1<<10, func(event) {}); !errors.Is(err, errTooLong) {
		t.Errorf("endless line: got %v", err)
	}
}

// endlessReader is a gateway that never ends its line.
type endlessReader struct{}

func (endlessReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}
