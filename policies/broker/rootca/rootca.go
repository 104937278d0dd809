// Package rootca makes the certificate authority of a server's egress bridge from the vault's seed, and tells which
// public key a certificate has.
package rootca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/pfar/pfar/policies/broker"
)

// New returns the authority of a server.
func New(seed []byte, server string) (broker.Authority, error) {
	for try := range 8 { // one of 2^32 strings is no key
		scalar, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("authority %s %d", server, try), 32)
		if err != nil {
			return broker.Authority{}, fmt.Errorf("making an authority: %w", err)
		}
		if _, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar); err == nil {
			return broker.Authority{Server: server, Key: scalar}, nil
		}
	}
	return broker.Authority{}, errors.New("making an authority: the seed yields no key")
}

// An authority is good for any run of its server: from long before any clock may be set back to, to ever (RFC 5280
// section 4.1.2.5). It ends with the server's sandbox, the only place where it is trusted.
var (
	notBefore = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// Certificate returns an authority's own certificate, in PEM, and its key.
func Certificate(a broker.Authority) (text []byte, parsed *x509.Certificate, key *ecdsa.PrivateKey, err error) {
	key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), a.Key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("reading an authority's key: %w", err)
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pfar broker of " + a.Server},
		NotBefore: notBefore, NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("making an authority's certificate: %w", err)
	}
	parsed, err = x509.ParseCertificate(der)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), parsed, key, err
}

// PinOf returns the pin of a certificate.
func PinOf(c *x509.Certificate) broker.Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }
