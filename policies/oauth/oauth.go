// Package oauth decides over OAuth 2.0 token sets (RFC 6749): what one must have, when it is to be refreshed, and what
// a refresh may change.
package oauth

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

// Set is a token set. It holds secrets: only the vault, pfard and the process that refreshes it may have it. A server
// gets the access token at most.
type Set struct {
	AccessToken  string    `json:"access_token"`
	RefreshToken string    `json:"refresh_token"` // "": never refreshed; TokenURL and ClientID may be empty
	TokenType    string    `json:"token_type,omitempty"`
	Expiry       time.Time `json:"expiry,omitzero"`   // of the access token; zero: not known, and it is never refreshed
	Obtained     time.Time `json:"obtained,omitzero"` // when the access token was stored
	TokenURL     string    `json:"token_url"`
	ClientID     string    `json:"client_id"`
	ClientSecret string    `json:"client_secret,omitempty"` // "": a public client
	AuthStyle    Style     `json:"auth_style,omitempty"`
	Scopes       []string  `json:"scopes,omitempty"`        // as granted; empty: not known. A refresh asks for the same
	AllowPrivate []string  `json:"allow_private,omitempty"` // private addresses and prefixes of TokenURL's host
	CA           string    `json:"ca,omitempty"`            // certificates in PEM, in place of the system's
	Resource     string    `json:"resource,omitempty"`      // that the token is for (RFC 8707); "": the provider's choice
	Origin       *Origin   `json:"origin,omitempty"`        // nil: the owner has written the endpoints
}

// Origin describes the provider that a remote server has named and a person has confirmed. The next login has to find
// the same provider.
type Origin struct {
	Server        string `json:"server"` // URL
	Issuer        string `json:"issuer"`
	Authorization string `json:"authorization,omitempty"` // endpoints, beside the set's token endpoint
	Device        string `json:"device,omitempty"`
	Registered    bool   `json:"registered,omitempty"` // the client's id is from a registration (RFC 7591)
	Port          uint16 `json:"port,omitempty"`       // of the redirect address that was registered
}

// Style is how a client authenticates at the token endpoint (RFC 6749 section 2.3.1).
type Style string

const (
	Auto     Style = ""       // InHeader first, then InParams. The set keeps what worked.
	InHeader Style = "header" // client_secret_basic
	InParams Style = "params" // client_secret_post; of a public client its id alone
)

const (
	maxToken   = 16 << 10 // bytes of one token or of the client's secret
	maxName    = 1 << 10  // bytes of anything else
	maxList    = 64       // scopes, and private prefixes
	maxCA      = 32 << 10 // bytes of certificates
	tlsPort    = 443
	unlimited  = 10 * 365 * 24 * time.Hour // no token lives longer
	soonest    = 5 * time.Minute           // a token is refreshed this long before its end
	fraction   = 5                         // or this part of its life, if that is longer
	jitterPart = 10                        // part of that time by which jitter may extend it
	leastLife  = 2 * soonest               // least life of a token, if the endpoint does not say it
	slack      = time.Minute               // tolerated if the clock was set back
)

// Host returns the host of the token endpoint, and a policy that lets a process connect only there.
func (s Set) Host() (host string, port uint16, policy egress.Policy, err error) {
	return hostOf("token_url", "a token endpoint", s.TokenURL, s.AllowPrivate)
}

// KeyError is what is wrong with the value of one setting. Its text begins with the setting's name.
type KeyError struct {
	Key string
	err error
}

func (e KeyError) Error() string { return e.Key + e.err.Error() }
func (e KeyError) Unwrap() error { return e.err }

func about(key, format string, args ...any) error { return KeyError{key, fmt.Errorf(format, args...)} }

// hostOf returns the host and port of an endpoint, and a policy that lets a process connect only there. Its errors name
// key, the setting that has the address.
func hostOf(key, what, address string, private []string) (host string, port uint16, policy egress.Policy, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return "", 0, egress.Policy{}, about(key, ` is not an address of %s: write "https://HOST/PATH"`, what)
	}
	port = tlsPort
	if p := u.Port(); p != "" {
		n, ok := egress.ParsePort(p)
		if !ok {
			return "", 0, egress.Policy{}, about(key, ": its port is invalid")
		}
		port = n
	}
	name := u.Hostname()
	if ip := u.Host; ip[0] == '[' {
		name = "[" + name + "]"
	}
	e, err := egress.ParseEndpoint(name + ":" + strconv.Itoa(int(port)))
	if err != nil || e.Wildcard || e.Host == "" && !e.Prefix.IsSingleIP() {
		return "", 0, egress.Policy{}, about(key, ": its host is neither a host name nor an IP address")
	}
	policy.Endpoints = []egress.Endpoint{e}
	if host = e.Host; host == "" {
		return e.Prefix.Addr().String(), port, policy, nil
	}
	if len(private) > 0 {
		own := egress.Private{Host: host}
		for _, text := range private {
			p, err := egress.ParsePrivate(text)
			if err != nil {
				return "", 0, egress.Policy{}, about("allow_private", ": %w", err)
			}
			own.Prefixes = append(own.Prefixes, p)
		}
		policy.Private = []egress.Private{own}
	}
	return host, port, policy, nil
}

