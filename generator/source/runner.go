package source

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Runner is a program that runs a package whose name it is given.
type Runner struct {
	Kind    Kind
	Hosts   []string // that it fetches packages from
	Local   bool     // it runs a program of the host that is called like the package
	options string   // those that lead to no other package than the one that is named; "=" ends those with a value
	from    string   // those that name the package that a command is of
	needs   bool     // one of from: without it, it fetches nothing
	folder  string   // the one that names a project, whose installed packages go before fetched ones
}

// runners by their own names and the words behind those.
var runners = func() map[string]Runner {
	npm, pypi := []string{"registry.npmjs.org"}, []string{"pypi.org", "files.pythonhosted.org"}
	npx := Runner{
		Kind: NPM, Hosts: npm, from: "-p --package", folder: "--prefix", Local: true,
		options: "-y --yes -q --quiet --offline --prefer-offline --",
	}
	pnpm := Runner{Kind: NPM, Hosts: npm, options: "-s --silent", from: "--package", Local: true}
	bun := Runner{Kind: NPM, Hosts: npm, options: "--bun --silent", from: "-p --package", Local: true}
	uv := Runner{
		Kind: PyPI, Hosts: pypi, from: "--from",
		options: "-q --quiet -n --no-cache --offline --isolated --refresh --python=",
	}
	with := uv
	with.options, with.from, with.needs, with.Local = uv.options+" --no-project --no-config", "--with", true, true
	return map[string]Runner{
		"npx": npx, "npm exec": npx, "pnpx": pnpm, "pnpm dlx": pnpm, "bunx": bun, "bun x": bun,
		"yarn dlx": {Kind: NPM, Hosts: npm, options: "-q --quiet", from: "-p --package", Local: true},
		"uvx":      uv, "uv tool run": uv, "uv run": with,
		"pipx run": {Kind: PyPI, Hosts: pypi, options: "-q --quiet --no-cache --python=", from: "--spec"},
	}
}()

// RunnerOf is the runner that a command line begins with, and how many of its words are the runner's.
func RunnerOf(words []string) (Runner, int, bool) {
	for n := range min(3, len(words)) {
		if r, ok := runners[strings.Join(words[:n+1], " ")]; ok {
			return r, n + 1, true
		}
	}
	return Runner{}, 0, false
}

// Order is what a runner is told to run.
type Order struct {
	Package string // as written, with or without a version
	From    bool   // an option names it, and Command is one of its programs
	Folder  string // of a project; "": none
	Command string
	Args    []string
}

// Read reads a runner's words. It reports false where an option is not known, or there is not one package.
func (r Runner) Read(words []string) (Order, bool) {
	var o Order
	var from []string
	for i := 0; i < len(words); i++ {
		name, value, valued := strings.Cut(words[i], "=")
		is := func(list, word string) bool { return slices.Contains(strings.Fields(list), word) }
		switch {
		case !strings.HasPrefix(name, "-"):
			o.Command, o.Args = words[i], words[i+1:]
			o.Package, o.From = append(from, o.Command)[0], len(from) > 0
			return o, len(from) < 2 && (o.From || !r.needs)
		case is(r.options, name) && !valued:
			continue
		case is(r.from, name), is(r.folder, name), is(r.options, name+"="):
		default:
			return o, false
		}
		if !valued {
			if i++; i == len(words) {
				return o, false
			}
			value = words[i]
		}
		switch {
		case is(r.from, name):
			from = append(from, value)
		case is(r.folder, name):
			o.Folder = value
		}
	}
	return o, false
}

// packageWord is a package and which versions of it: no address, no file, and no other package that is to have the
// name.
var packageWord = regexp.MustCompile(`^((?:@[a-z0-9~-][a-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*)` +
	`([@=<>!\[][0-9A-Za-z.^~*<>=!+,\[\]@-]*)?$`)

// NameOf is the name of the package that a runner's word names, as written; "" if it names none of a registry.
func NameOf(word string) string {
	if m := packageWord.FindStringSubmatch(word); m != nil {
		return m[1]
	}
	return ""
}

// Command reads the command line of a runner, or of python -m, as a package and the arguments of its program. The
// package has no version if the line has none. A module's package is the one of its name, by custom.
func Command(words []string) (Package, []string, error) {
	if len(words) == 0 {
		return Package{}, nil, errors.New("no command given")
	}
	words = append([]string{path.Base(words[0])}, words[1:]...)
	if python.MatchString(words[0]) {
		return module(words)
	}
	r, n, ok := RunnerOf(words)
	if !ok {
		return Package{}, nil, fmt.Errorf("%q is not a command that runs a package of a registry", words[0])
	}
	o, ok := r.Read(words[n:])
	switch {
	case !ok:
		return Package{}, nil, fmt.Errorf("%s has options that pfar does not know, or not one package",
			strings.Join(words[:n], " "))
	case o.Folder != "":
		return Package{}, nil, fmt.Errorf("the command runs what the project in %q has installed", o.Folder)
	}
	p, err := r.Kind.word(o.Package)
	if err != nil {
		return Package{}, nil, err
	}
	if o.From {
		if p.Bin = o.Command; !ValidBin(p.Bin) {
			return Package{}, nil, fmt.Errorf("%q is not the name of a program of a package", p.Bin)
		}
	}
	return p, slices.Clone(o.Args), nil
}

// word reads a package as runners have it: both kinds take "@VERSION", and "latest" is what they take anyway.
func (k Kind) word(w string) (Package, error) {
	m := packageWord.FindStringSubmatch(w)
	if m == nil {
		return Package{}, fmt.Errorf("%q is not a package of a registry", w)
	}
	version, said := strings.CutPrefix(m[2], "@")
	if !said && k == PyPI {
		version, said = strings.CutPrefix(m[2], "==")
	}
	switch {
	case m[2] != "" && !said:
		return Package{}, fmt.Errorf("%q is not a package with one exact version; write %q", w, m[1]+k.mark()+"1.2.3")
	case version == "latest":
		version, said = "", false
	}
	return named(k, m[1], strings.TrimPrefix(version, "v"), said)
}

var (
	python     = regexp.MustCompile(`^python[0-9.]*$`)
	moduleName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
)

// PythonOptions neither take the next word for their value nor load other code.
const PythonOptions = "-u -I -P -s -E -B -O -OO -q -v"

// module reads python -m.
func module(words []string) (Package, []string, error) {
	i := 1
	for i < len(words) && slices.Contains(strings.Fields(PythonOptions), words[i]) {
		i++
	}
	if i+1 >= len(words) || words[i] != "-m" || !moduleName.MatchString(words[i+1]) {
		return Package{}, nil, fmt.Errorf("%s runs no module that a package could be named after", words[0])
	}
	p, err := named(PyPI, strings.TrimRight(words[i+1], "_"), "", false)
	return p, slices.Clone(words[i+2:]), err
}
