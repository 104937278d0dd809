package clients

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/access"
)

// leastToken is the shortest token that is one: 128 bits in hexadecimal.
const leastToken = 32

// Visitor is who has come in by a door, before the path says in whose name.
type Visitor struct {
	caller  Caller
	table   *Table
	clients *Clients
}

// Refusal is why a request is not let in.
type Refusal struct {
	Status int
	Text   string
	Header [2]string // of the answer, if it has a name
}

// Door lets a request in, or refuses it.
type Door func(r *http.Request) (Visitor, *Refusal)

// Loopback returns the door of a TCP listener on loopback, where any process and any web page of the machine can knock:
// Host and Origin keep pages out (DNS rebinding), the token other users' processes.
func (c *Clients) Loopback(token []byte, port int) (Door, error) {
	if len(token) < leastToken {
		return nil, fmt.Errorf("the token has %d bytes, at least %d are needed", len(token), leastToken)
	}
	own := access.DigestOf(token)
	c.let(&own, nil)
	return func(r *http.Request) (Visitor, *Refusal) {
		if !ownHost(r.Host, port) {
			return Visitor{}, &Refusal{Status: http.StatusForbidden, Text: "Host is not this endpoint's"}
		}
		if !ownOrigin(r.Header) {
			return Visitor{}, &Refusal{Status: http.StatusForbidden, Text: "Origin is not a loopback one"}
		}
		t := c.admitted(r.Context())
		if t == nil {
			return Visitor{}, unknown
		}
		digest, ok := bearer(r.Header)
		var m *Member
		if ok {
			m = t.bearer(digest)
		}
		if m == nil {
			challenge, text := `Bearer realm="pfar"`, "a bearer token is needed"+tokens
			if len(r.Header["Authorization"]) > 0 { // RFC 6750 section 3.1
				challenge, text = challenge+`, error="invalid_token"`, "the bearer token is wrong"+tokens
			}
			return Visitor{}, &Refusal{http.StatusUnauthorized, text, [2]string{"WWW-Authenticate", challenge}}
		}
		return Visitor{Caller{Bound: Binding{Token: digest}, Member: m}, t, c}, nil
	}, nil
}

// tokens says where one gets a token: a program's configuration often has none, or an old one.
const tokens = `: "pfar client add NAME" makes a client and prints its token, "pfar client config NAME" prints where it goes`

// unknown refuses a request before pfard has said which clients there are.
var unknown = &Refusal{
	http.StatusServiceUnavailable, "pfard has not said yet which clients are declared", [2]string{"Retry-After", "1"},
}

// Local returns the door of a Unix listener whose connections Peers has let in. Beside declared clients, root and the
// given users come in, as the default client or as the one that the path names: the operator, or any client.
func (c *Clients) Local(operators ...uint32) Door {
	c.let(nil, operators)
	return func(r *http.Request) (Visitor, *Refusal) {
		uid, ok := peerOf(r.Context())
		if !ok {
			return Visitor{}, &Refusal{Status: http.StatusForbidden, Text: "the connection's peer is not known"}
		}
		t := c.admitted(r.Context())
		if t == nil {
			return Visitor{}, unknown
		}
		return Visitor{Caller{Bound: Binding{UID: uid}, Member: t.peer(uid), Local: true}, t, c}, nil
	}
}

func ownHost(host string, port int) bool {
	rest := ""
	for _, h := range [...]string{"127.0.0.1", "[::1]", "localhost"} {
		if len(host) >= len(h) && strings.EqualFold(host[:len(h)], h) {
			rest = host[len(h):]
			if rest == "" {
				return port == 80
			}
			return rest[0] == ':' && rest[1:] == strconv.Itoa(port)
		}
	}
	return false
}

func ownOrigin(h http.Header) bool {
	values, ok := h["Origin"]
	if !ok {
		return true // not a browser
	}
	if len(values) != 1 {
		return false
	}
	u, err := url.Parse(values[0])
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	if u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery || u.Opaque != "" {
		return false
	}
	return slices.Contains([]string{"127.0.0.1", "::1", "localhost"}, u.Hostname())
}

// bearer returns the digest of the token that the request has, and false if it has none.
func bearer(h http.Header) (access.Digest, bool) {
	values := h["Authorization"]
	if len(values) != 1 {
		return access.Digest{}, false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "bearer") || token == "" {
		return access.Digest{}, false
	}
	return access.DigestOf([]byte(token)), true
}
