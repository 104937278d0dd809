// Package wire puts brokered secrets into requests in place of what stands for them, and takes them out of all that
// comes back.
package wire

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/redact"
)

// Refusal is why a request is not passed on. It quotes nothing of the request.
type Refusal struct {
	Reason string // one of the constants below
	Detail string // a sentence
}

func (r *Refusal) Error() string { return r.Reason }

// Reasons of a Refusal. They are stable: logs and audit records carry them.
const (
	WrongPlace = "placeholder-place" // a placeholder stands where its secret is not declared for, or in another form
	WrongHost  = "placeholder-host"  // its secret is not for this host
	Plain      = "placeholder-plain" // the request is not encrypted
)

// Source is what one server's bridge knows of its secrets. It knows none until Take, and may be used by many at once.
type Source struct{ now atomic.Pointer[set] }

// set is what is known at one time.
type set struct {
	secrets []broker.Secret
	former  []broker.Secret          // with values that were replaced, which responses under way may still hold
	stands  map[string][]placeholder // for each secret by its name; the latest first
	issuer  *issuer
	scrub   *patterns // every form of every value, and the same form of its placeholder
	any     *patterns // every form of every placeholder
	opened  egress.Policy

	mu   sync.Mutex
	made map[use]*patterns
}

// placeholder stands for a secret: for the value of now, or for a former one of another shape, which a server that runs
// on still has.
type placeholder struct {
	text  string
	forms []string // of it
}

// use says for what patterns are made: which secrets may go to a host, as one byte each, and which part is looked at.
type use struct {
	host  string
	place broker.Place
	kind  kind
}

// kind is how a value is written.
type kind int

const (
	verbatim kind = iota
	inJSON        // within a string (RFC 8259 section 7)
	inForm        // application/x-www-form-urlencoded, also of queries
)

// What is remembered of one secret.
const (
	maxFormer = 4  // values that were replaced: for responses under way
	maxStands = 16 // placeholders: for as long as a server runs
)

// Take has m used from now on. The former values go on being taken out of responses, and what stood for them stands for
// the value of now.
func (s *Source) Take(m broker.Material) error {
	next := &set{
		secrets: slices.Clone(m.Secrets), stands: map[string][]placeholder{}, made: map[use]*patterns{},
		opened: egress.Policy{Endpoints: m.Opened},
	}
	for _, secret := range m.Secrets {
		if len(secret.Value) < broker.MinSecret || len(secret.Placeholder) < broker.MinSecret {
			return fmt.Errorf("taking over the secret of %q: it, or what stands for it, is shorter than %d bytes", secret.Name, broker.MinSecret)
		}
		if slices.ContainsFunc(secret.Former, func(p string) bool { return len(p) < broker.MinSecret }) {
			return fmt.Errorf("taking over the secret of %q: what stood for it is shorter than %d bytes", secret.Name, broker.MinSecret)
		}
	}
	before := s.now.Load()
	if before != nil {
		next.former, next.stands = before.replaced(m.Secrets), maps.Clone(before.stands)
	}
	if before != nil && before.issuer.same(m.Authority) {
		next.issuer = before.issuer
	} else {
		var err error
		if next.issuer, err = newIssuer(m.Authority); err != nil {
			return err
		}
	}
	for _, secret := range m.Secrets {
		stands := next.stands[secret.Name]
		for _, former := range secret.Former {
			stands = standing(former, stands)
		}
		next.stands[secret.Name] = standing(secret.Placeholder, stands)
	}
	next.scrub, next.any = next.scrubbed(), next.mentioned()
	s.now.Store(next)
	return nil
}

// standing returns p before those that stood for a secret, without what is too much.
func standing(p string, before []placeholder) []placeholder {
	all := []placeholder{{p, redact.Forms(p)}}
	for _, old := range before {
		if old.text != p && len(all) < maxStands {
			all = append(all, old)
		}
	}
	return all
}

// forms are those of redact.Forms and what hosts alone make of a value: all of it in lower or upper case, which may be
// as good, and of ASCII what UTF-16 and UTF-32 have, in either order of bytes, as the zeros around it are left out.
func forms(value string) []string {
	characters := strings.Split(value, "")
	return append(redact.Forms(value), strings.ToLower(value), strings.ToUpper(value),
		strings.Join(characters, "\x00"), strings.Join(characters, "\x00\x00\x00"))
}

