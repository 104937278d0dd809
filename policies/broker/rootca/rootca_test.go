package rootca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/broker"
)

var seed = []byte("seed of the vault")

// TestAuthority has a certificate of a bridge that was started again verified by a server that knows the authority from
// before.
func TestAuthority(t *testing.T) {
	before, err := New(seed, "notion")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	var after broker.Authority
	if err := json.Unmarshal(b, &after); err != nil {
		t.Fatal(err)
	}
	trusted, _, _, err := Certificate(before)
	if err != nil {
		t.Fatal(err)
	}
	other, err := New(seed, "github")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted) {
		t.Fatalf("%s is no certificate", trusted)
	}
	for name, tt := range map[string]struct {
		a    broker.Authority
		host string
		want bool
	}{
		"another start": {after, "api.notion.com", true},
		"another host":  {after, "api.github.com", false},
		"another's":     {other, "api.notion.com", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, ca, key, err := Certificate(tt.a)
			if err != nil {
				t.Fatal(err)
			}
			leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
				SerialNumber: big.NewInt(2), DNSNames: []string{tt.host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			}, ca, &leafKey.PublicKey, key)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = leaf.Verify(x509.VerifyOptions{DNSName: "api.notion.com", Roots: roots}); (err == nil) != tt.want {
				t.Errorf("verified: %v, want %t", err, tt.want)
			}
		})
	}
	if _, _, _, err := Certificate(broker.Authority{}); err == nil {
		t.Error("the zero value signs")
	}
}
