// Package source reads where programs come from: "npm:NAME@VERSION", "pypi:NAME==VERSION" or the command line of a
// runner in, a package out.
package source

import (
	"fmt"
	"regexp"
	"strings"
)

// Kind is a registry of packages; the zero value is none.
type Kind string

const (
	NPM  Kind = "npm"
	PyPI Kind = "pypi"
)

// Package is one package of a registry. Its fields are safe as parts of paths and as arguments: none begins with a dash
// or a dot.
type Package struct {
	Kind    Kind
	Name    string // of PyPI as Normal has it
	Version string // exact; "": not said
	Bin     string // which of its programs; "": its only one
}

// maxName is the longest name that npm takes.
const maxName = 214

var (
	npmName    = regexp.MustCompile(`^(?:@[a-z0-9][a-z0-9._~-]*/)?[A-Za-z0-9][A-Za-z0-9._~-]*$`)
	pypiName   = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	npmVersion = regexp.MustCompile(`^[0-9]{1,16}(?:\.[0-9]{1,16}){2}(?:-[0-9A-Za-z.-]{1,64})?` +
		`(?:\+[0-9A-Za-z.-]{1,64})?$`)
	pypiVersion = regexp.MustCompile(`^(?:[0-9]{1,8}!)?[0-9]{1,16}(?:\.[0-9]{1,16}){0,9}(?:(?:a|b|rc)[0-9]{1,8})?` +
		`(?:\.post[0-9]{1,16})?(?:\.dev[0-9]{1,16})?(?:\+[a-z0-9]+(?:\.[a-z0-9]+){0,9})?$`)
	binName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)
	runs    = regexp.MustCompile(`[-_.]+`)
)

// Normal is a name as PyPI compares them (PEP 503).
func Normal(name string) string { return runs.ReplaceAllString(strings.ToLower(name), "-") }

// ValidBin reports whether a package may have a program of this name.
func ValidBin(name string) bool { return binName.MatchString(name) }

// mark stands between name and version.
func (k Kind) mark() string {
	if k == PyPI {
		return "=="
	}
	return "@"
}

// Key is the package as policies name it, without its version. Those of npm have no prefix.
func (p Package) Key() string {
	if p.Kind == NPM {
		return p.Name
	}
	return string(p.Kind) + ":" + p.Name
}

// String is the package as Parse reads it.
func (p Package) String() string {
	text := string(p.Kind) + ":" + p.Name
	if p.Version != "" {
		text += p.Kind.mark() + p.Version
	}
	return text
}

// Parse reads "npm:NAME", "npm:NAME@VERSION", "pypi:NAME" or "pypi:NAME==VERSION". A version is an exact one.
func Parse(text string) (Package, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch k := Kind(kind); k {
	case NPM:
		if i := strings.LastIndex(rest, "@"); i > 0 {
			return named(k, rest[:i], rest[i+1:], true)
		}
		return named(k, rest, "", false)
	case PyPI:
		name, version, said := strings.Cut(rest, "==")
		return named(k, name, version, said)
	}
	return Package{}, fmt.Errorf(`%q names no registry; write "npm:NAME@VERSION" or "pypi:NAME==VERSION"`, text)
}

// ParseExact is Parse of a package whose version has to be said.
func ParseExact(text string) (Package, error) {
	p, err := Parse(text)
	if err == nil && p.Version == "" {
		return Package{}, fmt.Errorf("%q has no version; write an exact one, such as %q", text, text+p.Kind.mark()+"1.2.3")
	}
	return p, err
}

func named(k Kind, name, version string, said bool) (Package, error) {
	names, versions := npmName, npmVersion
	if k == PyPI {
		names, versions = pypiName, pypiVersion
	}
	switch {
	case !names.MatchString(name) || len(name) > maxName:
		return Package{}, fmt.Errorf("%q is not the name of a package of %s", name, k)
	case name == "node_modules" || strings.HasSuffix(name, "/node_modules"): // npm refuses it as well
		return Package{}, fmt.Errorf("%q is the directory of npm's packages, and not a package", name)
	case said && !versions.MatchString(version):
		return Package{}, fmt.Errorf("%q is not an exact version of %s; write one such as %q", version, name,
			k.mark()+"1.2.3")
	case k == PyPI:
		name = Normal(name)
	}
	return Package{Kind: k, Name: name, Version: version}, nil
}
