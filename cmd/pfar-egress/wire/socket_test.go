package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// message is frames of one message; each piece of text is a frame.
func message(masked bool, opcode byte, pieces ...string) []byte {
	f := frames{masked: masked, key: [4]byte{1, 0xfe, 3, 0x80}}
	if !masked {
		f.key = [4]byte{}
	}
	var b []byte
	for i, p := range pieces {
		op := opcode
		if i > 0 {
			op = 0
		}
		b = f.frame(b, op, i == len(pieces)-1, []byte(p))
	}
	return b
}

// messages reads frames that are sound, and returns the text of each message, control frames in parentheses.
func messages(t testing.TB, masked bool, b []byte) []string {
	t.Helper()
	var got []string
	text := ""
	for len(b) > 0 {
		f := frames{masked: masked}
		f.head = b[:2]
		n := f.need()
		f.head = b[:n]
		if f.head[0]&0x0f == 0 {
			f.message = 1
		}
		if err := f.begin(); err != nil {
			t.Fatalf("a frame that was passed on: %v", err)
		}
		b = b[n:]
		payload := bytes.Clone(b[:f.left])
		b = b[f.left:]
		for i := range payload {
			payload[i] ^= f.key[i%4]
		}
		switch {
		case f.opcode >= 8:
			got = append(got, "("+string(payload)+")")
		default:
			text += string(payload)
			if f.final {
				got, text = append(got, text), ""
			}
		}
	}
	return got
}

type halfPipe struct {
	io.Reader
	written bytes.Buffer
}

func (h *halfPipe) Write(b []byte) (int, error) { return h.written.Write(b) }
func (h *halfPipe) Close() error                { return nil }

func webSocket(t testing.TB, s *Source, from io.Reader) (io.ReadWriteCloser, *halfPipe, *Request) {
	t.Helper()
	r, _ := http.NewRequest("GET", "https://"+apiHost, nil)
	q, err := s.Put(r, allowed, 443)
	if err != nil {
		t.Fatal(err)
	}
	h := &halfPipe{Reader: from}
	resp := &http.Response{StatusCode: 101, Header: http.Header{}, Body: h, Request: r.WithContext(q.Context())}
	if err := s.Response(resp); err != nil {
		t.Fatal(err)
	}
	return resp.Body.(io.ReadWriteCloser), h, q
}

func TestSocketScrubs(t *testing.T) {
	s := source(t, everywhere(t))
	p := placeholderOf(t, "TOKEN", token)
	long := strings.Repeat("x", 40<<10)
	var sent []byte
	for _, b := range [][]byte{
		message(false, 1, "a "+token+" b"), message(false, 1, token[:7], token[7:]), message(false, 2, token[:1], token[1:2], "", token[2:]),
		message(false, 9, "ping"), message(false, 1, ""), message(false, 1, token[:9], "no"),
		message(false, 1, long+token+long), message(false, 10, token), message(false, 8, "\x03\xe8"+token),
	} {
		sent = append(sent, b...)
	}
	// Control frames may stand between those of a message.
	split := message(false, 1, token[:7], token[7:])
	sent = append(append(append(sent, split[:9]...), message(false, 9, "between")...), split[9:]...)
	want := []string{"a " + p + " b", p, p, "(ping)", "", token[:9] + "no", long + p + long, "(" + p + ")", "(\x03\xe8" + p + ")", "(between)", p}
	for _, size := range []int{1, 2, 3, 7, 100, 4096, len(sent)} {
		conn, _, _ := webSocket(t, s, &slowly{sent, size})
		got, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		if m := messages(t, false, got); fmt.Sprint(m) != fmt.Sprint(want) {
			t.Errorf("%d at a time: %.300q, want %.300q", size, m, want)
		}
	}
}

// slowly yields so many bytes at once.
type slowly struct {
	b []byte
	n int
}

func (s *slowly) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.n)], s.b)
	s.b = s.b[n:]
	return n, nil
}