func (s *set) scrubbed() *patterns {
	var list []pattern
	for _, secret := range slices.Concat(s.secrets, s.former) {
		with := forms(secret.Placeholder)
		for i, f := range forms(secret.Value) {
			list = append(list, pattern{text: f, with: with[i]})
		}
	}
	return compile(list)
}

func (s *set) mentioned() *patterns {
	var list []pattern
	plain := &Refusal{Plain, "The request holds a placeholder, and is not encrypted. A brokered secret is only put into requests over TLS."}
	for _, secret := range s.secrets {
		for _, p := range s.stands[secret.Name] {
			for _, f := range p.forms {
				list = append(list, pattern{text: f, refuse: plain})
			}
		}
	}
	return compile(list)
}

// replaced returns what of s is not among secrets, and what was not before: the latest of each.
func (s *set) replaced(secrets []broker.Secret) []broker.Secret {
	all := slices.DeleteFunc(slices.Concat(s.former, s.secrets), func(old broker.Secret) bool {
		return slices.ContainsFunc(secrets, func(c broker.Secret) bool { return c.Value == old.Value })
	})
	left := map[string]int{}
	var latest []broker.Secret
	for _, old := range slices.Backward(all) {
		if left[old.Name]++; left[old.Name] <= maxFormer {
			latest = append(latest, old)
		}
	}
	slices.Reverse(latest)
	return latest
}

// For reports whether it is known what goes to a host and port that were decided on: a secret, or none and the
// connection is opened all the same.
func (s *Source) For(d egress.Decision, port uint16) bool {
	now := s.now.Load()
	return now != nil &&
		(strings.Contains(now.host(d, port), "1") || now.opened.Decide(d.Host, port).Verdict == egress.Allow)
}

// Mentioned returns a refusal if a text that goes out unencrypted holds a placeholder in any form.
func (s *Source) Mentioned(text []byte) *Refusal {
	now := s.now.Load()
	if now == nil {
		return nil
	}
	_, n, p := now.any.find(text)
	if n == 0 {
		return nil
	}
	return p.refuse
}

// Config returns what the bridge shows to the server as a host of that name or address.
func (s *Source) Config(host string) (*tls.Config, error) { return s.now.Load().issuer.config(host) }

// host says which of the secrets may go to a host and port.
func (s *set) host(d egress.Decision, port uint16) string {
	b := make([]byte, len(s.secrets))
	for i, secret := range s.secrets {
		b[i] = '0'
		for _, e := range secret.Hosts {
			p := egress.Policy{Endpoints: []egress.Endpoint{e}}
			if p.Decide(d.Host, port).Verdict == egress.Allow {
				b[i] = '1'
			}
		}
	}
	return string(b)
}

// patterns returns what is looked for in one part of a request: where a secret is declared its placeholder becomes the
// value, and all else that holds one is refused. The zero place is one for which nothing is declared.
func (s *set) patterns(u use) *patterns {
	if !s.declares(u) { // names of fields and parameters are the server's, and without number
		u = use{host: u.host}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.made[u]; p != nil {
		return p
	}
	var list []pattern
	for i, secret := range s.secrets {
		declared := slices.Contains(secret.Places, u.place)
		refusal := &Refusal{WrongPlace, fmt.Sprintf("The request holds the placeholder of %s where it is not declared to "+
			"be, or in another form than that of the variable. Its places can be declared.", secret.Name)}
		if u.host[i] != '1' {
			declared = false
			refusal = &Refusal{WrongHost, fmt.Sprintf("The request holds the placeholder of %s, which is not declared for this host.", secret.Name)}
		}
		for _, p := range s.stands[secret.Name] {
			if declared {
				list = append(list, pattern{text: p.text, with: written(secret.Value, u.kind)})
			}
			for _, f := range p.forms {
				list = append(list, pattern{text: f, refuse: refusal}) // of two alike, the first counts
			}
		}
	}
	p := compile(list)
	s.made[u] = p
	return p
}

func (s *set) declares(u use) bool {
	for i, secret := range s.secrets {
		if u.host[i] == '1' && slices.Contains(secret.Places, u.place) {
			return true
		}
	}
	return false
}

func written(value string, k kind) string {
	switch k {
	case inJSON:
		b, _ := json.Marshal(value) // a string cannot fail
		return string(b[1 : len(b)-1])
	case inForm:
		return url.QueryEscape(value)
	}
	return value
}
