package generator

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/hostfs"
)

// runner is a program that runs a package whose name it is given.
type runner struct {
	prefix  string   // of the registry's packages, as policies name them
	hosts   []string // that it fetches packages from
	options string   // those that lead to no other package than the one that is named; "=" ends those with a value
	from    string   // those that name the package that a command is of
	needs   bool     // one of from: without it, it fetches nothing
	folder  string   // the one that names a project, whose installed packages go before fetched ones
	local   bool     // it runs a program of the host that is called like the package
}

// runners by their own names and the words behind those.
var runners = func() map[string]runner {
	npm, pypi := []string{"registry.npmjs.org"}, []string{"pypi.org", "files.pythonhosted.org"}
	npx := runner{
		hosts: npm, from: "-p --package", folder: "--prefix", local: true,
		options: "-y --yes -q --quiet --offline --prefer-offline --",
	}
	pnpm := runner{hosts: npm, options: "-s --silent", from: "--package", local: true}
	bun := runner{hosts: npm, options: "--bun --silent", from: "-p --package", local: true}
	uv := runner{
		prefix: "pypi:", hosts: pypi, from: "--from",
		options: "-q --quiet -n --no-cache --offline --isolated --refresh --python=",
	}
	with := uv
	with.options, with.from, with.needs, with.local = uv.options+" --no-project --no-config", "--with", true, true
	return map[string]runner{
		"npx": npx, "npm exec": npx, "pnpx": pnpm, "pnpm dlx": pnpm, "bunx": bun, "bun x": bun,
		"yarn dlx": {hosts: npm, options: "-q --quiet", from: "-p --package", local: true},
		"uvx":      uv, "uv tool run": uv, "uv run": with,
		"pipx run": {prefix: "pypi:", hosts: pypi, options: "-q --quiet --no-cache --python=", from: "--spec"},
	}
}()

// packageName is a package and which version of it: no address, no file, and no other package that is to have the name.
var packageName = regexp.MustCompile(`^((?:@[a-z0-9~-][a-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*)` +
	`(?:[@=<>!\[][0-9A-Za-z.^~*<>=!+,\[\]@-]*)?$`)

// runnerOf is how many words of a command line are those of a runner.
func runnerOf(words []string) (int, bool) {
	for n := range min(3, len(words)) {
		if _, ok := runners[strings.Join(words[:n+1], " ")]; ok {
			return n + 1, true
		}
	}
	return 0, false
}

// order is what a runner is told to run.
type order struct {
	from    []string // packages
	folder  string
	command string
}

// read reads a runner's words. It reports false where an option is not known.
func (r runner) read(words []string) (order, bool) {
	var o order
	for i := 0; i < len(words); i++ {
		name, value, valued := strings.Cut(words[i], "=")
		is := func(list, word string) bool { return slices.Contains(strings.Fields(list), word) }
		switch {
		case !strings.HasPrefix(name, "-"):
			o.command = words[i]
			return o, true
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
			o.from = append(o.from, value)
		case is(r.folder, name):
			o.folder = value
		}
	}
	return o, false
}

// origin is the package that a runner runs. What it fetches from its registry, and finds nowhere else, is certain.
func (r runner) origin(c facts, program hostfs.File, words []string) origin {
	told, ok := r.read(words)
	if !ok || len(told.from) > 1 || r.needs && len(told.from) == 0 {
		return origin{}
	}
	word := append(told.from, told.command)[0]
	m := packageName.FindStringSubmatch(word)
	if m == nil {
		return origin{}
	}
	pkg, called := m[1], path.Base(program.Written)
	if r.prefix != "" {
		pkg = r.prefix + distributionName(pkg)
	}
	found, here := origin{}, false
	switch {
	case told.folder != "":
		found, here = c.project(told, m[1] == word), true
	case r.local:
		found, here = c.namesake(program, told.command)
	}
	unreached := slices.ContainsFunc(r.hosts, func(host string) bool {
		return reach(c.server).Decide(host, 443).Verdict != egress.Allow
	})
	switch {
	case here && found.pkg == "" && told.folder != "":
		return origin{}
	case !c.hosts(program):
		return uncertain(pkg, quote(program.Written)+" is only called "+called)
	case here && (found.certain() || told.folder != ""):
		return found
	case here:
		return uncertain(pkg, "the host has a program "+quote(told.command)+", which "+called+" runs in its place")
	case len(told.from) > 0 && (r.prefix == "" || distributionName(told.command) != distributionName(m[1])):
		return uncertain(pkg, "nothing says that "+quote(told.command)+" is a command of it")
	case c.server.Sandbox.State:
		return uncertain(pkg, "its home is kept (state = true), and "+called+" runs what it finds there")
	case unreached:
		return uncertain(pkg, called+" cannot fetch it: that needs "+strings.Join(r.hosts, " and ")+" in allowed_domains")
	}
	return origin{pkg: pkg}
}

// project is the package of the command that a runner finds installed in a project. The project's own command would go
// before it.
func (c facts) project(told order, plain bool) origin {
	var own packageManifest
	bin := path.Join(told.folder, "node_modules/.bin", told.command)
	if !path.IsAbs(told.folder) || len(told.from) > 0 || !plain || strings.Contains(told.command, "/") ||
		c.host.manifest(told.folder, &own) && len(own.Bin) > 0 {
		return origin{}
	}
	o := c.installed(bin)
	if o.certain() {
		o.rests = append(o.rests, path.Join(c.host.real(told.folder), "package.json"))
	}
	return o
}

// namesake is the package of a program of the host that is called like the word that a runner is given, and whether
// there is one. npx runs it in place of the package of that name (libnpmexec).
func (c facts) namesake(runner hostfs.File, word string) (origin, bool) {
	for _, at := range append(c.host.candidates(word), path.Join(path.Dir(runner.Real), word)) {
		if f, err := c.host.resolve(at); err == nil && f.Executable() {
			return c.installed(at), true
		}
	}
	return origin{}, false
}
