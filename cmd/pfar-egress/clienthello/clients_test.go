package clienthello

import (
	"context"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"flag"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

const (
	clientName = "api.example.com"
	wait       = 30 * time.Second // longer than a loaded machine takes
)

var update = flag.Bool("update", false, "rewrite the golden files")

// helloOf returns what a client of crypto/tls sends first, as Read finds it at the other end of a pipe.
func helloOf(t *testing.T, config *tls.Config) (Hello, []byte) {
	t.Helper()
	here, there := net.Pipe()
	var client sync.WaitGroup
	client.Go(func() {
		_ = tls.Client(there, config).Handshake() // the other end hangs up
	})
	defer client.Wait()
	defer there.Close()
	defer here.Close()
	h, raw, err := Read(here, limit)
	if err != nil {
		t.Fatalf("%v (%s)", err, detail(err))
	}
	return h, raw
}

func TestReadGoClients(t *testing.T) {
	for _, c := range []struct {
		what   string
		config *tls.Config
		want   Hello
	}{
		{"default", &tls.Config{}, Hello{ServerName: clientName, HasServerName: true}},
		{"1.2 alone", &tls.Config{MaxVersion: tls.VersionTLS12}, Hello{ServerName: clientName, HasServerName: true}},
		{"1.0 alone", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, Hello{ServerName: clientName, HasServerName: true}},
		{"1.3 alone", &tls.Config{MinVersion: tls.VersionTLS13}, Hello{ServerName: clientName, HasServerName: true}},
		{"ALPN", &tls.Config{NextProtos: []string{"h2", "http/1.1"}}, Hello{ServerName: clientName, HasServerName: true}},
		{"P-256 alone", &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP256}}, Hello{ServerName: clientName, HasServerName: true}},
		{"upper case", &tls.Config{ServerName: "API.Example.COM"}, Hello{ServerName: "API.Example.COM", HasServerName: true}},
		{"trailing dot", &tls.Config{ServerName: clientName + "."}, Hello{ServerName: clientName, HasServerName: true}}, // the client drops it
		{"IPv4 address", &tls.Config{ServerName: "192.0.2.7"}, Hello{}},
		{"IPv6 address", &tls.Config{ServerName: "2001:db8::1"}, Hello{}},
		{"ECH", &tls.Config{EncryptedClientHelloConfigList: echConfigs(t, "public.example")}, Hello{ServerName: "public.example", HasServerName: true, ECH: true}},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.config.ServerName == "" {
				c.config.ServerName = clientName
			}
			c.config.InsecureSkipVerify = true
			h, raw := helloOf(t, c.config)
			if h != c.want {
				t.Errorf("%+v, want %+v", h, c.want)
			}
			if !agree(t, h, raw) {
				t.Error("crypto/tls's server refuses the hello of its client")
			}
			if again, err := readAlike(t, raw, limit); again != h || err != nil {
				t.Errorf("%+v, %v the second time", again, err)
			}
			if again, err := readAlike(t, cut(string(raw[headerSize:]), 7), limit); again != h || err != nil {
				t.Errorf("%+v, %v in records of seven bytes", again, err)
			}
		})
	}
}

// echConfigs is an ECHConfigList (RFC 9849 section 4) with one key, for a public name.
func echConfigs(t *testing.T, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const x25519, sha256, aes128 = 0x20, 1, 1 // of HPKE, RFC 9180 section 7
	contents := "\x01" + u16(x25519) + v16(string(key.PublicKey().Bytes())) + v16(u16(sha256)+u16(aes128)) +
		"\x40" + v8(public) + v16("")
	return []byte(v16(u16(0xfe0d) + v16(contents)))
}

