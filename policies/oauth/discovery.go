package oauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/egress"
)

// Subject is what a Question is about.
type Subject string

const (
	OfServer Subject = "server" // who signs people in for a remote MCP server (RFC 9728)
	OfIssuer Subject = "issuer" // the endpoints of an authorization server (RFC 8414)
	OfClient Subject = "client" // a client id, by registration (RFC 7591)
)

// Question is what one process asks one host before a login. It holds no secret.
type Question struct {
	Of      Subject  `json:"of"`
	URL     string   `json:"url"`              // of the server, the issuer, or the registration endpoint
	Stream  bool     `json:"stream,omitempty"` // OfServer: ask for a stream of events, as the transport sse does
	Client  *Client  `json:"client,omitempty"` // OfClient
	Issuer  string   `json:"issuer,omitempty"` // that the owner has named: only it may have a private address
	CA      string   `json:"ca,omitempty"`
	Private []string `json:"allow_private,omitempty"`
}

// Found is the answer to a Question: only the member for its subject is set. The process that made it has read
// untrusted bytes, so Question.Finds has to check it before any use.
type Found struct {
	Server *Resource   `json:"server,omitempty"`
	Issuer *Metadata   `json:"issuer,omitempty"`
	Client *Registered `json:"client,omitempty"`
}

// Resource is a server's metadata about who signs people in.
type Resource struct {
	ID      string   `json:"id"`      // that a token is asked for (RFC 8707)
	Issuers []string `json:"issuers"` // authorization servers, in its order
	Scopes  []string `json:"scopes,omitempty"`
	Wanted  []string `json:"wanted,omitempty"` // scopes of its challenge
}

// Metadata is the metadata of an authorization server.
type Metadata struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization,omitempty"` // endpoints; "": it has none
	Token         string   `json:"token"`
	Device        string   `json:"device,omitempty"`
	Registration  string   `json:"registration,omitempty"`
	Offline       bool     `json:"offline,omitempty"` // it has the scope offline_access, for a refresh token
	Methods       []string `json:"methods,omitempty"` // of clients' authentication; empty: it does not say
	Documents     bool     `json:"documents,omitempty"`
	NamesItself   bool     `json:"names_itself,omitempty"` // its answers by browser have iss (RFC 9207)
}

const (
	maxIssuers = 16
	wellKnown  = "/.well-known/"
	ofResource = wellKnown + "oauth-protected-resource"
	ofIssuer   = wellKnown + "oauth-authorization-server"
	ofOpenID   = wellKnown + "openid-configuration"
	challengeS = "S256"

	scopeOffline = "offline_access" // OpenID Connect Core 11
)

// Host returns the host that the question goes to, and a policy that lets a process connect only there.
func (q Question) Host() (host string, port uint16, policy egress.Policy, err error) {
	return hostOf("url", "a host that can be asked", q.URL, q.Private)
}

// Check returns what is wrong with a question.
func (q Question) Check() error {
	if _, _, _, err := q.Host(); err != nil {
		return err
	}
	if !slices.Contains([]Subject{OfServer, OfIssuer, OfClient}, q.Of) || (q.Of == OfClient) != (q.Client != nil) {
		return errors.New("the question has no valid subject")
	}
	return CheckCA(q.CA)
}

// Encode writes a question for DecodeQuestion.
func (q Question) Encode() ([]byte, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	return json.Marshal(q)
}

// DecodeQuestion reads what Encode wrote. It reports false for a Task.
func DecodeQuestion(text []byte) (q Question, ok bool) {
	if json.Unmarshal(text, &q) != nil || q.Check() != nil {
		return Question{}, false
	}
	return q, true
}

// Documents returns the addresses at which metadata may be, in the order in which pfar asks them. c is the server's
// challenge.
func (q Question) Documents(c Demand) ([]string, error) {
	u, err := url.Parse(q.URL)
	if err != nil {
		return nil, errors.New("the address cannot be read")
	}
	at := func(path string) string { return u.Scheme + "://" + u.Host + path }
	path := strings.TrimRight(u.EscapedPath(), "/")
	if q.Of == OfIssuer {
		list := []string{at(ofIssuer + path), at(ofOpenID + path)}
		if path != "" {
			list = append(list, at(path+ofOpenID))
		}
		return list, nil
	}
	if c.Metadata == "" {
		return slices.Compact([]string{at(ofResource + path), at(ofResource)}), nil
	}
	there, err := url.Parse(c.Metadata)
	if err != nil || !sameHost(there, u) || there.Fragment != "" || there.User != nil {
		return nil, fmt.Errorf("the server says that its metadata is at %q, which is not on its own host; "+
			"nothing was asked there", c.Metadata)
	}
	return []string{c.Metadata}, nil
}

