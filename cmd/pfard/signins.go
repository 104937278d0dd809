package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/signin"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// signIns are the owner's OAuth clients, as pfard last read them from oauth.d.
type signIns struct {
	dir     string
	open    func(dir string) fs.FS
	catalog func() catalog.Set

	mu      sync.Mutex
	set     signin.Set
	remotes map[string]string // by key of their tokens: declared remote servers
}

func newSignIns(dirs control.Dirs, known func() catalog.Set) *signIns {
	return &signIns{dir: dirs.OAuth(), open: os.DirFS, catalog: known}
}

// read reads oauth.d, and returns its mistakes. It leaves out a provider with a mistake.
func (s *signIns) read() (map[string]*hcl.File, hcl.Diagnostics) {
	set := signin.Load(s.open(s.dir), s.dir, s.catalog)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set = set
	return set.Files, set.Diags
}

func (s *signIns) now() signin.Set {
	if s == nil {
		return signin.Set{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set
}

// serve takes the declared servers, and notes which remote server uses which token.
func (s *signIns) serve(declared []declaration.Server) {
	remotes := map[string]string{}
	for _, d := range declared {
		if _, key := tokenOf(d); key != "" {
			remotes[key] = d.Name
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remotes = remotes
}

// remote returns the remote server whose token is stored under a key; "": there is none.
func (s *signIns) remote(key string) string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remotes[key]
}

// login returns what obtains the token of a key; zero: no provider of it is known.
func (s *signIns) login(key string) units.Remedy {
	if p, ok := s.now().OfKey(key); ok {
		return units.ToDo(units.SignIn, p.Name)
	}
	if name := s.remote(key); name != "" {
		return units.ToDo(units.SignIn, name)
	}
	return units.Remedy{}
}

// renewal returns what stores another token set under a key.
func (s *signIns) renewal(key string) units.Remedy {
	return cmp.Or(s.login(key), units.ToDo(units.StoreTokens, key))
}

// choice is the provider and the way of a login.
type choice struct {
	provider signin.Provider // zero: oauth.d has none for the server
	way      oauth.Way       // "": the first that the authorization server offers
	name     string
	key      string             // of the vault
	remote   declaration.Server // that the token is for; zero: no remote server
}

// discovers reports whether pfar asks the server and its authorization server where to sign in.
func (c choice) discovers() bool { return c.provider.Discovers() }

// choose returns the choice for the name in a request. declared has all declared servers.
func (s *signIns) choose(q control.Request, declared []declaration.Server) (c choice, err error) {
	if q.Login == nil || q.Server == "" {
		return c, fmt.Errorf("%w: want a name", control.ErrInvalid)
	}
	var keys []string
	for _, d := range declared {
		if d.Name == q.Server {
			keys, c.remote = d.VaultKeys(), d
		}
	}
	set := s.now()
	c.provider, err = set.Choose(q.Server, keys)
	switch {
	case errors.Is(err, signin.ErrNone) && c.remote.Remote() && !s.needsClient(c.remote):
		return c, c.signsIn(q)
	case errors.Is(err, signin.ErrNone):
		return c, s.missing(q.Server, c.remote, set)
	case err != nil:
		return c, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	for _, d := range declared {
		if _, key := tokenOf(d); key == c.provider.Key {
			c.remote = d
		}
	}
	if _, key := tokenOf(c.remote); key != c.provider.Key {
		c.remote = declaration.Server{}
	}
	c.name, c.key, c.way = c.provider.Name, c.provider.Key, cmp.Or(q.Login.Way, c.provider.First())
	return c, nil
}

// needsClient reports whether the owner needs a client to sign in to a declared remote server: the catalogue has the
// endpoints of a service only where its server does not name a provider that registers pfar.
func (s *signIns) needsClient(d declaration.Server) bool {
	known, ok := s.catalog().Find(cmp.Or(d.Service, d.Name))
	return ok && known.OnlyElsewhere() && known.Code != nil && known.Remote.URL == d.URL
}

// signsIn makes the choice a sign-in to its remote server.
func (c *choice) signsIn(q control.Request) error {
	name := c.remote.Name
	encrypted, key := tokenOf(c.remote)
	switch {
	case !encrypted:
		return fmt.Errorf("%w: url of %q begins with http://, which would send the token unencrypted", control.ErrInvalid,
			name)
	case key == "":
		return fmt.Errorf("%w: no credential of %q is for its token: write auth = { token = \"vault:%s\" } into %s",
			control.ErrInvalid, name, keyOfRemote(name), c.remote.File)
	}
	c.name, c.key, c.way = name, key, q.Login.Way
	return nil
}

// keyOfRemote suggests a vault key for the token of a remote server.
func keyOfRemote(name string) string { return strings.ReplaceAll(name, "-", "_") + "_token" }

// tokenOf returns the vault key of the token that a remote server expects in the Authorization header; "": it has none
// from the vault. encrypted reports whether its URL is an https one; otherwise tokenOf returns no key.
func tokenOf(d declaration.Server) (encrypted bool, key string) {
	if !d.Remote() || !strings.HasPrefix(d.URL, "https:") {
		return false, ""
	}
	for _, c := range d.Credentials {
		if slices.Equal(c.Places, broker.Standard()) {
			return true, c.Key
		}
	}
	return true, ""
}

// missing returns the error of a login without a client. It says which file the owner has to write. d is the declared
// server of that name; zero: there is none.
func (s *signIns) missing(name string, d declaration.Server, set signin.Set) error {
	if set.Diags.HasErrors() {
		return fmt.Errorf("%w: %s has a mistake, and no provider for %q: pfar check says more", control.ErrInvalid, s.dir,
			name)
	}
	p, where := signin.Provider{Name: name, Key: keyOfRemote(name)}, "with the provider"
	if keys := d.VaultKeys(); len(keys) == 1 {
		p.Key = keys[0]
	}
	if known, ok := s.catalog().Find(cmp.Or(d.Service, name)); ok && (known.Device != nil || known.Code != nil) {
		p.Service, p.Device, p.Code = known.Name, known.Device, known.Code
		for _, way := range []*catalog.SignIn{known.Device, known.Code} {
			if way != nil && way.Register != "" {
				where = "at " + way.Register
			}
		}
		if len(known.Secrets) > 0 {
			p.Key = ""
			if key := keyOf(known.Secrets[0], d); key != known.Secrets[0].Key || name != known.Name {
				p.Key = key
			}
		}
	}
	if p.Code != nil || p.Discovers() {
		where += ", with the redirect address http://127.0.0.1" + oauth.RedirectPath
	}
	secret := strings.ReplaceAll(name, "-", "_") + "_client"
	const format = "%w: there is no OAuth client for %q. Register one %s, and write into %s:\n\n%s\n" +
		"The provider gives you the client_id. If it gives you a client secret too, add secret = \"vault:%s\" and " +
		"store it with pfar vault set %s. pfar-oauth(5) says more"
	file := filepath.Join(s.dir, name+".hcl")
	return fmt.Errorf(format, control.ErrInvalid, name, where, file, p.Sketch(), secret, secret)
}

// keyOf returns the vault key that a declared server has for a secret of its service; without one, the catalogue's.
func keyOf(secret catalog.Secret, d declaration.Server) string {
	for _, c := range d.Credentials {
		if c.Env == secret.Env && c.Key != "" {
			return c.Key
		}
	}
	return secret.Key
}

// ways returns the ways to obtain the token of a key.
func (s *signIns) ways(key string) (ways []string) {
	if p, ok := s.now().OfKey(key); ok {
		for _, way := range p.Ways() {
			ways = append(ways, string(way))
		}
		slices.Sort(ways)
	}
	return ways
}

// certificates reads the CA file for a provider's endpoints; "" for no path.
func (s *signIns) certificates(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := fs.ReadFile(s.open(filepath.Dir(path)), filepath.Base(path))
	if err != nil {
		return "", fmt.Errorf("reading ca of the provider: %w", err)
	}
	return string(b), nil
}

// streams reports whether a remote server uses the transport sse.
func streams(d declaration.Server) bool { return d.Transport == declaration.SSE }
