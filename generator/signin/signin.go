// Package signin knows how OAuth tokens are obtained: the owner's oauth.d and the catalogue of services in, providers
// and diagnostics with line and column out.
package signin

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/oauth"
)

// Provider is one that the owner has a client with.
type Provider struct {
	Name    string
	Service string // of the catalogue, which completes the file; "": none
	Key     string // under which the vault stores its tokens
	Server  string // URL of the service's remote server, if it has no program; "": none

	Client
	Device, Code *catalog.SignIn // nil: it has no such way
	Scopes       []string        // nil: those of the way
	Resource     string          // RFC 8707
	Issuer       string          // RFC 9207
	CA           string          // path of certificates; "": the system's
	AllowPrivate []string

	File string // that it stands in
}

// Client is the owner's client with a provider.
type Client struct {
	ID        string
	Secret    string // key in the vault; "": a public client
	AuthStyle oauth.Style
}

// Discovers reports whether pfar asks the issuer for its endpoints.
func (p Provider) Discovers() bool { return p.Device == nil && p.Code == nil }

// First returns the way to sign in if nobody chooses; "": the issuer decides.
func (p Provider) First() oauth.Way {
	if ways := p.Ways(); len(ways) > 0 {
		return ways[0]
	}
	return ""
}

// Ways returns the ways in which a person can sign in, the default first. Without a client secret that is a code on
// another device: then some providers give no token for the code of a browser.
func (p Provider) Ways() (ways []oauth.Way) {
	if p.Code != nil {
		ways = append(ways, oauth.ByCode)
	}
	if p.Device != nil {
		ways = append(ways, oauth.ByDevice)
	}
	if p.Secret == "" {
		slices.Reverse(ways)
	}
	return ways
}

// Task is what a process needs for a login, without the client's secret and the certificates.
func (p Provider) Task(way oauth.Way) (oauth.Task, error) {
	at := map[oauth.Way]*catalog.SignIn{oauth.ByDevice: p.Device, oauth.ByCode: p.Code}[way]
	if at == nil {
		words := map[oauth.Way]string{
			oauth.ByDevice: `a code on another device. Write device { url = "https://...", token = "https://..." }`,
			oauth.ByCode:   `a browser. Write code { url = "https://...", token = "https://..." }`,
		}[way]
		return oauth.Task{}, fmt.Errorf("provider %q has no sign-in with %s into %s", p.Name, words, p.File)
	}
	t := oauth.Task{
		Way: way, Endpoint: at.URL, TokenURL: at.Token, ClientID: p.ID, AuthStyle: p.AuthStyle, Scopes: p.Scopes,
		Resource: p.Resource, Issuer: p.Issuer, AllowPrivate: p.AllowPrivate,
	}
	if t.Scopes == nil {
		t.Scopes = at.Scopes
	}
	return t, nil
}

// Set is the content of the files.
type Set struct {
	Providers []Provider // by name
	Document  string     // where the owner publishes the client's metadata, which is its id; "": nowhere
	Diags     hcl.Diagnostics
	Files     map[string]*hcl.File
}

// Load reads the folder that fsys is rooted in; dir is its path, for messages. A missing folder counts as empty. Load
// calls known only if there is a file.
func Load(fsys fs.FS, dir string, known func() catalog.Set) Set {
	s := Set{Files: map[string]*hcl.File{}}
	services := sync.OnceValue(known)
	given := map[string]hcl.Range{} // of names, and of keys after "key "
	diags := policies.ReadFolder(fsys, dir, "providers", func(file string, b []byte) {
		s.read(file, b, services(), given)
	})
	s.Diags = append(s.Diags, diags...)
	slices.SortFunc(s.Providers, func(a, b Provider) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// OfKey returns the provider whose tokens are stored under a key of the vault.
func (s Set) OfKey(key string) (Provider, bool) {
	i := slices.IndexFunc(s.Providers, func(p Provider) bool { return p.Key == key })
	if i < 0 {
		return Provider{}, false
	}
	return s.Providers[i], true
}

// ErrNone is the error of Choose where no provider is configured.
var ErrNone = errors.New("no provider is configured")

// Choose returns the provider that a name means: the one of that name, the one whose tokens the declared server of that
// name uses (keys are the server's), the one of that service, or the one of that key.
func (s Set) Choose(name string, keys []string) (Provider, error) {
	for _, fits := range []func(Provider) bool{
		func(p Provider) bool { return p.Name == name },
		func(p Provider) bool { return slices.Contains(keys, p.Key) },
		func(p Provider) bool { return p.Service == name },
		func(p Provider) bool { return p.Key == name },
	} {
		var found []Provider
		for _, p := range s.Providers {
			if fits(p) {
				found = append(found, p)
			}
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		var names []string
		for _, p := range found {
			names = append(names, p.Name)
		}
		return Provider{}, fmt.Errorf("%q has several providers: name one of %s", name, strings.Join(names, ", "))
	}
	return Provider{}, ErrNone
}

// Sketch returns what an owner writes into a file to have the provider, with "..." for what only the owner knows.
func (p Provider) Sketch() string {
	var b strings.Builder
	line := func(key, value string) { fmt.Fprintf(&b, "  %-9s = %q\n", key, value) }
	fmt.Fprintf(&b, "provider %q {\n", p.Name)
	line("client_id", "...")
	if p.Service != "" && p.Service != p.Name {
		line("service", p.Service)
	}
	if p.Key != "" {
		line("key", p.Key)
	}
	if p.Discovers() {
		b.WriteString("\n  code {\n    url   = \"https://...\"\n    token = \"https://...\"\n  }\n")
	}
	return b.String() + "}\n"
}
