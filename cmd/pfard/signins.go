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

// signIns are the owner's clients with OAuth providers, as their folder was when it was read last.
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

// read reads the folder, and returns what is wrong with it. A file with a mistake has no provider.
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

// serve says which servers are declared.
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

// remote is the remote server whose token has a key; "": none.
func (s *signIns) remote(key string) string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remotes[key]
}

// login is the command that obtains the token of a key, "" if nobody is known who gives it.
func (s *signIns) login(key string) string {
	if p, ok := s.now().OfKey(key); ok {
		return units.LoginCommand + p.Name
	}
	if name := s.remote(key); name != "" {
		return units.LoginCommand + name
	}
	return ""
}

// command is what stores another token set under a key.
func (s *signIns) command(key string) string {
	return cmp.Or(s.login(key), "pfar vault set "+key+" --oauth")
}

// choice is what a login is to be with.
type choice struct {
	provider signin.Provider // zero: nothing in oauth.d is of the server
	way      oauth.Way       // "": the authorization server's first
	name     string
	key      string             // of the vault
	remote   declaration.Server // whose token it is; zero: of no remote server
}

// discovers reports whether the server and its authorization server are to say where to sign in.
func (c choice) discovers() bool { return c.provider.Discovers() }

// choose returns what a request means. declared are the servers.
func (s *signIns) choose(q control.Request, declared []declaration.Server) (c choice, err error) {
	if q.Login == nil || q.Server == "" {
		return c, fmt.Errorf("%w: want a name", control.ErrInvalid)
	}
	var keys []string
	for _, d := range declared {
		if d.Name == q.Server {
			keys, c.remote = vaultKeys(d), d
		}
	}
	set := s.now()
	c.provider, err = set.Choose(q.Server, keys)
	switch {
	case errors.Is(err, signin.ErrNone) && c.remote.Remote():
		return c, c.signsIn(q)
	case errors.Is(err, signin.ErrNone):
		return c, s.missing(q.Server, set)
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

// signsIn has the choice be a sign-in to its remote server.
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

// keyOfRemote is where the token of a remote server may lie in the vault.
func keyOfRemote(name string) string { return strings.ReplaceAll(name, "-", "_") + "_token" }

// tokenOf is where the token lies that a remote server's requests have, as the only proof of who sends them; "": they
// have none of the vault. Without encryption there is none either.
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

// vaultKeys are the keys of the vault that a declaration names.
func vaultKeys(d declaration.Server) (keys []string) {
	for _, c := range d.Credentials {
		if c.Key != "" {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// missing says which file an owner is to write for a login.
func (s *signIns) missing(name string, set signin.Set) error {
	if set.Diags.HasErrors() {
		return fmt.Errorf("%w: %s has a mistake, and no provider for %q: pfar check says more", control.ErrInvalid, s.dir,
			name)
	}
	file := filepath.Join(s.dir, name+".hcl")
	known, ok := s.catalog().Find(name)
	if !ok || known.Device == nil && known.Code == nil {
		return fmt.Errorf("%w: there is no OAuth client for %q. Register one with the provider, and write its id and the "+
			"provider's endpoints into %s, as pfar-oauth(5) says", control.ErrInvalid, name, file)
	}
	where := known.Title
	for _, way := range []*catalog.SignIn{known.Device, known.Code} {
		if way != nil && way.Register != "" {
			where = way.Register
		}
	}
	return fmt.Errorf("%w: there is no OAuth client for %q. Register one at %s, with the redirect address "+
		"http://127.0.0.1%s, and write its id into %s: provider %q { client_id = \"...\" }",
		control.ErrInvalid, name, where, oauth.RedirectPath, file, name)
}

// ways are those in which a key's token can be obtained.
func (s *signIns) ways(key string) (ways []string) {
	if p, ok := s.now().OfKey(key); ok {
		for _, way := range p.Ways() {
			ways = append(ways, string(way))
		}
		slices.Sort(ways)
	}
	return ways
}

// certificates reads the file that a provider's endpoints are checked by.
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

// streams reports whether a remote server is asked for a stream of events first.
func streams(d declaration.Server) bool { return d.Transport == declaration.SSE }
