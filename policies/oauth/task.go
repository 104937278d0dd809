package oauth

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

// Way is how a person grants a token.
type Way string

const (
	ByDevice Way = "device" // a code that the person types in on any device (RFC 8628)
	ByCode   Way = "code"   // a browser on this machine, which comes back with a code (RFC 8252)
)

// Task is what a process needs to obtain a token set. It holds the client's secret: only pfard and that process may
// have it.
type Task struct {
	Way          Way      `json:"way"`
	Endpoint     string   `json:"endpoint"` // of device authorization, or of authorization
	TokenURL     string   `json:"token_url"`
	ClientID     string   `json:"client_id"`
	ClientSecret string   `json:"client_secret,omitempty"` // "": a public client
	AuthStyle    Style    `json:"auth_style,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`
	Resource     string   `json:"resource,omitempty"` // that the token is for (RFC 8707); "": the provider's choice
	Issuer       string   `json:"issuer,omitempty"`   // of RFC 9207; "": not known
	Unnamed      bool     `json:"unnamed,omitempty"`  // an answer without iss may be of Issuer
	Port         uint16   `json:"port,omitempty"`     // of 127.0.0.1 for the browser, if it is free; 0: any
	Origin       *Origin  `json:"origin,omitempty"`   // where all this was found; nil: the owner has written it
	CA           string   `json:"ca,omitempty"`
	AllowPrivate []string `json:"allow_private,omitempty"`
}

// LoginTime is how long a person may take for a login.
const LoginTime = 10 * time.Minute

// style is how the client authenticates. It replaces Auto, which would try a code twice: a code works only once.
func (t Task) style() Style {
	switch {
	case t.AuthStyle != Auto:
		return t.AuthStyle
	case t.ClientSecret == "":
		return InParams
	}
	return InHeader
}

// base returns the set that a login makes, without its tokens. An endpoint that names no scopes grants those that were
// requested (RFC 6749 section 5.1).
func (t Task) base() Set {
	return Set{
		TokenURL: t.TokenURL, ClientID: t.ClientID, ClientSecret: t.ClientSecret, AuthStyle: t.style(),
		Scopes: t.Scopes, AllowPrivate: t.AllowPrivate, CA: t.CA, Resource: t.Resource, Origin: t.Origin,
	}
}

// Obtained returns the set of an answer to a request made at a time. The endpoint, and the process that asked it,
// choose only the tokens, their expiry and their scopes.
func (t Task) Obtained(a Answer, asked time.Time) (Set, error) {
	s := t.base()
	s.AccessToken, s.RefreshToken = a.AccessToken, a.RefreshToken
	if err := a.checkAccess(); err != nil {
		return Set{}, err
	}
	next, err := s.Refreshed(a, asked)
	if err != nil {
		return Set{}, err
	}
	return next, nil
}

// Check returns what is wrong with a task. No error quotes a value.
func (t Task) Check() error {
	s := t.base()
	s.AccessToken, s.RefreshToken = "-", "-" // there is none yet
	if err := s.check(); err != nil {
		return err
	}
	if _, err := t.Policy(); err != nil {
		return err
	}
	if t.Issuer != "" && !isIdentifier(t.Issuer) {
		return about("issuer", ` is not a URL: write "https://HOST/PATH"`)
	}
	return nil
}

// isIdentifier reports whether a text is an absolute URL without a fragment (RFC 8707 section 2, RFC 8414 section 2).
func isIdentifier(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.IsAbs() && u.Host != "" && u.User == nil && !strings.Contains(text, "#") && isLine(text,
		maxName)
}

// Policy returns a policy that lets a process connect only to the hosts of the login. The authorization endpoint is not
// among them: the browser connects there.
func (t Task) Policy() (egress.Policy, error) {
	_, _, policy, err := t.base().Host()
	if err != nil {
		return egress.Policy{}, err
	}
	switch t.Way {
	case ByDevice:
		_, _, more, err := t.DeviceHost()
		if err != nil {
			return egress.Policy{}, err
		}
		policy.Endpoints, policy.Private = append(policy.Endpoints, more.Endpoints...), append(policy.Private,
			more.Private...)
	case ByCode:
		if _, _, _, err := hostOf("url", "an authorization endpoint", t.Endpoint, t.AllowPrivate); err != nil {
			return egress.Policy{}, err
		}
	default:
		return egress.Policy{}, fmt.Errorf("no such way to log in: %q", t.Way)
	}
	return policy, nil
}

