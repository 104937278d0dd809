package importer

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/block"
)

// program finds out what is started: a package of a service, another package, or a local program.
func (d *draft) program() {
	if d.service.Program.URL != "" || d.command.Text == "" {
		return
	}
	if base := strings.ToLower(path.Base(d.command.Text)); (base == "cmd" || base == "cmd.exe") && len(d.args) > 1 &&
		strings.EqualFold(d.args[0].Text, "/c") { // as Windows needs it for npx
		d.command, d.args = d.args[1], d.args[2:]
	}
	words := d.words()
	_, _, runner := source.RunnerOf(append([]string{path.Base(words[0])}, words[1:]...))
	pkg, rest, err := source.Command(words)
	switch {
	case runner && err != nil:
		d.refuse(d.command.Line, "pfar does not understand the command line: %s", shownError(err))
	case err != nil || !runner && strings.Contains(words[0], "/"): // a Python of its own has packages of its own
		d.localProgram()
	case !d.ofCatalog(pkg) && !runner:
		d.localProgram()
	default:
		d.args = d.args[len(d.args)-len(rest):]
		d.packaged(pkg, d.command.Line)
	}
}

func (d *draft) localProgram() {
	d.service = catalog.Service{Label: "sensitive", Program: catalog.Program{Command: d.command.Text}}
}

// ofCatalog finds the service of a package.
func (d *draft) ofCatalog(pkg source.Package) bool {
	for _, s := range d.o.Services.All() {
		if own, err := source.Parse(s.Program.Package); err == nil && own.Key() == pkg.Key() {
			d.service, d.known = s, true
			return true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.o.Facts)) {
		s, ok := d.o.Services.Find(name)
		if !ok || !slices.Contains(d.o.Facts[name].Packages, pkg.Key()) {
			continue
		}
		d.known = true
		d.service = catalog.Service{
			Name: s.Name, Title: s.Title, Summary: s.Summary, Label: s.Label, Domains: plain(s.Domains),
			Program: catalog.Program{Memory: s.Program.Memory, State: s.Program.State},
		}
		for _, k := range s.Secrets {
			used := slices.ContainsFunc(d.env, func(v Variable) bool { return v.Name == k.Env })
			if used && len(plain(k.Hosts)) == len(k.Hosts) {
				d.service.Secrets = append(d.service.Secrets, k)
			}
		}
		return true
	}
	return false
}

// plain returns the texts without parameters.
func plain(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return strings.Contains(s, "{") })
}

// packaged has a package's version be an exact one.
func (d *draft) packaged(pkg source.Package, line int) {
	known := d.ofCatalog(pkg)
	if !known {
		d.service = catalog.Service{Label: "sensitive"}
	}
	bin := pkg.Bin
	pkg.Bin = ""
	switch {
	case pkg.Version == "" && known && d.service.Program.Package != "":
		d.note(line, "the file names no version; pfar uses %s", d.service.Program.Package)
	case pkg.Version == "":
		d.refuse(line, "the file names no version of %s; write one, such as %s", pkg,
			versioned(pkg))
		return
	case known && d.service.Program.Package != "":
		d.choices.Package = pkg.String()
	default:
		d.service.Program.Package = pkg.String()
	}
	if bin != "" {
		d.service.Program.Bin = bin
	}
}

// versioned shows how a version is written for the runner of a package.
func versioned(pkg source.Package) string { return pkg.Name + "@1.2.3" }

// shown adds a parameter for a path, which the catalogue's writer puts into the sandbox with this access, and returns
// its place.
func (d *draft) shown(file, variable string, line int, access string) string {
	file = path.Clean(file)
	if !d.o.Exists(file) {
		d.note(line, "%s does not exist, so the sandbox does not show it", block.Quote(file))
		return file
	}
	words := "the server may read %s; if it writes there, move it to writable: pfar edit %s"
	if access == "write" {
		words = "the server may write %s, like the directory before it (pfar edit %s)"
	}
	d.note(line, words, block.Quote(file), d.p.Server)
	for _, p := range d.service.Parameters {
		if d.choices.Answers[p.Name] == file && p.Access == access && variable == "" && p.Env == "" {
			return "{" + p.Name + "}"
		}
	}
	name := fmt.Sprintf("pfar_path_%d", len(d.service.Parameters))
	d.service.Parameters = append(slices.Clone(d.service.Parameters),
		catalog.Parameter{Name: name, Question: "Which path?", Env: variable, Access: access})
	d.choices.Answers[name] = file
	return "{" + name + "}"
}