// check returns what is wrong with a set. Its errors quote only values of AllowPrivate, which are no secrets.
func (s Set) check() error {
	refreshed := s.RefreshToken != ""
	for _, m := range []struct {
		name, value string
		limit       int
		needed      bool
	}{
		{"access_token", s.AccessToken, maxToken, true}, {"refresh_token", s.RefreshToken, maxToken, false},
		{"token_url", s.TokenURL, maxName, refreshed}, {"client_id", s.ClientID, maxName, refreshed},
		{"client_secret", s.ClientSecret, maxToken, false}, {"token_type", s.TokenType, maxName, false},
	} {
		switch {
		case m.value == "" && m.needed:
			return about(m.name, " is missing")
		case len(m.value) > m.limit:
			return about(m.name, " exceeds %d bytes", m.limit)
		case !printable(m.value):
			return about(m.name, " has characters that are not printable ASCII (RFC 6749 appendix A)")
		}
	}
	if !slices.Contains([]Style{Auto, InHeader, InParams}, s.AuthStyle) {
		return about("auth_style", ` must be "header", "params" or "auto"`)
	}
	if s.AuthStyle == InHeader && s.ClientSecret == "" {
		return about("auth_style", ` is "header", and client_secret is missing: a public client has "params"`)
	}
	if err := CheckCA(s.CA); err != nil {
		return err
	}
	if len(s.Scopes) > maxList || len(s.AllowPrivate) > maxList {
		return about("scopes", " or allow_private have more than %d entries", maxList)
	}
	for _, scope := range s.Scopes {
		if scope == "" || len(scope) > maxName || !printable(scope) || s.within(scope) {
			return about("scopes", " has an entry that is not a scope")
		}
	}
	if s.Resource != "" && !isIdentifier(s.Resource) {
		return about("resource", ` is not a URL: write "https://HOST/PATH"`)
	}
	if o := s.Origin; o != nil && (!isIdentifier(o.Server) || !isIdentifier(o.Issuer)) {
		return about("origin", " names no server, or no issuer")
	}
	if !s.Expiry.IsZero() && (s.Expiry.Year() < 1970 || s.Expiry.Sub(s.Obtained) > unlimited && !s.Obtained.IsZero()) {
		return about("expiry", " is not a time at which a token may end")
	}
	if !refreshed && s.TokenURL == "" {
		return nil
	}
	_, _, _, err := s.Host()
	return err
}

// CheckCA wants certificates, or nothing.
func CheckCA(text string) error {
	if len(text) > maxCA {
		return about("ca", " exceeds %d bytes", maxCA)
	}
	for rest := []byte(text); len(bytes.TrimSpace(rest)) > 0; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil || b.Type != "CERTIFICATE" {
			return about("ca", " contains data that is not a certificate in PEM")
		}
		if _, err := x509.ParseCertificate(b.Bytes); err != nil {
			return about("ca", " holds a certificate that cannot be read")
		}
	}
	return nil
}

// printable reports whether s has only VSCHAR (RFC 6749 appendix A). A header cannot carry other characters.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// within reports whether a text contains one of the secrets. It ignores short secrets, which a text may contain by
// chance.
func (s Set) within(text string) bool {
	return slices.ContainsFunc(s.Secrets(), func(secret string) bool { return len(secret) >= minToken && strings.Contains(text, secret) })
}

// Lacking returns the required scopes that no list has. Each list is what one set was granted. Lacking compares scopes
// exactly (RFC 6749 section 3.3). It splits granted scopes at commas and spaces: some providers write commas.
func Lacking(required []string, granted ...[]string) (lacking []string) {
	has := map[string]bool{}
	for _, list := range granted {
		for _, entry := range list {
			has[entry] = true
			for _, scope := range strings.FieldsFunc(entry, func(r rune) bool { return r == ',' || r == ' ' }) {
				has[scope] = true
			}
		}
	}
	for _, scope := range required {
		if !has[scope] {
			lacking = append(lacking, scope)
		}
	}
	return lacking
}

// Secrets returns the secret values in the set.
func (s Set) Secrets() []string {
	list := []string{s.AccessToken, s.RefreshToken, s.ClientSecret}
	return slices.DeleteFunc(list, func(secret string) bool { return secret == "" })
}

// Expired reports whether the access token has ended at a time.
func (s Set) Expired(now time.Time) bool { return !s.Expiry.IsZero() && !now.Before(s.Expiry) }

