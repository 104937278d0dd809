// Package reviewed holds the digests of the definitions that pfar's makers have read: a package in, what it may list
// without a question out.
package reviewed

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// Each file is of one package, and named like the service if facts of that are shipped:
//
//	package @modelcontextprotocol/server-memory
//	version memory-server 0.6.3
//	tool 3f2a... create_entities
//
// TestReviewedDefinitions of tests/e2e writes them with -update, from what the servers of packaging/servers really
// list, and TestKnownServices those of other services, from the packages of policies/services.
//
//go:embed *.txt
var files embed.FS

// Definitions are those of one package.
type Definitions struct {
	Service  string
	Package  string
	versions []string
	digests  map[string]bool // "tool 3f2a..."
}

// Version reports whether title is a name and version that the package says of itself.
func (d *Definitions) Version(title string) bool { return slices.Contains(d.versions, title) }

// Has reports whether a definition of this kind and SHA-256 has been read.
func (d *Definitions) Has(kind, digest string) bool { return d.digests[kind+" "+digest] }

// Of returns the definitions of what a server runs: its declared service, or without one its packages. nil: none have
// been read.
func Of(service string, packages []string) *Definitions {
	for _, d := range All() {
		if service != "" && d.Service == service || service == "" && slices.Contains(packages, d.Package) {
			return d
		}
	}
	return nil
}

// All are those of all packages.
var All = sync.OnceValue(func() (all []*Definitions) {
	names, _ := fs.Glob(files, "*.txt") // the pattern is right
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			panic(err) // it is embedded
		}
		d, err := parse(strings.TrimSuffix(path.Base(name), ".txt"), string(b))
		if err != nil {
			panic(err) // TestFiles has read it
		}
		all = append(all, d)
	}
	return all
})

func parse(service, text string) (*Definitions, error) {
	d := &Definitions{Service: service, digests: make(map[string]bool)}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "package":
			d.Package = rest
		case "version":
			d.versions = append(d.versions, rest)
		case "tool", "prompt", "instructions", "resource", "template":
			sum, _, _ := strings.Cut(rest, " ")
			if len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
				return nil, fmt.Errorf("%s.txt:%d: %.80q is not the SHA-256 of a definition", service, n, sum)
			}
			d.digests[word+" "+sum] = true
		default:
			return nil, fmt.Errorf("%s.txt:%d: unknown word %.40q: use package, version or a kind of definition", service, n, word)
		}
	}
	if d.Package == "" {
		return nil, fmt.Errorf("%s.txt: the package is missing", service)
	}
	return d, nil
}
