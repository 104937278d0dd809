package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// webOrigin serves net/http on the world's origin. It fails the test if a request names another host.
func (w *world) webOrigin(mux *http.ServeMux) {
	l := listen(w.t)
	w.origin = l.Addr().String()
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Host != declared {
			w.t.Errorf("the origin sees the host %q", r.Host)
		}
		mux.ServeHTTP(rw, r)
	}), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		_ = s.Serve(l)
		close(done)
	}()
	w.t.Cleanup(func() {
		s.Close()
		<-done
	})
}

// client is a real one, whose connections to any name go to addr. It counts them.
func clientTo(t testing.TB, addr string, dials *atomic.Int32) *http.Client {
	tr := &http.Transport{ExpectContinueTimeout: 10 * time.Second, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		dials.Add(1)
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 2 * time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func TestPassRequestsOfARealClient(t *testing.T) {
	const size = 20 << 20
	sum := func(r io.Reader) string {
		h := sha256.New()
		n, err := io.Copy(h, r)
		return fmt.Sprintf("%d %x %v", n, h.Sum(nil), err)
	}
	w := newWorld(t, nil, declared)
	mux := http.NewServeMux()
	mux.HandleFunc("/sum", func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, sum(r.Body)) })
	mux.HandleFunc("/large", func(rw http.ResponseWriter, r *http.Request) { _, _ = io.CopyN(rw, zeros{}, size) })
	mux.HandleFunc("/fresh", func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(http.StatusNotModified) })
	mux.HandleFunc("/none", func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/hints", func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(rw, "hinted")
	})
	w.webOrigin(mux)
	p := w.passTo(declared, 80, 0)
	var dials atomic.Int32
	client := clientTo(t, p.addr, &dials)
	do := func(method, path string, body io.Reader, fields ...string) (int, string, *http.Response) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+declared+path, body)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			req.Header.Set(name, value)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if path == "/large" {
			return res.StatusCode, sum(res.Body), res
		}
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b), res
	}
	whole := sum(io.LimitReader(zeros{}, size))
	for range 3 {
		if _, b, _ := do("POST", "/sum", strings.NewReader("hello")); b != sum(strings.NewReader("hello")) {
			t.Error("by length:", b)
		}
		if _, b, _ := do("PUT", "/sum", bytes.NewReader(make([]byte, size))); b != whole {
			t.Error("large, by length:", b)
		}
		if _, b, _ := do("POST", "/sum", io.LimitReader(zeros{}, size)); b != whole {
			t.Error("large, in chunks:", b)
		}
		if _, b, _ := do("POST", "/sum", bytes.NewReader(make([]byte, size)), "Expect: 100-continue"); b != whole {
			t.Error("expected:", b)
		}
		if _, b, _ := do("GET", "/large", nil); b != whole {
			t.Error("large response:", b)
		}
		if _, b, res := do("HEAD", "/sum", nil); b != "" || res.ContentLength < 64 {
			t.Error("HEAD:", b, res.ContentLength)
		}
		if status, b, _ := do("GET", "/fresh", nil); status != 304 || b != "" {
			t.Error(status, b)
		}
		if status, b, _ := do("DELETE", "/none", nil); status != 204 || b != "" {
			t.Error(status, b)
		}
		if status, b, _ := do("GET", "/hints", nil); status != 200 || b != "hinted" {
			t.Error(status, b)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections for requests that follow one another", n)
	}
	// The client believes that other names are behind the same address; each has a connection of its own.
	res, err := client.Get("http://evil.test/sum")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, _ := io.ReadAll(res.Body); res.StatusCode != 403 || res.Header.Get("X-Pfar-Reason") != "host-contradicts" {
		t.Errorf("%s: %q", res.Status, b)
	}
}

// A client that expects 100-continue sends its body once it was told to, and not before.
func TestPassRequestsContinue(t *testing.T) {
	w := newWorld(t, nil, declared)
	mux := http.NewServeMux()
	var reads atomic.Bool
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/yes" {
			reads.Store(true)
			_, _ = io.Copy(rw, r.Body)
			return
		}
		rw.WriteHeader(http.StatusUnauthorized)
	})
	w.webOrigin(mux)
	p := w.passTo(declared, 80, 0)
	var dials atomic.Int32
	client := clientTo(t, p.addr, &dials)
	for _, path := range []string{"/yes", "/no", "/yes"} {
		reads.Store(false)
		told := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { told = true }})
		body := readFunc(func() {
			if !reads.Load() {
				t.Errorf("%s: the body is sent before it is asked for", path)
			}
		})
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+declared+path, io.MultiReader(body, strings.NewReader("hello")))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = 5
		req.Header.Set("Expect", "100-continue")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if yes := path == "/yes"; told != yes || yes != (string(b) == "hello") || yes == (res.StatusCode == 401) {
			t.Errorf("%s: told %v, %s %q", path, told, res.Status, b)
		}
	}
}

// readFunc is empty, and says when it is read.
type readFunc func()

func (f readFunc) Read([]byte) (int, error) { f(); return 0, io.EOF }

