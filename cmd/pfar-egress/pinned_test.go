package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/broker/rootca"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/monitor"
	"github.com/pfar/pfar/units/plan"
)

// leaf is the outside's own certificate.
func (u *upstreamHost) leaf(t testing.TB) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(u.certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// unpinnedWords is what is told of a host that has none of its keys.
func (u *upstreamHost) unpinnedWords(t testing.TB) string {
	return "its certificates have the keys " + rootca.PinOf(u.leaf(t)).String() + ", " + rootca.PinOf(u.authority).String()
}

var (
	wrongPin = broker.Pin{1, 2, 3}
	pinCases = map[string]struct {
		change func(o *opening)
		reason string // "": it is passed on
	}{
		"the host's own":     {func(o *opening) { o.pin(rootca.PinOf(o.upstream.leaf(o.t))) }, ""},
		"its authority's":    {func(o *opening) { o.pin(rootca.PinOf(o.upstream.authority)) }, ""},
		"the second of two":  {func(o *opening) { o.pin(wrongPin, rootca.PinOf(o.upstream.leaf(o.t))) }, ""},
		"another host's":     {func(o *opening) { o.proxy.pins = map[string][]broker.Pin{otherHost: {wrongPin}} }, ""},
		"wrong":              {func(o *opening) { o.pin(wrongPin) }, "tls-pin"},
		"two that are wrong": {func(o *opening) { o.pin(wrongPin, broker.Pin{}) }, "tls-pin"},
		"none":               {func(o *opening) { o.pin() }, "tls-pin"},
		"a key before the last": {func(o *opening) {
			o.pin(rootca.PinOf(o.upstream.leaf(o.t)))
			o.upstream.certify(o.t, nil)
		}, "tls-pin"},
		"of what is sent along": {func(o *opening) {
			stranger := &upstreamHost{}
			stranger.certify(o.t, nil)
			o.pin(rootca.PinOf(stranger.authority), rootca.PinOf(stranger.leaf(o.t)))
			o.upstream.certificate.Certificate = append(o.upstream.certificate.Certificate, stranger.certificate.Certificate[0], stranger.authority.Raw)
		}, "tls-pin"},
		"right, and not trusted": {func(o *opening) {
			o.pin(rootca.PinOf(o.upstream.leaf(o.t)), rootca.PinOf(o.upstream.authority))
			o.proxy.roots = x509.NewCertPool()
		}, "certificate"},
		"right, and another host's certificate": {func(o *opening) {
			o.upstream.certify(o.t, func(c *x509.Certificate) { c.DNSNames = []string{"evil.test"} })
			o.pin(rootca.PinOf(o.upstream.leaf(o.t)))
		}, "certificate"},
	}
)

func (o *opening) pin(pins ...broker.Pin) {
	o.proxy.pins = map[string][]broker.Pin{apiHost: pins}
}

// TestPinned: a host whose certificates the system trusts gets nothing unless one of them has a key that it is pinned
// to.
func TestPinned(t *testing.T) {
	for name, c := range pinCases {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, h2), func(t *testing.T) {
				o := newOpening(t, nil, func(o *opening) {
					o.upstream.h2 = h2
					c.change(o)
				})
				r := newRequest(t, "POST", "https://"+apiHost+"/?key="+o.token, strings.NewReader(o.token))
				r.Header.Set("Authorization", "Bearer "+o.token)
				resp, text := o.do(o.client(h2), r)
				seen, n := o.upstream.last()
				if c.reason == "" {
					if resp.StatusCode != 200 || n != 1 || seen.header.Get("Authorization") != "Bearer "+apiToken || (seen.proto == "HTTP/2.0") != h2 {
						t.Errorf("%s %s; the host gets %+v", resp.Status, text, seen)
					}
					return
				}
				if resp.Header.Get("X-Pfar-Reason") != c.reason || n != 0 {
					t.Errorf("%s %s; the host gets %d requests", resp.Status, text, n)
				}
				if c.reason == "tls-pin" {
					o.isToldAsPin(resp, text)
				}
				o.clean(text)
			})
		}
	}
}

