package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// provider is a token endpoint on loopback, with a certificate of an authority of its own.
type provider struct {
	*httptest.Server
	roots *x509.CertPool

	mu     sync.Mutex
	asked  []string // how the client said who it is, and what it wanted
	answer func(n int, w http.ResponseWriter, q *http.Request)
}

// newProvider answers the nth request by answer.
func newProvider(t *testing.T, answer func(n int, w http.ResponseWriter, q *http.Request)) *provider {
	t.Helper()
	p := &provider{answer: answer, roots: x509.NewCertPool()}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_ = q.ParseForm()
		who := "params " + q.PostForm.Get("client_id") + ":" + q.PostForm.Get("client_secret")
		if id, secret, ok := q.BasicAuth(); ok {
			who = "header " + id + ":" + secret
		}
		p.mu.Lock()
		p.asked = append(p.asked, fmt.Sprintf("%s %s %s %s %s", q.Method, q.URL.Path, who, q.PostForm.Get("grant_type"), q.PostForm.Get("refresh_token")))
		n := len(p.asked)
		p.mu.Unlock()
		p.answer(n, w, q)
	}))
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.TLS = &tls.Config{Certificates: []tls.Certificate{authority(t, p.roots)}}
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

// authority returns a certificate for 127.0.0.1 and login.test, which its own authority in roots has signed.
func authority(t *testing.T, roots *x509.CertPool) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"login.test"},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (p *provider) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

const (
	oldRefresh = "RT-hunter2"
	secret     = "CS-hunter2"
)

// set is refreshed at address.
func set(address string) oauth.Set {
	return oauth.Set{AccessToken: "AT-hunter2", RefreshToken: oldRefresh, TokenURL: address + "/token", ClientID: "id", ClientSecret: secret, AuthStyle: oauth.InParams}
}

func refreshed(t *testing.T, s oauth.Set, out dialer, roots *x509.CertPool) (oauth.Answer, *failure) {
	t.Helper()
	return refreshedBefore(t, nil, s, out, roots)
}

// refreshedBefore has the time for an answer be over when a channel is closed.
func refreshedBefore(t *testing.T, over <-chan struct{}, s oauth.Set, out dialer, roots *x509.CertPool) (oauth.Answer, *failure) {
	t.Helper()
	e, err := newEndpoint(s, out, roots)
	if err != nil {
		t.Fatal(err)
	}
	return e.refresh(deadline{context.Background(), over}, t.Context())
}

// deadline is a context whose deadline the test brings about.
type deadline struct {
	context.Context
	over <-chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.over }

func (d deadline) Err() error {
	select {
	case <-d.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// speaks answers with octets that need not be HTTP.
func speaks(text string) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = io.WriteString(c, text)
			c.Close()
		}
	}
}

// notHTTP are answers that net/http quotes in its errors.
var notHTTP = map[string]string{
	"another protocol": "hunter2 hunter2\r\n\r\n", "an odd status": "HTTP/1.1 hunter2 OK\r\n\r\n", "an odd version": "HTTP/hunter2 200 OK\r\n\r\n", "an odd field": "HTTP/1.1 200 OK\r\nhunter2\r\n\r\n",
	"an odd length": "HTTP/1.1 200 OK\r\nContent-Length: hunter2\r\n\r\n", "an odd coding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: hunter2\r\n\r\n",
	"an odd trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n1\r\nx\r\n0\r\nhunter2\r\n\r\n",
}

// TestRefreshQuotesNothing: what an endpoint says in place of HTTP may be what it was sent.
func TestRefreshQuotesNothing(t *testing.T) {
	for name, text := range notHTTP {
		p := newProvider(t, speaks(text))
		if got, f := refreshed(t, set(p.URL), newDialer(), p.roots); f == nil || f.words == "" || f.final || strings.Contains(fmt.Sprintf("%+v", *f), "hunter2") {
			t.Errorf("%s: %+v, %+v", name, got, f)
		}
	}
}

