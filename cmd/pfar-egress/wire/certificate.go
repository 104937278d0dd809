package wire

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/broker/rootca"
)

const (
	validFor = 24 * time.Hour // of a certificate
	ahead    = 12 * time.Hour // before its end
	skew     = time.Hour      // that a clock inside may be behind
	maxHosts = 64             // whose certificates are kept: below a wildcard the server makes names up
)

// issuer makes certificates by the authority that the server trusts. Their one key never leaves this process.
type issuer struct {
	authority broker.Authority
	parent    *x509.Certificate
	sign, key *ecdsa.PrivateKey

	mu      sync.Mutex
	configs map[string]*issued
}

type issued struct {
	config *tls.Config
	until  time.Time
}

func newIssuer(a broker.Authority) (*issuer, error) {
	_, parent, sign, err := rootca.Certificate(a)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return &issuer{authority: a, parent: parent, sign: sign, key: key, configs: map[string]*issued{}}, nil
}

func (i *issuer) same(a broker.Authority) bool {
	return i.authority.Server == a.Server && bytes.Equal(i.authority.Key, a.Key)
}

// config returns a host's side of TLS. Each host has its own, so that none of its sessions is good for another.
func (i *issuer) config(host string) (*tls.Config, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if c := i.configs[host]; c != nil && now.Before(c.until.Add(-ahead)) {
		return c.config, nil
	}
	der, err := i.certificate(host, now)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	if len(i.configs) >= maxHosts {
		clear(i.configs)
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: i.key}},
	}
	i.configs[host] = &issued{c, now.Add(validFor)}
	return c, nil
}

func (i *issuer) certificate(host string, now time.Time) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, NotBefore: now.Add(-skew), NotAfter: now.Add(validFor),
		Subject:  pkix.Name{Organization: []string{"pfar"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		t.IPAddresses = []net.IP{ip}
	} else {
		t.DNSNames = []string{host}
	}
	return x509.CreateCertificate(rand.Reader, t, i.parent, &i.key.PublicKey, i.sign)
}
