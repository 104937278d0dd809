package main

import (
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/broker/rootca"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

const (
	apiHost    = "api.allowed.test"
	otherHost  = "other.allowed.test"
	apiToken   = "ntn_A1b2C3d4E5f6G7h8I9j0K1l2"
	otherToken = "sk-zY9xW8vU7tS6rQ5pO4nM3lK2jJ1"
)

// opening is a world in which two hosts have a secret each, and a third has none.
type opening struct {
	*world
	material     broker.Material
	token, other string // what stands for them
	trusted      *x509.CertPool
	upstream     *upstreamHost
}

// upstreamHost is the outside: it answers for every host, and notes what reaches it.
type upstreamHost struct {
	authority   *x509.Certificate
	key         *ecdsa.PrivateKey
	certificate tls.Certificate
	h2          bool
	handler     http.HandlerFunc
	zipped      atomic.Bool // it compresses what it answers

	mu       sync.Mutex
	seen     []seenRequest
	complete int // requests that came whole
}

type seenRequest struct {
	host, proto, method, target, body string
	header, trailer                   http.Header
}

func newOpening(t testing.TB, handler http.HandlerFunc, change func(*opening)) *opening {
	t.Helper()
	o := &opening{upstream: &upstreamHost{h2: true, handler: handler}, trusted: x509.NewCertPool()}
	o.upstream.certify(t, nil)
	o.material = brokeredMaterial(t)
	o.token, o.other = o.material.Secrets[0].Placeholder, o.material.Secrets[1].Placeholder
	text, _, _, err := rootca.Certificate(o.material.Authority)
	if err != nil {
		t.Fatal(err)
	}
	o.trusted.AppendCertsFromPEM(text)
	o.world = newWorld(t, func(w *world) {
		o.world = w
		o.proxy.limits.continueTime = time.Hour // so that whoever is not told to go on does not
		w.proxy.roots = x509.NewCertPool()
		w.proxy.roots.AddCert(o.upstream.authority)
		w.proxy.secrets = newSecrets(plan.Plan{Credentials: []plan.Credential{
			{Deliver: broker.OnWire, Hosts: slices.Concat(o.material.Secrets[0].Hosts, o.material.Secrets[1].Hosts)},
			{Deliver: broker.InFile},
		}})
		w.proxy.secrets.wait = 100 * time.Millisecond
		w.answers[apiHost+"."], w.answers[otherHost+"."], w.answers["plain.allowed.test."] = addrs(public), addrs(public), addrs(public)
		if change != nil {
			change(o)
		}
		if o.material.Secrets != nil {
			o.hand(o.material)
		}
		w.proxy.opener = newOpener(w.proxy.limits)
	}, apiHost, otherHost, "plain.allowed.test", apiHost+":8443")
	o.upstream.serve(o.world)
	return o
}

func brokeredMaterial(t testing.TB) broker.Material {
	t.Helper()
	m := broker.Material{}
	var err error
	if m.Authority, err = rootca.New([]byte("seed"), "notion"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []broker.Secret{
		{Name: "TOKEN", Value: apiToken, Hosts: []egress.Endpoint{{Host: apiHost}, {Host: apiHost, Port: 8443}}, Places: []broker.Place{{Part: broker.Header, Name: "authorization"}, {Part: broker.Query, Name: "key"}, {Part: broker.Body}}},
		{Name: "OTHER", Value: otherToken, Hosts: []egress.Endpoint{{Host: otherHost}}, Places: broker.Standard()},
	} {
		if s.Placeholder, err = broker.Placeholder([]byte("seed"), s.Name, s.Value); err != nil {
			t.Fatal(err)
		}
		m.Secrets = append(m.Secrets, s)
	}
	return m
}

// hand does what pfard does.
func (o *opening) hand(m broker.Material) {
	o.t.Helper()
	if err := o.proxy.secrets.take(materialFile(o.t, m)); err != nil {
		o.t.Fatal(err)
	}
}

func materialFile(t testing.TB, m broker.Material) *os.File {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	f, err := units.Sealed("material", b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// certify makes the outside's authority, if there is none, and its certificate; change makes that a bad one.
func (u *upstreamHost) certify(t testing.TB, change func(*x509.Certificate)) {
	t.Helper()
	sign := func(c, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	var keys [2]*ecdsa.PrivateKey
	var err error
	for i := range keys {
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	if u.authority == nil {
		u.authority = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the internet's"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
		u.key = keys[0]
		if u.authority, err = x509.ParseCertificate(sign(u.authority, u.authority, u.key, u.key)); err != nil {
			t.Fatal(err)
		}
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"*.allowed.test"}}
	if change != nil {
		change(c)
	}
	u.certificate = tls.Certificate{Certificate: [][]byte{sign(c, u.authority, keys[1], u.key)}, PrivateKey: keys[1]}
}

func (u *upstreamHost) serve(w *world) {
	l := listen(w.t)
	w.origin = l.Addr().String()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(u.h2)
	config := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &u.certificate, nil }}
	server := &http.Server{Handler: http.HandlerFunc(u.note), TLSConfig: config, Protocols: protocols, ErrorLog: log.New(io.Discard, "", 0)}
	go server.ServeTLS(l, "", "")
	w.t.Cleanup(func() { server.Close() })
}

func (u *upstreamHost) note(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.seen = append(u.seen, seenRequest{host: r.Host, proto: r.Proto, method: r.Method, target: r.RequestURI, header: r.Header.Clone()})
	mine := len(u.seen) - 1
	u.mu.Unlock()
	if u.handler != nil {
		u.handler(w, r)
		return
	}
	b, err := io.ReadAll(r.Body)
	u.mu.Lock()
	if mine < len(u.seen) {
		u.seen[mine].body, u.seen[mine].trailer = string(b), r.Trailer
	}
	if err == nil {
		u.complete++
	}
	u.mu.Unlock()
	if err != nil {
		return
	}
	var to io.Writer = w
	if u.zipped.Load() {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		to = z
	}
	fmt.Fprintf(to, "%s %s %s\n%v\n%s", r.Method, r.Host, r.RequestURI, r.Header, b)
}

// last is the last request that reached the outside, and how many did.
func (u *upstreamHost) last() (seenRequest, int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.seen) == 0 {
		return seenRequest{}, 0
	}
	return u.seen[len(u.seen)-1], len(u.seen)
}

// whole says how many requests came whole.
func (u *upstreamHost) whole() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.complete
}

// client is a program inside that knows of the proxy, and trusts what its system does.
func (o *opening) client(h2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	tr := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: o.addr}), TLSClientConfig: &tls.Config{RootCAs: o.trusted}, Protocols: protocols,
		ExpectContinueTimeout: time.Hour,
	}
	o.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 2 * time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// secure opens a tunnel and TLS in it. Protocols are those of ALPN.