// Events arrive as they are sent.
func TestPassRequestsStreams(t *testing.T) {
	w := newWorld(t, nil, declared)
	proceed := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/events", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(rw, "data: %d\n\n", i)
			_ = http.NewResponseController(rw).Flush()
			<-proceed
		}
	})
	mux.HandleFunc("/upload", func(rw http.ResponseWriter, r *http.Request) { // and parts of a body as well
		_ = http.NewResponseController(rw).EnableFullDuplex()
		b := make([]byte, 1)
		for {
			n, err := r.Body.Read(b)
			_, _ = rw.Write(b[:n])
			_ = http.NewResponseController(rw).Flush()
			if err != nil {
				return
			}
		}
	})
	w.webOrigin(mux)
	p := w.passTo(declared, 80, 0)
	var dials atomic.Int32
	client := clientTo(t, p.addr, &dials)
	res, err := client.Get("http://" + declared + "/events")
	if err != nil {
		t.Fatal(err)
	}
	events := bufio.NewScanner(res.Body)
	for i := range 5 {
		if !events.Scan() || events.Text() != fmt.Sprintf("data: %d", i) || !events.Scan() {
			t.Fatalf("event %d: %q", i, events.Text())
		}
		proceed <- struct{}{}
	}
	res.Body.Close()
	r, body := io.Pipe()
	go func() { _, _ = body.Write([]byte("a")) }()
	if res, err = client.Post("http://"+declared+"/upload", "", r); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		b := make([]byte, 1)
		if _, err := io.ReadFull(res.Body, b); err != nil || b[0] != byte('a'+i) {
			t.Fatalf("part %d: %q, %v", i, b, err)
		}
		if _, err := body.Write([]byte{byte('b' + i)}); err != nil {
			t.Fatal(err)
		}
	}
	body.Close()
	if b, err := io.ReadAll(res.Body); string(b) != "f" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	res.Body.Close()
}

// FuzzPassRequests: whatever a client sends, and however it is cut into pieces, each request that an origin reads names
// the declared host.
func FuzzPassRequests(f *testing.F) {
	for _, s := range []string{getIt, putIt, chunkIt, getIt + putIt + chunkIt + evilIt, shakeIt + evilIt, shakeIt + getIt, getIt + shakeIt,
		"GET http://api.allowed.test/ HTTP/1.1\r\nhost:\tapi.allowed.test:80 \r\n\r\n", "OPTIONS * HTTP/1.0\r\nHost: API.allowed.test.\r\nConnection: keep-alive\r\n\r\n",
		withHost("POST / HTTP/1.1", "Expect: 100-continue\r\nContent-Length: 37\r\n") + evilIt} {
		f.Add([]byte(s), uint16(len(s)/2))
	}
	for i, h := range hostileRequests() {
		f.Add([]byte(h.raw), uint16(i))
		f.Add([]byte(putIt+h.raw), uint16(i))
	}
	w := newWorld(f, func(w *world) {
		w.proxy.limits.headTime, w.proxy.limits.linger = 100*time.Millisecond, 20*time.Millisecond
	}, declared)
	got := make(chan transcript, 1)
	w.serveOrigin(func(c *net.TCPConn) {
		_, _ = io.WriteString(c, fineIt)
		b, err := io.ReadAll(c)
		got <- transcript{string(b), err}
	})
	p := w.passTo(declared, 80, 0)
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		i := min(int(cut), len(b))
		_, _ = c.Write(b[:i])
		_, _ = c.Write(b[i:])
		_ = c.(*net.TCPConn).CloseWrite()
		seen := <-got
		c.Close()
		end := <-p.ends
		requests, err := requestsIn(t, seen.raw)
		if end.err == nil && len(b) > 0 && (err != nil || seen.err != nil) {
			t.Fatalf("%q: passed without an error, and the origin reads %v, %v in %q", b, err, seen.err, seen.raw)
		}
		if end.err == nil && len(b) > 0 && requests == 0 {
			t.Fatalf("%q: neither passed nor refused", b)
		}
	})
}

// requestsIn reads what an origin saw as net/http does, and holds every request to the declared host. It goes no
// further than an origin would that refuses a target's percent-encoding: which is right is the origin's affair.
func requestsIn(t *testing.T, seen string) (int, error) {
	r := bufio.NewReader(strings.NewReader(seen))
	for n := 0; ; n++ {
		if _, err := r.Peek(1); err != nil {
			return n, nil
		}
		req, err := http.ReadRequest(r)
		var escape url.EscapeError
		if errors.As(err, &escape) {
			return n + 1, nil
		}
		if err != nil {
			t.Fatalf("the origin sees what is no request, %v: %q", err, seen)
		}
		host, port, hasPort, err := parseAuthority(req.Host)
		if err != nil || !egress.SameHost(host, declared) || hasPort && port != 80 || req.Method == "CONNECT" {
			t.Fatalf("the origin sees %s of %q in %q", req.Method, req.Host, seen)
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return n, err
		}
	}
}

func BenchmarkKeptAliveRequest(b *testing.B) {
	for _, through := range []bool{false, true} {
		b.Run(fmt.Sprintf("through=%v", through), func(b *testing.B) {
			w := newWorld(b, nil, declared)
			w.serveOrigin(func(c *net.TCPConn) {
				r := bufio.NewReader(c)
				for {
					line, err := r.ReadSlice('\n')
					if err != nil {
						return
					}
					if len(line) == 2 {
						if _, err := io.WriteString(c, fineIt); err != nil {
							return
						}
					}
				}
			})
			addr := w.origin
			if through {
				addr = w.passTo(declared, 80, 0).addr
			}
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			request := []byte(withHost("GET /a?b HTTP/1.1", "User-Agent: node\r\nAccept: */*\r\nAccept-Language: *\r\nSec-Fetch-Mode: cors\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"))
			answer := make([]byte, len(fineIt))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(request); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParsePassed(b *testing.B) {
	raw := []byte(withHost("GET /a?b HTTP/1.1", "User-Agent: node\r\nAccept: */*\r\nAccept-Language: *\r\nSec-Fetch-Mode: cors\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parsePassed(raw, 64, egress.Decision{Host: declared}, 80, false); err != nil {
			b.Fatal(err)
		}
	}
}
