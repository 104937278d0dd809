// Package broker decides where a secret that never enters a sandbox is put on the wire: the server holds a placeholder,
// and its egress bridge puts the value in place of it, towards the hosts that were declared for the secret and nowhere
// else.
package broker

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pfar/pfar/policies/egress"
)

// MinSecret is the length that a brokered secret has at least, in bytes: a shorter one's placeholder could stand in a
// text by chance, and the value would be put there.
const MinSecret = 12

// Delivery is how a server gets a secret. The zero value is as an environment variable.
type Delivery string

const (
	InEnvironment Delivery = ""       // deliver = "env"
	InFile        Delivery = "file"   // the variable holds the path of a file in the sandbox's memory
	OnWire        Delivery = "broker" // the variable holds a placeholder; the bridge puts the value on the wire
)

// Secret is one brokered secret of one server. It holds the value: it stays with pfard and the server's bridge.
type Secret struct {
	Name        string            `json:"name"` // of the variable that holds the placeholder
	Placeholder string            `json:"placeholder"`
	Former      []string          `json:"former,omitempty"` // placeholders before it, the latest last: a server that runs on may have them
	Value       string            `json:"value"`
	Hosts       []egress.Endpoint `json:"hosts"`
	Places      []Place           `json:"places"`
}

// Material is what a server's bridge needs to put its secrets on the wire.
type Material struct {
	Authority Authority `json:"authority"`
	Secrets   []Secret  `json:"secrets"`

	Opened []egress.Endpoint `json:"opened,omitempty"` // whose connections the bridge opens though no secret goes there
}

// Authority signs the certificates that one server's bridge shows to that server, and to nobody else. It is made from
// the vault's seed alone, so that a server which runs on trusts its bridge whatever was started again meanwhile.
type Authority struct {
	Server string `json:"server"`
	Key    []byte `json:"key"` // the private scalar of P-256, big endian (SEC 1)
}

// Place is where in a request a secret may stand. The zero value is nowhere.
type Place struct {
	Part Part
	Name string // of the header field, in lower case, or of the query's parameter; "" for Body
}

// Part is a part of a request.
type Part string

// The parts that a declaration may name.
const (
	Header Part = "header" // a field's value; within Basic of Authorization also encoded (RFC 7617)
	Query  Part = "query"  // a parameter's value, percent-encoded as needed
	Body   Part = "body"   // of any type; in JSON and forms encoded as they need it
)

// Standard is where a secret stands if its declaration does not say: nearly every API wants it there.
func Standard() []Place { return []Place{{Header, "authorization"}} }

// ParsePlace reads "header:NAME", "query:NAME" or "body". Its errors say what to write instead.
func ParsePlace(s string) (Place, error) {
	part, name, _ := strings.Cut(s, ":")
	switch p := Part(part); {
	case p == Body && s == part:
		return Place{Part: Body}, nil
	case p == Header && isToken(name):
		name = strings.ToLower(name)
		if framing(name) {
			return Place{}, fmt.Errorf("%q says how a request is read, and holds no secret: write the field that does, such "+
				"as \"header:authorization\"", s)
		}
		return Place{Header, name}, nil
	case p == Query && name != "":
		return Place{Query, name}, nil
	}
	return Place{}, fmt.Errorf("%q is not a place in a request: write \"header:NAME\", \"query:NAME\" or \"body\"", s)
}

// String returns the place as ParsePlace reads it.
func (p Place) String() string {
	if p.Name == "" {
		return string(p.Part)
	}
	return string(p.Part) + ":" + p.Name
}

// MarshalJSON writes the place as it is declared.
func (p Place) MarshalJSON() ([]byte, error) { return json.Marshal(p.String()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Place) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	var err error
	*p, err = ParsePlace(s)
	return err
}

// isToken reports whether s is a field's name (RFC 9110 section 5.1).
func isToken(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == ""
}

// framing reports whether a field decides how a request is read or where it goes (RFC 9110 sections 7.2 and 7.6.1).
func framing(name string) bool {
	switch name {
	case "host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect", "keep-alive",
		"proxy-connection", "content-encoding", "content-type":
		return true
	}
	return false
}
