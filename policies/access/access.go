// Package access says which client may use what: declared clients in, one answer for every path to a server or tool
// out.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/gate"
)

// Names of the clients that there are without a declaration: whoever has the endpoint's own token or names nobody on
// the Unix socket, of which a declaration says what it may; and the operator, who says so there, and of which there is
// none.
const (
	Default  = "default"
	Operator = "operator"
)

// Digest is the SHA-256 of a token. The token itself is nowhere but with its client.
type Digest [sha256.Size]byte

// DigestOf returns a token's.
func DigestOf(token []byte) Digest { return sha256.Sum256(token) }

// NewToken makes a token of 256 random bits, with a prefix that scanners for secrets can know.
func NewToken() string {
	var b [sha256.Size]byte
	_, _ = rand.Read(b[:]) // crashes rather than fails
	return "pfar_" + base64.RawURLEncoding.EncodeToString(b[:])
}

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes 64 digits in lower case.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText writes, in either case.
func (d *Digest) UnmarshalText(b []byte) error {
	if len(b) != 2*len(d) {
		return fmt.Errorf("a SHA-256 has %d digits, and this %d", 2*len(d), len(b))
	}
	_, err := hex.Decode(d[:], b)
	return err
}

// Client is one that may use servers, as it was declared. The zero value may nothing.
type Client struct {
	Name     string   `json:"name"`
	File     string   `json:"file,omitempty"` // that declares it
	Enabled  bool     `json:"enabled"`        // false: known, and let in nowhere
	Tokens   []Digest `json:"token_sha256,omitempty"`
	UIDs     []uint32 `json:"uid,omitempty"` // peers of the Unix socket that are this client
	Profile  string   `json:"profile"`       // of the gate
	Sessions Sessions `json:"sessions"`
	Tasks    Tasks    `json:"tasks,omitzero"`
	Relax    string   `json:"relax,omitempty"` // why something in the declaration is laxer than the default

	Servers  []string          `json:"servers,omitempty"` // names, or Every alone; empty: none
	Allow    []string          `json:"allow,omitempty"`   // patterns of tools, "server.tool"; empty: all that are not hidden
	Hide     []string          `json:"hide,omitempty"`    // patterns, which win over Allow
	Settings map[string]Server `json:"settings,omitempty"`
	Search   bool              `json:"search,omitempty"` // the client finds tools by searching, in place of listing all

	Connect bool `json:"connect,omitempty"` // its model may ask for a page on which a person connects a service
}

// Server is what a client's declaration says of one server. It makes nothing laxer than the server's own does.
type Server struct {
	Label gate.Confidentiality `json:"label,omitempty"` // at least; 0: the server's own
	Trust Trust                `json:"trust,omitzero"`
	Allow []string             `json:"allow,omitempty"` // patterns of its tools; empty: all that are not hidden
	Hide  []string             `json:"hide,omitempty"`
}

// Trust has what is true for this client, whatever the server's declaration says.
type Trust struct {
	PublicSource    bool `json:"public_source,omitempty"`
	SecretData      bool `json:"secret_data,omitempty"`
	PublicSink      bool `json:"public_sink,omitempty"`
	DangerousWrites bool `json:"dangerous_writes,omitempty"`
}

// Sessions says what has a label of its own. The zero value is not valid.
type Sessions string

const (
	Sticky     Sessions = "sticky"     // the client, and each handle that the operator mints for it
	Connection Sessions = "connection" // each MCP session: whoever connects again begins clean
)

// Every stands for all servers there are.
const Every = "*"

// BuiltIn is a client without a declaration: it may use all servers, under the strict profile. The operator is a person
// who types each call, is not asked again, and carries nothing from one into the next but by hand.
func BuiltIn(name string) Client {
	c := Client{Name: name, Enabled: true, Profile: "strict", Sessions: Sticky, Servers: []string{Every}}
	if name == Operator {
		c.Profile, c.Sessions = "operator", Connection
	}
	return c
}

// Rights is what a client may see and use, quick to ask. Clients that may the same have the same Shape. The zero value
// grants nothing.
type Rights struct {
	every    bool
	servers  map[string]bool
	allow    []string
	hide     []string
	settings map[string]Server
	search   bool
	connect  bool
	shape    string
}

// Rights compiles them.
func (c Client) Rights() *Rights {
	r := &Rights{
		servers: make(map[string]bool, len(c.Servers)),
		allow:   c.Allow, hide: c.Hide, settings: c.Settings, search: c.Search, connect: c.Connect,
	}
	for _, s := range c.Servers {
		r.every = r.every || s == Every
		r.servers[s] = true
	}
	r.shape = r.describe()
	return r
}

