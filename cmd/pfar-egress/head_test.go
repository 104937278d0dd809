package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadHeadLeavesTheRest(t *testing.T) {
	const want = "GET / HTTP/1.1\r\nA: b\r\n\r\n"
	for _, rest := range []string{"", "x", "\n\n", "\x00\x16\r", want} {
		raw, after, err := readHead(strings.NewReader(want+rest), 1024)
		if err != nil || string(raw) != want || string(after) != rest {
			t.Errorf("%q, %q, %v", raw, after, err)
		}
		raw, _, err = readHead(iotest.OneByteReader(strings.NewReader(want+rest)), 1024)
		if err != nil || string(raw) != want {
			t.Errorf("byte by byte: %q, %v", raw, err)
		}
	}
}

func TestReadHeadBounds(t *testing.T) {
	head := func(n int) string { return "GET " + strings.Repeat("a", n-8) + "\r\n\r\n" }
	if raw, _, err := readHead(strings.NewReader(head(16<<10)), 16<<10); err != nil || len(raw) != 16<<10 {
		t.Errorf("a head of the limit: %d, %v", len(raw), err)
	}
	if _, _, err := readHead(strings.NewReader(head(16<<10+1)), 16<<10); !errors.Is(err, errHeadTooLarge) {
		t.Errorf("a head beyond the limit: %v", err)
	}
	if _, _, err := readHead(strings.NewReader(""), 1024); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: %v", err)
	}
	if _, _, err := readHead(strings.NewReader("GET"), 1024); !errors.Is(err, errTruncated) {
		t.Errorf("half a head: %v", err)
	}
}

// FuzzRequest holds what the parser accepts to what every other parser would read in it.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		connectTo("api.allowed.test:443"), connectTo("[2001:db8::1]:443"),
		"GET http://api.allowed.test/a?b HTTP/1.1\r\nHost: api.allowed.test\r\nX: y\r\n\r\n",
		"POST http://api.allowed.test:8080 HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello",
		"POST http://a/ HTTP/1.1\r\nHost: a:80\r\nTransfer-Encoding: chunked\r\n\r\n",
		"OPTIONS http://bücher HTTP/1.1\r\nhost:\tbücher \r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, rest, err := readHead(bytes.NewReader(b), 4096)
		if err != nil {
			return
		}
		if !bytes.Equal(append(bytes.Clone(raw), rest...), b) {
			t.Fatal("bytes are lost")
		}
		r, err := parseRequest(raw, 64)
		if err != nil {
			var ref *refusal
			if !errors.As(err, &ref) || ref.status < 400 {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		if r.host == "" || r.port == 0 || strings.ContainsAny(r.host, "@/\\?# \t\r\n\x00") {
			t.Fatalf("host %q, port %d", r.host, r.port)
		}
		if n := bytes.Count(raw, []byte("\n")); n != bytes.Count(raw, []byte("\r\n")) || n != bytes.Count(raw, []byte("\r")) || n != len(r.fields)+2 {
			t.Fatalf("%d lines, %d fields", n, len(r.fields))
		}
		if r.tunnel {
			return
		}
		// What is passed on has one host and one framing, in the eyes of the same strict parser.
		again := r.render(decisionFor(r))
		h, err := parseHead(again, 70)
		if err != nil {
			t.Fatalf("%q is passed on as %q: %v", b, again, err)
		}
		if host, found, err := h.only("Host"); err != nil || !found || host == "" {
			t.Fatalf("%q has the host %q, %v", again, host, err)
		}
		if _, found, err := h.only("Content-Length"); err != nil || found && h.has("Transfer-Encoding") {
			t.Fatalf("framing of %q: %v", again, err)
		}
	})
}
