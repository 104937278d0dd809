package generator

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"net/url"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/plan"
)

// proofs are what the host of a server has to show.
func (c *findings) proofs(s *declaration.Server, h Host) plan.Proofs {
	p := plan.Proofs{TLSPins: s.TLSPins, Insecure: s.Insecure}
	if s.CA == "" {
		return p
	}
	text, err := Authorities(s.CA, h)
	if err != nil {
		const end = "Write the path of a file with the certificates of authorities (-----BEGIN CERTIFICATE-----), " +
			"which root or pfar's own user has, and nobody else may write."
		c.lack([]string{s.CA, h.real(s.CA)}, "ca", "No authorities", "%s: %v. "+end, quote(s.CA), err)
		return p
	}
	if u, err := url.Parse(s.URL); err == nil {
		if e, err := egress.ParseEndpoint(u.Hostname()); err == nil {
			p.CA = map[string]string{e.Host: text}
		}
	}
	return p
}

// Trusted are the files that servers are verified by: another text of one changes plans.
func Trusted(list []declaration.Server, h Host) (paths []string) {
	for _, s := range list {
		if s.CA != "" {
			paths = append(paths, s.CA, h.real(s.CA))
		}
	}
	return paths
}

// Authorities reads the file that ca names.
func Authorities(ca string, h Host) (string, error) {
	if h.Ours == nil {
		return "", errors.New("pfar can judge no files here")
	}
	b, err := fs.ReadFile(h.Ours, hostfs.In(ca))
	if reason := new(fs.PathError); errors.As(err, &reason) {
		err = reason.Err
	}
	if err == nil {
		err = oauth.CheckCA(string(b))
	}
	if err == nil && !hasAuthority(b) {
		err = errors.New("none of its certificates is an authority's")
	}
	return string(b), err
}

// hasAuthority reports whether one of some certificates may sign others.
func hasAuthority(text []byte) bool {
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			return false
		}
		if c, err := x509.ParseCertificate(b.Bytes); err == nil && c.IsCA {
			return true
		}
	}
}
