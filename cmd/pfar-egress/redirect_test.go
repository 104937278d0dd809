package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-egress/clienthello"
	"github.com/pfar/pfar/policies/egress"
)

// Addresses in a namespace whose policy has the names in the order of insideEntries.
const (
	apiAddress  = "198.18.1.1" // api.allowed.test, ports 443 and 80
	dbAddress   = "198.18.1.2" // db.allowed.test, port 5432 only
	api6Address = "2001:2::c612:101"
)

var insideEntries = []string{"api.allowed.test", "db.allowed.test:5432", "*.wild.allowed.test", "192.0.2.0/24:7000", "127.0.0.1:11434", "198.51.100.7", "[2001:db8::1]:7000"}

// insideWorld is a world in whose namespace the test connects; everything allowed leads to an origin that echoes.
func insideWorld(t *testing.T, change func(*world)) (*world, *namespace) {
	t.Helper()
	w := newWorld(t, func(w *world) {
		for _, name := range []string{"api.allowed.test.", "db.allowed.test.", "a.wild.allowed.test."} {
			w.answers[name] = addrs(public)
		}
		if change != nil {
			change(w)
		}
	}, insideEntries...)
	if w.origin == "" {
		w.serveOrigin(echo)
	}
	return w, w.inside()
}

// What the ruleset does not send to the bridge fails in the program's own connect(2) or send(2), and at once.
func TestKernelRejects(t *testing.T) {
	w, n := insideWorld(t, nil)
	for _, c := range []struct{ network, address, says, told string }{
		{"tcp", "8.8.8.8:53", "refused", "8.8.8.8:53 (not-declared)"},
		{"tcp", "8.8.8.8:443", "refused", "8.8.8.8:443 (not-declared)"},
		{"tcp", "93.184.216.34:443", "refused", "93.184.216.34:443 (not-declared)"}, // the allowed host's own
		{"tcp", "169.254.169.254:80", "refused", "169.254.169.254:80 (not-declared)"},
		{"tcp", "10.0.0.1:22", "refused", "10.0.0.1:22 (not-declared)"},
		{"tcp", "192.168.1.1:80", "refused", "192.168.1.1:80 (not-declared)"},
		{"tcp", "192.0.2.7:7001", "refused", "192.0.2.7:7001 (not-declared)"}, // declared, on another port
		{"tcp", "192.0.3.1:7000", "refused", "192.0.3.1:7000 (not-declared)"}, // beside the declared range
		{"tcp", "198.51.100.7:22", "refused", "198.51.100.7:22 (not-declared)"},
		{"tcp", "198.17.255.255:443", "refused", "198.17.255.255:443 (not-declared)"}, // beside the synthetic range
		{"tcp", "198.20.0.0:443", "refused", "198.20.0.0:443 (not-declared)"},
		{"tcp", "[2606:4700::1]:443", "refused", "[2606:4700::1]:443 (not-declared)"},
		{"tcp", "[2001:db8::1]:443", "refused", "[2001:db8::1]:443 (not-declared)"},
		{"tcp", "[::ffff:8.8.8.8]:53", "refused", "8.8.8.8:53 (not-declared)"},
		{"tcp", "[fd00:ec2::254]:80", "refused", "[fd00:ec2::254]:80 (not-declared)"},
		{"tcp", "[2001:2:1::1]:443", "refused", "[2001:2:1::1]:443 (not-declared)"}, // beside the synthetic range
		{"tcp", "127.0.0.1:1", "refused", ""},                                       // its own loopback is its own affair
		{"tcp", "[::1]:53", "refused", ""},
		{"udp", "8.8.8.8:53", "operation not permitted", "8.8.8.8:53 (protocol-udp)"},
		{"udp", apiAddress + ":443", "operation not permitted", "api.allowed.test:443 (protocol-udp)"}, // QUIC
		{"udp", "[2606:4700::1]:443", "operation not permitted", "[2606:4700::1]:443 (protocol-udp)"},
		{"udp", "192.0.2.7:7000", "operation not permitted", "192.0.2.7:7000 (protocol-udp)"},
		{"udp", "224.0.0.251:5353", "operation not permitted", "224.0.0.251:5353 (protocol-udp)"},
	} {
		conn, err := n.dial(c.network, c.address)
		if err == nil && c.network == "udp" {
			_, err = conn.Write([]byte("x"))
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v, want %q", c.network, c.address, err, c.says)
		}
		if c.told != "" {
			w.awaitNotice("refused " + c.told)
		}
	}
	if lookups, dials, _ := w.seen(); len(lookups) > 0 || len(dials) > 0 {
		t.Errorf("looked up %q, dialled %v", lookups, dials)
	}
}