// TestReadResumption reads the hellos of clients that come back, with a session ticket in 1.2 and a pre-shared key in
// 1.3.
func TestReadResumption(t *testing.T) {
	for what, most := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(what, func(t *testing.T) {
			cache := tls.NewLRUClientSessionCache(1)
			client := &tls.Config{ServerName: clientName, InsecureSkipVerify: true, ClientSessionCache: cache, MaxVersion: most}
			_, first := helloOf(t, client)
			handshake(t, client, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
			if s, ok := cache.Get(clientName); !ok || s == nil {
				t.Fatal("the client has no session to resume")
			}
			h, raw := helloOf(t, client)
			if h != (Hello{ServerName: clientName, HasServerName: true}) {
				t.Errorf("%+v", h)
			}
			if len(raw) <= len(first) {
				t.Errorf("%d bytes with a session, %d without: nothing is resumed", len(raw), len(first))
			}
			if !agree(t, h, raw) {
				t.Error("crypto/tls's server refuses the hello of its client")
			}
		})
	}
}

// handshake connects a client with a server and lets the server say something, behind which its tickets have come. It
// takes TCP: on a net.Pipe, the server's tickets and the client's last message would wait for each other.
func handshake(t *testing.T, client, server *tls.Config) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var answer sync.WaitGroup
	answer.Go(func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Error(err)
		}
	})
	defer answer.Wait()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: wait}, "tcp", l.Addr().String(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // Read alone may return the byte and the end at once
		t.Error(err)
	}
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: clientName}, DNSNames: []string{clientName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

var openSSLHellos = []struct {
	args string
	want Hello
}{
	{"-servername " + clientName, Hello{ServerName: clientName, HasServerName: true}},
	{"-servername API.Example.COM -alpn h2,http/1.1 -status", Hello{ServerName: "API.Example.COM", HasServerName: true}},
	{"-servername " + clientName + " -tls1_2", Hello{ServerName: clientName, HasServerName: true}},
	{"-servername " + clientName + " -tls1_3", Hello{ServerName: clientName, HasServerName: true}},
	{"-noservername", Hello{}},
}

// TestReadOpenSSL reads what openssl s_client has sent once, and what the one that is installed here sends.
func TestReadOpenSSL(t *testing.T) {
	const golden = "testdata/openssl.txtar" // hello's bytes in base64, by the arguments of s_client
	recorded, err := txtar.ParseFile(golden)
	if err != nil && !*update {
		t.Fatal(err)
	}
	if *update {
		recorded = &txtar.Archive{Comment: []byte("What openssl s_client sends first, in base64; each file is named by its arguments.\n")}
		for _, c := range openSSLHellos {
			_, raw := openSSL(t, c.args)
			recorded.Files = append(recorded.Files, txtar.File{Name: c.args, Data: []byte(base64.StdEncoding.EncodeToString(raw) + "\n")})
		}
		if err := os.WriteFile(golden, txtar.Format(recorded), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(recorded.Files) != len(openSSLHellos) {
		t.Fatalf("%d hellos in %s, want %d", len(recorded.Files), golden, len(openSSLHellos))
	}
	_, missing := exec.LookPath("openssl")
	for i, c := range openSSLHellos {
		t.Run(c.args, func(t *testing.T) {
			raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(recorded.Files[i].Data)))
			if err != nil || recorded.Files[i].Name != c.args {
				t.Fatalf("%s: %v", recorded.Files[i].Name, err)
			}
			h, err := readAlike(t, raw, limit)
			if err != nil || h != c.want || !agree(t, h, raw) {
				t.Errorf("recorded: %+v, %v, want %+v, and that crypto/tls's server accepts it", h, err, c.want)
			}
			if missing != nil {
				t.Logf("only the recorded hello: %v", missing)
				return
			}
			if h, raw := openSSL(t, c.args); h != c.want || !agree(t, h, raw) {
				t.Errorf("%+v, want %+v, and that crypto/tls's server accepts it", h, c.want)
			}
		})
	}
}

func openSSL(t *testing.T, args string) (Hello, []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, stop := context.WithTimeout(t.Context(), wait)
	cmd := exec.CommandContext(ctx, "openssl", append([]string{"s_client", "-connect", l.Addr().String()}, strings.Fields(args)...)...)
	if err := cmd.Start(); err != nil {
		stop()
		t.Fatal(err)
	}
	defer func() {
		stop()
		_ = cmd.Wait() // it has been killed, or was hung up on
	}()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	h, raw, err := Read(c, limit)
	if err != nil {
		t.Fatalf("%v (%s)", err, detail(err))
	}
	return h, raw
}
