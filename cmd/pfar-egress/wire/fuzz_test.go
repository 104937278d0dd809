package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/redact"
)

// pieces cuts b as the bytes of cuts say.
func pieces(b, cuts []byte) io.Reader {
	var all []io.Reader
	for _, c := range cuts {
		n := min(int(c), len(b))
		all = append(all, bytes.NewReader(b[:n]))
		b = b[n:]
	}
	return io.MultiReader(append(all, bytes.NewReader(b))...)
}

// withSecrets turns marks into what a hostile text may hold: the fuzzer cannot guess it.
func withSecrets(b []byte, list ...string) []byte {
	for i, s := range list {
		b = bytes.ReplaceAll(b, []byte{0xf0, byte(i)}, []byte(s))
		b = bytes.ReplaceAll(b, []byte{0xf1, byte(i)}, []byte(s[:len(s)/2]))
		b = bytes.ReplaceAll(b, []byte{0xf2, byte(i)}, []byte(s[len(s)/2:]))
	}
	return b
}

var cuts = [][]byte{nil, {1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {14}, {3, 200, 9}}

// FuzzPut: whatever a server sends, the value of another host's secret is not in it, one without a declared place is
// not, and what goes out does not depend on how it came.
func FuzzPut(f *testing.F) {
	m := everywhere(f)
	m.Secrets[0].Places = m.Secrets[0].Places[:4] // no body
	s := source(f, m)
	var list []string
	for _, secret := range m.Secrets {
		list = append(list, secret.Placeholder)
	}
	for _, cut := range cuts {
		f.Add("/?key=\xf0\x00&odd=\xf0\x01", "Bearer \xf0\x00", "application/json", []byte("{\"x\":\"\xf0\x01\"}"), cut)
		f.Add("/\xf0\x02", "Basic bWU6eW91", "text/plain", []byte("\xf1\x01\xf0\x01\xf2\x01"), cut)
		f.Add("/?\xf0\x02=%\xf1\x00%5f", "\xf0\x01\xf0\x00\xf1\x01", "application/x-www-form-urlencoded", []byte("\xf0\x00"), cut)
	}
	f.Fuzz(func(t *testing.T, target, authorization, kind string, body, cut []byte) {
		body = withSecrets(body, list...)
		send := func(body io.Reader) (*http.Request, string, error) {
			r, err := http.NewRequest("POST", "https://"+apiHost+string(withSecrets([]byte(target), list...)), body)
			if err != nil {
				t.Skip()
			}
			r.Header = http.Header{"Authorization": {string(withSecrets([]byte(authorization), list...))}, "Content-Type": {kind}, "X-Other": {authorization}}
			if _, err := s.Put(r, allowed, 443); err != nil {
				return r, "", err
			}
			b, err := io.ReadAll(r.Body)
			return r, string(b), err
		}
		r, got, err := send(pieces(body, cut))
		_, whole, werr := send(bytes.NewReader(body))
		if (err == nil) != (werr == nil) || err == nil && got != whole {
			t.Fatalf("in pieces %q, %v; whole %q, %v", got, err, whole, werr)
		}
		text := r.URL.String() + strings.Join(r.Header["Authorization"], "") + strings.Join(r.Header["X-Other"], "")
		if holds(text+got, other) || holds(got, token) {
			t.Fatalf("a value goes where it is not to: %q %q", text, got)
		}
		if _, refused := errors.AsType[*Refusal](err); err != nil && !refused {
			t.Fatal(err)
		}
		for _, p := range list {
			if err == nil && slices.ContainsFunc(redact.Forms(p), func(f string) bool { return strings.Contains(got, f) }) {
				t.Fatalf("a placeholder is passed on: %q", got)
			}
		}
	})
}

// FuzzResponse: whatever a host sends, no value of a secret comes back, and nothing else is changed.
func FuzzResponse(f *testing.F) {
	m := everywhere(f)
	s := source(f, m)
	var list []string
	for _, secret := range m.Secrets {
		list = append(list, forms(secret.Value)...)
	}
	for _, cut := range cuts {
		for _, zipped := range []bool{false, true} {
			f.Add([]byte("a \xf0\x00 b \xf0\x0d\xf0\x12 \xf1\x00\xf2\x00"), "x \xf0\x01", cut, zipped)
			f.Add([]byte("\xf1\x00\xf0\x00\xf2\x00\xf0\x13\xf1\x0b"), "\xf1\x00\xf0\x00", cut, zipped)
			f.Add([]byte("nothing"), "", cut, zipped)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, field string, cut []byte, zipped bool) {
		plain := !bytes.ContainsAny(body, "\xf0\xf1\xf2")
		body = withSecrets(body, list...)
		field = string(withSecrets([]byte(field), list...))
		h, sent := http.Header{"X-Echo": {field}}, body
		if zipped {
			h.Set("Content-Encoding", "gzip")
			sent = gzipped(body)
		}
		r := &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(pieces(sent, cut)), ContentLength: -1, Request: &http.Request{Method: "GET"}, Trailer: http.Header{"X-Echo": {field}}}
		if err := s.Response(r); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		if holds(string(got)+"\n"+r.Header.Get("X-Echo")+"\n"+r.Trailer.Get("X-Echo"), token, odd, other) {
			t.Fatalf("a value comes back: %q %q %q", got, r.Header, r.Trailer)
		}
		if plain && !bytes.Equal(got, body) {
			t.Fatalf("%q becomes %q", body, got)
		}
	})
}