// answers has a status, the fields in between as "Name: value", and a body, after blank lines.
func answers(status int, body string, fields ...string) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestRefreshThatFails(t *testing.T) {
	over := map[string]chan struct{}{"silence": make(chan struct{}), "a head, and silence": make(chan struct{})}
	for name, c := range map[string]struct {
		answer func(int, http.ResponseWriter, *http.Request)
		words  string
		code   string
		final  bool
		after  time.Duration
	}{
		"a refused token":         {answers(400, `{"error":"invalid_grant","error_description":"RT-hunter2 was revoked"}`), "the endpoint answered 400 (invalid_grant)", "invalid_grant", true, 0},
		"refused as a form":       {answers(400, "error=invalid_grant&error_description=RT-hunter2", "Content-Type: application/x-www-form-urlencoded"), "(invalid_grant)", "invalid_grant", true, 0},
		"refused with 200":        {answers(200, `{"error":"invalid_grant"}`), "(invalid_grant)", "invalid_grant", true, 0},
		"an unknown client":       {answers(401, `{"error":"invalid_client"}`), "401 (invalid_client)", "invalid_client", true, 0},
		"a code that is a secret": {answers(400, `{"error":"RT-hunter2"}`), "the endpoint answered 400", "", false, 0},
		"a refusal without code":  {answers(403, `<html>RT-hunter2</html>`), "the endpoint answered 403", "", false, 0},
		"too often": {answers(429, `{"error":"RT-hunter2"}`, "Retry-After: 120"),
			"the endpoint answered 429", "", false, 2 * time.Minute},
		"out of order": {answers(503, "", "Retry-After: 86400000"),
			"the endpoint answered 503", "", false, 24 * time.Hour},
		"out of order, a code":    {answers(500, `{"error":"invalid_grant"}`), "500 (invalid_grant)", "invalid_grant", false, 0},
		"for now":                 {answers(400, `{"error":"temporarily_unavailable"}`), "temporarily_unavailable", "temporarily_unavailable", false, 0},
		"a redirect":              {answers(307, "", "Location: https://127.0.0.1:1/hunter2"), "a redirect", "", true, 0},
		"a redirect for GET":      {answers(302, "", "Location: /other"), "a redirect", "", true, 0},
		"garbage":                 {answers(200, "hunter2 \x00\xff"), "holds no token", "", false, 0},
		"an empty answer":         {answers(200, ""), "holds no token", "", false, 0},
		"no token":                {answers(200, `{"token_type":"Bearer"}`), "holds no token", "", false, 0},
		"a token of another type": {answers(200, `{"access_token":{"hunter2":1}}`), "holds no token", "", false, 0},
		"a token that is a word":  {answers(200, `{"access_token":"inputSchema"}`), "of no use: access_token has fewer than 16 bytes", "", false, 0},
		"a token with a newline":  {answers(200, `{"access_token":"hunter2hunter2\r\nX: y"}`), "of no use: access_token has", "", false, 0},
		"a token that is huge":    {answers(200, `{"access_token":"`+strings.Repeat("x", 32<<10)+`"}`), "of no use: access_token exceeds", "", false, 0},
		"an answer that is huge":  {answers(200, `{"access_token":"x","more":"`+strings.Repeat("x", maxAnswer)+`"}`), "holds no token, or more than", "", false, 0},
		"a head that is huge":     {answers(200, `{"access_token":"x"}`, "X-More: "+strings.Repeat("x", 2*maxAnswer)), "", "", false, 0},
		"an answer without end": {func(_ int, w http.ResponseWriter, q *http.Request) {
			for q.Context().Err() == nil {
				if _, err := w.Write([]byte(strings.Repeat(" ", 4096))); err != nil {
					return
				}
			}
		}, "holds no token, or more than", "", false, 0},
		"silence": {func(_ int, _ http.ResponseWriter, q *http.Request) {
			close(over["silence"])
			<-q.Context().Done()
			panic(http.ErrAbortHandler) // for what it would answer now might still be in time
		}, "did not answer", "", false, 0},
		"a head, and silence": {func(_ int, w http.ResponseWriter, q *http.Request) {
			_, _ = io.WriteString(w, `{"access_token":"hun`)
			_ = http.NewResponseController(w).Flush()
			close(over["a head, and silence"])
			<-q.Context().Done()
			panic(http.ErrAbortHandler)
		}, "did not answer", "", false, 0},
		"half an answer": {func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"access_token":"hun`)
		}, "holds no token", "", false, 0},
		"a connection that is closed": {speaks(""), "EOF", "", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, c.answer)
			got, f := refreshedBefore(t, over[name], set(p.URL), newDialer(), p.roots)
			switch {
			case f == nil:
				t.Fatalf("it succeeds: %+v", got)
			case !strings.Contains(f.words, c.words) || f.code != c.code || f.final != c.final || f.after != c.after:
				t.Errorf("%+v", *f)
			case strings.Contains(fmt.Sprintf("%+v", *f), "hunter2"):
				t.Errorf("it quotes: %+v", *f)
			}
			if asked := p.said(); len(asked) != 1 {
				t.Errorf("it asked %d times: %q", len(asked), asked)
			}
		})
	}
}

