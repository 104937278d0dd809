package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/signin"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/control"
)

// signIns are the owner's clients with OAuth providers, as their folder was when it was read last.
type signIns struct {
	dir     string
	open    func(dir string) fs.FS
	catalog func() catalog.Set

	mu  sync.Mutex
	set signin.Set
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

// loginCommand begins the command that obtains a token set.
const loginCommand = "pfar login "

// login is the command that obtains the token of a key, "" if no provider of it is configured.
func (s *signIns) login(key string) string {
	if p, ok := s.now().OfKey(key); ok {
		return loginCommand + p.Name
	}
	return ""
}

// command is what stores another token set under a key.
func (s *signIns) command(key string) string {
	return cmp.Or(s.login(key), "pfar vault set "+key+" --oauth")
}

// choose returns the provider and the way that a request means. declared are the servers.
func (s *signIns) choose(q control.Request, declared []declaration.Server) (p signin.Provider, way oauth.Way,
	err error) {
	if q.Login == nil || q.Server == "" {
		return p, way, fmt.Errorf("%w: want a name", control.ErrInvalid)
	}
	var keys []string
	for _, d := range declared {
		if d.Name == q.Server {
			keys = vaultKeys(d)
		}
	}
	set := s.now()
	p, err = set.Choose(q.Server, keys)
	switch {
	case errors.Is(err, signin.ErrNone):
		return p, way, s.missing(q.Server, set)
	case err != nil:
		return p, way, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	return p, cmp.Or(q.Login.Way, p.Ways()[0]), nil
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