// TokenHost returns the host of the token endpoint, and a policy that lets a process connect only there.
func (t Task) TokenHost() (host string, port uint16, policy egress.Policy, err error) {
	return t.base().Host()
}

// DeviceHost is TokenHost for the device authorization endpoint.
func (t Task) DeviceHost() (host string, port uint16, policy egress.Policy, err error) {
	return hostOf("url", "a device authorization endpoint", t.Endpoint, t.AllowPrivate)
}

// Encode writes a task for DecodeTask.
func (t Task) Encode() ([]byte, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	return json.Marshal(t)
}

// DecodeTask reads what Encode wrote.
func DecodeTask(text []byte) (Task, error) {
	var t Task
	if json.Unmarshal(text, &t) != nil {
		return Task{}, errors.New("the text is not a login task")
	}
	return t, t.Check()
}

// Form returns the body of a request to an endpoint, with the client's authentication. If that goes into a header,
// basic has the user and password, already encoded (RFC 6749 section 2.3.1); nil: there is no such header.
func (t Task) Form(values map[string]string) (body url.Values, basic *[2]string) {
	body = url.Values{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] != "" {
			body.Set(name, values[name])
		}
	}
	if t.Resource != "" {
		body.Set("resource", t.Resource)
	}
	if t.style() == InHeader {
		return body, &[2]string{url.QueryEscape(t.ClientID), url.QueryEscape(t.ClientSecret)}
	}
	body.Set("client_id", t.ClientID)
	if t.ClientSecret != "" {
		body.Set("client_secret", t.ClientSecret)
	}
	return body, nil
}

// Authorization returns the URL that a person opens in a browser. It keeps the endpoint's own query (RFC 6749 section
// 3.1), except parameters of the protocol.
func (t Task) Authorization(redirect, state, challenge string) (string, error) {
	u, err := url.Parse(t.Endpoint)
	if err != nil {
		return "", errors.New("url cannot be read")
	}
	q := u.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": t.ClientID, "redirect_uri": redirect, "scope": strings.Join(t.Scopes, " "),
		"state": state, "code_challenge": challenge, "code_challenge_method": "S256", "resource": t.Resource,
	} {
		if q.Del(name); value != "" {
			q.Set(name, value)
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// Leads reports whether an address is that of the authorization endpoint, whatever its query.
func (t Task) Leads(address string) bool {
	u, err := url.Parse(address)
	at, failed := url.Parse(t.Endpoint)
	return err == nil && failed == nil && IsPage(address) && u.Host == at.Host && u.EscapedPath() == at.EscapedPath()
}

// Shows reports whether pfar may lead a person to a page to enter a code. If a server has named the provider, the page
// has to be at a host that the person has confirmed: a hostile provider could have the person approve the code of
// another provider.
func (t Task) Shows(page string) bool {
	if !IsPage(page) {
		return false
	}
	if t.Origin == nil {
		return true
	}
	return slices.ContainsFunc([]string{t.Issuer, t.TokenURL, t.Endpoint, t.Origin.Authorization},
		func(address string) bool { return HostPort(address) == HostPort(page) && address != "" })
}

// HostPort returns the host of an address, with its port; "": nobody can connect to it.
func HostPort(address string) string {
	host, port, _, err := hostOf("", "", address, nil)
	if err != nil {
		return ""
	}
	return netip6(host) + ":" + fmt.Sprint(port)
}

// netip6 puts an address of IPv6 into brackets.
func netip6(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// Challenge returns the challenge for a verifier, by the method S256 (RFC 7636 section 4.2).
func Challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// isLine reports whether a text is printable ASCII without a blank, not empty, and at most that long in bytes.
func isLine(text string, most int) bool {
	return text != "" && len(text) <= most && printable(text) && !strings.Contains(text, " ")
}