// TestRotatedInVain: a new refresh token is kept, of whatever use the rest of its answer is.
func TestRotatedInVain(t *testing.T) {
	const rotated = "a-rotated-refresh"
	cut := func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"scope":["a",{}],"refresh_token":"`+rotated+`","access_token":"hun`)
	}
	for name, c := range map[string]struct {
		answer func(int, http.ResponseWriter, *http.Request)
		want   string
	}{
		"no access token":          {answers(200, `{"refresh_token":"`+rotated+`"}`), rotated},
		"an access token's type":   {answers(200, `{"access_token":7,"refresh_token":"`+rotated+`"}`), rotated},
		"a word for one":           {answers(200, `{"refresh_token":"`+rotated+`","access_token":"inputSchema"}`), rotated},
		"a life that is no number": {answers(200, `{"refresh_token":"`+rotated+`","access_token":"a-new-access-token","expires_in":"soon"}`), rotated},
		"an error beside it":       {answers(200, `{"refresh_token":"`+rotated+`","error":"invalid_client"}`), rotated},
		"cut short":                {cut, rotated},
		"a form":                   {answers(200, "refresh_token="+rotated, "Content-Type: application/x-www-form-urlencoded"), rotated},
		"the one before":           {answers(200, `{"refresh_token":"`+oldRefresh+`"}`), ""},
		"one that is none":         {answers(200, `{"refresh_token":"jsonrpc"}`), ""},
		"another type":             {answers(200, `{"refresh_token":{"a":"`+rotated+`"}}`), ""},
		"of a refusal":             {answers(400, `{"refresh_token":"`+rotated+`","error":"invalid_grant"}`), ""},
		"nothing":                  {answers(200, ""), ""},
	} {
		p := newProvider(t, c.answer)
		s := set(p.URL)
		s.AuthStyle = oauth.Auto
		got, f := refreshed(t, s, newDialer(), p.roots)
		if f == nil || f.rotated != c.want {
			t.Errorf("%s: %+v, %+v", name, got, f)
		}
		if asked := p.said(); len(asked) != 1 {
			t.Errorf("%s: it asked %d times", name, len(asked))
		}
	}
}

// TestRefreshIsToldToEnd: what is under way goes on, and nothing else begins.
func TestRefreshIsToldToEnd(t *testing.T) {
	stop, end := context.WithCancel(t.Context())
	p := newProvider(t, func(n int, w http.ResponseWriter, q *http.Request) {
		end()
		answers(200, `{"access_token":"a-new-access-token"}`)(n, w, q)
	})
	e, err := newEndpoint(set(p.URL), newDialer(), p.roots)
	if err != nil {
		t.Fatal(err)
	}
	if a, f := e.refresh(t.Context(), stop); f != nil || a.AccessToken != "a-new-access-token" {
		t.Errorf("what was under way: %+v, %+v", a, f)
	}
	if a, f := e.refresh(t.Context(), stop); f == nil || f.final || len(p.said()) != 1 {
		t.Errorf("afterwards: %+v, %+v, asked %q", a, f, p.said())
	}
	stop, end = context.WithCancel(t.Context())
	p = newProvider(t, func(n int, w http.ResponseWriter, q *http.Request) {
		end()
		answers(401, `{"error":"invalid_client"}`)(n, w, q)
	})
	s := set(p.URL)
	s.AuthStyle = oauth.Auto
	if e, err = newEndpoint(s, newDialer(), p.roots); err != nil {
		t.Fatal(err)
	}
	if a, f := e.refresh(t.Context(), stop); f == nil || f.final || len(p.said()) != 1 {
		t.Errorf("the client is not known, and there is another way to say who it is: %+v, %+v, asked %q", a, f, p.said())
	}
}