func TestSocketPuts(t *testing.T) {
	s := source(t, everywhere(t))
	p, o := placeholderOf(t, "TOKEN", token), placeholderOf(t, "ODD", odd)
	whole := append(message(true, 1, `{"token":"`+p[:5], p[5:]+`"}`), message(true, 2, o, strings.Repeat("y", 70000))...)
	for cut := range 200 {
		conn, h, _ := webSocket(t, s, nil)
		for _, b := range [][]byte{whole[:cut], whole[cut:]} {
			if _, err := conn.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		if got := messages(t, true, h.written.Bytes()); len(got) != 2 || got[0] != `{"token":"`+token+`"}` || got[1] != odd+strings.Repeat("y", 70000) {
			t.Fatalf("cut at %d: %.300q", cut, got)
		}
	}
	unchanged := append(message(true, 1, "plain"), message(true, 9, "")...)
	conn, h, _ := webSocket(t, s, nil)
	if _, err := conn.Write(unchanged); err != nil || !bytes.Equal(h.written.Bytes(), unchanged) {
		t.Errorf("what holds none is changed: %x, %v", h.written.Bytes(), err)
	}
}

func TestSocketRefuses(t *testing.T) {
	m := everywhere(t)
	m.Secrets[0].Places = m.Secrets[0].Places[:1] // no body
	s := source(t, m)
	p, o := m.Secrets[0].Placeholder, m.Secrets[2].Placeholder
	for name, c := range map[string]struct {
		sent []byte
		want string // "": no Refusal, but an error
	}{
		"undeclared":          {message(true, 1, "a "+p), WrongPlace},
		"over two frames":     {message(true, 1, p[:3], p[3:]), WrongPlace},
		"in a ping":           {message(true, 9, p), WrongPlace},
		"another host's":      {message(true, 2, o), WrongHost},
		"in hexadecimal":      {message(true, 1, fmt.Sprintf("%x", p)), WrongPlace},
		"unmasked":            {message(false, 1, "text, and more of it"), ""},
		"compressed":          {append([]byte{0xc1}, message(true, 1, "text")[1:]...), ""},
		"an unknown opcode":   {message(true, 3, "text"), ""},
		"a continuation":      {message(true, 0, "text"), ""},
		"a message within":    {append(message(true, 1, "a", "b")[:7], message(true, 1, "c")...), ""},
		"a long control":      {message(true, 8, strings.Repeat("x", 126)), ""},
		"a control in pieces": {message(true, 9, "a", "b"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn, h, q := webSocket(t, s, nil)
			_, err := conn.Write(c.sent)
			refusal, ok := errors.AsType[*Refusal](err)
			switch {
			case err == nil, ok != (c.want != ""), ok && (refusal.Reason != c.want || q.Refused() != refusal):
				t.Errorf("it is %v, %v", err, q.Refused())
			case strings.Contains(strings.Join(messages(t, true, h.written.Bytes()), ""), p):
				t.Error("it is passed on")
			}
		})
	}
	for _, b := range [][]byte{message(true, 1, "masked"), append([]byte{0x91}, message(false, 1, "text")[1:]...)} {
		conn, _, _ := webSocket(t, s, bytes.NewReader(b))
		if got, err := io.ReadAll(conn); !errors.Is(err, errFrame) {
			t.Errorf("%x is passed on: %q, %v", b, got, err)
		}
	}
}

func TestSocketsOnly(t *testing.T) {
	s := source(t, everywhere(t))
	r, _ := http.NewRequest("GET", "https://"+apiHost, nil)
	q, _ := s.Put(r, allowed, 443)
	for name, resp := range map[string]*http.Response{
		"an extension":      {Header: http.Header{"Sec-Websocket-Extensions": {"permessage-deflate"}}, Body: &halfPipe{}, Request: r.WithContext(q.Context())},
		"nothing to write":  {Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r.WithContext(q.Context())},
		"a request unknown": {Header: http.Header{}, Body: &halfPipe{}, Request: r},
	} {
		if resp.StatusCode = 101; s.Response(resp) == nil {
			t.Errorf("%s is passed on", name)
		}
	}
}

// The messages of a rotated secret get the new value, and those of a changed material never another host's.
func TestSocketAfterRotation(t *testing.T) {
	m := everywhere(t)
	s := source(t, m)
	conn, h, _ := webSocket(t, s, nil)
	changed := everywhere(t)
	changed.Secrets[0], changed.Secrets[2] = changed.Secrets[2], changed.Secrets[0] // in another order
	changed.Secrets[2].Value = "ntn_Z9y8X7w6V5u4T3s2R1q0P9o8"
	if err := s.Take(changed); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(message(true, 1, m.Secrets[0].Placeholder)); err != nil {
		t.Fatal(err)
	}
	if got := messages(t, true, h.written.Bytes()); len(got) != 1 || got[0] != changed.Secrets[2].Value {
		t.Errorf("%q", got)
	}
	if _, err := conn.Write(message(true, 1, m.Secrets[2].Placeholder)); err == nil {
		t.Error("another host's is passed on")
	}
}