// describe writes down all that decides, so that equal rights have equal shapes and others have others.
func (r *Rights) describe() string {
	var b strings.Builder
	list := func(what string, words []string) {
		fmt.Fprintf(&b, "%s%q", what, slices.Compact(slices.Sorted(slices.Values(words))))
	}
	keys := make([]string, 0, len(r.servers))
	for s := range r.servers {
		keys = append(keys, s)
	}
	if r.every {
		keys = []string{Every}
	}
	list("servers", keys)
	list("allow", r.allow)
	list("hide", r.hide)
	names := make([]string, 0, len(r.settings))
	for s := range r.settings {
		names = append(names, s)
	}
	for _, s := range slices.Sorted(slices.Values(names)) {
		own := r.settings[s]
		fmt.Fprintf(&b, "server%q%d%v", s, own.Label, own.Trust)
		list("allow", own.Allow)
		list("hide", own.Hide)
	}
	fmt.Fprintf(&b, "search%tconnect%t", r.search, r.connect)
	return b.String()
}

// Shape is the same for the same rights.
func (r *Rights) Shape() string { return r.shape }

// All reports whether nothing at all is kept from the client, nor said of any server.
func (r *Rights) All() bool {
	return r.every && len(r.allow) == 0 && len(r.hide) == 0 && len(r.settings) == 0
}

// Search reports whether the client finds tools by searching, in place of listing all.
func (r *Rights) Search() bool { return r.search }

// Own is the name of pfar's own tools, as if they were a server's. No declaration can have it.
const Own = "pfar"

// OwnNodes is the name of pfar's own nodes of flows, as if they were a server's. No declaration can have it: a server's
// name has no dot. Every client has these nodes but those that its declaration hides.
const OwnNodes = "pfar.flow"

// isOwn reports whether a name is that of parts of pfar itself, which every client has unless its declaration hides
// them: OwnNodes, and models (gate.ModelServer).
func isOwn(name string) bool { return strings.HasPrefix(name, Own+".") }

// Server reports whether the server is there for the client.
func (r *Rights) Server(name string) bool {
	switch {
	case name == Own:
		return r.connect
	case isOwn(name):
		return r.shape != ""
	}
	return r.every || r.servers[name]
}

// Tool reports whether a tool is there for the client, by the name that its server gives it.
func (r *Rights) Tool(server, tool string) bool {
	if !r.Server(server) {
		return false
	}
	full, own := server+"."+tool, r.settings[server]
	switch {
	case server == Own || isOwn(server): // allow is about servers
		return !matches(r.hide, full)
	case matches(r.hide, full), matches(own.Hide, tool):
		return false
	case len(r.allow) > 0 && !matches(r.allow, full):
		return false
	}
	return len(own.Allow) == 0 || matches(own.Allow, tool)
}

// Filters reports whether some tool of the server's may be kept from the client.
func (r *Rights) Filters(server string) bool {
	own := r.settings[server]
	return len(r.allow)+len(r.hide)+len(own.Allow)+len(own.Hide) > 0
}

// Label is the server's label for this client: its own, or the declared one if that is higher. What is none is kept.
func (r *Rights) Label(server, own string) string {
	want := r.settings[server].Label
	var have gate.Confidentiality
	if want == 0 || have.UnmarshalText([]byte(own)) == nil && have >= want {
		return own
	}
	return want.String()
}

// Least is how confidential a server's outputs are at least for this client; 0: nothing is said of it.
func (r *Rights) Least(server string) gate.Confidentiality { return r.settings[server].Label }

// Trust is what the client's declaration says of a server.
func (r *Rights) Trust(server string) Trust { return r.settings[server].Trust }

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// Match reports whether a pattern matches a whole name. * stands for any number of characters, ? for one; both match
// dots as well. It takes time in proportion to the product of both lengths at most.
func Match(pattern, name string) bool {
	p, n, star, back := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, back = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			back++
			p, n = star+1, back
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// ValidHandle reports whether a session's handle may look like that; whether there is one is for others to say.
func ValidHandle(s string) bool {
	return s != "" && len(s) <= maxHandle && strings.Trim(s, handleLetters) == ""
}

const (
	maxHandle     = 64
	handleLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

	// DefaultSession is the handle of the session that every client has.
	DefaultSession = "default"
)
