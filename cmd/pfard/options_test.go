package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// certified writes a certificate and its key.
func certified(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"pfar.example.com"}}
	made, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", made), write("key.pem", "PRIVATE KEY", encoded)
}

// TestRemoteConsoleOptions: what the remote console lacks is told before anything runs, with what to write.
func TestRemoteConsoleOptions(t *testing.T) {
	certificate, key := certified(t)
	_, other := certified(t)
	for name, test := range map[string]struct {
		remoteConsole
		system bool
		uid    int
		want   string
	}{
		"with systemd":    {remoteConsole{"0.0.0.0:7443", certificate, key}, true, 1000, "pfar-console.socket"},
		"root":            {remoteConsole{"0.0.0.0:7443", certificate, key}, false, 0, "as another user"},
		"no address":      {remoteConsole{"", certificate, key}, false, 1000, "give all three"},
		"no certificate":  {remoteConsole{"0.0.0.0:7443", "", key}, false, 1000, "give all three"},
		"no key":          {remoteConsole{"0.0.0.0:7443", certificate, ""}, false, 1000, "give all three"},
		"a port":          {remoteConsole{"7443", certificate, key}, false, 1000, "such as 0.0.0.0:7443"},
		"a name":          {remoteConsole{"pfar.example.com:7443", certificate, key}, false, 1000, "such as 0.0.0.0:7443"},
		"any port":        {remoteConsole{"0.0.0.0:0", certificate, key}, false, 1000, "such as 7443"},
		"no such file":    {remoteConsole{"0.0.0.0:7443", "/nowhere", key}, false, 1000, "/nowhere"},
		"another's key":   {remoteConsole{"0.0.0.0:7443", certificate, other}, false, 1000, "--console-key"},
		"the wrong order": {remoteConsole{"0.0.0.0:7443", key, certificate}, false, 1000, "--console-cert"},
	} {
		if err := test.check(!test.system, test.uid); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	at := remoteConsole{"[::]:7443", certificate, key}
	if err := at.check(true, 1000); err != nil {
		t.Error(err)
	}
	want := []string{"--listen", "[::]:7443", "--certificate", certificate, "--key", key}
	if got := at.arguments(); !slices.Equal(got, want) {
		t.Errorf("the process gets %q, want %q", got, want)
	}
	if err := (remoteConsole{}).check(false, 0); err != nil {
		t.Errorf("without one: %v", err)
	}
}