// sameHost reports whether two URLs lead to the same port of the same host, with encryption.
func sameHost(a, b *url.URL) bool {
	return a.Scheme == "https" && b.Scheme == "https" && strings.EqualFold(a.Hostname(), b.Hostname()) &&
		portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return "443"
}

// ReadDocument reads the metadata from one of the Documents.
func (q Question) ReadDocument(r Response, c Demand) (Found, error) {
	m, err := r.members(nil)
	if err != nil {
		return Found{}, err
	}
	var f Found
	if q.Of == OfServer {
		f.Server = &Resource{ID: text(m, "resource"), Wanted: c.Scopes}
		if f.Server.Issuers, err = texts(m, "authorization_servers"); err == nil {
			f.Server.Scopes, err = texts(m, "scopes_supported")
		}
	} else {
		f.Issuer, err = readMetadata(m)
	}
	if err != nil {
		return Found{}, err
	}
	if f.Server != nil && !areScopes(f.Server.Scopes) { // then the authorization server chooses
		f.Server.Scopes = nil
	}
	return f, q.Finds(f)
}

// NoDocument returns what is found for a server without metadata. As before June 2025, such a server is its own
// authorization server.
func (q Question) NoDocument(c Demand) (Found, error) {
	u, err := url.Parse(q.URL)
	if err != nil {
		return Found{}, errors.New("the address cannot be read")
	}
	f := Found{Server: &Resource{ID: q.URL, Issuers: []string{u.Scheme + "://" + u.Host}, Wanted: c.Scopes}}
	return f, q.Finds(f)
}

func readMetadata(m map[string]json.RawMessage) (*Metadata, error) {
	d := &Metadata{
		Issuer: text(m, "issuer"), Authorization: text(m, "authorization_endpoint"), Token: text(m, "token_endpoint"),
		Device: text(m, "device_authorization_endpoint"), Registration: text(m, "registration_endpoint"),
		Documents:   string(m["client_id_metadata_document_supported"]) == "true",
		NamesItself: string(m["authorization_response_iss_parameter_supported"]) == "true",
	}
	var scopes, challenges, types []string
	for name, to := range map[string]*[]string{
		"scopes_supported": &scopes, "token_endpoint_auth_methods_supported": &d.Methods,
		"code_challenge_methods_supported": &challenges, "response_types_supported": &types,
	} {
		list, err := texts(m, name)
		if err != nil {
			return nil, err
		}
		*to = list
	}
	d.Offline = slices.Contains(scopes, scopeOffline)
	switch codes := len(types) == 0 || slices.Contains(types, "code"); {
	case d.Authorization == "":
	case !codes:
		d.Authorization = ""
	case !slices.Contains(challenges, challengeS) && d.Device == "":
		return nil, errors.New("the authorization server does not say that it takes PKCE with S256 " +
			"(code_challenge_methods_supported), without which a code could be stolen")
	case !slices.Contains(challenges, challengeS):
		d.Authorization = ""
	}
	return d, nil
}

// texts returns a member that is a list of strings; nil if there is none.
func texts(m map[string]json.RawMessage, name string) (list []string, err error) {
	if raw := m[name]; raw != nil && json.Unmarshal(raw, &list) != nil {
		return nil, fmt.Errorf("%s in the metadata is not a list of texts", name)
	}
	return list, nil
}

// Finds returns why an answer to the question cannot be used.
func (q Question) Finds(f Found) error {
	switch {
	case q.Of == OfServer && f.Server != nil:
		return f.Server.check(q)
	case q.Of == OfIssuer && f.Issuer != nil:
		return f.Issuer.check(q)
	case q.Of == OfClient && f.Client != nil:
		return f.Client.check(*q.Client)
	}
	return errors.New("the answer is not about the question")
}

