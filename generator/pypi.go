package generator

import (
	"crypto/sha256"
	"encoding/base64"
	"path"
	"slices"
	"strings"
)

// pythonOptions neither take the next word for their value nor load other code.
const pythonOptions = "-u -I -P -s -E -B -O -OO -q -v"

// runByPython is the package of the module or script that an interpreter of Python runs.
func (c facts) runByPython(interpreter string, args []string) origin {
	i := slices.IndexFunc(args, func(a string) bool { return !slices.Contains(strings.Fields(pythonOptions), a) })
	if i < 0 {
		return origin{}
	}
	if args[i] != "-m" {
		return c.installed(operand(args[i:], ""))
	}
	if i+1 == len(args) || strings.ContainsAny(args[i+1], "./") {
		return origin{}
	}
	module := args[i+1]
	prefixes := []string{c.host.real(path.Dir(path.Dir(interpreter)))}
	if !c.host.exists(path.Join(prefixes[0], "pyvenv.cfg")) {
		prefixes = []string{"/usr/local", prefixes[0]} // Debian has its own packages beside those of pip
	}
	file := module + "/__main__.py"
	o := c.ofPyPI(prefixes, func(d distribution) bool {
		return d.name == distributionName(module) && c.host.exists(path.Join(path.Dir(d.folder), file))
	}, func(d distribution) bool { return d.wrote(file, path.Join(path.Dir(d.folder), file)) })
	if o.pkg == "" {
		return o
	}
	// Python looks for a module in the working directory first, which is the server's home and kept by state.
	if isolated := slices.Contains(args[:i], "-I") || slices.Contains(args[:i], "-P"); c.server.Sandbox.State && !isolated {
		return uncertain(o.pkg, "its home is kept (state = true), where python -m looks first")
	}
	return o
}

// distribution is an installed package of PyPI: NAME-VERSION.dist-info.
type distribution struct {
	host         Host
	folder, name string
}

// maxDistributions bounds how many are looked at.
const maxDistributions = 2000

// ofPyPI is the package below prefixes that claims a program, if that is the only one, and has written it. Installers
// note in direct_url.json what they have not taken from an index (PEP 610), which can have any name.
func (c facts) ofPyPI(prefixes []string, claims, wrote func(distribution) bool) origin {
	var found []distribution
	for _, prefix := range slices.Compact(prefixes) {
		found = append(found, slices.DeleteFunc(c.distributions(prefix), func(d distribution) bool { return !claims(d) })...)
	}
	// A package may bring the name of another one's program: the one that has written it counts.
	owners := slices.DeleteFunc(slices.Clone(found), func(d distribution) bool { return !wrote(d) })
	switch {
	case len(found) == 0:
		return origin{}
	case len(owners) == 0:
		return uncertain("pypi:"+found[0].name, "its program is not what its installer has written")
	case len(owners) > 1:
		return uncertain("pypi:"+owners[0].name, "it is installed more than once")
	case c.host.exists(path.Join(owners[0].folder, "direct_url.json")):
		return uncertain("pypi:"+owners[0].name, "it was not installed from an index")
	}
	lib := path.Dir(owners[0].folder)
	return origin{pkg: "pypi:" + owners[0].name, rests: []string{lib}}
}

// distributions are the packages below a prefix.
func (c facts) distributions(prefix string) []distribution {
	var list []distribution
	for _, python := range c.host.list(path.Join(prefix, "lib")) {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			dir := path.Join(prefix, "lib", python, packages)
			if !strings.HasPrefix(python, "python") || !c.host.exists(dir) {
				continue
			}
			for _, e := range c.host.list(dir) {
				if name, _, _ := strings.Cut(e, "-"); strings.HasSuffix(e, ".dist-info") && len(list) < maxDistributions {
					list = append(list, distribution{host: c.host, folder: path.Join(dir, e), name: distributionName(name)})
				}
			}
		}
	}
	return list
}

// commands reports whether a package declares a command.
func (d distribution) commands(name string) bool {
	b, _ := d.host.read(path.Join(d.folder, "entry_points.txt"))
	scripts := false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			scripts = line == "[console_scripts]"
		}
		if key, _, ok := strings.Cut(line, "="); ok && scripts && strings.TrimSpace(key) == name {
			return true
		}
	}
	return false
}

// wrote reports whether the file is the one that the package's own list of files has, with its digest: another package
// in the same environment may have put its own in place of it.
func (d distribution) wrote(name, file string) bool {
	record, _ := d.host.read(path.Join(d.folder, "RECORD"))
	content, ok := d.host.read(file)
	sum := sha256.Sum256(content)
	suffix := ",sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]) + ","
	for line := range strings.Lines(string(record)) {
		before, _, found := strings.Cut(line, suffix)
		if ok && found && (before == name || strings.HasPrefix(before, "../") && strings.TrimLeft(before, "./") == name) {
			return true
		}
	}
	return false
}

// distributionName is a name as PyPI compares them (PEP 503).
func distributionName(name string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
}
