package remote

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// reply answers each request of a connection with bytes, and whatever end does after it.
func reply(text string, end func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			request, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.Copy(io.Discard, request.Body)
			if _, err := io.WriteString(c, text); err != nil || end == nil {
				return
			}
			end(c)
		}
	}
}

func hang(c net.Conn) { io.Copy(io.Discard, c) }

// slow writes a byte every minute.
func slow(text string) func(net.Conn) {
	return func(c net.Conn) {
		for i := range text {
			time.Sleep(time.Minute)
			if _, err := io.WriteString(c, text[i:i+1]); err != nil {
				return
			}
		}
	}
}

// What a client hears, and what net/http and crypto/tls say of it to the owner.
const (
	cutOff     = "the server closed the connection before it had answered"
	nobody     = "nobody listens where the server should be"
	refused    = "connect: connection refused"
	noHTTP     = "the server's answer is not HTTP"
	longHead   = "the header of the server's answer is too long"
	unproven   = "the server does not prove who it is: "
	exceeded   = "net/http: server response headers exceeded 65536 bytes; aborted"
	unverified = "tls: failed to verify certificate: x509: "
	unsigned   = unverified + `certificate signed by unknown authority (possibly because of ` +
		`"x509: ECDSA verification failure" while trying to verify candidate authority certificate "test")`
)

const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

