package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/pfar/pfar/cmd/pfar-egress/wire"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/attach"
)

// Requests that are refused before anything of them goes out.
func TestOpenedRefuses(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		o := newOpening(t, nil, nil)
		p := o.token
		for name, c := range map[string]struct {
			change         func(*http.Request)
			status, reason string
		}{
			"a field":              {func(r *http.Request) { r.Header.Set("X-Other", p) }, "403", wire.WrongPlace},
			"the second of two":    {func(r *http.Request) { r.Header["X-Other"] = []string{"a", p} }, "403", wire.WrongPlace},
			"the path":             {func(r *http.Request) { r.URL.Path = "/bot" + p }, "403", wire.WrongPlace},
			"a parameter":          {func(r *http.Request) { r.URL.RawQuery = "token=" + p }, "403", wire.WrongPlace},
			"a field's name":       {func(r *http.Request) { r.Header.Set("X-"+p, "x") }, "403", wire.WrongPlace},
			"another host's":       {func(r *http.Request) { r.Header.Set("Authorization", o.other) }, "403", wire.WrongHost},
			"another's, in Basic":  {func(r *http.Request) { r.SetBasicAuth("me", o.other) }, "403", wire.WrongHost},
			"another host":         {func(r *http.Request) { r.Host = otherHost }, "421", "host-contradicts"},
			"an undeclared host":   {func(r *http.Request) { r.Host = "evil.test" }, "421", "host-contradicts"},
			"another port":         {func(r *http.Request) { r.Host = apiHost + ":8443" }, "421", "host-contradicts"},
			"a port that is none":  {func(r *http.Request) { r.Host = apiHost + ":0443" }, "421", "host-contradicts"},
			"TRACE":                {func(r *http.Request) { r.Method = "TRACE" }, "501", "method-not-allowed"},
			"a short body":         {func(r *http.Request) { body(r, o.other) }, "403", wire.WrongHost},
			"a short encoded body": {func(r *http.Request) { r.Header.Set("Content-Encoding", "br"); body(r, p) }, "403", wire.WrongPlace},
		} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, h2), func(t *testing.T) {
				r := newRequest(t, "POST", "https://"+apiHost+"/", nil)
				c.change(r)
				resp, text := o.do(o.client(h2), r)
				if fmt.Sprint(resp.StatusCode) != c.status || resp.Header.Get("X-Pfar-Reason") != c.reason || !strings.Contains(text, c.reason) || strings.Contains(text, p) || strings.Contains(text, o.other) {
					t.Errorf("%s %v %s", resp.Status, resp.Header, text)
				}
				if !strings.Contains(o.logged.String(), "reason="+c.reason) {
					t.Errorf("the log says %s", o.logged)
				}
			})
		}
		if seen, n := o.upstream.last(); n != 0 {
			t.Errorf("%d requests reached the outside, the last is %+v", n, seen)
		}
		o.clean()
	}
}

func body(r *http.Request, text string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
}