func TestRefreshGoesNowhereElse(t *testing.T) {
	p := newProvider(t, answers(200, `{"access_token":"a-new-access-token"}`))
	_, port, _ := net.SplitHostPort(p.Listener.Addr().String())
	private := dialerOf(t, "login.test", netip.MustParseAddr("127.0.0.1"))
	metadata := dialerOf(t, "login.test", netip.MustParseAddr("169.254.169.254"))
	for name, c := range map[string]struct {
		s     oauth.Set
		out   dialer
		roots *x509.CertPool
		words string
	}{
		"an unknown authority":     {set(p.URL), newDialer(), x509.NewCertPool(), "x509"},
		"the system's roots":       {set(p.URL), newDialer(), nil, "x509"},
		"another name":             {set("https://other.test:" + port), dialerOf(t, "other.test", netip.MustParseAddr("127.0.0.1")), p.roots, "allow_private"},
		"a private address":        {set("https://login.test:" + port), private, p.roots, "127.0.0.1, which is not a public address"},
		"a metadata service":       {set("https://login.test:" + port), metadata, p.roots, "169.254.169.254"},
		"a name that is not there": {set("https://nowhere.test:" + port), private, p.roots, "not-resolved"},
		"nobody listens":           {set("https://127.0.0.1:1"), newDialer(), p.roots, "not-reached"},
	} {
		if got, f := refreshed(t, c.s, c.out, c.roots); f == nil || !strings.Contains(f.words, c.words) || f.final || strings.Contains(f.words, "hunter2") {
			t.Errorf("%s: %+v, %+v", name, got, f)
		}
	}
	if asked := p.said(); len(asked) != 0 {
		t.Errorf("it was asked: %q", asked)
	}
	// What is declared is reached.
	s := set("https://login.test:" + port)
	s.AllowPrivate = []string{"127.0.0.1"}
	if got, f := refreshed(t, s, private, p.roots); f != nil || got.AccessToken != "a-new-access-token" {
		t.Errorf("%+v, %+v", got, f)
	}
}

// dialerOf resolves one name.
func dialerOf(t *testing.T, name string, addr netip.Addr) dialer {
	t.Helper()
	out := newDialer()
	out.lookup = func(_ context.Context, asked string) ([]netip.Addr, error) {
		if asked != name+"." {
			return nil, &net.DNSError{Err: "no such host", Name: asked, IsNotFound: true}
		}
		return []netip.Addr{addr}, nil
	}
	return out
}

func TestRefresh(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(int, http.ResponseWriter, *http.Request)
		change func(*oauth.Set)
		want   oauth.Answer
		asked  []string
	}{
		"the same refresh token": {
			answers(200, `{"access_token":"a-new-access-token","token_type":"bearer","expires_in":3600}`), func(*oauth.Set) {},
			oauth.Answer{AccessToken: "a-new-access-token", TokenType: "bearer", ExpiresIn: 3600, AuthStyle: oauth.InParams},
			[]string{"POST /token params id:CS-hunter2 refresh_token RT-hunter2"},
		},
		"another one": {
			answers(200, `{"access_token":"a-new-access-token","refresh_token":"a-rotated-refresh","expires_in":"60","scope":"a b"}`), func(s *oauth.Set) { s.AuthStyle = oauth.InHeader },
			oauth.Answer{AccessToken: "a-new-access-token", RefreshToken: "a-rotated-refresh", ExpiresIn: 60, AuthStyle: oauth.InHeader, Scopes: []string{"a", "b"}},
			[]string{"POST /token header id:CS-hunter2 refresh_token RT-hunter2"},
		},
		"as a form": {
			answers(200, "access_token=a-new-access-token&expires_in=60&token_type=bearer", "Content-Type: application/x-www-form-urlencoded"), func(*oauth.Set) {},
			oauth.Answer{AccessToken: "a-new-access-token", TokenType: "bearer", ExpiresIn: 60, AuthStyle: oauth.InParams},
			[]string{"POST /token params id:CS-hunter2 refresh_token RT-hunter2"},
		},
		"a public client": {
			answers(200, `{"access_token":"a-new-access-token"}`), func(s *oauth.Set) { s.ClientSecret, s.AuthStyle = "", oauth.Auto },
			oauth.Answer{AccessToken: "a-new-access-token", AuthStyle: oauth.InParams},
			[]string{"POST /token params id: refresh_token RT-hunter2"},
		},
		"a style that is found": {
			func(n int, w http.ResponseWriter, q *http.Request) {
				if n == 1 {
					answers(401, `{"error":"invalid_client"}`)(n, w, q)
					return
				}
				answers(200, `{"access_token":"a-new-access-token"}`)(n, w, q)
			}, func(s *oauth.Set) { s.AuthStyle = oauth.Auto },
			oauth.Answer{AccessToken: "a-new-access-token", AuthStyle: oauth.InParams},
			[]string{"POST /token header id:CS-hunter2 refresh_token RT-hunter2", "POST /token params id:CS-hunter2 refresh_token RT-hunter2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, c.answer)
			s := set(p.URL)
			c.change(&s)
			got, f := refreshed(t, s, newDialer(), p.roots)
			if f != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
				t.Errorf("%+v, %+v, want %+v", got, f, c.want)
			}
			if asked := p.said(); !slices.Equal(asked, c.asked) {
				t.Errorf("asked %q, want %q", asked, c.asked)
			}
		})
	}
}