// awaitNotice waits for a status that the runner was told of.
func (w *world) awaitNotice(want string) {
	w.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		_, _, notices := w.seen()
		for _, n := range notices {
			if n == want {
				return
			}
		}
		if time.Now().After(deadline) {
			w.t.Errorf("no notice %q among %q", want, notices)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// What the ruleset sends to the bridge and the bridge refuses is reset; on port 80 it is told in HTTP.
func TestRedirectRefuses(t *testing.T) {
	w, n := insideWorld(t, nil)
	secure := func(c *tls.Config) string { return string(helloOf(t, c)) }
	named := func(name string) string { return secure(&tls.Config{ServerName: name}) }
	get := func(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	for _, c := range []struct{ address, sends, told, status string }{
		{apiAddress + ":22", "", "api.allowed.test:22 (port-not-declared)", ""},
		{apiAddress + ":8443", named("api.allowed.test"), "api.allowed.test:8443 (port-not-declared)", ""},
		{dbAddress + ":443", named("db.allowed.test"), "db.allowed.test:443 (port-not-declared)", ""},
		{dbAddress + ":80", get("db.allowed.test"), "db.allowed.test:80 (port-not-declared)", "403"},
		{dbAddress + ":5433", "", "db.allowed.test:5433 (port-not-declared)", ""},
		{"198.18.0.1:443", "", "198.18.0.1:443 (unknown-address)", ""},
		{"198.18.1.99:443", named("api.allowed.test"), "198.18.1.99:443 (unknown-address)", ""},
		{"198.19.255.254:80", get("api.allowed.test"), "198.19.255.254:80 (unknown-address)", "403"},
		{"[2001:2::1]:443", "", "[2001:2::1]:443 (unknown-address)", ""},
		{"[2001:2::ffff:ffff]:443", "", "[2001:2::ffff:ffff]:443 (unknown-address)", ""},
		{"[" + api6Address + "]:22", "", "api.allowed.test:22 (port-not-declared)", ""},
		{"127.0.0.1:9877", "", "127.0.0.1:9877 (not-redirected)", ""}, // a loop to itself
		{"[::1]:9877", "", "[::1]:9877 (not-redirected)", ""},

		{apiAddress + ":443", named("evil.test"), "api.allowed.test:443 (sni-contradicts)", ""},
		{apiAddress + ":443", named("db.allowed.test"), "api.allowed.test:443 (sni-contradicts)", ""}, // declared, but not this one
		{apiAddress + ":443", named("api.allowed.test.evil.test"), "api.allowed.test:443 (sni-contradicts)", ""},
		{apiAddress + ":443", secure(&tls.Config{InsecureSkipVerify: true}), "api.allowed.test:443 (sni-missing)", ""},
		{apiAddress + ":443", named("api.allowed.test")[:40] + "\x00\x00", "", ""}, // and then silence: closed by the test
		{apiAddress + ":443", get("api.allowed.test"), "api.allowed.test:443 (not-tls)", ""},
		{apiAddress + ":443", "SSH-2.0-x\r\n", "api.allowed.test:443 (not-tls)", ""},
		{apiAddress + ":443", "\x05\x01\x00", "api.allowed.test:443 (not-tls)", ""},
		{apiAddress + ":443", "\x15\x03\x01\x00\x02\x01\x00", "api.allowed.test:443 (not-tls)", ""},
		{apiAddress + ":443", "\x16\x03\x01\x40\x00\x01\x00\xff\xff", "api.allowed.test:443 (hello-too-large)", ""},
		{apiAddress + ":443", "\x16\x03\x01\xff\xff", "api.allowed.test:443 (hello-malformed)", ""},
		{apiAddress + ":443", "\x16\x03\x01\x00\x04\x02\x00\x00\x00", "", ""},
		{"[" + api6Address + "]:443", named("evil.test"), "api.allowed.test:443 (sni-contradicts)", ""},
		{"198.51.100.7:443", named("evil.test"), "198.51.100.7:443 (sni-contradicts)", ""},

		{apiAddress + ":80", get("evil.test"), "api.allowed.test:80 (host-contradicts)", "403"},
		{apiAddress + ":80", get("db.allowed.test"), "api.allowed.test:80 (host-contradicts)", "403"},
		{apiAddress + ":80", get("api.allowed.test:443"), "api.allowed.test:80 (host-contradicts)", "403"},
		{apiAddress + ":80", "GET / HTTP/1.1\r\nHost: api.allowed.test\r\nHost: evil.test\r\n\r\n", "api.allowed.test:80 (bad-request)", "400"},
		{apiAddress + ":80", "GET http://evil.test/ HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n", "", "4"},
		{apiAddress + ":80", "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "api.allowed.test:80 (method-not-allowed)", "501"},
		{apiAddress + ":80", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "api.allowed.test:80 (bad-version)", "505"},
		{apiAddress + ":80", named("api.allowed.test"), "api.allowed.test:80 (bad-request)", "400"},
		{apiAddress + ":80", "GET / HTTP/1.1\r\n\r\n", "api.allowed.test:80 (bad-request)", "400"},
		{"[" + api6Address + "]:80", get("evil.test"), "api.allowed.test:80 (host-contradicts)", "403"},
	} {
		b, err := n.say(c.address, c.sends, c.told == "" && c.status == "")
		what := fmt.Sprintf("%s %.60q", c.address, c.sends)
		if c.status != "" {
			if status, _ := outcome(string(b)); !strings.HasPrefix(status, c.status) || err != nil {
				t.Errorf("%s: %q, %v; want %s", what, b, err, c.status)
			}
		} else if len(b) > 0 || c.told != "" && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %q, %v; want a reset", what, b, err)
		}
		if c.told != "" {
			w.awaitNotice("refused " + c.told)
		}
	}
	if _, _, _, sent := w.originSaw(); sent != "" {
		t.Errorf("the origin saw %q", sent)
	}
}

// say connects, sends, and returns what comes back. The reset of a refusal may come at any moment from connect(2) on.
func (n *namespace) say(address, text string, end bool) ([]byte, error) {
	n.t.Helper()
	c, err := n.dial("tcp", address)
	if err != nil {
		if strings.Contains(err.Error(), syscall.ECONNRESET.Error()) {
			err = syscall.ECONNRESET
		}
		return nil, err
	}
	conn := c.(*net.TCPConn)
	_, werr := io.WriteString(conn, text)
	if end {
		_ = conn.CloseWrite()
	}
	b, err := io.ReadAll(conn)
	if err == nil && (errors.Is(werr, syscall.ECONNRESET) || errors.Is(werr, syscall.EPIPE)) {
		err = syscall.ECONNRESET // told to the write(2) already
	}
	return b, err
}

// originSaw is what reached the outside.
func (w *world) originSaw() (lookups []string, dials []netip.AddrPort, notices []string, bytes string) {
	lookups, dials, notices = w.seen()
	for line := range strings.Lines(w.logged.String()) {
		if strings.Contains(line, "verdict=deny") && strings.Contains(line, "sent=") && !strings.Contains(line, "sent=0 ") {
			bytes += line
		}
	}
	return lookups, dials, notices, bytes
}

// helloOf is the first that a TLS client sends.
func helloOf(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, c).Handshake()
		theirs.Close()
	}()
	b := make([]byte, 16<<10)
	n, err := ours.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

func TestRedirectAllows(t *testing.T) {
	w, n := insideWorld(t, nil)
	hello := string(helloOf(t, &tls.Config{ServerName: "API.Allowed.Test"}))
	plain := string(helloOf(t, &tls.Config{InsecureSkipVerify: true}))
	for _, c := range []struct {
		address, sends string
		dials          string
	}{
		{apiAddress + ":443", hello, public + ":443"},
		{"[" + api6Address + "]:443", hello + "\x17\x03\x03\x00\x01x", public + ":443"},
		{dbAddress + ":5432", "\x00\x00\x00\x08\x04\xd2\x16\x2f", public + ":5432"},
		{"192.0.2.7:7000", "anything", "192.0.2.7:7000"},
		{"[2001:db8::1]:7000", "anything", "[2001:db8::1]:7000"},
		{"127.0.0.1:11434", "of the host, as declared", "127.0.0.1:11434"},
		{"198.51.100.7:443", plain, "198.51.100.7:443"},
	} {
		conn := n.open(c.address)
		if _, err := io.WriteString(conn, c.sends); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(conn)
		if err != nil || string(b) != c.sends {
			t.Errorf("%s: %q, %v", c.address, b, err)
		}
		_, dials, _ := w.seen()
		if last := dials[len(dials)-1]; last != netip.MustParseAddrPort(c.dials) {
			t.Errorf("%s: dialled %v, want %s", c.address, last, c.dials)
		}
	}
	if _, _, notices := w.seen(); len(notices) > 0 {
		t.Errorf("notices: %q", notices)
	}
}

// What a hello says decides, and an encrypted name says nothing, whatever stands beside it.
func TestHelloIsChecked(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test", "other.allowed.test", "192.0.2.7")
	named := func(name string) clienthello.Hello { return clienthello.Hello{ServerName: name, HasServerName: true} }
	encrypted := named("api.allowed.test")
	encrypted.ECH = true
	for _, c := range []struct {
		host   string
		hello  clienthello.Hello
		reason string
	}{
		{"api.allowed.test", clienthello.Hello{}, "sni-missing"},
		{"api.allowed.test", encrypted, "sni-encrypted"},
		{"api.allowed.test", clienthello.Hello{ECH: true}, "sni-encrypted"},
		{"api.allowed.test", named("other.allowed.test"), "sni-contradicts"},
		{"api.allowed.test", named("evil.test"), "sni-contradicts"},
		{"api.allowed.test", named("192.0.2.7"), "sni-contradicts"},
		{"api.allowed.test", named("api.allowed.test\x00"), "sni-contradicts"},
		{"api.allowed.test", named("API.Allowed.Test"), ""},
		{"192.0.2.7", named("evil.test"), "sni-contradicts"},
		{"192.0.2.7", clienthello.Hello{ECH: true}, "sni-encrypted"},
		{"192.0.2.7", clienthello.Hello{}, ""}, // clients do not name addresses
		{"192.0.2.7", named("api.allowed.test"), ""},
	} {
		err := w.proxy.checkHello(c.hello, w.proxy.policy.Decide(c.host, 443))
		if got := reasonOf(err); got != c.reason && !(c.reason == "" && err == nil) {
			t.Errorf("%s, %+v: %v, want %q", c.host, c.hello, err, c.reason)
		}
	}
}

// A hello in pieces of any size is one hello, and nothing reaches the host before its name is known.
func TestHelloInPieces(t *testing.T) {
	w, n := insideWorld(t, nil)
	for name, good := range map[string]bool{"api.allowed.test": true, "evil.test": false} {
		hello := helloOf(t, &tls.Config{ServerName: name})
		conn := n.open(apiAddress + ":443")
		if err := conn.SetNoDelay(true); err != nil {
			t.Fatal(err)
		}
		for i := range hello {
			if _, err := conn.Write(hello[i : i+1]); err != nil {
				break // refused before its end
			}
			if i%64 == 0 {
				time.Sleep(time.Millisecond) // so that the pieces are segments
			}
		}
		_ = conn.CloseWrite()
		b, err := io.ReadAll(conn)
		if good && (err != nil || string(b) != string(hello)) || !good && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	if _, _, _, sent := w.originSaw(); sent != "" {
		t.Errorf("the origin saw %q", sent)
	}
}

func TestHelloTimeout(t *testing.T) {
	w, n := insideWorld(t, func(w *world) { w.proxy.limits.headTime = 200 * time.Millisecond })
	conn := n.open(apiAddress + ":443")
	if _, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("silence: %v", err)
	}
	w.awaitNotice("refused api.allowed.test:443 (hello-timeout)")
}

// A host that cannot be reached is an error that the program sees, not a wait.
func TestRedirectToAnUnreachableHost(t *testing.T) {
	w, n := insideWorld(t, func(w *world) { w.refuses[netip.MustParseAddr(public)] = syscall.ECONNREFUSED })
	for _, address := range []string{apiAddress + ":443", dbAddress + ":5432"} {
		if _, err := n.say(address, "", false); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", address, err)
		}
	}
	conn := n.open(apiAddress + ":80")
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n")
	b, _ := io.ReadAll(conn)
	if status, reason := outcome(string(b)); status != "502" || reason != "not-reached" {
		t.Errorf("port 80: %q", b)
	}
	w.awaitNotice("failed db.allowed.test:5432 (not-reached)")
}

// The whole way of a program that knows nothing of pfar: ask the resolver, connect to what it says.
func TestNamesLeadToTheBridge(t *testing.T) {
	w, n := insideWorld(t, nil)
	for name, want := range map[string]string{"api.allowed.test": apiAddress, "db.allowed.test": dbAddress, "a.wild.allowed.test": "198.19.0.1"} {
		if got := n.lookup(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	conn := n.open("198.19.0.1:443")
	hello := helloOf(t, &tls.Config{ServerName: "a.wild.allowed.test"})
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(hello))
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != string(hello) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for _, name := range []string{"evil.test", "wild.allowed.test", "b.a.wild.allowed.test", "c2vjcmv0.evil.test"} {
		if got := n.lookup(name); got != "NXDOMAIN" {
			t.Errorf("%s is %s", name, got)
		}
		w.awaitNotice("refused " + name + " (" + egress.NameNotDeclared + ")")
	}
	lookups, _, _ := w.seen()
	if slices.Sort(lookups); !slices.Equal(lookups, []string{"a.wild.allowed.test.", "api.allowed.test.", "db.allowed.test."}) {
		t.Errorf("looked up %q", lookups)
	}
}

// A tunnel, inspected like a redirected connection.
func TestTunnelIsInspected(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test", "other.allowed.test")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	for _, c := range []struct{ port, sends, reason, status string }{
		{"443", string(helloOf(t, &tls.Config{ServerName: "other.allowed.test"})), "sni-contradicts", ""},
		{"443", string(helloOf(t, &tls.Config{ServerName: "evil.test"})), "sni-contradicts", ""},
		{"443", string(helloOf(t, &tls.Config{InsecureSkipVerify: true})), "sni-missing", ""},
		{"443", "GET / HTTP/1.1\r\nHost: api.allowed.test\r\n\r\n", "not-tls", ""},
		{"80", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "host-contradicts", "403"},
		{"80", "GET / HTTP/1.1\r\nHost: other.allowed.test\r\n\r\n", "host-contradicts", "403"},
		{"80", string(helloOf(t, &tls.Config{ServerName: "api.allowed.test"})), "bad-request", "400"},
	} {
		conn := w.tunnelTo("api.allowed.test:" + c.port)
		if _, err := io.WriteString(conn, c.sends); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(conn)
		status, reason := outcome(string(b))
		if c.status != "" && (status != c.status || reason != c.reason) || c.status == "" && (len(b) > 0 || !errors.Is(err, syscall.ECONNRESET)) {
			t.Errorf("%s %.40q: %q, %v", c.port, c.sends, b, err)
		}
		w.awaitNotice("refused api.allowed.test:" + c.port + " (" + c.reason + ")")
	}
	if _, _, _, sent := w.originSaw(); sent != "" {
		t.Errorf("the origin saw %q", sent)
	}
	hello := helloOf(t, &tls.Config{ServerName: "api.allowed.test"})
	conn := w.tunnelTo("api.allowed.test:443")
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(hello))
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != string(hello) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
