package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-egress/wire"
	"github.com/pfar/pfar/policies/broker/rootca"
)

// everyHop runs f with each version of HTTP inside and outside.
func everyHop(t *testing.T, handler http.HandlerFunc, f func(*testing.T, *opening, *http.Client)) {
	for _, inside := range []bool{false, true} {
		for _, outside := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP/2 inside %v, outside %v", inside, outside), func(t *testing.T) {
				o := newOpening(t, handler, func(o *opening) { o.upstream.h2 = outside })
				f(t, o, o.client(inside))
				o.clean()
			})
		}
	}
}

// Events come one by one, and bodies both ways at the same time.
func TestOpenedStreams(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		b := make([]byte, 100)
		for {
			n, err := r.Body.Read(b)
			w.Write(b[:n])
			w.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	}
	everyHop(t, echo, func(t *testing.T, o *opening, client *http.Client) {
		r, w := io.Pipe()
		resp, err := client.Do(newRequest(t, "POST", "https://"+apiHost+"/", r))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			want := fmt.Sprintf("data: %d %s\n\n", i, o.token)
			if _, err := io.WriteString(w, want); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
				t.Fatalf("%q, %v", got, err)
			}
		}
		w.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
			t.Errorf("%q, %v", rest, err)
		}
	})
}

func TestOpenedTrailers(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		io.Copy(w, r.Body)
		w.Header().Set("X-Sum", "sum "+r.Trailer.Get("X-Sent")+apiToken)
		w.Header().Set(http.TrailerPrefix+"X-Late", apiToken)
	}
	everyHop(t, handler, func(t *testing.T, o *opening, client *http.Client) {
		r := newRequest(t, "POST", "https://"+apiHost+"/", io.MultiReader(strings.NewReader("body")))
		r.Trailer = http.Header{"X-Sent": {"sent"}}
		resp, text := o.do(client, r)
		if text != "body" || resp.Trailer.Get("X-Sum") != "sum sent"+o.token || resp.Trailer.Get("X-Late") != o.token {
			t.Errorf("%q %v", text, resp.Trailer)
		}
	})
}

// Over HTTP/2 a response without a body may have trailers, and fields announce the names of trailers.
func TestOpenedTrailersWithoutBody(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.Header().Set("Trailer", "X-Sum, X-"+apiToken)
		w.WriteHeader(status)
		w.Header().Set("X-Sum", "sum "+apiToken)
		w.Header().Set("X-"+apiToken, apiToken)
	}
	everyHop(t, handler, func(t *testing.T, o *opening, client *http.Client) {
		for _, method := range []string{"GET", "HEAD"} {
			for _, status := range []int{200, 204, 205, 304, 404} {
				resp, text := o.do(client, newRequest(t, method, fmt.Sprintf("https://%s/%d", apiHost, status), nil))
				if resp.StatusCode != status || text != "" {
					t.Errorf("%s %d: %s %q", method, status, resp.Status, text)
				}
				if sum := resp.Trailer.Get("X-Sum"); sum != "" && sum != "sum "+o.token {
					t.Errorf("%s %d: the trailer is %q", method, status, sum)
				}
				if got := strings.ToLower(fmt.Sprint(resp.Header, resp.Trailer)); strings.Contains(got, strings.ToLower(apiToken)) {
					t.Errorf("%s %d: the value comes back: %s", method, status, got)
				}
				if h2 := resp.ProtoMajor == 2 && o.upstream.h2; h2 && method == "GET" && resp.Trailer.Get("X-Sum") == "" {
					t.Errorf("%d: no trailer over HTTP/2", status)
				}
			}
		}
	})
}

// Interim responses are passed on without secrets, and a body is only sent once it is wanted.
func TestOpenedInterim(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			http.Error(w, "no", http.StatusExpectationFailed)
			return
		}
		w.Header().Set("Link", "</"+apiToken+">")
		w.WriteHeader(103)
		w.Header().Del("Link")
		io.Copy(w, r.Body)
	}
	everyHop(t, handler, func(t *testing.T, o *opening, client *http.Client) {
		var hints []string
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == 103 {
				hints = append(hints, h.Get("Link"))
			}
			return nil
		}}
		r := newRequest(t, "POST", "https://"+apiHost+"/yes", strings.NewReader("body"))
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
		r.Header.Set("Expect", "100-continue")
		if resp, text := o.do(client, r); resp.StatusCode != 200 || text != "body" || len(hints) != 1 || hints[0] != "</"+o.token+">" {
			t.Errorf("%s %q, before it %q", resp.Status, text, hints)
		}
		if strings.Contains(t.Name(), "inside_true") {
			return // net/http does not tell that a request of HTTP/2 has the field
		}
		read := &counted{Reader: strings.NewReader(strings.Repeat("x", 1<<20))}
		r = newRequest(t, "POST", "https://"+apiHost+"/no", read)
		r.ContentLength = 1 << 20
		r.Header.Set("Expect", "100-continue")
		if resp, _ := o.do(client, r); resp.StatusCode != 417 || read.n != 0 {
			t.Errorf("%s, %d octets of the body were sent", resp.Status, read.n)
		}
	})
}

