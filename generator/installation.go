package generator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/sandbox"
)

// installation is where one version of a package lies on the host. Its folder has pfar's own record, which nothing of
// the package can write, and beside that the package's files.
type installation struct {
	host   Host
	pkg    source.Package
	folder string
}

// installation returns the place of a package, whether it is there or not.
func (h Host) installation(p source.Package) installation {
	return installation{h, p, path.Join(h.Packages, string(p.Kind), p.Name, p.Version)}
}

// Folder is where a package is installed, or will be.
func (h Host) Folder(p source.Package) string { return h.installation(p).folder }

// Installed returns nil if a package is there with a program to start, and fs.ErrNotExist if it is not there.
func (h Host) Installed(p source.Package) error {
	i := h.installation(p)
	if err := i.recorded(); err != nil {
		return err
	}
	_, all, err := i.programs()
	if err == nil && len(all) == 0 {
		err = errNoProgram
	}
	return err
}

var errNoProgram = errors.New("the package has no program")

// Record is what a package's folder says of itself.
func Record(p source.Package) []byte {
	b, _ := json.Marshal(saidPackage{p.String()}) // a string
	return append(b, '\n')
}

type saidPackage struct {
	Package string `json:"package"`
}

// record says which package lies beside it.
func (i installation) record() string { return path.Join(i.folder, "record.json") }

// tree holds the files: node_modules of npm, or a virtual environment of Python.
func (i installation) tree() string { return path.Join(i.folder, "tree") }

// program returns the path of a program of the package; "" is its only one, or the one with the package's name. No
// program lies outside of the package: its files are a stranger's, with links and paths that lead anywhere.
func (i installation) program(name string) (string, error) {
	if err := i.recorded(); err != nil {
		return "", err
	}
	inside, all, err := i.programs()
	if err != nil {
		return "", err
	}
	name, err = i.choose(name, slices.Sorted(maps.Keys(all)))
	if err != nil {
		return "", err
	}
	f, err := i.host.resolve(all[name])
	switch {
	case !sandbox.Below(all[name], inside), f.Real != "" && !sandbox.Below(f.Real, i.host.real(inside)):
		return "", fmt.Errorf("the program %q leads out of the package", name)
	case err != nil:
		return "", fmt.Errorf("the program %q is missing", name)
	case !f.Regular():
		return "", fmt.Errorf("the program %q is not a file", name)
	}
	return f.Real, nil
}

// recorded returns fs.ErrNotExist if the package is not installed.
func (i installation) recorded() error {
	if i.host.Packages == "" || !i.host.exists(i.record()) {
		return fs.ErrNotExist
	}
	var r saidPackage
	b, ok := i.host.read(i.host.real(i.record()))
	if !ok || json.Unmarshal(b, &r) != nil || r.Package != i.pkg.String() {
		return fmt.Errorf("%s is not the record of this package", quote(i.record()))
	}
	return nil
}

// choose picks one of the names of a package's programs.
func (i installation) choose(name string, all []string) (string, error) {
	own := path.Base(i.pkg.Name)
	switch {
	case len(all) == 0:
		return "", errNoProgram
	case name != "" && slices.Contains(all, name):
		return name, nil
	case name != "":
		return "", fmt.Errorf("the package has no program %q, only %s", name, strings.Join(all, ", "))
	case len(all) == 1:
		return all[0], nil
	case slices.Contains(all, own):
		return own, nil
	}
	return "", fmt.Errorf("the package has the programs %s; name one in command", strings.Join(all, ", "))
}

// programs returns the paths of the package's programs by name, and the folder that none of them may lead out of.
func (i installation) programs() (inside string, all map[string]string, err error) {
	if i.pkg.Kind == source.PyPI {
		return i.scripts()
	}
	folder := path.Join(i.tree(), "node_modules", i.pkg.Name)
	if i.host.real(folder) != path.Join(i.host.real(i.tree()), "node_modules", i.pkg.Name) {
		return "", nil, errors.New("the directory of the package is a link")
	}
	var m packageManifest
	if !i.host.manifest(i.host.real(folder), &m) {
		return "", nil, errors.New("the package.json cannot be read")
	}
	var one string
	var several map[string]string
	if json.Unmarshal(m.Bin, &one) == nil {
		several = map[string]string{path.Base(i.pkg.Name): one}
	} else if len(m.Bin) > 0 && json.Unmarshal(m.Bin, &several) != nil {
		return "", nil, errors.New("bin in its package.json is neither a path nor an object")
	}
	all = map[string]string{}
	for name, p := range several {
		if source.ValidBin(name) && p != "" {
			all[name] = path.Join(folder, p)
		}
	}
	return folder, all, nil
}

// scripts are the console scripts that pip has written for the package.
func (i installation) scripts() (inside string, all map[string]string, err error) {
	inside, all = path.Join(i.tree(), "bin"), map[string]string{}
	in := facts{host: i.host}.distributions(i.tree())
	in = slices.DeleteFunc(in, func(d distribution) bool { return d.name != i.pkg.Name })
	switch {
	case len(in) != 1:
		return "", nil, fmt.Errorf("the environment has the package %d times", len(in))
	case !sandbox.Below(i.host.real(in[0].folder), i.host.real(i.tree())):
		return "", nil, errors.New("the directory of the package is a link")
	}
	for _, name := range in[0].scripts() {
		if !source.ValidBin(name) {
			continue
		}
		all[name] = path.Join(inside, name)
		if at := i.host.real(all[name]); i.host.exists(at) && sandbox.Below(at, i.host.real(inside)) &&
			!in[0].wrote("bin/"+name, at) {
			return "", nil, fmt.Errorf("the program %q is not the one that the installer wrote", name)
		}
	}
	return inside, all, nil
}

// NotInstalled is the summary of the diagnostic about a package that is not there.
const NotInstalled = "Package not installed"

// install has a server that names a package run the program of the installed one.
func (c *findings) install(s *declaration.Server, h Host) {
	if s.Package == "" {
		return
	}
	const key = "package"
	p, err := source.ParseExact(s.Package)
	if err != nil {
		c.fail(key, "Not a package", "%v.", err)
		return
	}
	i := h.installation(p)
	program, err := i.program(s.Command)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.lack([]string{i.record()}, key, NotInstalled, "%s is not in %s. To install it, run: "+
			"pfar install %s", p, quote(i.folder), p)
	case err != nil:
		c.lack([]string{i.record()}, key, "Package not usable", "%s in %s cannot be started: %v. Install it again "+
			"(pfar install %s), or write another version.", p, quote(i.folder), err, p)
	default:
		s.Command = program
	}
}

// ofInstallation is the package that the declaration names. pfar's own record says that it is this one, whatever
// registry or mirror its files came from.
func (c facts) ofInstallation() origin {
	p, err := source.ParseExact(c.server.Package)
	if err != nil || slices.Contains(managers, p.Key()) { // those run something else
		return origin{}
	}
	return origin{pkg: p.Key(), rests: []string{c.host.real(c.host.installation(p).folder)}}
}
