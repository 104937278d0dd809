package generator

import (
	"crypto/sha256"
	"encoding/base64"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/source"
)

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
					list = append(list, distribution{host: c.host, folder: path.Join(dir, e), name: source.Normal(name)})
				}
			}
		}
	}
	return list
}

// commands reports whether a package declares a command.
func (d distribution) commands(name string) bool { return slices.Contains(d.scripts(), name) }

// scripts are the commands that a package declares.
func (d distribution) scripts() (names []string) {
	b, _ := d.host.read(path.Join(d.folder, "entry_points.txt"))
	scripts := false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			scripts = line == "[console_scripts]"
		}
		if key, _, ok := strings.Cut(line, "="); ok && scripts {
			names = append(names, strings.TrimSpace(key))
		}
	}
	return names
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
