package oauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
)

// Client is the client to register: a public one if the authorization server accepts that.
type Client struct {
	Port   uint16 `json:"port"`             // of 127.0.0.1, to which a browser comes back
	Method string `json:"method"`           // of its authentication at the token endpoint
	Device bool   `json:"device,omitempty"` // it may sign in with a code on another device, too
}

// Registered is the client that a registration endpoint gave.
type Registered struct {
	ID     string `json:"id"`
	Secret string `json:"secret,omitempty"` // with the methods that need one
	Method string `json:"method"`
}

// Methods of a client's authentication (RFC 7591 section 2).
const (
	methodNone  = "none"
	methodPost  = "client_secret_post"
	methodBasic = "client_secret_basic"
)

const (
	clientName  = "pfar"
	grantCode   = "authorization_code"
	grantDevice = "urn:ietf:params:oauth:grant-type:device_code"
)

// ClientFor returns the client to register with an authorization server. port is that of the redirect address: some
// servers compare it, against RFC 8252.
func (d Metadata) ClientFor(port uint16) (Client, error) {
	c := Client{Port: port, Method: methodNone, Device: d.Device != ""}
	if len(d.Methods) == 0 {
		return c, nil
	}
	for _, m := range []string{methodNone, methodPost, methodBasic} {
		if slices.Contains(d.Methods, m) {
			c.Method = m
			return c, nil
		}
	}
	return Client{}, fmt.Errorf("%s takes no client that pfar can be: it wants one of %s", quoted(d.Issuer),
		quoted(fmt.Sprint(d.Methods)))
}

// document is a client's metadata (RFC 7591 section 2).
type document struct {
	ID     string   `json:"client_id,omitempty"`
	Name   string   `json:"client_name"`
	URIs   []string `json:"redirect_uris"`
	Grants []string `json:"grant_types"`
	Types  []string `json:"response_types"`
	Method string   `json:"token_endpoint_auth_method"`
	Type   string   `json:"application_type"`
}

func (c Client) document() document {
	d := document{Name: clientName, URIs: []string{Loopback(c.Port)}, Grants: []string{grantCode, "refresh_token"},
		Types: []string{"code"}, Method: c.Method, Type: "native"}
	if c.Device {
		d.Grants = append(d.Grants, grantDevice)
	}
	return d
}

// Loopback returns the redirect address; without a port if port is 0.
func Loopback(port uint16) string {
	host := "127.0.0.1"
	if port != 0 {
		host += ":" + strconv.Itoa(int(port))
	}
	return "http://" + host + RedirectPath
}

// Request is the body of the registration.
func (c Client) Request() ([]byte, error) { return json.Marshal(c.document()) }

// ClientDocument returns the document that an owner publishes at an address. The address is the client's id from then
// on (Client ID Metadata Document).
func ClientDocument(address string) ([]byte, error) {
	if !IsClientDocument(address) {
		return nil, fmt.Errorf("%s is not an address of a client's metadata: write https://HOST/PATH", quoted(address))
	}
	d := Client{Method: methodNone, Device: true}.document()
	d.ID = address
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// IsClientDocument reports whether an address may be a client's id.
func IsClientDocument(address string) bool {
	u, err := url.Parse(address)
	return err == nil && isIdentifier(address) && u.Scheme == "https" && len(u.EscapedPath()) > 1 && u.RawQuery == ""
}

// ReadClient reads the answer of a registration endpoint.
func (q Question) ReadClient(r Response) (Found, error) {
	m, err := r.members(nil)
	if err != nil {
		return Found{}, err
	}
	g := &Registered{ID: text(m, "client_id"), Secret: text(m, "client_secret"),
		Method: text(m, "token_endpoint_auth_method")}
	if g.Method == "" {
		g.Method = q.Client.Method
	}
	if g.Method == methodNone { // then nobody asks for it
		g.Secret = ""
	}
	uris, err := texts(m, "redirect_uris")
	if err != nil {
		return Found{}, err
	}
	if ours := Loopback(q.Client.Port); len(uris) > 0 && (!slices.Contains(uris, ours) || len(uris) > 1) {
		return Found{}, errors.New("the authorization server has registered another redirect address than pfar asked for")
	}
	f := Found{Client: g}
	return f, q.Finds(f)
}

func (g *Registered) check(Client) error {
	known := slices.Contains([]string{methodNone, methodPost, methodBasic}, g.Method)
	switch {
	case !isLine(g.ID, maxName):
		return errors.New("the authorization server has registered no client id that can be used")
	case !known:
		return fmt.Errorf("the authorization server wants %s of the client, which pfar cannot do", quoted(g.Method))
	case (g.Secret == "") != (g.Method == methodNone), len(g.Secret) > maxToken, !printable(g.Secret):
		return errors.New("the authorization server has registered a client whose secret cannot be used")
	}
	return nil
}

// Style is how the client authenticates itself.
func (g Registered) Style() Style {
	if g.Method == methodBasic {
		return InHeader
	}
	return InParams
}
