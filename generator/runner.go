package generator

import (
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/hostfs"
)

// ofRunner is the package that a runner runs. What it fetches from its registry, and finds nowhere else, is certain.
func (c facts) ofRunner(r source.Runner, program hostfs.File, words []string) origin {
	told, ok := r.Read(words)
	name := source.NameOf(told.Package)
	if !ok || name == "" {
		return origin{}
	}
	pkg, called := name, path.Base(program.Written)
	if r.Kind == source.PyPI {
		pkg = source.Package{Kind: r.Kind, Name: source.Normal(name)}.Key()
	}
	found, here := origin{}, false
	switch {
	case told.Folder != "":
		found, here = c.project(told, name == told.Package), true
	case r.Local:
		found, here = c.namesake(program, told.Command)
	}
	unreached := slices.ContainsFunc(r.Hosts, func(host string) bool {
		return reach(c.server).Decide(host, 443).Verdict != egress.Allow
	})
	switch {
	case here && found.pkg == "" && told.Folder != "":
		return origin{}
	case !c.hosts(program):
		return uncertain(pkg, quote(program.Written)+" is only called "+called)
	case here && (found.certain() || told.Folder != ""):
		return found
	case here:
		return uncertain(pkg, "the machine has a program "+quote(told.Command)+", which "+called+" runs in its place")
	case told.From && (r.Kind == source.NPM || source.Normal(told.Command) != source.Normal(name)):
		return uncertain(pkg, "nothing says that "+quote(told.Command)+" is a command of it")
	case c.server.Sandbox.State:
		return uncertain(pkg, "its home is kept (state = true), and "+called+" runs what it finds there")
	case unreached:
		return uncertain(pkg, called+" cannot fetch it: that needs "+strings.Join(r.Hosts, " and ")+" in allowed_domains")
	}
	return origin{pkg: pkg}
}

// project is the package of the command that a runner finds installed in a project. The project's own command would go
// before it.
func (c facts) project(told source.Order, plain bool) origin {
	var own packageManifest
	bin := path.Join(told.Folder, "node_modules/.bin", told.Command)
	if !path.IsAbs(told.Folder) || told.From || !plain || strings.Contains(told.Command, "/") ||
		c.host.manifest(told.Folder, &own) && len(own.Bin) > 0 {
		return origin{}
	}
	o := c.installed(bin)
	if o.certain() {
		o.rests = append(o.rests, path.Join(c.host.real(told.Folder), "package.json"))
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
