package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// mistakes in files are told where an administrator looks: once each in the journal, and in the status lines of the
// units. There stand the place and the kind of a mistake. Its detail may quote the file, and everybody may read a
// status line.
type mistakes struct {
	log    *slog.Logger
	logged map[string]bool   // by control.Diagnostic.Text
	shown  map[string]string // by server: in the status line of its unit; absent: nothing

	unit  func(server, words string) // shows words in the status line of a server's unit; "": takes them away
	pfard func(words string)         // shows words in the status line of pfard's own
	last  string                     // that it shows
}

func newMistakes(log *slog.Logger) mistakes {
	return mistakes{
		log: log, logged: map[string]bool{}, shown: map[string]string{},
		unit: func(string, string) {}, pfard: func(string) {},
	}
}

// showMistakes tells what is wrong with the files as they are now.
func (d *daemon) showMistakes() {
	d.mistakes.record(d.diagnostics)
	for name, s := range d.servers {
		words := ""
		if s.stale && s.held == nil && s.want != nil && s.want.Fault == "" {
			words = "runs by the last good version of its file: " + d.mistakeOf(s)
		}
		if d.mistakes.shown[name] != words {
			d.mistakes.shown[name] = words
			d.mistakes.unit(name, words)
		}
	}
	for name := range d.mistakes.shown {
		if d.servers[name] == nil {
			delete(d.mistakes.shown, name)
		}
	}
	d.showTrouble()
}

// mistakeOf is the first mistake that keeps a server from running as its file says.
func (d *daemon) mistakeOf(s *server) string {
	for _, g := range d.diagnostics {
		if g.Severity == "error" && (g.Server == s.name || g.File == s.want.File || g.File == d.options.declarations) {
			return brief(g)
		}
	}
	return s.want.File
}

// brief is where a mistake is, and its kind.
func brief(g control.Diagnostic) string {
	return fmt.Sprintf("%s:%d:%d: %s", g.File, g.Line, g.Column, g.Summary)
}

// record writes to the journal what has not been there.
func (m *mistakes) record(diags []control.Diagnostic) {
	now := map[string]bool{}
	for _, g := range diags {
		if now[g.Text] = true; m.logged[g.Text] {
			continue
		}
		words, say := "a file has a mistake", m.log.Error
		if g.Severity != "error" {
			words, say = "a file has something doubtful", m.log.Warn
		}
		say(words, "server", g.Server, "file", g.File, "line", g.Line, "column", g.Column, "problem", g.Summary,
			"remedy", "pfar check shows the line and says what to write")
	}
	m.logged = now
}

// showTrouble has pfard's own unit say what is not as it was declared.
func (d *daemon) showTrouble() {
	var all []string
	for _, g := range d.diagnostics {
		if g.Severity == "error" {
			all = append(all, brief(g))
		}
	}
	if words := d.audit.stuckWords(); words != "" {
		all = append([]string{words}, all...)
	}
	if why := d.audit.failing(); why != nil {
		all = append([]string{why.Error()}, all...)
	}
	words := fmt.Sprintf("%d declared", len(d.servers))
	switch len(all) {
	case 0:
	case 1:
		words = all[0] + " (pfar status)"
	default:
		words = fmt.Sprintf("%s, and %d more (pfar status)", all[0], len(all)-1)
	}
	if words != d.mistakes.last {
		d.mistakes.last = words
		d.mistakes.pfard(strings.ReplaceAll(words, "\n", " "))
	}
}

// nameServers says of each diagnostic which server its file declares.
func (d *daemon) nameServers(set declaration.Set) {
	names := map[string]string{}
	for _, b := range set.Broken {
		names[b.File] = b.Name
	}
	for _, s := range slices.Concat(set.Earlier, set.Servers) {
		names[s.File] = s.Name
	}
	for i, g := range d.diagnostics {
		d.diagnostics[i].Server = names[g.File]
	}
}

// known is what the loader is to know beyond the files. A file that has never been good has no claim on its name.
func (d *daemon) known() declaration.Options {
	o := declaration.Options{Servers: d.options.servers, Kept: d.earlier.files()}
	for _, s := range d.servers {
		if s.want != nil && s.want.Fault == "" {
			o.Known = append(o.Known, s.want.File)
		}
	}
	return o
}

// stays returns which servers go on as they are, because nobody knows what their file says now.
func (d *daemon) stays(unread bool, broken []declaration.Broken) func(*server) bool {
	return func(s *server) bool {
		return s.want != nil && (unread || s.want.Fault == "" && slices.ContainsFunc(broken, s.declaredBy))
	}
}

// declaredBy reports whether a file is, or was, the server's. One whose own name cannot be read is known by its path.
func (s *server) declaredBy(b declaration.Broken) bool {
	return b.Name == s.name || s.want != nil && b.File == s.want.File
}

// standIns are plans for files that cannot be used, and of which nothing is in force: their last good version or,
// without one, a plan by which the server's unit fails and says why.
func (d *daemon) standIns(set declaration.Set, broken []declaration.Broken, o declaration.Options) (plans []plan.Plan) {
	if set.Unread {
		for _, s := range set.Earlier {
			broken = append(broken, declaration.Broken{Name: s.Name, File: s.File})
		}
	}
	for _, b := range broken {
		if d.inForce(b) {
			continue
		}
		if s := o.Earlier(b.File); s != nil {
			if p, diags := generator.Compile(*s, d.host()); !diags.HasErrors() {
				plans = append(plans, p)
				continue
			}
		}
		if declaration.ValidName(b.Name) {
			plans = append(plans, plan.Plan{
				Name: b.Name, File: b.File, Enabled: true, Autostart: true, Gateway: handover.Server{Name: b.Name}, Fault: d.faultOf(b.File),
			})
		}
	}
	return plans
}

// inForce reports whether an earlier version of a file is.
func (d *daemon) inForce(b declaration.Broken) bool {
	for _, s := range d.servers {
		if s.want != nil && s.want.Fault == "" && s.declaredBy(b) {
			return true
		}
	}
	return false
}

// faultOf says why a file cannot be used.
func (d *daemon) faultOf(file string) string {
	for _, g := range d.diagnostics {
		if g.Severity == "error" && g.File == file {
			return brief(g) + "; pfar check says more"
		}
	}
	return file + " cannot be used; pfar check says more"
}