// TestEvilConnections: what becomes of a request if a connection is not what it should be.
func TestEvilConnections(t *testing.T) {
	old := &tls.Config{Certificates: []tls.Certificate{good()}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	with := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	for _, test := range []struct {
		name          string
		place         place
		class, detail string
		cause         string // for the owner; "": none
	}{
		{"closed at once", place{raw: func(net.Conn) {}}, "network_error", cutOff, ""},
		{"closed before TLS", place{plain: func(net.Conn) {}}, "network_error", cutOff, ""},
		{"closed after the request", place{raw: reply("", nil)}, "network_error", cutOff, ""},
		{"no HTTP", place{raw: reply("hello\r\n\r\n", nil)}, "network_error", noHTTP,
			`malformed HTTP response "hello"`},
		{"another HTTP", place{raw: reply("HTTP/2.0 200 OK\r\n\r\n", nil)},
			"schema", `the server's response is "", neither application/json nor text/event-stream`, ""},
		{"a head without end", place{raw: reply(head, slow(strings.Repeat("a", 30)))},
			"timeout", "the server does not begin to answer in time", ""},
		{"a large head", place{raw: reply(head+strings.Repeat("X-A: b\r\n", 20000)+"\r\n", nil)},
			"network_error", longHead, exceeded},
		{"a large field", place{raw: reply(head+"X-A: "+strings.Repeat("b", 200000)+"\r\n\r\n", nil)},
			"network_error", longHead, exceeded},
		{"many times wait", place{raw: reply(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 20000), nil)},
			"network_error", longHead, exceeded},
		{"another protocol", place{raw: reply("HTTP/1.1 101 Switching Protocols\r\n"+
			"Connection: Upgrade\r\nUpgrade: x\r\n\r\n", hang)},
			"schema", "the server wants to speak a protocol other than HTTP", ""},
		{"half a body", place{raw: reply(head+"Content-Length: 100\r\n\r\n{\"jsonrpc\"", nil)}, "network_error",
			cutOff, ""},
		{"half a chunk", place{raw: reply(head+"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a", nil)}, "network_error",
			cutOff, ""},
		{"a bad chunk", place{raw: reply(head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n", hang)},
			"network_error", noHTTP, "invalid byte in chunk length"},
		{"two lengths", place{raw: reply(head+"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", hang)},
			"network_error", noHTTP, `http: message cannot contain multiple Content-Length headers; got ["1" "2"]`},
		{"a negative length", place{raw: reply(head+"Content-Length: -1\r\n\r\n", hang)}, "network_error", noHTTP,
			`bad Content-Length "-1"`},
		{"more than its length", place{raw: reply(head+"Content-Length: 2\r\n\r\n{}"+done, hang)},
			"schema", "the server's response does not answer the request", ""},
		{"a body that halts", place{raw: reply(head+"Content-Length: 10\r\n\r\n{", hang)},
			"timeout", "the server's response stopped halfway", ""},
		{"an error that halts", place{raw: reply("HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\n{", hang)}, "server_error",
			"HTTP 500 Internal Server Error", ""},
		{"a stream reset", place{raw: reply("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"+
			"Content-Length: 900\r\n\r\ndata: x", nil)},
			"network_error", "the server's event stream broke off: " + cutOff, ""},
		{"a proxy's page for all", place{raw: reply("HTTP/1.1 302 Found\r\n"+
			"Location: https://login.hotel.test/\r\nContent-Length: 0\r\n\r\n", hang)},
			"network_error",
			"redirect refused: the redirect leads to https://login.hotel.test, and the declaration says https://mcp.test", ""},
		{"HTTP in place of TLS", place{plain: func(c net.Conn) {
			c.Read(make([]byte, 5))
			go io.Copy(io.Discard, c)
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}}, "tls", unproven + "it does not speak TLS", "tls: first record does not look like a TLS handshake"},
		{"noise in place of TLS", place{plain: func(c net.Conn) {
			c.Read(make([]byte, 5))
			go io.Copy(io.Discard, c)
			io.WriteString(c, strings.Repeat("noise", 100))
		}}, "tls", unproven + "it does not speak TLS", "tls: first record does not look like a TLS handshake"},
		{"silence in place of TLS", place{plain: hang}, "timeout", "the server does not agree on TLS in time", ""},
		{"an old TLS", place{raw: hang, tls: old}, "tls", unproven + "it and pfar find no common TLS",
			"remote error: tls: protocol version not supported"},
		{"another name", place{raw: hang, tls: with(certificate("evil.test", time.Unix(1<<33, 0)))}, "tls",
			unproven + "its certificate is for another name",
			unverified + "certificate is valid for evil.test, not mcp.test"},
		{"a name below", place{raw: hang, tls: with(certificate("a.mcp.test", time.Unix(1<<33, 0)))}, "tls",
			unproven + "its certificate is for another name",
			unverified + "certificate is valid for a.mcp.test, not mcp.test"},
		{"an expired certificate", place{raw: hang, tls: with(certificate(host, time.Unix(900000000, 0)))}, "tls",
			unproven + "its certificate has expired, or is not valid yet",
			unverified + "certificate has expired or is not yet valid: " +
				"current time 2000-01-01T00:00:00Z is after 1998-07-09T16:00:00Z"},
		{"its own certificate", place{raw: hang, tls: with(self())}, "tls",
			unproven + "no authority that pfar trusts has signed its certificate", unsigned},
		{"no certificate", place{raw: hang, tls: &tls.Config{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, fmt.Errorf("none") },
		}}, "tls", unproven + "it and pfar find no common TLS", "remote error: tls: internal error"},
		{"a certificate wanted", place{raw: reply("", nil), tls: &tls.Config{
			Certificates: []tls.Certificate{good()}, ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12,
		}}, "tls", unproven + "it and pfar find no common TLS", "remote error: tls: handshake failure"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.place.token = secret
			inWorld(t, test.place, func(t *testing.T, w *world) {
				w.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{}}`)
				f := w.wantCaused(2, test.class, test.detail, test.cause)
				if strings.Contains(fmt.Sprint(f)+w.stderr.String(), secret) {
					t.Error("the token is in it")
				}
				w.silent(time.Minute)
			})
		})
	}
}

// self is a certificate that nobody has signed.
func self() tls.Certificate {
	c := certificate(host, time.Unix(1<<33, 0))
	raw := append([]byte{}, c.Certificate[0]...)
	raw[len(raw)-1] ^= 1
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: c.PrivateKey}
}

// TestKilled: a server that is killed in the middle of a call costs that call a named error, and the next one works
// once it is back. The call is not made twice.
func TestKilled(t *testing.T) {
	calls := 0
	h := &honest{t: t}
	h.call = func(w http.ResponseWriter, r *http.Request, m received) {
		if calls++; calls == 1 {
			asStream(w)
			panic(http.ErrAbortHandler) // the connection is reset
		}
		asJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		w.send(call, 2)
		w.wantFault(2, "network_error", "the server's event stream broke off: "+
			"the server closed the connection before it had answered")
		w.send(call, 3)
		w.want(strings.Replace(done, "2,", "3,", 1))
		synctest.Wait()
		if calls != 2 {
			t.Errorf("the server has had %d calls", calls)
		}
	})
}

// TestRepeated: what only reads is sent again when a connection turns out to be gone, and a tool's call is not.
func TestRepeated(t *testing.T) {
	for method, want := range map[string]int{"tools/call": 1, "tools/list": 2, "resources/read": 2, "x/own": 1} {
		n := 0
		h := &honest{t: t}
		h.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
			if m.Method == method {
				n++
				panic(http.ErrAbortHandler)
			}
			return false
		}
		inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
			w.begin()
			synctest.Wait()
			w.send(`{"jsonrpc":"2.0","id":2,"method":%q,"params":{}}`, method)
			w.wantFault(2, "network_error", cutOff)
		})
		if n != want {
			t.Errorf("the server has had %d of %s, want %d", n, method, want)
		}
	}
}

// TestInsecure: without TLS only where the owner says so.
func TestInsecure(t *testing.T) {
	none := func(string) string { return "" }
	for _, args := range [][]string{
		nil, {"--sse"}, {"http://mcp.test/mcp"}, {"ftp://mcp.test/"}, {"mcp.test"}, {"https://"}, {"https:mcp.test"},
		{"https://user:pass@mcp.test/"}, {"https://mcp.test/#x"}, {"https://mcp.test", "https://evil.test"},
		{"--token-env", "NONE", "https://mcp.test"}, {"--insecure", "file:///x"}, {"https://[::1"},
		{"--other", "https://mcp.test"},
	} {
		if _, err := Parse(args, none); err == nil {
			t.Errorf("%q is taken", args)
		} else if strings.Contains(err.Error(), "pass") && !strings.Contains(err.Error(), "usage") {
			t.Errorf("the error to %q has the password: %v", args, err)
		}
	}
	split := func(string) string { return "a\r\nX: y" }
	if _, err := Parse([]string{"--token-env", "T", "https://mcp.test"}, split); err == nil {
		t.Error("a token with a line break is taken")
	}
	h := &honest{t: t, call: func(w http.ResponseWriter, r *http.Request, m received) { asJSON(w, answer, 2) }}
	synctest.Test(t, func(t *testing.T) {
		l := newListener()
		server := &http.Server{Handler: h}
		go server.Serve(l)
		defer server.Close()
		w := newWorld(t, place{raw: hang, args: []string{"--insecure"}, path: "http://mcp.test/mcp"})
		defer w.close()
		w.dials.mu.Lock()
		w.dials.to["mcp.test:80"] = l
		w.dials.mu.Unlock()
		w.begin()
		w.send(call, 2)
		w.want(fmt.Sprintf(answer, 2))
	})
}

// TestPlaced: secrets stand where the owner says, in each request, and no error repeats one that comes back.
func TestPlaced(t *testing.T) {
	none := func(string) string { return "" }
	for _, args := range [][]string{
		{"--header-env", "x-key"}, {"--header-env", "=K"}, {"--query-env", "key="}, {"--header-env", "x-key=UNSET"},
	} {
		if _, err := Parse(append(args, "https://mcp.test"), none); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	const value = "placed-0123456789"
	var mu sync.Mutex
	var seen []string
	h := &honest{t: t, call: func(w http.ResponseWriter, r *http.Request, m received) {
		mu.Lock()
		seen = append(seen, r.Header.Get("X-Key")+" "+r.URL.RawQuery)
		mu.Unlock()
		http.Error(w, "no "+r.Header.Get("X-Key"), http.StatusForbidden)
	}}
	args := []string{"--header-env", "x-key=A", "--query-env", "key=B"}
	inWorld(t, place{handler: h, args: args, token: value, path: "/mcp?team=1"}, func(t *testing.T, w *world) {
		w.begin()
		w.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{}}`)
		if line := w.next(); !strings.Contains(line, "forbidden") || strings.Contains(line, value) {
			t.Errorf("the answer is %s", line)
		}
	})
	if len(seen) != 1 || seen[0] != value+" team=1&key="+value {
		t.Errorf("the server has seen %q", seen)
	}
}

// TestAddress: a host that is an address is reached by the proxy of the sandbox, which knows no other way to it. What
// the proxy says of a tunnel that it refuses is pfar's own word.
func TestAddress(t *testing.T) {
	var proxied atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied.Store(r.Method + " " + r.URL.String())
		if r.Method == http.MethodConnect {
			w.Header().Set("X-Pfar-Reason", "dial-timeout")
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer proxy.Close()
	for address, want := range map[string]struct{ asks, says string }{
		"http://192.0.2.7:3000/mcp": {"POST http://192.0.2.7:3000/mcp", "forbidden: HTTP 403 Forbidden: no"},
		"https://192.0.2.7/mcp":     {"CONNECT //192.0.2.7:443", "timeout: pfar refuses the request: dial-timeout"},
	} {
		o, err := Parse([]string{"--insecure", address}, func(name string) string {
			return map[string]string{"HTTP_PROXY": proxy.URL}[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		in, stdin := io.Pipe()
		stdout, out := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- Run(t.Context(), o, in, out, io.Discard) }()
		fmt.Fprintln(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
		line, err := bufio.NewReader(stdout).ReadString('\n')
		stdin.Close()
		if e := <-done; err != nil || e != nil || proxied.Load() != want.asks ||
			!strings.Contains(line, `"message":"server: `+want.says+`"`) {
			t.Errorf("the proxy was asked for %v; the answer: %s, %v, %v", proxied.Load(), line, err, e)
		}
	}
}
