package clienthello

import (
	"crypto/tls"
	"errors"
	"net"
	"testing"
)

// TestStandardLibraryTakesMore: crypto/tls takes hellos that Read refuses since programs read them in different ways.
// Once it refuses them all, it can read for the bridge.
func TestStandardLibraryTakesMore(t *testing.T) {
	good := plain(names("api.example.com")).message()
	suiteless := plain(names("api.example.com"))
	suiteless.suites = ""
	for what, sent := range map[string]string{
		"a second hello in the record":  record(good + plain(names("evil.example")).message()),
		"a name and another type":       sni(v16(entry(0, "api.example.com") + entry(1, "evil.example"))),
		"a name with NUL":               sni(v16(entry(0, "api.example.com\x00.evil.example"))),
		"a name with a line feed":       sni(v16(entry(0, "api.example.com\nevil.example"))),
		"a hello of another version":    change(record(good), headerSize+messageHeader, 2),
		"a hello without cipher suites": string(suiteless.bytes()),
	} {
		if h, err := readAlike(t, []byte(sent), limit); err == nil {
			t.Errorf("%s: Read takes %+v", what, h)
		}
		if !standardTakes(t, sent) {
			t.Errorf("%s: crypto/tls refuses it, too", what)
		}
	}
	if !standardTakes(t, record(good)) || standardTakes(t, "GET / HTTP/1.1\r\n\r\n") {
		t.Error("crypto/tls is not asked")
	}
}

// standardTakes reports whether crypto/tls comes to what it read in a hello.
func standardTakes(t *testing.T, hello string) (took bool) {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		_, _ = client.Write([]byte(hello)) // fails once the server has read what it wanted
		_, _ = client.Read(make([]byte, 1))
		client.Close()
	}()
	defer server.Close()
	_ = tls.Server(server, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		took = true
		return nil, errors.New("that is all")
	}}).Handshake()
	return took
}
