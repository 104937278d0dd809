package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
)

// corporate is a proxy of the operator's network: it keeps what it is asked and has answer do the rest.
type corporate struct {
	addr string

	mu    sync.Mutex
	heads []string
}

func startCorporate(t *testing.T, answer func(c *net.TCPConn)) *corporate {
	t.Helper()
	l := listen(t)
	p := &corporate{addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if head, err := readAnswer(c, 4096); err == nil {
					p.mu.Lock()
					p.heads = append(p.heads, string(head))
					p.mu.Unlock()
					answer(c)
				}
			}()
		}
	}()
	return p
}

func (p *corporate) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.heads...)
}

// says writes an answer and then echoes, as the tunnel's other end.
func says(answer string) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		_, _ = io.WriteString(c, answer)
		echo(c)
	}
}

const (
	password = "hunter2/s3cret"
	userinfo = "robot:hunter2%2Fs3cret@"
	basicOf  = "Basic cm9ib3Q6aHVudGVyMi9zM2NyZXQ="
)

func writeUpstream(t *testing.T, https, http, no string) string {
	t.Helper()
	b, err := json.Marshal(map[string]string{"https": https, "http": http, "no": no})
	if err != nil {
		t.Fatal(err)
	}
	return writeCredential(t, string(b))
}

func writeCredential(t *testing.T, content string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, units.CredentialUpstream), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// behind is a world behind a proxy.
func behind(t *testing.T, https, http, no string, entries ...string) *world {
	t.Helper()
	u, err := readUpstream(writeUpstream(t, https, http, no))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(w *world) {
		w.proxy.out.upstream, w.proxy.out.dialProxy = u, newDialer().dialProxy
	}, entries...)
	w.serveOrigin(echo)
	return w
}

func TestReadUpstream(t *testing.T) {
	for _, c := range []struct{ value, address, authorization string }{
		{"http://proxy.corp:3128", "proxy.corp:3128", ""},
		{"HTTP://Proxy.corp:3128/", "Proxy.corp:3128", ""},
		{" proxy.corp:3128\n", "proxy.corp:3128", ""},
		{"proxy", "proxy:80", ""},
		{"http://proxy_1.corp", "proxy_1.corp:80", ""},
		{"http://10.0.0.1:8080", "10.0.0.1:8080", ""},
		{"http://[fd12::1]:8080", "[fd12::1]:8080", ""},
		{"http://[fd12::1]", "[fd12::1]:80", ""},
		{"http://" + userinfo + "proxy.corp:3128", "proxy.corp:3128", basicOf},
		{userinfo + "proxy.corp:3128", "proxy.corp:3128", basicOf},
		{"http://robot@proxy.corp", "proxy.corp:80", "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:"))},
		{"http://u:p@ss:w@proxy.corp", "proxy.corp:80", "Basic " + base64.StdEncoding.EncodeToString([]byte("u:p@ss:w"))},
		{"http://u:p%C3%A4ss@proxy.corp", "proxy.corp:80", "Basic " + base64.StdEncoding.EncodeToString([]byte("u:päss"))},
	} {
		u, err := readUpstream(writeUpstream(t, c.value, "", ""))
		if err != nil || u == nil || *u.https != (proxyServer{c.address, c.authorization}) || u.http != nil {
			t.Errorf("%q: %+v, %v", c.value, u, err)
		}
		if u, err = readUpstream(writeUpstream(t, "", c.value, "")); err != nil || u == nil || u.http == nil || u.http.address != c.address {
			t.Errorf("%q for http: %+v, %v", c.value, u, err)
		}
	}
}

func TestNoUpstream(t *testing.T) {
	for _, dir := range []string{"", t.TempDir(), writeCredential(t, `{}`), writeUpstream(t, "", " ", "localhost")} {
		if u, err := readUpstream(dir); u != nil || err != nil {
			t.Errorf("%+v, %v", u, err)
		}
	}
}