// What net/http would not send. Each is written whole and in single octets.
func TestOpenedRefusesRaw(t *testing.T) {
	o := newOpening(t, nil, nil)
	host := "Host: " + apiHost + "\r\n"
	for name, c := range map[string]struct{ raw, status string }{
		"no Host":                    {"GET / HTTP/1.1\r\n\r\n", "400"},
		"no Host of HTTP/1.0":        {"GET / HTTP/1.0\r\n\r\n", "421"},
		"two Hosts":                  {"GET / HTTP/1.1\r\n" + host + "Host: evil.test\r\n\r\n", "400"},
		"two alike":                  {"GET / HTTP/1.1\r\n" + host + host + "\r\n", "400"},
		"user information":           {"GET / HTTP/1.1\r\nHost: x@" + apiHost + "\r\n\r\n", "400"},
		"an absolute target":         {"GET https://evil.test/ HTTP/1.1\r\n" + host + "\r\n", "421"},
		"an opaque target":           {"GET https:" + o.token + " HTTP/1.1\r\n" + host + "\r\n", "400"},
		"plain HTTP to it":           {"GET http://" + apiHost + "/ HTTP/1.1\r\n" + host + "\r\n", "421"},
		"CONNECT":                    {"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "501"},
		"CONNECT to itself":          {"CONNECT " + apiHost + ":443 HTTP/1.1\r\n" + host + "\r\n", "501"},
		"h2c":                        {"GET / HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "400"},
		"another protocol":           {"GET / HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: other\r\n\r\n", "400"},
		"HTTP/2 without being asked": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "501"},
		"a huge head":                {"GET / HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", "431"},
		"two lengths":                {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "400"},
		"a coding unknown":           {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
		"an underscore for a hyphen": {"POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer_Encoding: chunked\r\n\r\nhello", "400"},
		"a fragment":                 {"GET /?a#b HTTP/1.1\r\n" + host + "\r\n", "400"},
		"folded":                     {"GET / HTTP/1.1\r\n" + host + "Authorization: Bearer\r\n " + o.other + "\r\n\r\n", "403"},
		"a bare CR":                  {"GET / HTTP/1.1\r\n" + host + "X: a\rAuthorization: " + o.other + "\r\n\r\n", "400"},
		"a space before the colon":   {"GET / HTTP/1.1\r\n" + host + "X : a\r\n\r\n", "400"},
		"a placeholder in chunks":    {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5\r\n" + o.other[:5] + "\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(o.other)-5, o.other[5:]), "403"},
		"a placeholder in a trailer": {"POST / HTTP/1.1\r\n" + host + "Trailer: X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: " + o.token + "\r\n\r\n", "403"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{len(c.raw), 1} {
				if len(c.raw) > 10000 && size == 1 {
					continue
				}
				conn := o.secure(apiHost+":443", "http/1.1")
				for i := 0; i < len(c.raw); i += size {
					if _, err := io.WriteString(conn, c.raw[i:i+size]); err != nil {
						break
					}
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(resp.StatusCode) != c.status {
					t.Errorf("%s, want %s", resp.Status, c.status)
				}
				conn.Close()
			}
		})
	}
	if _, n := o.upstream.last(); o.upstream.whole() != 0 {
		t.Errorf("%d requests came whole to the outside, of %d", o.upstream.whole(), n)
	}
	o.clean()
}

// A body that is refused in its midst never comes whole.
func TestOpenedBreaksOff(t *testing.T) {
	for _, outside := range []bool{false, true} {
		for _, inside := range []bool{false, true} {
			o := newOpening(t, nil, func(o *opening) { o.upstream.h2 = outside })
			r, w := io.Pipe()
			go func() {
				io.WriteString(w, strings.Repeat("x", 100<<10)+o.token+"y")
				io.WriteString(w, o.other)
				io.WriteString(w, "z")
				w.Close()
			}()
			resp, err := o.client(inside).Do(newRequest(t, "POST", "https://"+apiHost+"/", r))
			if err == nil {
				if resp.StatusCode != 403 || resp.Header.Get("X-Pfar-Reason") != wire.WrongHost {
					t.Errorf("%s", resp.Status)
				}
				resp.Body.Close()
			}
			r.Close()
			eventually(t, "the record", func() bool { return strings.Contains(o.logged.String(), "reason="+wire.WrongHost) })
			if o.upstream.whole() != 0 {
				t.Error("the request came whole")
			}
			eventually(t, "what came of the body", func() bool { seen, _ := o.upstream.last(); return seen.body != "" })
			if seen, _ := o.upstream.last(); !strings.HasPrefix(seen.body, "xxx") || strings.Contains(seen.body, o.other[:20]) {
				t.Errorf("of the body came %.50q", seen.body)
			}
			o.clean()
		}
	}
}

// HTTP/2 with what no client sends.
func TestOpenedRefusesFrames(t *testing.T) {
	o := newOpening(t, nil, nil)
	plain := []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: apiHost}, {Name: ":path", Value: "/"}}
	with := func(fields ...hpack.HeaderField) []hpack.HeaderField { return append(plain[:4:4], fields...) }
	for name, c := range map[string]struct {
		fields []hpack.HeaderField
		data   []string
		want   string // status, or "reset"
	}{
		"in pieces":               {with(hpack.HeaderField{Name: "authorization", Value: o.token}), []string{o.token[:5], o.token[5:]}, "200"},
		"another authority":       {[]hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "evil.test"}, {Name: ":path", Value: "/"}}, nil, "421"},
		"another Host beside it":  {with(hpack.HeaderField{Name: "host", Value: "evil.test"}), nil, "421"},
		"two authorities":         {append(plain[:4:4], hpack.HeaderField{Name: ":authority", Value: "evil.test"}), nil, "reset"},
		"CONNECT":                 {[]hpack.HeaderField{{Name: ":method", Value: "CONNECT"}, {Name: ":authority", Value: "evil.test:443"}}, nil, "501"},
		"extended CONNECT":        {[]hpack.HeaderField{{Name: ":method", Value: "CONNECT"}, {Name: ":protocol", Value: "websocket"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: apiHost}, {Name: ":path", Value: "/"}}, nil, "reset"},
		"a version in the target": {[]hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: apiHost}, {Name: ":path", Value: "/?a HTTP/1.1"}}, nil, "400"},
		"an underscore":           {with(hpack.HeaderField{Name: "transfer_encoding", Value: "chunked"}), nil, "400"},
		"an upgrade":              {with(hpack.HeaderField{Name: "upgrade", Value: "websocket"}), nil, "400"},
		"a placeholder":           {with(hpack.HeaderField{Name: "x-other", Value: o.token}), nil, "403"},
		"a placeholder as a name": {with(hpack.HeaderField{Name: "x-" + strings.ToLower(o.token), Value: "x"}), nil, "403"},
		"another's, over DATA":    {plain, []string{o.other[:3], o.other[3:9], o.other[9:]}, "403"},
		"pseudo field at the end": {with(hpack.HeaderField{Name: "x", Value: "y"}, hpack.HeaderField{Name: ":path", Value: "/" + o.other}), nil, "reset"},
		"an upper-case name":      {with(hpack.HeaderField{Name: "X-Upper", Value: o.token}), nil, "reset"},
		"a line end in a value":   {with(hpack.HeaderField{Name: "x", Value: "a\r\nauthorization: " + o.other}), nil, "reset"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := o.frames(c.fields, c.data); got != c.want {
				t.Errorf("it is %s, want %s", got, c.want)
			}
		})
	}
	o.upstream.mu.Lock()
	defer o.upstream.mu.Unlock()
	whole := slices.ContainsFunc(o.upstream.seen, func(r seenRequest) bool { return r.body == apiToken && r.header.Get("Authorization") == apiToken })
	if !whole || o.upstream.complete != 1 {
		t.Errorf("the outside saw %+v, %d whole", o.upstream.seen, o.upstream.complete)
	}
	o.clean()
}