// isToldAsPin wants a refusal to name the host and its keys to the server, in the log, in the unit's status, which is
// what the audit has, and to those who watch.
func (o *opening) isToldAsPin(resp *http.Response, text string) {
	o.t.Helper()
	leaf, authority := rootca.PinOf(o.upstream.leaf(o.t)).String(), rootca.PinOf(o.upstream.authority).String()
	if resp.StatusCode != 403 || !strings.HasPrefix(text, "pfar refuses "+apiHost+":443: tls-pin\n") || !strings.Contains(text, leaf+", "+authority) || !strings.Contains(text, "tls_pins in notion.hcl") {
		o.t.Errorf("the server is told %s %s", resp.Status, text)
	}
	words := o.upstream.unpinnedWords(o.t)
	if log := o.logged.String(); !strings.Contains(log, "verdict=deny reason=tls-pin") || !strings.Contains(log, "error=\""+words+"\"") {
		o.t.Errorf("the log says %s", log)
	}
	_, _, notices := o.seen()
	if !slices.Contains(notices, "refused "+apiHost+":443 (tls-pin): "+words) {
		o.t.Errorf("the status is %q", notices)
	}
	var shown bool
	for _, c := range past(o.t, o.table) {
		shown = shown || c.Host == apiHost+":443" && c.Reason == "tls-pin" && c.Detail == words && c.Verdict == "deny" && c.Brokered
	}
	if !shown {
		o.t.Errorf("watchers see %+v", past(o.t, o.table))
	}
}

// past is what those see who watch.
func past(t testing.TB, table *monitor.Table) (list []monitor.Connection) {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	go func() { _ = table.Serve(t.Context(), there) }()
	for d := json.NewDecoder(here); ; {
		var m monitor.Message
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m.Synced {
			return list
		}
		list = append(list, *m.Connection)
	}
}

// TestPinnedWebSocket: a handshake goes out over a connection of its own.
func TestPinnedWebSocket(t *testing.T) {
	for name, c := range pinCases {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 10)
			o := newOpening(t, echoSocket(got), c.change)
			conn := o.secure(apiHost+":443", "http/1.1")
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", apiHost, o.token)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			opened := resp.StatusCode == 101
			if opened != (c.reason == "") || resp.Header.Get("X-Pfar-Reason") != c.reason {
				t.Errorf("%s %v", resp.Status, resp.Header)
			}
			if _, n := o.upstream.last(); (n == 1) != opened {
				t.Errorf("the host gets %d requests", n)
			}
			if opened && <-got != "Bearer "+apiToken {
				t.Error("the host does not get the value")
			}
			o.clean()
		})
	}
}

// TestPinnedResumption: a session that is resumed, without certificates, is held to the pins as well.
func TestPinnedResumption(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		o := newOpening(t, nil, func(o *opening) { o.pin(rootca.PinOf(o.upstream.leaf(o.t))) })
		p := &proxy{roots: o.proxy.roots, pins: o.proxy.pins, opener: newOpener(defaultLimits)}
		config := (&opened{p: p, d: o.proxy.policy.Decide(apiHost, 443)}).tlsConfig()
		config.MaxVersion = version
		shake := func() (resumed bool, err error) {
			c, err := tls.Dial("tcp", o.origin, config)
			if err != nil {
				return false, err
			}
			defer c.Close()
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", apiHost)
			_, _ = http.ReadResponse(bufio.NewReader(c), nil) // the ticket of TLS 1.3 comes with it
			return c.ConnectionState().DidResume, nil
		}
		for i := range 2 {
			if resumed, err := shake(); err != nil || resumed != (i == 1) {
				t.Fatalf("connection %d is resumed: %t, %v", i, resumed, err)
			}
		}
		p.pins = map[string][]broker.Pin{apiHost: {wrongPin}}
		if _, err := shake(); err == nil || err.Error() != o.upstream.unpinnedWords(t) {
			t.Errorf("with another pin: %v", err)
		}
	}
}