// RefreshAt returns when to refresh the set; zero: never. That is a fifth of its life or five minutes before its end,
// whichever is earlier, but not in the first half of its life: otherwise the next set would be due at once. Jitter,
// from 0 to 1, makes it a little earlier, so that many sets are not due at the same time. If the clock was ahead when
// the set was obtained, the expiry says nothing, and the set is due now.
func (s Set) RefreshAt(now time.Time, jitter float64) time.Time {
	switch {
	case s.Expiry.IsZero(), s.RefreshToken == "":
		return time.Time{}
	case s.Obtained.After(now.Add(slack)):
		return now
	}
	margin := soonest
	if life := s.Expiry.Sub(s.Obtained); !s.Obtained.IsZero() && life > 0 && life < unlimited {
		margin = min(max(life/fraction, soonest), life/2)
	}
	early := time.Duration(jitter * float64(margin/jitterPart))
	return s.Expiry.Add(-margin - early)
}

// Answer is the result of a refresh. The endpoint, and the process that asked it, change nothing else in a set.
type Answer struct {
	AccessToken  string   `json:"access_token"`
	RefreshToken string   `json:"refresh_token,omitempty"` // "": the one before stays
	TokenType    string   `json:"token_type,omitempty"`
	ExpiresIn    int64    `json:"expires_in,omitempty"` // seconds from when it was asked for; 0: it does not say
	AuthStyle    Style    `json:"auth_style,omitempty"` // that worked
	Scopes       []string `json:"scopes,omitempty"`     // if it says so; empty: those before (RFC 6749 section 5.1)
}

// minToken is the length of the shortest token that pfar accepts from an endpoint, in bytes.
const minToken = 16

// checkAccess and checkRefresh return what is wrong with the tokens. pfar removes tokens from all output of servers. So
// an endpoint must not choose a token that is a common text, or one that removes the quotation marks from JSON.
func (a Answer) checkAccess() error {
	if len(a.AccessToken) < minToken {
		return fmt.Errorf("access_token has fewer than %d bytes", minToken)
	}
	if !bearer.MatchString(a.AccessToken) {
		return errors.New("access_token has characters that no bearer token has (RFC 6750 section 2.1)")
	}
	return nil
}

func (a Answer) checkRefresh() error {
	if a.RefreshToken != "" && len(a.RefreshToken) < minToken {
		return fmt.Errorf("refresh_token has fewer than %d bytes", minToken)
	}
	if strings.ContainsAny(a.RefreshToken, `"\`) {
		return errors.New("refresh_token has a quotation mark or a backslash (RFC 6749 appendix A)")
	}
	return nil
}

// bearer is b64token.
var bearer = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// Refreshed returns the set after a refresh that began at a time. With an error it returns the set as it was, except
// that it takes a valid refresh token of the answer: the one before may no longer work.
func (s Set) Refreshed(a Answer, asked time.Time) (Set, error) {
	if err := a.checkRefresh(); err != nil {
		return s, err
	}
	rotated := s
	rotated.RefreshToken = cmp.Or(a.RefreshToken, s.RefreshToken)
	if err := rotated.check(); err != nil {
		return s, err
	}
	if err := a.checkAccess(); err != nil {
		return rotated, err
	}
	next := rotated
	next.AccessToken, next.TokenType, next.Obtained, next.Expiry = a.AccessToken, a.TokenType, asked.UTC().Truncate(time.Second), time.Time{}
	if s.AuthStyle == Auto {
		next.AuthStyle = a.AuthStyle
	}
	if len(a.Scopes) > 0 {
		next.Scopes = a.Scopes
	}
	if life := s.lifeAfter(a); life > 0 {
		next.Expiry = next.Obtained.Add(life)
	}
	if err := next.check(); err != nil {
		return rotated, err
	}
	return next, nil
}

// lifeAfter returns the life of the access token in an answer; 0: not known. If the endpoint does not say it (RFC 6749
// section 5.1), the life is that of the token before, although its owner may have stored that one late.
func (s Set) lifeAfter(a Answer) time.Duration {
	switch {
	case a.ExpiresIn > 0:
		return time.Duration(min(a.ExpiresIn, int64(unlimited/time.Second))) * time.Second
	case s.Expiry.IsZero():
		return 0
	case s.Obtained.IsZero():
		return leastLife
	}
	return max(s.Expiry.Sub(s.Obtained), leastLife)
}

// Unrefreshed returns why a set is never refreshed, and the remedy; "": it is refreshed.
func (s Set) Unrefreshed() string {
	if s.RefreshToken == "" {
		return "it has no refresh_token: when its access token ends, obtain another one and store it"
	}
	if s.Expiry.IsZero() {
		return "it does not say when its access token ends: store it with expiry or expires_in"
	}
	return ""
}
