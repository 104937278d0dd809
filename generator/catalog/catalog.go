// Package catalog knows how services are set up: the shipped files of services and the operator's services.d in,
// entries and diagnostics with line and column out.
package catalog

import (
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/reviewed"
	"github.com/pfar/pfar/policies/services"
)

// Service is one service that can be set up by its name.
type Service struct {
	Name, Title, Summary string

	Program    Program
	Domains    []string // as allowed_domains has them
	Label      declaration.Label
	Secrets    []Secret
	Parameters []Parameter

	Device, Code *SignIn // nil: the service has no such flow
	Test         *Test   // nil: none is known
	Remote       Remote

	File string // that the entry stands in
}

// Program is what runs: a package, a local command, or nothing.
type Program struct {
	Package   string                // "npm:NAME@VERSION" or "pypi:NAME==VERSION"
	Integrity string                // of an npm package, as the registry has it: "sha512-..."
	Bin       string                // the package's program; "": its only one
	Command   string                // a local program instead of a package
	Gone      string                // why there is neither package nor command
	URL       string                // of a remote server instead of all these
	Transport declaration.Transport // at URL or Path; "": Streamable HTTP, or nobody knows
	Path      string                // of a socket or a pair of FIFOs; without package and command pfar starts nothing
	Args      []string
	Env       map[string]string // settings that are no secret
	State     bool              // sandbox.state: it keeps files in its home
	Memory    string            // sandbox.memory_limit; "": the default
}

// Remote is the vendor's own server.
type Remote struct {
	URL       string                // "": none is known
	Transport declaration.Transport // as Program has it
	SignIn    string                // ByNothing, ByOAuth or ByToken
	Token     string                // ByToken: variable of the secret that it accepts
	In        broker.Place          // where in a request it wants the secret; Authorization by default
	Scopes    []string              // ByOAuth: to ask for beside those that the server names
}

// Secret is one secret that the server needs.
type Secret struct {
	Env, Key string   // variable of the server, and name in the vault
	Prefixes []string // that values begin with, the longest first
	Pattern  string   // regular expression that a whole value matches; "": none is known
	Where    string   // how a person gets one, in words
	URL      string   // the page for that
	Scopes   []string // to ask for
	Deliver  broker.Delivery
	Hosts    []string       // broker.OnWire: of Domains, where the value may go
	In       []broker.Place // broker.OnWire: where in a request
	Optional bool
	Login    bool // pfar login obtains it, once the server is declared
}

// Parameter is a setting that pfar asks for, and no secret.
type Parameter struct {
	Name, Question, Example string
	Env                     string // variable that it goes into; "": {Name} stands in args, env or domains
	Optional                bool
	Access                  string // "read" or "write": the answer is a path that the server may read or write
}

// SignIn has the endpoints of a way to get a token.
type SignIn struct {
	URL, Token string // device or authorization endpoint, and token endpoint
	Scopes     []string
	Register   string // page on which an owner registers a client; "": none is known
}

// Test is a call that only reads, for verification.
type Test struct {
	Tool      string
	Arguments json.RawMessage
	Answer    string // regular expression that a good answer matches; "": any that is no error
}

// Reviewed returns the digests of definitions that pfar's makers have read, nil without any.
func (s Service) Reviewed() *reviewed.Definitions { return reviewed.Of(s.Name, nil) }

// Set is the content of the files.
type Set struct {
	services map[string]Service
	Diags    hcl.Diagnostics
	Files    map[string]*hcl.File // of the operator's folder
}

// Load reads the shipped files and the operator's folder, whose services replace shipped ones. fsys is rooted in the
// folder; nil: there is none. dir is its path, for messages. A missing folder counts as empty.
func Load(fsys fs.FS, dir string) Set {
	s := Set{services: map[string]Service{}, Files: map[string]*hcl.File{}}
	s.folder(services.Files, "services", true)
	s.folder(fsys, dir, false)
	return s
}

// LoadOne is Load with the shipped file of only one service: a command would take too long to read them all.
func LoadOne(fsys fs.FS, dir, name string) Set {
	s := Set{services: map[string]Service{}, Files: map[string]*hcl.File{}}
	if b, err := fs.ReadFile(services.Files, name+".hcl"); err == nil {
		for _, found := range s.read("services/"+name+".hcl", b, true) {
			s.services[found.Name] = found.Service
		}
	}
	s.folder(fsys, dir, false)
	return s
}

// folder reads the files of one folder over those before it.
func (s *Set) folder(fsys fs.FS, dir string, shipped bool) {
	given := map[string]hcl.Range{}
	diags := policies.ReadFolder(fsys, dir, "services", func(file string, b []byte) {
		if !shipped {
			s.Files[file] = &hcl.File{Bytes: b}
		}
		for _, found := range s.read(file, b, shipped) {
			if first, twice := given[found.Name]; twice {
				s.Diags = append(s.Diags, block.Problem(found.at, "Duplicate service",
					"%q stands in %s:%d already. Keep one of the two.", found.Name, first.Filename,
					first.Start.Line))
				continue
			}
			given[found.Name], s.services[found.Name] = found.at, found.Service
		}
	})
	s.Diags = append(s.Diags, diags...)
}

// All returns every service, sorted by name.
func (s Set) All() []Service {
	return slices.SortedFunc(maps.Values(s.services), func(a, b Service) int {
		return strings.Compare(a.Name,
			b.Name)
	})
}

// Find returns a service by its name.
func (s Set) Find(name string) (Service, bool) {
	found, ok := s.services[name]
	return found, ok
}

// Instead returns a service with a package that replaces the image of a container. names are names of the image.
func (s Set) Instead(names []string) (Service, bool) {
	for _, n := range names {
		if found, ok := s.Find(n); ok && found.Program.Gone == "" && found.Program.Package != "" {
			return found, true
		}
	}
	return Service{}, false
}

// Search returns the services whose name, title, summary, package or domains have every word of a text.
func (s Set) Search(text string) []Service {
	words := strings.Fields(strings.ToLower(text))
	return slices.DeleteFunc(s.All(), func(c Service) bool {
		all := strings.ToLower(strings.Join(append([]string{c.Name, c.Title, c.Summary, c.Program.Package},
			c.Domains...), "\n"))
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) })
	})
}