// An error says what to write and quotes nothing: any part of the value may be the password.
func TestReadUpstreamErrors(t *testing.T) {
	const form = "http://user:password@host:port"
	for value, want := range map[string]string{
		"https://" + userinfo + "proxy.corp:3128":  "write http://host:port",
		"socks5://" + userinfo + "proxy.corp:1080": "write http://host:port",
		"SOCKS5H://proxy.corp":                     "socks5h://",
		"socks4a://proxy.corp":                     "write http://host:port",
		"ftp://" + userinfo + "proxy.corp":         form,
		"http://":                                  form,
		"http://" + userinfo:                       form,
		"http://:3128":                             form,
		"http://proxy.corp:":                       form,
		"http://proxy.corp:0":                      form,
		"http://proxy.corp:65536":                  form,
		"http://proxy.corp:hunter2":                form,
		"http://proxy.corp/hunter2":                form,
		"http://proxy.corp?hunter2":                form,
		"http://robot:hunter2/s3cret@proxy.corp":   "percent-encoded",
		"http://robot:hunter2#s3cret@proxy.corp":   "percent-encoded",
		"http://robot:hunter2%2@proxy.corp":        form,
		"http://robot:hunter2%0d%0aX:@proxy.corp":  form,
		"http://ro%3abot:hunter2@proxy.corp":       form,
		"robot:hunter2://@proxy.corp":              form,
		"http://proxy corp":                        form,
		"http://proxy.corp\r\nX: hunter2":          form,
		"http://prox\u00fd.corp":                   form,
		"http://[fd12::1%25eth0]":                  form,
		"http://robot:hunter2":                     form,
	} {
		for variable, dir := range map[string]string{"HTTPS_PROXY": writeUpstream(t, value, "", ""), "HTTP_PROXY": writeUpstream(t, "", value, "")} {
			u, err := readUpstream(dir)
			if u != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), variable) {
				t.Errorf("%q: %+v, %v, want %q", value, u, err, want)
			} else if says := err.Error(); strings.Contains(says, "hunter2") || strings.Contains(says, "robot") || strings.Contains(says, "corp") {
				t.Errorf("%q is quoted: %v", value, err)
			}
		}
	}
	for _, content := range []string{"", "hunter2", `{"https":"http://robot:hunter2`, `["hunter2"]`, `{"https":{"hunter2":1}}`, `{"https":12}`} {
		u, err := readUpstream(writeCredential(t, content))
		if u != nil || err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), units.CredentialUpstream) {
			t.Errorf("%q: %+v, %v", content, u, err)
		}
	}
	if _, err := readUpstream(filepath.Join(writeCredential(t, "{}"), units.CredentialUpstream)); err == nil {
		t.Error("a file for a directory")
	}
}