func (o *opening) secure(target string, protocols ...string) *tls.Conn {
	o.t.Helper()
	host, _, _ := net.SplitHostPort(target)
	c := tls.Client(o.tunnelTo(target), &tls.Config{RootCAs: o.trusted, ServerName: host, NextProtos: protocols})
	if err := c.Handshake(); err != nil {
		o.t.Fatal(err)
	}
	return c
}

func (o *opening) do(client *http.Client, r *http.Request) (*http.Response, string) {
	o.t.Helper()
	resp, err := client.Do(r)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return resp, string(b)
}

func newRequest(t testing.TB, method, target string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// clean fails if the log, the records or a text hold a value or what stands for one.
func (o *opening) clean(texts ...string) {
	o.t.Helper()
	for _, value := range []string{apiToken, otherToken} {
		for _, f := range redact.Forms(value) {
			for _, text := range append(texts, o.logged.String()) {
				if strings.Contains(text, f) {
					o.t.Errorf("a value is in %q", text)
				}
			}
		}
	}
	for _, p := range []string{o.token, o.other} {
		if strings.Contains(o.logged.String(), p) {
			o.t.Errorf("a placeholder is in the log: %s", o.logged)
		}
	}
}

func TestOpenedRequest(t *testing.T) {
	for _, inside := range []bool{false, true} {
		for _, outside := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP/2 inside %v, outside %v", inside, outside), func(t *testing.T) {
				o := newOpening(t, nil, func(o *opening) { o.upstream.h2 = outside })
				client := o.client(inside)
				for range 3 {
					r := newRequest(t, "POST", "https://"+apiHost+"/v1/x%2fy?key="+o.token+"&b=;%zz", strings.NewReader(`{"t":"`+o.token+`"}`))
					r.Header = http.Header{"Authorization": {"Bearer " + o.token}, "X-Other": {"kept"}, "X-Forwarded-For": {"1.2.3.4"}, "User-Agent": {"agent"}, "Content-Type": {"application/json"}, "Accept-Encoding": {"gzip, br"}, "Range": {"bytes=1-2"}}
					resp, text := o.do(client, r)
					if resp.StatusCode != 200 || (resp.ProtoMajor == 2) != inside {
						t.Fatalf("%s %s: %s", resp.Proto, resp.Status, text)
					}
					seen, _ := o.upstream.last()
					if seen.host != apiHost || seen.method != "POST" || seen.target != "/v1/x%2fy?key="+apiToken+"&b=;%zz" || seen.body != `{"t":"`+apiToken+`"}` || (seen.proto == "HTTP/2.0") != outside {
						t.Errorf("it is sent %+v", seen)
					}
					for name, want := range map[string]string{"Authorization": "Bearer " + apiToken, "X-Other": "kept", "User-Agent": "agent", "Content-Length": fmt.Sprint(len(seen.body)), "X-Forwarded-For": "", "Range": "", "Via": "", "Accept-Encoding": "gzip"} {
						if got := seen.header.Get(name); got != want {
							t.Errorf("%s is %q, want %q", name, got, want)
						}
					}
					if !strings.Contains(text, "key="+o.token) || !strings.Contains(text, `"t":"`+o.token) || !strings.Contains(text, "Bearer "+o.token) {
						t.Errorf("it comes back as %q", text)
					}
					o.clean(text)
				}
				if _, dials, _ := o.seen(); len(dials) != 1 {
					t.Errorf("%d connections are made for three requests", len(dials))
				}
				client.CloseIdleConnections()
				eventually(t, "the record", func() bool { return strings.Contains(o.logged.String(), "brokered=true") })
				if !strings.Contains(o.logged.String(), "verdict=allow") || !strings.Contains(o.logged.String(), "host="+apiHost+":443") {
					t.Errorf("the log says %s", o.logged)
				}
			})
		}
	}
}
