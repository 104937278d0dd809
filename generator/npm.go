package generator

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/pfar/pfar/units/hostfs"
)

// packageManifest is what is read of a package.json.
type packageManifest struct {
	Name    string
	Version string
	Bin     json.RawMessage // a path, or paths by the names of commands
}

// manifest reads the package.json in a folder.
func (h Host) manifest(folder string, m *packageManifest) bool {
	b, ok := h.read(path.Join(folder, "package.json"))
	return ok && json.Unmarshal(b, m) == nil
}

// ofNPM is the package of npm that a program belongs to. Its folder below node_modules and its package.json have the
// same name: of a package under an alias (NAME@npm:OTHER) and of a checkout they differ. Over a link it has to be a
// command of the package, since the owner has not seen what the link leads to.
func (c facts) ofNPM(f hostfs.File) origin {
	folder, name := npmFolder(f.Real)
	var m packageManifest
	if name == "" || !c.host.manifest(folder, &m) || m.Name != name {
		return origin{}
	}
	modules := strings.TrimSuffix(folder, "/"+name)
	switch why := c.notOfRegistry(modules, m); {
	case why != "":
		return uncertain(name, why)
	case path.Join(c.host.real(path.Dir(f.Written)), path.Base(f.Written)) != f.Real && !m.commands(folder, f.Real):
		return origin{}
	}
	return origin{pkg: name, rests: []string{modules}}
}

// notOfRegistry says why npm's list of what it has installed in a folder does not have a package as one of the
// registry's: a folder, an archive or a repository can give itself any name. Without a list, nothing is said: npm keeps
// none for -g, and other package managers keep none.
func (c facts) notOfRegistry(modules string, m packageManifest) string {
	b, ok := c.host.read(path.Join(modules, ".package-lock.json"))
	if !ok {
		return ""
	}
	var list struct {
		Packages map[string]struct {
			Version, Resolved string
			Link              bool
		}
	}
	err := json.Unmarshal(b, &list)
	have, listed := list.Packages["node_modules/"+m.Name]
	switch {
	case err != nil || !listed:
		return "npm's list of what it has installed there leaves it out"
	case have.Link || have.Resolved != "" && !strings.HasPrefix(have.Resolved, "https://registry.npmjs.org/"):
		return "npm has not installed it from its registry"
	case have.Version != m.Version:
		return "npm has installed version " + quote(have.Version) + " of it, and this is " + quote(m.Version)
	}
	return ""
}

// npmFolder is the folder and the name of the package that a file lies in. A package within another one came with that,
// which may have changed it, so it is none; pnpm keeps all of its packages one level deeper.
func npmFolder(real string) (folder, name string) {
	const modules = "/node_modules/"
	i := strings.LastIndex(real, modules)
	if above := real[:i]; strings.Contains(above, modules) {
		_, store, _ := strings.Cut(above, modules)
		if dir, ok := strings.CutPrefix(store, ".pnpm/"); !ok || strings.Contains(dir, "/") {
			return "", ""
		}
	}
	parts := strings.SplitN(real[i+len(modules):], "/", 3)
	scoped := strings.HasPrefix(parts[0], "@")
	switch {
	case scoped && len(parts) == 3:
		name = parts[0] + "/" + parts[1]
	case !scoped && len(parts) > 1 && !strings.HasPrefix(parts[0], "."):
		name = parts[0]
	default:
		return "", ""
	}
	return real[:i+len(modules)] + name, name
}

// commands reports whether a file is one of the commands of a package in a folder.
func (m packageManifest) commands(folder, real string) bool {
	var one string
	var several map[string]string
	if json.Unmarshal(m.Bin, &one) == nil {
		several = map[string]string{m.Name: one}
	} else if json.Unmarshal(m.Bin, &several) != nil {
		return false
	}
	for _, p := range several {
		if path.Join(folder, path.Join("/", p)) == real {
			return true
		}
	}
	return false
}