// Who is asked for what: the proxy by name and without a lookup here, or the network itself.
func TestUpstreamChoice(t *testing.T) {
	const viaHTTPS, viaHTTP, direct = "https", "http", "direct"
	for _, c := range []struct {
		no, host string
		port     uint16
		want     string
	}{
		{"", "api.allowed.test", 443, viaHTTPS},
		{"", "api.allowed.test", 80, viaHTTP},
		{"", "api.allowed.test", 5432, viaHTTPS},
		{"", "1.2.3.4", 443, viaHTTPS},
		{"", "1.2.3.4", 80, viaHTTP},
		{"", "2606:4700::1", 443, viaHTTPS},
		{"", "10.0.0.5", 443, direct}, // what Vet refuses is of the own network
		{"", "127.0.0.1", 443, direct},
		{"", "fd12::1", 443, direct},
		{"", "9.9.9.9", 443, direct}, // this host itself
		{"", "db.allowed.test", 443, direct},
		{"", "db.allowed.test", 5432, direct},
		{"", "x.lan.allowed.test", 443, direct},
		{"*", "api.allowed.test", 443, direct},
		{"*", "1.2.3.4", 443, direct},
		{"api.allowed.test", "api.allowed.test", 443, direct},
		{" API.allowed.TEST ,other.test", "api.allowed.test", 443, direct},
		{"allowed.test", "api.allowed.test", 443, direct},
		{".allowed.test", "api.allowed.test", 443, direct},
		{"*.allowed.test", "api.allowed.test", 443, direct},
		{".api.allowed.test", "api.allowed.test", 443, viaHTTPS},
		{"llowed.test", "api.allowed.test", 443, viaHTTPS},
		{"api.allowed.test:443", "api.allowed.test", 443, direct},
		{"api.allowed.test:443", "api.allowed.test", 80, viaHTTP},
		{"api.allowed.test:5432", "api.allowed.test", 5432, direct},
		{"api.allowed.test:80", "api.allowed.test", 80, direct},
		{"1.2.3.4", "1.2.3.4", 443, direct},
		{"1.2.3.4:80", "1.2.3.4", 443, viaHTTPS},
		{"1.0.0.0/8", "1.2.3.4", 443, direct},
		{"2.0.0.0/8", "1.2.3.4", 443, viaHTTPS},
		{"2606:4700::/32", "2606:4700::1", 443, direct},
		{"[2606:4700::1]:443", "2606:4700::1", 443, direct},
	} {
		t.Run(fmt.Sprintf("%s/%s:%d", c.no, c.host, c.port), func(t *testing.T) {
			https, http := startCorporate(t, says("HTTP/1.1 200 OK\r\n\r\n")), startCorporate(t, says("HTTP/1.1 200 OK\r\n\r\n"))
			var entries []string
			for _, name := range []string{"*.allowed.test", "*.lan.allowed.test", "1.2.3.4", "2606:4700::1", "10.0.0.0/8", "127.0.0.1", "fd12::1", "9.9.9.9"} {
				bracketed := name
				if strings.Contains(name, "::") {
					bracketed = "[" + name + "]"
				}
				entries = append(entries, name, bracketed+":5432")
			}
			w := behind(t, "http://"+userinfo+https.addr, http.addr, c.no, entries...)
			w.own = netip.MustParseAddr("9.9.9.9")
			w.proxy.policy.Private = []egress.Private{
				{Host: "db.allowed.test", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
				{Host: "lan.allowed.test", Wildcard: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
			}
			w.answers[c.host+"."] = addrs(public)
			up, rec, err := w.dialOut(t.Context(), c.host, c.port)
			if err != nil {
				t.Fatal(err, rec.err)
			}
			up.Close()
			target := net.JoinHostPort(c.host, fmt.Sprint(c.port))
			head := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
			want := map[string][2]string{
				viaHTTPS: {head + "Proxy-Authorization: " + basicOf + "\r\n\r\n", ""},
				viaHTTP:  {"", head + "\r\n"}, // the other proxy's password is not for this one
			}[c.want]
			got := [2]string{strings.Join(https.asked(), ""), strings.Join(http.asked(), "")}
			lookups, dials, _ := w.seen()
			if got != want || (len(dials) == 1) != (c.want == direct) || c.want != direct && len(lookups) > 0 {
				t.Errorf("asked %q, looked up %q, dialled %v, want %s", got, lookups, dials, c.want)
			}
		})
	}
}

// With one of the variables, what would be the other's goes out directly, as programs do it.
func TestUpstreamOfOneScheme(t *testing.T) {
	p := startCorporate(t, says("HTTP/1.1 200 OK\r\n\r\n"))
	w := behind(t, p.addr, "", "", "api.allowed.test")
	w.answers["api.allowed.test."] = addrs(public)
	for _, port := range []uint16{443, 80} {
		up, _, err := w.dialOut(t.Context(), "api.allowed.test", port)
		if err != nil {
			t.Fatal(err)
		}
		up.Close()
	}
	if _, dials, _ := w.seen(); len(p.asked()) != 1 || len(dials) != 1 || dials[0].Port() != 80 {
		t.Errorf("asked %q, dialled %v", p.asked(), dials)
	}
}

// NO_PROXY takes the proxy away and nothing else: where a name leads directly, it is vetted.
func TestNoProxyIsVetted(t *testing.T) {
	p := startCorporate(t, says("HTTP/1.1 200 OK\r\n\r\n"))
	w := behind(t, p.addr, p.addr, "allowed.test,10.0.0.0/8", "api.allowed.test")
	w.answers["api.allowed.test."] = addrs("10.0.0.5")
	_, rec, err := w.dialOut(t.Context(), "api.allowed.test", 443)
	if reasonOf(err) != "address-refused" || rec.special != "private" || len(p.asked()) != 0 {
		t.Errorf("%v, %q, asked %q", err, rec.special, p.asked())
	}
}

func TestUpstreamAnswers(t *testing.T) {
	limit := defaultLimits.head
	fill := func(n int) string { // a head of n octets
		const start, end = "HTTP/1.1 200 OK\r\nX: ", "\r\n\r\n"
		return start + strings.Repeat("x", n-len(start)-len(end)) + end
	}
	for answer, want := range map[string]string{
		"HTTP/1.1 200 Connection established\r\n\r\n":                          egress.Declared,
		"HTTP/1.0 200 OK\r\n\r\n":                                              egress.Declared,
		"HTTP/1.1 200\r\n\r\n":                                                 egress.Declared,
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\n\r\n": egress.Declared, // RFC 9110 section 9.3.6
		fill(limit):     egress.Declared,
		fill(limit + 1): "upstream-answer",
		"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"corp\"\r\n\r\n" + password: "upstream-auth",
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 14\r\n\r\n" + password:                                           "upstream-refused",
		"HTTP/1.1 401 Unauthorized\r\n\r\n":                                                                         "upstream-refused",
		"HTTP/1.1 405 Method Not Allowed\r\n\r\n":                                                                   "upstream-refused",
		"HTTP/1.1 429 Too Many Requests\r\n\r\n":                                                                    "upstream-refused",
		"HTTP/1.1 502 Bad Gateway\r\n\r\n":                                                                          "upstream-failed",
		"HTTP/1.1 503 Service Unavailable\r\n\r\n":                                                                  "upstream-failed",
		"HTTP/1.1 504 Gateway Timeout\r\n\r\n":                                                                      "upstream-timeout",
		"HTTP/1.1 302 Found\r\nLocation: http://p/\r\n\r\n":                                                         "upstream-answer",
		"HTTP/1.1 204 No Content\r\n\r\n":                                                                           "upstream-answer",
		"HTTP/1.1 100 Continue\r\n\r\n":                                                                             "upstream-answer",
		"HTTP/1.1 2000 OK\r\n\r\n":                                                                                  "upstream-answer",
		"HTTP/1.1 +20 OK\r\n\r\n":                                                                                   "upstream-answer",
		"HTTP/1.1 99999999999999999999 OK\r\n\r\n":                                                                  "upstream-answer",
		"HTTP/2 200\r\n\r\n":                                                                                        "upstream-answer",
		"HTTP/1.1\r\n\r\n":                                                                                          "upstream-answer",
		"\r\n\r\n":                                                                                                  "upstream-answer",
		"SSH-2.0-" + password + "\r\n\r\n":                                                                          "upstream-answer",
		"HTTP/1.1 200 OK\r\n":                                                                                       "upstream-answer", // and then the end
		"":                                                                                                          "upstream-answer",
	} {
		for way, write := range map[string]func(*net.TCPConn){
			"at once": func(c *net.TCPConn) { _, _ = io.WriteString(c, answer) },
			"by octet": func(c *net.TCPConn) {
				for i := range min(len(answer), 100) {
					_, _ = io.WriteString(c, answer[i:i+1])
				}
				_, _ = io.WriteString(c, answer[min(len(answer), 100):])
			},
		} {
			p := startCorporate(t, func(c *net.TCPConn) {
				write(c)
				_ = c.CloseWrite()
				_, _ = io.Copy(io.Discard, c)
			})
			w := behind(t, "http://"+userinfo+p.addr, "", "", "api.allowed.test")
			up, rec, err := w.dialOut(t.Context(), "api.allowed.test", 443)
			if err == nil {
				up.Close()
			}
			if got := reasonOf(err); got != want {
				t.Errorf("%.60q %s: %s, want %s (%v)", answer, way, got, want, rec.err)
			}
			if rec.address.String() != p.addr {
				t.Errorf("%.60q: the record's address is %v", answer, rec.address)
			}
			keepsSecrets(t, p, rec, err)
		}
	}
}

// keepsSecrets holds the answer to the server to naming neither the proxy nor what it said, and the log to the latter.
func keepsSecrets(t *testing.T, p *corporate, rec *record, err error) {
	t.Helper()
	var ref *refusal
	if !errors.As(err, &ref) {
		return
	}
	host, port, _ := strings.Cut(p.addr, ":")
	for _, secret := range []string{host, port, "hunter2", "robot", basicOf, "corp"} {
		if answer := string(ref.response("api.allowed.test:443", false)); strings.Contains(answer, secret) {
			t.Errorf("the server is told %q: %s", secret, answer)
		}
	}
	if log := fmt.Sprint(rec.attrs()); strings.Contains(log, "hunter2") || strings.Contains(log, basicOf[6:]) {
		t.Errorf("the log has the password: %s", log)
	}
	if ref.denied() {
		t.Errorf("%s counts as denied by the policy", ref.reason)
	}
}

// Where the other side speaks first (SSH, IMAP, MySQL), its greeting may come with the proxy's answer.
func TestUpstreamKeepsWhatFollowsTheAnswer(t *testing.T) {
	const greeting = "SSH-2.0-OpenSSH_9.2\r\n\r\n"
	for _, more := range []int{0, 1, len(greeting), 200_000} {
		after := (strings.Repeat(greeting, more/len(greeting)+1))[:more]
		p := startCorporate(t, says("HTTP/1.1 200 OK\r\nVia: 1.1 p\r\n\r\n"+after))
		w := behind(t, p.addr, "", "", "git.allowed.test:22")
		up, _, err := w.dialOut(t.Context(), "git.allowed.test", 22)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(up, "hello"); err != nil {
			t.Fatal(err)
		}
		if err := up.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(up); err != nil || string(b) != after+"hello" {
			t.Errorf("%d octets, want %d, %v", len(b), more+5, err)
		}
		up.Close()
	}
}

// The deadline of the answer is not the tunnel's.
func TestUpstreamTunnelOutlivesTheDeadline(t *testing.T) {
	p := startCorporate(t, says("HTTP/1.1 200 OK\r\n\r\n"))
	w := behind(t, p.addr, "", "", "api.allowed.test")
	w.proxy.limits.dialTime = 100 * time.Millisecond
	up, _, err := w.dialOut(t.Context(), "api.allowed.test", 443)
	for n := 0; reasonOf(err) == "upstream-timeout" && n < 10; n++ { // as on a busy machine
		up, _, err = w.dialOut(t.Context(), "api.allowed.test", 443)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	r := bufio.NewReader(up)
	time.Sleep(300 * time.Millisecond) // past both deadlines
	if _, err := io.WriteString(up, "x\n"); err != nil {
		t.Fatal(err)
	}
	if s, err := r.ReadString('\n'); s != "x\n" || err != nil {
		t.Errorf("%q, %v", s, err)
	}
}

func TestUpstreamInTime(t *testing.T) {
	for name, answer := range map[string]func(*net.TCPConn){
		"silent": func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) },
		"trickling": func(c *net.TCPConn) {
			for {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		},
	} {
		closed := make(chan struct{})
		p := startCorporate(t, func(c *net.TCPConn) { answer(c); close(closed) })
		w := behind(t, p.addr, "", "", "api.allowed.test")
		w.proxy.limits.dialTime = 150 * time.Millisecond
		began := time.Now()
		_, rec, err := w.dialOut(t.Context(), "api.allowed.test", 443)
		if d := time.Since(began); reasonOf(err) != "upstream-timeout" || d < 250*time.Millisecond || d > 2*time.Minute {
			t.Errorf("%s: %v after %v (%v)", name, err, d, rec.err)
		}
		keepsSecrets(t, p, rec, err)
		<-closed // the connection is not left behind
	}
	t.Run("endless", func(t *testing.T) {
		p := startCorporate(t, func(c *net.TCPConn) {
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nX: y\r\n"); err != nil {
					return
				}
			}
		})
		w := behind(t, p.addr, "", "", "api.allowed.test")
		if _, rec, err := w.dialOut(t.Context(), "api.allowed.test", 443); reasonOf(err) != "upstream-answer" {
			t.Error(err, rec.err)
		}
	})
}

