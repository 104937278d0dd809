package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/redact"
)

// FuzzOpened: whatever bytes a server sends within an opened connection, as HTTP/1.1 or HTTP/2 and however it cuts
// them, no value of a secret comes back to it, and none reaches another host than its own, or another place of a
// request.
func FuzzOpened(f *testing.F) {
	o := newOpening(f, nil, func(o *opening) { o.proxy.limits.headTime = 2 * time.Second })
	head := "POST /?key=\xf0 HTTP/1.1\r\nHost: " + apiHost + "\r\nAuthorization: Bearer \xf0\r\n"
	for i, cuts := range [][]byte{nil, {1, 1, 1}, {40, 3, 200}, bytes.Repeat([]byte{1}, 250)} {
		zip := i%2 == 0
		f.Add([]byte(head+"Content-Length: 5\r\n\r\n12345"), cuts, false, false, zip)
		f.Add([]byte("POST /?key=\xf0&other=x&k%65y=\xf0 HTTP/1.1\r\nHost: "+apiHost+"\r\nContent-Length: 5\r\n\r\n12345"), cuts, false, false, zip)
		f.Add([]byte(head+"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n1c\r\n\xf0\r\n0\r\nX: \xf0\r\n\r\n"), cuts, false, false, zip)
		f.Add([]byte(head+"Content-Length: 28\r\n\r\n\xf0"+head+"\r\n"), cuts, false, false, zip)
		f.Add([]byte(strings.ReplaceAll(head, apiHost, otherHost)+"X: \xf0\r\n\r\n"), cuts, true, false, zip)
		f.Add([]byte(head+"X-Other: \xf1\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: "+otherHost+"\r\nAuthorization: \xf1\r\n\r\n"), cuts, false, false, zip)
		f.Add([]byte("GET / HTTP/1.1\r\nHost: "+apiHost+"\r\nExpect: 100-continue\r\nContent-Encoding: gzip\r\nContent-Length: 28\r\n\r\n\xf0"), cuts, false, false, zip)
		f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"), cuts, false, true, zip)
		f.Add([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x27\x01\x04\x00\x00\x00\x01\x83\x87\x84\x41\x10"+apiHost+"\x0f\x08\x10\xf0\x00\x00\x1c\x00\x01\x00\x00\x00\x01\xf0"), cuts, false, true, zip)
	}
	f.Fuzz(func(t *testing.T, sent, cuts []byte, elsewhere, h2, zip bool) {
		o.world.t = t
		o.upstream.zipped.Store(zip)
		host, protocol := apiHost, "http/1.1"
		if elsewhere {
			host = otherHost
		}
		if h2 {
			protocol = "h2"
		}
		sent = bytes.ReplaceAll(bytes.ReplaceAll(sent, []byte{0xf0}, []byte(o.token)), []byte{0xf1}, []byte(o.other))
		conn := o.secure(host+":443", protocol)
		defer conn.Close()
		go func() {
			for _, c := range cuts {
				n := min(int(c), len(sent))
				if _, err := conn.Write(sent[:n]); err != nil {
					return
				}
				sent = sent[n:]
			}
			_, _ = conn.Write(sent)
			_ = conn.CloseWrite()
		}()
		got := readQuiet(conn)
		if value := anyForm(string(got), apiToken, otherToken); value != "" {
			t.Fatalf("%q comes back: %q", value, got)
		}
		o.upstream.misplaced(t)
	})
}

// readQuiet reads until nothing comes any more: after a refusal, net/http waits half a second for the client to read
// it.
func readQuiet(conn *tls.Conn) []byte {
	var got []byte
	b := make([]byte, 4096)
	for patience := 2 * time.Second; ; patience = 8 * time.Millisecond {
		if conn.SetReadDeadline(time.Now().Add(patience)) != nil {
			return got
		}
		n, err := conn.Read(b)
		if got = append(got, b[:n]...); err != nil {
			return got
		}
	}
}

func anyForm(text string, values ...string) string {
	for _, v := range values {
		for _, f := range redact.Forms(v) {
			if strings.Contains(text, f) {
				return f
			}
		}
	}
	return ""
}

// misplaced fails if a value has come where it is not declared to go, and forgets what came.
func (u *upstreamHost) misplaced(t *testing.T) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.seen {
		allowed, none := apiToken, otherToken
		switch r.host {
		case apiHost:
		case otherHost:
			allowed, none = otherToken, apiToken
		default:
			t.Errorf("a request for %q goes out", r.host)
		}
		bare := r.header.Clone()
		bare.Del("Authorization")
		path, query, _ := strings.Cut(r.target, "?")
		for pair := range strings.SplitSeq(query, "&") {
			name, _, _ := strings.Cut(pair, "=")
			if plain, err := url.QueryUnescape(name); err != nil || plain != "key" {
				path += "\n" + pair
			} else {
				path += "\n" + name
			}
		}
		for part, text := range map[string]string{"the target": path, "the fields": fmt.Sprint(bare), "the trailers": fmt.Sprint(r.trailer)} {
			if anyForm(text, allowed) != "" {
				t.Errorf("the value is in %s: %q", part, text)
			}
		}
		if anyForm(fmt.Sprint(r.target, r.header, r.body, r.trailer), none) != "" {
			t.Errorf("another host's value goes to %s", r.host)
		}
	}
	u.seen = nil
}