// TestPinIsPrinted: the command of the manual prints the pin of a host's own certificate.
func TestPinIsPrinted(t *testing.T) {
	manual, err := os.ReadFile("../../packaging/man/pfar-declaration.5")
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(manual), "openssl s_client")
	command, _, found := strings.Cut(command, "\n.Ed")
	if !found {
		t.Fatal("the manual has no such command")
	}
	o := newOpening(t, nil, func(*opening) {})
	command = strings.NewReplacer(`\e`, `\`, "-connect HOST:443", "-connect "+o.origin, "-servername HOST", "-servername "+apiHost).Replace("openssl s_client" + command)
	if strings.Contains(command, "HOST") {
		t.Fatalf("%s names another host", command)
	}
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", command).Output()
	if want := rootca.PinOf(o.upstream.leaf(t)).String(); err != nil || "sha256/"+strings.TrimSpace(string(out)) != want {
		t.Errorf("%s\nprints %q, %v; want %s", command, out, err, want)
	}
}

// TestProven: connections to a host that is pinned, and that no secret is for, are opened, and held to its keys.
func TestProven(t *testing.T) {
	for name, c := range pinCases {
		t.Run(name, func(t *testing.T) {
			o := newOpening(t, nil, func(o *opening) {
				o.pin(rootca.PinOf(o.upstream.leaf(o.t)))
				c.change(o)
				o.material.Secrets, o.material.Opened = nil, []egress.Endpoint{{Host: apiHost, Port: 443}}
				o.proxy.secrets = newSecrets(plan.Plan{
					Egress: egress.Policy{Endpoints: []egress.Endpoint{{Host: apiHost, Port: 443}, {Host: otherHost}}},
					Proofs: plan.Proofs{TLSPins: map[string][]broker.Pin{apiHost: {wrongPin}}},
				})
				o.hand(o.material)
			})
			r := newRequest(t, "POST", "https://"+apiHost+"/", strings.NewReader("hello"))
			resp, text := o.do(o.client(true), r)
			seen, n := o.upstream.last()
			passed := resp.StatusCode == 200 && n == 1 && seen.body == "hello"
			if reason := resp.Header.Get("X-Pfar-Reason"); reason != c.reason || passed != (c.reason == "") {
				t.Errorf("%s %s; the host gets %d requests, %+v", resp.Status, text, n, seen)
			}
		})
	}
}

// TestOwnAuthority: the file that the owner names for a host takes the place of the system's authorities, for that host
// and for no other.
func TestOwnAuthority(t *testing.T) {
	text := func(c *x509.Certificate) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	for name, c := range map[string]struct {
		change func(o *opening)
		reason string
	}{
		"its own, and not the system's": {func(o *opening) {
			o.proxy.roots, o.proxy.trusted = x509.NewCertPool(), map[string]string{apiHost: text(o.upstream.authority)}
		}, ""},
		"the system's, and not its own": {func(o *opening) {
			stranger := &upstreamHost{}
			stranger.certify(o.t, nil)
			o.proxy.trusted = map[string]string{apiHost: text(stranger.authority)}
		}, "certificate"},
		"another host's": {func(o *opening) {
			o.proxy.roots, o.proxy.trusted = x509.NewCertPool(), map[string]string{otherHost: text(o.upstream.authority)}
		}, "certificate"},
		"of no text": {func(o *opening) { o.proxy.trusted = map[string]string{apiHost: ""} }, "certificate"},
		"its own, and another key": {func(o *opening) {
			o.proxy.roots, o.proxy.trusted = x509.NewCertPool(), map[string]string{apiHost: text(o.upstream.authority)}
			o.pin(wrongPin)
		}, "tls-pin"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOpening(t, nil, c.change)
			r := newRequest(t, "GET", "https://"+apiHost+"/", nil)
			r.Header.Set("Authorization", "Bearer "+o.token)
			resp, _ := o.do(o.client(true), r)
			_, n := o.upstream.last()
			if resp.Header.Get("X-Pfar-Reason") != c.reason || (n == 1) != (c.reason == "") {
				t.Errorf("%s, %q; the host gets %d requests", resp.Status, resp.Header.Get("X-Pfar-Reason"), n)
			}
		})
	}
}

// TestProvenWaits: while pfard has handed nothing over, nothing goes to a host that is to show its key.
func TestProvenWaits(t *testing.T) {
	o := newOpening(t, nil, func(o *opening) {
		o.material.Secrets = nil
		o.proxy.secrets = newSecrets(plan.Plan{
			Egress: egress.Policy{Endpoints: []egress.Endpoint{{Host: apiHost, Port: 443}}},
			Proofs: plan.Proofs{TLSPins: map[string][]broker.Pin{apiHost: {wrongPin}}},
		})
		o.proxy.secrets.wait = time.Millisecond
	})
	_, err := o.client(true).Do(newRequest(t, "GET", "https://"+apiHost+"/", nil))
	if _, n := o.upstream.last(); err == nil || n != 0 || !strings.Contains(err.Error(), "Service Unavailable") {
		t.Errorf("%v; the host gets %d requests", err, n)
	}
}