func TestUpstreamIsNotThere(t *testing.T) {
	l := listen(t)
	p := &corporate{addr: l.Addr().String()}
	l.Close()
	w := behind(t, "http://"+userinfo+p.addr, "", "", "api.allowed.test")
	_, rec, err := w.dialOut(t.Context(), "api.allowed.test", 443)
	if reasonOf(err) != "upstream-not-reached" || !errors.Is(rec.err, syscall.ECONNREFUSED) {
		t.Error(err, rec.err)
	}
	keepsSecrets(t, p, rec, err)
	w.proxy.out.dialProxy = func(ctx context.Context, _ string) (*net.TCPConn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.proxy.limits.dialTime = 50 * time.Millisecond
	if _, _, err = w.dialOut(t.Context(), "api.allowed.test", 443); reasonOf(err) != "upstream-timeout" {
		t.Error(err)
	}
}

// A server that is stopped waits for no proxy.
func TestUpstreamEndsWithTheService(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan struct{})
	p := startCorporate(t, func(c *net.TCPConn) {
		cancel()
		_, _ = io.Copy(io.Discard, c)
		close(closed)
	})
	w := behind(t, p.addr, "", "", "api.allowed.test")
	w.proxy.limits.dialTime = time.Hour
	if up, _, err := w.dialOut(ctx, "api.allowed.test", 443); err == nil || up != nil {
		t.Error("a connection of a server that has ended")
	}
	<-closed
}