// frames sends a request, its head in CONTINUATION frames of few octets, and returns the status.
func (o *opening) frames(fields []hpack.HeaderField, data []string) string {
	o.t.Helper()
	conn := o.secure(apiHost+":443", "h2")
	defer conn.Close()
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, f := range fields {
		if err := enc.WriteField(f); err != nil {
			o.t.Fatal(err)
		}
	}
	io.WriteString(conn, http2.ClientPreface)
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = f.WriteSettings()
	rest := []byte(block.String())
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: rest[:7], EndStream: data == nil})
	for rest = rest[7:]; len(rest) > 0; {
		n := min(5, len(rest))
		_ = f.WriteContinuation(1, n == len(rest), rest[:n])
		rest = rest[n:]
	}
	for i, d := range data {
		_ = f.WriteData(1, i == len(data)-1, []byte(d))
	}
	for {
		frame, err := f.ReadFrame()
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return "reset"
		}
		if err != nil {
			return "reset"
		}
	}
}

func TestOpenedTrustsNoBadCertificate(t *testing.T) {
	for name, change := range map[string]func(*opening){
		"another host's": func(o *opening) {
			o.upstream.certify(o.t, func(c *x509.Certificate) { c.DNSNames = []string{"evil.test"} })
		},
		"expired": func(o *opening) {
			o.upstream.certify(o.t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
		},
		"not yet": func(o *opening) {
			o.upstream.certify(o.t, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
		},
		"unknown authority": func(o *opening) { o.proxy.roots = x509.NewCertPool() },
		"the bridge's own":  func(o *opening) { o.proxy.roots = nil },
		"no server's": func(o *opening) {
			o.upstream.certify(o.t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOpening(t, nil, change)
			r := newRequest(t, "GET", "https://"+apiHost+"/", nil)
			r.Header.Set("Authorization", o.token)
			resp, text := o.do(o.client(false), r)
			if resp.StatusCode != 502 || resp.Header.Get("X-Pfar-Reason") != "certificate" {
				t.Errorf("%s %s", resp.Status, text)
			}
			if _, n := o.upstream.last(); n != 0 {
				t.Error("a request was sent")
			}
			if !strings.Contains(o.logged.String(), "x509: ") {
				t.Errorf("why is not logged: %s", o.logged)
			}
			o.clean(text)
		})
	}
}

// The SNI is checked as for a tunnel, and the certificate is for one host alone.
func TestOpenedHandshake(t *testing.T) {
	o := newOpening(t, nil, nil)
	for _, name := range []string{otherHost, "evil.test", ""} {
		config := &tls.Config{ServerName: name, InsecureSkipVerify: true}
		if err := tls.Client(o.tunnelTo(apiHost+":443"), config).Handshake(); err == nil {
			t.Errorf("a handshake for %q succeeds", name)
		}
	}
	c := o.secure(apiHost + ":443")
	leaf := c.ConnectionState().PeerCertificates[0]
	if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != apiHost || leaf.IsCA || time.Until(leaf.NotAfter) > 25*time.Hour {
		t.Errorf("the certificate is for %v, until %v", leaf.DNSNames, leaf.NotAfter)
	}
	untrusting := tls.Client(o.tunnelTo(apiHost+":443"), &tls.Config{ServerName: apiHost})
	if err := untrusting.Handshake(); err == nil {
		t.Error("who does not trust the authority is served")
	}
	eventually(t, "the record", func() bool { return strings.Contains(o.logged.String(), "reason=handshake") })
	if old := tls.Client(o.tunnelTo(apiHost+":443"), &tls.Config{ServerName: apiHost, RootCAs: o.trusted, MaxVersion: tls.VersionTLS11}); old.Handshake() == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

// Without what is to be put on the wire nothing goes to its hosts, and everything to others.
func TestNothingIsOpenedWithoutSecrets(t *testing.T) {
	o := newOpening(t, nil, func(o *opening) { o.material.Secrets = nil })
	if status, reason := outcome(o.ask(connectTo(apiHost + ":443"))); status != "503" || reason != "secret-unavailable" {
		t.Errorf("it is %s %s", status, reason)
	}
	if _, dials, _ := o.seen(); len(dials) != 0 {
		t.Errorf("%v", dials)
	}
	o.tunnelTo("plain.allowed.test:443").Close()
	m := brokeredMaterial(t)
	m.Secrets = m.Secrets[1:]
	o.hand(m)
	if status, reason := outcome(o.ask(connectTo(apiHost + ":443"))); status != "503" || reason != "secret-unavailable" {
		t.Errorf("without that one it is %s %s", status, reason)
	}
	o.proxy.secrets.wait = 2 * time.Minute
	o.hand(brokeredMaterial(t))
	o.secure(apiHost + ":443").Close()
}

// Other hosts' TLS is the server's own: the bridge has no part in it.
func TestOtherHostsStayUnopened(t *testing.T) {
	o := newOpening(t, nil, nil)
	outside := x509.NewCertPool()
	outside.AddCert(o.upstream.authority)
	o.trusted = outside
	r := newRequest(t, "POST", "https://plain.allowed.test/", strings.NewReader(o.token+apiToken))
	r.Header.Set("Authorization", o.token)
	client := o.client(true)
	resp, text := o.do(client, r)
	seen, _ := o.upstream.last()
	if resp.StatusCode != 200 || seen.body != o.token+apiToken || seen.header.Get("Authorization") != o.token || !strings.Contains(text, apiToken) {
		t.Errorf("%s %+v", resp.Status, seen)
	}
	client.CloseIdleConnections()
	eventually(t, "the record", func() bool { return strings.Contains(o.logged.String(), "host=plain.allowed.test:443") })
	if strings.Contains(o.logged.String(), "brokered") {
		t.Errorf("the log says %s", o.logged)
	}
}

func TestPlainHTTPGetsNoSecret(t *testing.T) {
	o := newOpening(t, nil, nil)
	reached := make(chan string, 100)
	o.serveOrigin(func(c *net.TCPConn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err == nil {
			reached <- fmt.Sprint(r.URL, r.Header)
			io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
		}
	})
	fields := func(f string) string { return "Host: " + apiHost + "\r\nConnection: close\r\n" + f + "\r\n" }
	for name, raw := range map[string]string{
		"a field":   "GET http://" + apiHost + "/ HTTP/1.1\r\n" + fields("Authorization: Bearer "+o.token+"\r\n"),
		"Basic":     "GET http://" + apiHost + "/ HTTP/1.1\r\n" + fields("Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("m:"+o.token))+"\r\n"),
		"the query": "GET http://" + apiHost + "/?key=" + o.token + " HTTP/1.1\r\n" + fields(""),
		"elsewhere": "GET http://plain.allowed.test/ HTTP/1.1\r\nHost: plain.allowed.test\r\nX: " + o.other + "\r\n\r\n",
	} {
		if status, reason := outcome(o.ask(raw)); status != "403" || reason != wire.Plain {
			t.Errorf("%s, absolute: %s %s", name, status, reason)
		}
		c := o.tunnelTo(apiHost + ":80")
		raw = strings.Replace(strings.Replace(raw, "http://"+apiHost, "", 1), "http://plain.allowed.test", "", 1)
		io.WriteString(c, strings.Replace(raw, "plain.allowed.test", apiHost, 1))
		b, _ := io.ReadAll(c)
		if status, reason := outcome(string(b)); status != "403" || reason != wire.Plain {
			t.Errorf("%s, in a tunnel: %q", name, b)
		}
	}
	if status, _ := outcome(o.ask("GET http://" + apiHost + "/ HTTP/1.1\r\n" + fields(""))); status != "204" {
		t.Errorf("without one it is %s", status)
	}
	if r := <-reached; len(reached) != 0 || strings.Contains(r, "ntn_") {
		t.Errorf("more than that reached the host: %s", r)
	}
	o.clean()
}

// Who sends slowly, or says nothing, is not waited for without end.
func TestOpenedClocks(t *testing.T) {
	o := newOpening(t, nil, func(o *opening) { o.proxy.limits.opened = 2 })
	o.secure(apiHost+":443", "http/1.1")
	o.secure(apiHost+":443", "h2")
	many := tls.Client(o.tunnelTo(apiHost+":443"), &tls.Config{RootCAs: o.trusted, ServerName: apiHost})
	if many.Handshake() == nil {
		t.Error("more than so many are opened")
	}
	o = newOpening(t, nil, nil)
	short := o.proxy.limits
	short.headTime, short.idle = 300*time.Millisecond, 500*time.Millisecond
	o.proxy.opener = newOpener(short) // what comes before the requests has its time
	slow := o.secure(apiHost+":443", "http/1.1")
	io.WriteString(slow, "GET / HTTP/1.1\r\nX")
	idle := o.secure(apiHost+":443", "h2")
	io.WriteString(idle, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+"\x00\x00\x00\x04\x00\x00\x00\x00\x00") // RFC 9113 section 3.4
	for name, c := range map[string]net.Conn{"half a head": slow, "no request": idle} {
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: %v", name, err)
		}
	}
	eventually(t, "the end", func() bool { return len(o.proxy.opener.slots) == 0 })
	o = newOpening(t, nil, func(o *opening) { o.proxy.limits.headTime = 300 * time.Millisecond })
	said := o.ask(connectTo(apiHost + ":443"))
	for n := 0; strings.HasPrefix(said, "HTTP/1.1 408") && n < 10; n++ { // as on a busy machine
		said = o.ask(connectTo(apiHost + ":443"))
	}
	if !strings.HasPrefix(said, "HTTP/1.1 200") {
		t.Errorf("nothing: %q", said)
	}
}

// What pfard hands over comes with its welcome, later, and from a pfard that was started again.
func TestSecretsComeFromPfard(t *testing.T) {
	d := newPfard(t)
	m := brokeredMaterial(t)
	files := []*os.File{materialFile(t, m)}
	d.change(func() { d.welcome, d.files = attach.Message{Welcome: &attach.Welcome{Broker: true}}, files })
	o := newOpening(t, nil, func(o *opening) {
		o.material.Secrets = nil
		a := newAttachment(d.path, "digest", o.proxy.journal.log, func(err error) { t.Error(err) })
		a.probe, a.keep = func() error { return nil }, o.proxy.secrets
		if rest, err := a.begin(t.Context()); err != nil || len(rest) != 0 {
			t.Fatalf("%d files, %v", len(rest), err)
		}
	})
	o.token = m.Secrets[0].Placeholder
	sends := func(want string) {
		t.Helper()
		eventually(t, want, func() bool {
			r := newRequest(t, "GET", "https://"+apiHost+"/", nil)
			r.Header.Set("Authorization", o.token)
			_, text := o.do(o.client(true), r)
			seen, _ := o.upstream.last()
			return seen.header.Get("Authorization") == want && !strings.Contains(text, want)
		})
	}
	sends(apiToken)
	says := func(want string) {
		t.Helper()
		eventually(t, "it says "+want, func() (is bool) {
			d.change(func() { is = d.wired == want })
			return is
		})
	}
	says("+")
	rotate := func(value string) *os.File {
		m.Secrets[0].Value = value
		return materialFile(t, m)
	}
	var conn *attach.Conn
	d.change(func() { conn = d.conn })
	if err := conn.Send(attach.Message{Broker: true}, rotate("ntn_Z9y8X7w6V5u4T3s2R1q0P9o8")); err != nil {
		t.Fatal(err)
	}
	sends("ntn_Z9y8X7w6V5u4T3s2R1q0P9o8")
	says("++")
	if err := conn.Send(attach.Message{Broker: true}, materialFile(t, broker.Material{})); err != nil {
		t.Fatal(err)
	}
	says("++-")
	if err := conn.Send(attach.Message{Broker: true}); err != nil { // without
		t.Fatal(err)
	}
	says("++--")
	sends("ntn_Z9y8X7w6V5u4T3s2R1q0P9o8")
	d.change(func() { d.files = []*os.File{rotate("ntn_000000000000000000000000")} })
	d.stop()
	d.start()
	sends("ntn_000000000000000000000000")
	says("++--+")
}

// A local pfard passes a connection instead.
func TestSecretsComeFromALocalPfard(t *testing.T) {
	pfard, file, err := attach.Pair("limits")
	if err != nil {
		t.Fatal(err)
	}
	defer pfard.Close()
	bridge, err := attach.FromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer bridge.Close()
	clean := new(hidden)
	o := newOpening(t, nil, func(o *opening) {
		o.material.Secrets = nil
		o.proxy.secrets.wait = 2 * time.Minute
		go o.proxy.secrets.follow(bridge, clean, o.proxy.journal.log)
	})
	set, err := redact.New(map[string][]byte{"k": []byte("rotated-value-2")}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if err := pfard.Hide(func() ([]byte, <-chan struct{}) { return set, nil }); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []*os.File{materialFile(t, broker.Material{}), nil} {
		var files []*os.File
		if bad != nil {
			files = append(files, bad)
		}
		if err := pfard.Send(attach.Message{Broker: true}, files...); err != nil {
			t.Fatal(err)
		}
		if m, _, err := pfard.Receive(); err != nil || !m.Unwired || m.Wired {
			t.Errorf("of what it cannot take it says %+v, %v", m, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := o.proxy.secrets.ready(ctx, o.proxy.policy.Decide(apiHost, 443), 443); err == nil {
		t.Error("nothing is enough")
	}
	if err := pfard.Send(attach.Message{Broker: true}, materialFile(t, brokeredMaterial(t))); err != nil {
		t.Fatal(err)
	}
	if m, _, err := pfard.Receive(); err != nil || !m.Wired || m.Unwired {
		t.Errorf("of what it has taken it says %+v, %v", m, err)
	}
	o.secure(apiHost + ":443").Close()
	if got := clean.clean("of rotated-value-2"); got != "of [redacted: k]" {
		t.Errorf("what it was told to hide is in %q", got)
	}
}
