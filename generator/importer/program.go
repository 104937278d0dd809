package importer

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/block"
)

// program finds out what is started: a package of a service, another package, or a local program.
func (d *draft) program() {
	if base := strings.ToLower(path.Base(d.command.Text)); (base == "cmd" || base == "cmd.exe") && len(d.args) > 1 &&
		strings.EqualFold(d.args[0].Text, "/c") { // as Windows needs it for npx
		d.command, d.args = d.args[1], d.args[2:]
	}
	words := d.words()
	_, _, runner := source.RunnerOf(append([]string{path.Base(words[0])}, words[1:]...))
	pkg, rest, err := source.Command(words)
	switch {
	case runner && err != nil:
		d.refuse(d.command.Line, "pfar does not understand the command line: %v", err)
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
	if pkg.Name == "mcp-remote" || pkg.Name == "supergateway" {
		url := ""
		for _, a := range d.args {
			if strings.HasPrefix(a.Text, "http") {
				url = a.Text
			}
		}
		d.remote(line, url)
		return
	}
	known := d.ofCatalog(pkg)
	if !known {
		d.service = catalog.Service{Label: "sensitive"}
	}
	bin := pkg.Bin
	pkg.Bin = ""
	switch {
	case pkg.Version == "" && known && d.service.Program.Package != "":
		d.note(line, "no version is said; pfar takes the one that it knows, %s", d.service.Program.Package)
	case pkg.Version == "":
		d.refuse(line, "no version of %s is said, and pfar asks no registry for one here; write one, such as %s", pkg,
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

// interpreter is a program that takes another one as its argument, which the sandbox shows without being told.
var interpreter = regexp.MustCompile(`^(node|nodejs|python[0-9.]*|bun|deno|tsx|ts-node|ruby|perl|php|java|lua|sh|bash)$`)

// arguments puts the arguments where the service wants them, and shows the sandbox the paths among them.
func (d *draft) arguments() {
	args, template := d.args, d.service.Program.Args
	script := d.choices.Package == "" && d.service.Program.Package == "" && interpreter.MatchString(path.Base(d.command.Text))
	var own []string
	if d.known && len(template) > 0 {
		own = slices.Clone(template)
		if !slices.ContainsFunc(template, func(t string) bool { return strings.Contains(t, "{") }) {
			d.leaveOut(args, template)
			return
		}
		args = d.answerBy(template, args)
	}
	for i := 0; i < len(args) && d.Refused == ""; i++ {
		a := args[i]
		next := Word{}
		if i+1 < len(args) {
			next = args[i+1]
		}
		took, joined := d.secretOption(a, next)
		if took {
			if !joined {
				i++
			}
			continue
		}
		a = d.absolute(a)
		if d.unfit(a); d.Refused != "" {
			return
		}
		first := script && !strings.HasPrefix(a.Text, "-")
		script = script && !first
		if first {
			own = append(own, a.Text)
		} else {
			own = append(own, d.pathIn(a))
		}
	}
	d.service.Program.Args = own
}

// leaveOut says which arguments are not those that pfar starts a service with.
func (d *draft) leaveOut(args []Word, template []string) {
	for i := 0; i < len(args); i++ {
		next := Word{}
		if i+1 < len(args) {
			next = args[i+1]
		}
		took, joined := d.secretOption(args[i], next)
		switch {
		case took && !joined:
			i++
		case took, slices.Contains(template, args[i].Text):
		default:
			d.note(args[i].Line, "the argument %s is left out: pfar starts %s with arguments of its own",
				block.Quote(args[i].Text), d.service.Title)
		}
	}
}

// answerBy reads the answers to parameters from where a service has them among its arguments, and returns the others.
func (d *draft) answerBy(template []string, args []Word) []Word {
	n := 0
	for _, t := range template {
		if n == len(args) {
			return nil
		}
		if !strings.Contains(t, "{") {
			if args[n].Text == t {
				n++
			}
			continue
		}
		if d.unfitButPassword(args[n]); d.Refused != "" {
			return nil
		}
		d.answer(t, d.withoutPassword(args[n]).Text)
		n++
	}
	return args[n:]
}

// answer takes the values of parameters out of a text that a service has a template of.
func (d *draft) answer(template, text string) bool {
	m := parameter.FindStringSubmatchIndex(template)
	if m == nil {
		return false
	}
	before, after := template[:m[0]], template[m[1]:]
	rest, ok := strings.CutPrefix(text, before)
	if !ok || strings.Contains(after, "{") || !strings.HasSuffix(rest, after) {
		return false
	}
	name, value := template[m[2]:m[3]], strings.TrimSuffix(rest, after)
	for _, p := range d.service.Parameters {
		if p.Name == name && p.Access != "" {
			value = path.Clean(value)
		}
	}
	if before != "" { // a URL may end in a slash
		value = strings.TrimSuffix(value, "/")
	}
	d.choices.Answers[name] = value
	return true
}

var parameter = regexp.MustCompile(`\{([^{}]*)\}`)

// absolute has a path begin at the root, if it is known where the server would have started.
func (d *draft) absolute(a Word) Word {
	if strings.HasPrefix(a.Text, "./") || strings.HasPrefix(a.Text, "../") || a.Text == "." {
		if path.IsAbs(d.cwd.Text) && len(d.cwd.lacks) == 0 {
			a.Text = path.Join(d.cwd.Text, a.Text)
		} else {
			d.refuse(a.Line, "the argument %s is a path, and it is not known where it begins; write all of it",
				block.Quote(a.Text))
		}
	}
	return a
}

// pathIn has the sandbox show a path that an argument has, for reading.
func (d *draft) pathIn(a Word) string {
	option, file := "", a.Text
	if i := strings.IndexByte(a.Text, '='); strings.HasPrefix(a.Text, "-") && i > 0 {
		option, file = a.Text[:i+1], a.Text[i+1:]
	}
	if !path.IsAbs(file) || file == "/" || strings.ContainsAny(file, "\n") {
		return a.Text
	}
	return option + d.shown(file, "", a.Line)
}

// shown adds a parameter for a path, which the catalogue's writer puts into the sandbox, and returns its place.
func (d *draft) shown(file, variable string, line int) string {
	file = path.Clean(file)
	if !d.o.Exists(file) {
		d.note(line, "%s is not there, so the sandbox does not show it", block.Quote(file))
		return file
	}
	access, words := "read", "the server may read %s; if it writes there, move it to writable: pfar edit %s"
	if last := d.service.Parameters; d.known && variable == "" && len(last) > 0 && last[len(last)-1].Access == "write" {
		access, words = "write", "the server may write %s, as it may the folder before it (pfar edit %s)"
	}
	d.note(line, words, block.Quote(file), d.p.Server)
	for _, p := range d.service.Parameters {
		if d.choices.Answers[p.Name] == file && p.Access == access && variable == "" && p.Env == "" {
			return "{" + p.Name + "}"
		}
	}
	name := "pfar_path_" + string(rune('a'+len(d.service.Parameters)%26)) + strings.Repeat("_", len(d.service.Parameters)/26)
	d.service.Parameters = append(slices.Clone(d.service.Parameters),
		catalog.Parameter{Name: name, Question: "Which path?", Env: variable, Access: access})
	d.choices.Answers[name] = file
	return "{" + name + "}"
}