// A host that never says that it wants a body gets it all the same, after a while.
func TestOpenedContinueUnsaid(t *testing.T) {
	for _, inside := range []bool{false, true} {
		o := newOpening(t, nil, func(o *opening) { o.upstream.h2, o.proxy.limits.continueTime = false, 50*time.Millisecond })
		l := listen(t)
		o.origin = l.Addr().String()
		go func() {
			c, err := tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{o.upstream.certificate}}).Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				b, _ := io.ReadAll(r.Body)
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
			}
		}()
		r := newRequest(t, "POST", "https://"+apiHost+"/", strings.NewReader("body"))
		r.Header.Set("Expect", "100-continue")
		if resp, text := o.do(o.client(inside), r); resp.StatusCode != 200 || text != "body" {
			t.Errorf("%s %q", resp.Status, text)
		}
	}
}

type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}

func TestOpenedResponses(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			fmt.Fprintf(z, "zipped %s", apiToken)
			z.Close()
		case "/br":
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, apiToken)
		case "/302":
			http.Redirect(w, r, "https://evil.test/?"+apiToken, http.StatusFound)
		case "/304":
			w.Header().Set("ETag", `"`+apiToken+`"`)
			w.WriteHeader(304)
		case "/bare":
			w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
			io.WriteString(w, "<html>")
		case "/204":
			w.WriteHeader(204)
		case "/short":
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "short "+apiToken[:20])
		case "/broken":
			c, _, _ := http.NewResponseController(w).Hijack()
			io.WriteString(c, "HTTP/1.1 200 "+apiToken+"\r\nnonsense "+apiToken+"\r\n\r\n")
			c.Close()
		case "/101":
			c, _, _ := http.NewResponseController(w).Hijack()
			io.WriteString(c, "HTTP/1.1 101 "+apiToken+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+apiToken)
			c.Close()
		default:
			fmt.Fprintf(w, "%1000000d%s", 1, apiToken)
		}
	}
	for _, inside := range []bool{false, true} {
		o := newOpening(t, handler, func(o *opening) { o.upstream.h2 = false })
		client := o.client(inside)
		client.Transport.(*http.Transport).DisableCompression = true
		for _, c := range []struct {
			method, path string
			status       int
			reason, want string
		}{
			{"GET", "/gzip", 200, "", "zipped " + o.token}, {"HEAD", "/gzip", 200, "", ""}, {"GET", "/br", 502, "encoding", ""}, {"HEAD", "/br", 200, "", ""},
			{"GET", "/302", 302, "", "evil.test/?" + o.token}, {"GET", "/304", 304, "", ""}, {"GET", "/204", 204, "", ""},
			{"GET", "/broken", 502, "bad-response", ""}, {"GET", "/101", 502, "bad-response", ""}, {"GET", "/big", 200, "", o.token}, {"HEAD", "/big", 200, "", ""},
		} {
			r := newRequest(t, c.method, "https://"+apiHost+c.path, nil)
			r.Header.Set("Accept-Encoding", "gzip")
			resp, text := o.do(client, r)
			if resp.StatusCode != c.status || resp.Header.Get("X-Pfar-Reason") != c.reason || !strings.Contains(text, c.want) {
				t.Errorf("%s %s: %s %.200q", c.method, c.path, resp.Status, text)
			}
			o.clean(text, fmt.Sprint(resp.Header), resp.Status)
		}
		if resp, text := o.do(client, newRequest(t, "GET", "https://"+apiHost+"/bare", nil)); text != "<html>" || len(resp.Header) != 1 {
			t.Errorf("what the host did not say is added: %v %s", resp.Header, text)
		}
		resp, err := client.Do(newRequest(t, "GET", "https://"+apiHost+"/short", nil))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err == nil || string(b) != "short "+apiToken[:20] {
			t.Errorf("what was cut off: %q, %v", b, err) // a part of a value, or a guess that is echoed
		}
		resp.Body.Close()
	}
}

// echoSocket is a host's WebSocket that sends back what it gets, unmasked, and tells what that was.
func echoSocket(got chan<- string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization") + r.URL.RawQuery + r.Header.Get("Sec-WebSocket-Extensions")
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\nX-Echo: %s\r\n\r\n", acceptKey(r.Header.Get("Sec-WebSocket-Key")), apiToken)
		for {
			first, payload, err := readFrame(rw.Reader)
			if err != nil {
				return
			}
			got <- string(payload)
			if _, err := c.Write(append([]byte{first, byte(len(payload))}, payload...)); err != nil || first == 0x88 {
				return
			}
		}
	}
}

// readFrame reads a frame of at most 64 KiB.
func readFrame(r io.Reader) (first byte, payload []byte, err error) {
	h := make([]byte, 4)
	if _, err := io.ReadFull(r, h[:2]); err != nil {
		return 0, nil, err
	}
	n := int(h[1] & 0x7f)
	if n == 126 {
		if _, err := io.ReadFull(r, h[2:4]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(h[2:]))
	}
	key := make([]byte, 4)
	if h[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, key); err != nil {
			return 0, nil, err
		}
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	for i := range payload {
		payload[i] ^= key[i%4]
	}
	return h[0], payload, err
}

func TestOpenedWebSocket(t *testing.T) {
	got := make(chan string, 10)
	o := newOpening(t, echoSocket(got), nil)
	c := o.secure(apiHost+":443", "http/1.1")
	fmt.Fprintf(c, "GET /?key=%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", o.token, apiHost, o.token)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: "GET"})
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || resp.Header.Get("X-Echo") != o.token {
		t.Fatalf("%+v, %v", resp, err)
	}
	if handshake := <-got; handshake != "Bearer "+apiToken+"key="+apiToken {
		t.Errorf("the host is asked with %q", handshake)
	}
	send := func(text string) {
		key := []byte{9, 8, 7, 6}
		b := append([]byte{0x81, 0x80 | byte(len(text))}, key...)
		for i := range len(text) {
			b = append(b, text[i]^key[i%4])
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"hello", "auth " + o.token, ""} {
		send(text)
		if sent := <-got; sent != strings.ReplaceAll(text, o.token, apiToken) {
			t.Errorf("the host gets %q", sent)
		}
		if first, echoed, err := readFrame(r); err != nil || first != 0x81 || string(echoed) != text {
			t.Errorf("%q comes back, %v", echoed, err)
		}
	}
	send(o.other)
	if _, echoed, err := readFrame(r); err == nil {
		t.Errorf("%q comes back", echoed)
	}
	eventually(t, "the record", func() bool { return strings.Contains(o.logged.String(), "reason="+wire.WrongHost) })
	if len(got) != 0 {
		t.Errorf("the host gets %q", <-got)
	}
	o.clean()
}

// Connections that the ruleset sends here are opened likewise, and other ports than 443.
func TestOpenedRedirected(t *testing.T) {
	o := newOpening(t, nil, nil)
	n := o.inside()
	for _, port := range []string{"443", "8443"} {
		c := tls.Client(n.open(n.lookup(apiHost)+":"+port), &tls.Config{RootCAs: o.trusted, ServerName: apiHost})
		host := strings.TrimSuffix(apiHost+":"+port, ":443")
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\n\r\n", host, o.token)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if seen, _ := o.upstream.last(); resp.StatusCode != 200 || seen.host != host || seen.header.Get("Authorization") != apiToken {
			t.Errorf("port %s: %s %+v", port, resp.Status, seen)
		}
		c.Close()
	}
	eventually(t, "the records", func() bool { return strings.Count(o.logged.String(), "via=redirect") == 2 })
	o.clean()
}

// Programs that servers are made of: they know of the proxy, and of the authority, by their variables.
func TestOpenedClients(t *testing.T) {
	got := make(chan string, 10)
	socket := echoSocket(got)
	o := newOpening(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			socket(w, r)
			return
		}
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.Header.Get("Authorization"), b)
	}, nil)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text, _, _, err := rootca.Certificate(o.material.Authority)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "Bearer " + o.token + ` {"t":"` + o.token + `"}`
	node := `const net = require("net"), tls = require("tls"), http = require("http"), https = require("https")
const [proxy, token, kind] = process.argv.slice(1)
const [host, port] = proxy.split(":")
http.request({host, port, method: "CONNECT", path: "` + apiHost + `:443", headers: {host: "` + apiHost + `:443"}}).on("connect", (_, socket) => {
  const secure = tls.connect({socket, servername: "` + apiHost + `"})
  const r = https.request({host: "` + apiHost + `", defaultPort: 443, method: "POST", path: "/", createConnection: () => secure, headers: {authorization: "Bearer " + token, "content-type": "application/json"}}, m => {
    m.setEncoding("utf8").on("data", d => process.stdout.write(d)).on("end", () => process.exit())
  })
  r.end(JSON.stringify({t: token}))
}).end()`
	for name, argv := range map[string][]string{
		"curl, HTTP/1.1": {"curl", "-sS", "--http1.1", "--cacert", ca, "-x", "http://" + o.addr, "-H", "Authorization: Bearer " + o.token, "-H", "Content-Type: application/json", "-d", `{"t":"` + o.token + `"}`, "https://" + apiHost + "/"},
		"curl, HTTP/2":   {"curl", "-sS", "--http2", "--cacert", ca, "-x", "http://" + o.addr, "-H", "Authorization: Bearer " + o.token, "-H", "Content-Type: application/json", "-d", `{"t":"` + o.token + `"}`, "https://" + apiHost + "/"},
		"node":           {"node", "-e", node, o.addr, o.token},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(argv[0]); err != nil {
				t.Skipf("NOT RUN: %v", err)
			}
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+ca)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			timer := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
			defer timer.Stop()
			if out, err := cmd.Output(); err != nil || string(out) != want {
				t.Errorf("%q, %v: %s", out, err, stderr.String())
			}
		})
	}
	o.clean()
}
