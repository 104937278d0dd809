package broker

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
)

// Authority signs the certificates that one server's bridge shows to that server, and to nobody else. It is made from the
// vault's seed alone, so that a server which runs on trusts its bridge whatever was started again meanwhile.
type Authority struct {
	Server string `json:"server"`
	Key    []byte `json:"key"` // the private scalar of P-256, big endian (SEC 1)
}

// NewAuthority returns the authority of a server.
func NewAuthority(seed []byte, server string) (Authority, error) {
	for try := range 8 { // one of 2^32 strings is no key
		scalar, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("authority %s %d", server, try), 32)
		if err != nil {
			return Authority{}, fmt.Errorf("making an authority: %w", err)
		}
		if _, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar); err == nil {
			return Authority{server, scalar}, nil
		}
	}
	return Authority{}, errors.New("making an authority: the seed yields no key")
}

// An authority is good for any run of its server: from long before any clock may be set back to, to ever (RFC 5280 section
// 4.1.2.5). It ends with the server's sandbox, the only place where it is trusted.
var (
	notBefore = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// Certificate returns the authority's own certificate, in PEM, and its key.
func (a Authority) Certificate() (text []byte, parsed *x509.Certificate, key *ecdsa.PrivateKey, err error) {
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
