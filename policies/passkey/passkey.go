// Package passkey says who may act at a console from another machine, and what their passkeys sign.
package passkey

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Role is what an operator may do. The zero value may nothing.
type Role string

// Each role may do what those before it may.
const (
	Look    Role = "look"    // see all pages
	Approve Role = "approve" // answer calls, and begin clean sessions
	Change  Role = "change"  // accept definitions, take back labels and stains, order servers and refused hosts of pfard
)

// Roles are all, the least first.
var Roles = []Role{Look, Approve, Change}

// May reports whether a role includes another one.
func (r Role) May(other Role) bool {
	has, wanted := slices.Index(Roles, r), slices.Index(Roles, other)
	return wanted >= 0 && has >= wanted
}

// Operator is a person who signs in with a passkey.
type Operator struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	Keys []Key  `json:"keys,omitempty"`
}

// Key is the public half of a passkey.
type Key struct {
	ID     []byte    `json:"id"`
	Public []byte    `json:"public"` // a COSE_Key (RFC 9052, section 7)
	Origin string    `json:"origin"` // of the console that it is for, as Origin returns it
	Added  time.Time `json:"added"`
}

// Lacks says why an operator may not do what needs a role; nil: the operator may.
func (o Operator) Lacks(needs Role) error {
	if o.Role.May(needs) {
		return nil
	}
	const words = "%s has the role %s, and this needs the role %s: ask the administrator of pfar to run " +
		"pfar operator role %[1]s %[3]s"
	return fmt.Errorf(words, o.Name, cmp.Or(o.Role, "none"), needs)
}

// Find returns the operator of a name; the zero value, who may nothing: there is none.
func Find(all []Operator, name string) Operator {
	for _, o := range all {
		if o.Name == name {
			return o
		}
	}
	return Operator{}
}

// CallPath begins the path of a call at a remote console. It leads there through the sign-in.
const CallPath = "/call/"

// Console returns the origin of the console that most passkeys are for; "": there is none. Of two with as many it
// returns the first in alphabetical order.
func Console(all []Operator) string {
	keys, most := map[string]int{}, ""
	for _, o := range all {
		for _, k := range o.Keys {
			if o.Role.May(Look) {
				keys[k.Origin]++
			}
		}
	}
	for origin, n := range keys {
		if n > keys[most] || n == keys[most] && origin < most {
			most = origin
		}
	}
	return most
}

// Origin reads the address of a console: https, a name, and a port unless it is 443. Browsers have no passkeys for the
// address of a machine.
func Origin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%.200q is not the address of a console; write one like https://pfar.example.com:7443", text)
	}
	name := strings.ToLower(u.Hostname())
	if _, err := netip.ParseAddr(name); err == nil {
		const words = "%.200q has an IP address, and browsers have passkeys only for names; " +
			"write one like https://pfar.example.com:7443"
		return "", fmt.Errorf(words, text)
	}
	last := name[strings.LastIndexByte(name, '.')+1:] // without a letter browsers read the name as an address
	if strings.Trim(last, "0123456789-") == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		return "", fmt.Errorf("%.200q has an invalid host name; write one like https://pfar.example.com:7443", text)
	}
	if port := u.Port(); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return "", fmt.Errorf("%.200q has an invalid port; write one like https://pfar.example.com:7443", text)
		}
		if n != 443 {
			name += ":" + strconv.FormatUint(n, 10)
		}
	}
	return "https://" + name, nil
}

// RelyingParty is the name of a console, for which browsers keep passkeys.
func RelyingParty(origin string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(origin, "https://"), ":")
	return name
}

// Act is what an operator signs: a request to the gateway or an order to pfard, which carries it out once. Its method
// and target say to whom it goes: a signature for one of them is never good for the other.
type Act struct {
	Nonce  string // of the gateway or of pfard, for this act
	Method string // of HTTP, or Order
	Target string // path and query, or Pfard
	Body   []byte
}

// An order to pfard has this method, which HTTP does not have, and this target, which is no path.
const (
	Order = "ORDER"
	Pfard = "pfard"
)

// Errors of acts from another machine.
var (
	ErrElsewhere = errors.New("you cannot do this from another machine: run pfar on the machine itself")

	ErrUnproven = errors.New("your passkey did not sign this request: send it from the console, " +
		"which asks your passkey to sign it")
	ErrStale = errors.New("this signature was used before, or is older than 5 minutes: " +
		"sign again with your passkey")
	ErrNotSigned = errors.New("no passkey of this operator signed this request: " +
		"sign again with your passkey")
)

// Challenge is what a passkey signs for an act.
func (a Act) Challenge() []byte {
	h := sha256.New()
	for _, part := range [][]byte{
		[]byte("pfar operator's act"), []byte(a.Nonce), []byte(a.Method), []byte(a.Target), a.Body,
	} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return h.Sum(nil)
}

// ProofHeader is the header of HTTP with a Proof in JSON, as base64url.
const ProofHeader = "Pfar-Proof"

// Proof comes with an act: who signs it, and the answer of the browser (PublicKeyCredential.toJSON).
type Proof struct {
	Operator string `json:"operator"`
	Nonce    string `json:"nonce"`
	Response []byte `json:"response"`
}