// TestNothingIsHandedOver: a refresh may be needed no longer. Any other errand is not begun for nothing.
func TestNothingIsHandedOver(t *testing.T) {
	if text, err := handedOver(nil, attach.Hello{Refresh: true}); text != nil || err != nil {
		t.Errorf("of a refresh: %q, %v", text, err)
	}
	if text, err := handedOver(nil, attach.Hello{Login: true}); err == nil {
		t.Errorf("of a login: %q", text)
	}
}

// A refresh token may be good for one time: after an answer that may have taken it, it is not sent in another way.
func TestRefreshIsNotTriedTwice(t *testing.T) {
	for name, answer := range map[string]func(int, http.ResponseWriter, *http.Request){
		"refused": answers(400, `{"error":"invalid_grant"}`), "out of order": answers(502, ""), "garbage": answers(200, "x"), "a redirect": answers(301, "", "Location: /"),
	} {
		p := newProvider(t, answer)
		s := set(p.URL)
		s.AuthStyle = oauth.Auto
		if _, f := refreshed(t, s, newDialer(), p.roots); f == nil || len(p.said()) != 1 {
			t.Errorf("%s: %+v after %q", name, f, p.said())
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for field, want := range map[string]time.Duration{
		"": 0, "x": 0, "-5": 0, "0": 0, "30": 30 * time.Second, "99999999999999999999": 0, "2147483647": maxAfter,
		"Sun, 01 Nov 2026 12:01:00 GMT": time.Minute, "Sun, 01 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(field, now); got != want {
			t.Errorf("%q: %s, want %s", field, got, want)
		}
	}
}

// TestHandedOver: what is no token set for its size, or is not one file, is not read.
func TestHandedOver(t *testing.T) {
	sealed := func(n int) *os.File {
		f, err := units.Sealed("tokens", make([]byte, n))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, files := range map[string][]*os.File{"nothing": nil, "too much": {sealed(attach.MaxTokens + 1)}, "two": {sealed(1), sealed(1)}} {
		if b, err := handedOver(files, attach.Hello{Login: true}); err == nil {
			t.Errorf("%s: %d bytes are read", name, len(b))
		}
	}
	all := []*os.File{sealed(attach.MaxTokens)}
	if b, err := handedOver(all, attach.Hello{Refresh: true}); err != nil || len(b) != attach.MaxTokens {
		t.Errorf("as much as there may be: %d bytes, %v", len(b), err)
	}
}

// TestRefreshSaysTheResource: without it some endpoints give a token for something else.
func TestRefreshSaysTheResource(t *testing.T) {
	var got []string
	p := newProvider(t, func(_ int, w http.ResponseWriter, q *http.Request) {
		got = append(got, q.PostForm.Get("resource")+" "+q.PostForm.Get("grant_type"))
		answers(200, `{"access_token":"AT-hunter2hunter2","expires_in":60}`)(1, w, q)
	})
	set := oauth.Set{
		AccessToken: "AT-hunter2", RefreshToken: "RT-hunter2", TokenURL: p.URL + "/token", ClientID: "id",
		Resource: "https://mcp.example/a?b=c&d",
	}
	e, err := newEndpoint(set, newDialer(), p.roots)
	if err != nil {
		t.Fatal(err)
	}
	if _, failed := e.refresh(t.Context(), t.Context()); failed != nil {
		t.Fatal(failed.words)
	}
	if !slices.Equal(got, []string{set.Resource + " refresh_token"}) {
		t.Errorf("it asks for %q", got)
	}
}