func (r *Resource) check(q Question) error {
	switch _, ok := Covers(r.ID, q.URL); {
	case r.ID == "":
		return errors.New("the server's metadata does not say which resource it is of")
	case !ok:
		return fmt.Errorf("the server's metadata is of %s, and not of %s: a token would be for somebody else",
			quoted(r.ID), q.URL)
	case len(r.Issuers) == 0:
		return errors.New("the server's metadata names no authorization server")
	case len(r.Issuers) > maxIssuers:
		return fmt.Errorf("the server's metadata names more than %d authorization servers", maxIssuers)
	case !areScopes(r.Scopes), !areScopes(r.Wanted):
		return fmt.Errorf("the server's metadata has invalid scopes, or more than %d", maxList)
	}
	for _, i := range r.Issuers {
		if i != q.Issuer && !isIssuer(i) {
			return fmt.Errorf("the server's metadata names %s as an authorization server: want https://HOST or "+
				"https://HOST/PATH, and no address of a private network", quoted(i))
		}
	}
	return nil
}

// Covers reports whether a token for a resource is good for the server (ok), and for nothing else (alone). The resource
// may be the server itself, its host, or a path above it.
func Covers(resource, server string) (alone, ok bool) {
	r, err := url.Parse(resource)
	s, failed := url.Parse(server)
	if err != nil || failed != nil || !isIdentifier(resource) || !sameHost(r, s) {
		return false, false
	}
	of, at := strings.TrimRight(r.EscapedPath(), "/"), strings.TrimRight(s.EscapedPath(), "/")
	switch {
	case of == at && r.RawQuery == s.RawQuery:
		return true, true
	case r.RawQuery == "" && !strings.Contains(resource, "?") && strings.HasPrefix(at+"/", of+"/"):
		return false, true
	}
	return false, false
}

// isIssuer reports whether an untrusted server may name a text as an issuer (RFC 8414 section 2).
func isIssuer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && isIdentifier(text) && !strings.Contains(text, "?") && isPublic("issuer", text) &&
		!strings.Contains(u.EscapedPath(), wellKnown)
}

// isPublic reports whether an address has a host name or a public IP address. What a name leads to is checked when a
// process connects.
func isPublic(key, address string) bool {
	host, _, _, err := hostOf(key, "", address, nil)
	if err != nil {
		return false
	}
	if literal, err := netip.ParseAddr(host); err == nil {
		_, ok := egress.Vet(literal)
		return ok
	}
	return true
}

func (d *Metadata) check(q Question) error {
	issuer := q.URL
	if d.Issuer != issuer {
		return fmt.Errorf("the metadata of %s says that it is of %s: another server answers in its place",
			quoted(issuer), quoted(d.Issuer))
	}
	for _, e := range []struct {
		name, address string
		needed        bool
	}{
		{"authorization_endpoint", d.Authorization, d.Device == ""}, {"token_endpoint", d.Token, true},
		{"device_authorization_endpoint", d.Device, false}, {"registration_endpoint", d.Registration, false},
	} {
		_, _, _, err := hostOf(e.name, "", e.address, nil)
		switch {
		case e.address == "" && e.needed:
			return fmt.Errorf("the metadata of %s has no %s that pfar can use", quoted(issuer), e.name)
		case e.address != "" && (err != nil || !isLine(e.address, maxName)):
			return fmt.Errorf("the metadata of %s has %s as its %s: want https://HOST/PATH", quoted(issuer),
				quoted(e.address), e.name)
		case e.address != "" && issuer != q.Issuer && !isPublic(e.name, e.address):
			return fmt.Errorf("the metadata of %s has %s as its %s, which is an address of a private network",
				quoted(issuer), quoted(e.address), e.name)
		}
	}
	if !areScopes(d.Methods) {
		return fmt.Errorf("the metadata of %s has more than %d ways to authenticate, or invalid ones", quoted(issuer),
			maxList)
	}
	return nil
}

// Hosts returns the hosts of the endpoints and of the issuer, each once: "HOST:PORT". If there is an authorization
// endpoint, its host comes first: the person's browser goes there.
func (d Metadata) Hosts() (list []string) {
	for _, address := range []string{d.Authorization, d.Issuer, d.Token, d.Device, d.Registration} {
		if h := HostPort(address); h != "" && !slices.Contains(list, h) {
			list = append(list, h)
		}
	}
	return list
}

// quoted shows a stranger's text in an error.
func quoted(text string) string {
	if len(text) > maxShown {
		text = text[:maxShown] + "..."
	}
	return fmt.Sprintf("%q", text)
}

const maxShown = 120 // bytes of a stranger's text in an error