// FuzzSocket: whatever bytes the two sides send, no value comes back, and none goes out that is not declared for
// messages.
func FuzzSocket(f *testing.F) {
	m := everywhere(f)
	m.Secrets[0].Places = m.Secrets[0].Places[:1]
	s := source(f, m)
	for _, cut := range cuts {
		f.Add(message(true, 1, "a\xf0\x01"), message(false, 1, "a\xf0\x00", "\xf1\x00", "\xf2\x00"), cut)
		f.Add(message(true, 2, "\xf0\x00", "\xf0\x02"), message(false, 9, "\xf0\x02"), cut)
		f.Add([]byte{0x81, 0xfe, 0, 1}, []byte{0x81, 127, 0, 0, 0, 0, 0, 0, 0, 1, 'a', 0x80}, cut)
	}
	f.Fuzz(func(t *testing.T, sent, received, cut []byte) {
		// Frames have lengths: the texts stand in place of payloads that are all alike.
		fill := func(b []byte, list ...string) []byte {
			for i, s := range list {
				mark := bytes.Repeat([]byte{byte(0xf0 + i)}, len(s))
				b = bytes.ReplaceAll(b, mark, []byte(s))
			}
			return b
		}
		conn, h, _ := webSocket(t, s, pieces(fill(received, token, odd, other), cut))
		got, _ := io.ReadAll(conn)
		if holds(strings.Join(unframed(t, false, got), ""), token, odd, other) {
			t.Fatalf("a value comes back: %q", got)
		}
		b := make([]byte, 64)
		for in := pieces(fill(sent, m.Secrets[0].Placeholder, m.Secrets[1].Placeholder, m.Secrets[2].Placeholder), cut); ; {
			n, err := in.Read(b)
			if err != nil {
				break
			}
			if _, err := conn.Write(b[:n]); err != nil {
				break
			}
		}
		if holds(strings.Join(unframed(t, true, h.written.Bytes()), ""), token, other) {
			t.Fatalf("a value goes out: %x", h.written.Bytes())
		}
	})
}

// unframed returns the messages in frames of which the last may be cut off.
func unframed(t testing.TB, masked bool, b []byte) []string {
	t.Helper()
	whole := 0
	for rest := b; len(rest) >= 2; {
		f := frames{masked: masked, head: rest[:2]}
		n := f.need()
		if len(rest) < n {
			break
		}
		size := uint64(rest[1] & 0x7f)
		switch size {
		case 126:
			size = uint64(binary.BigEndian.Uint16(rest[2:]))
		case 127:
			size = binary.BigEndian.Uint64(rest[2:])
		}
		if uint64(len(rest)-n) < size {
			break
		}
		rest = rest[n+int(size):]
		whole = len(b) - len(rest)
	}
	return messages(t, masked, b[:whole])
}
