package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// reader keeps what the files of declarations say, and tells what is wrong with them where an administrator looks: once
// each in the journal, and in the status lines of the units. A status line has the place and the kind of a mistake, and
// not its detail: that may quote the file, and everybody may read a status line.
type reader struct {
	options options
	log     *slog.Logger
	fleet   *fleet
	audit   *auditor
	folder  func(dir string) fs.FS // opens that of the declarations
	earlier *earlier               // the last good versions, for after the next boot; nil: none are kept

	installs *installs // packages of declarations
	services *services
	signIns  *signIns

	declared    []declaration.Server // without mistakes
	diagnostics []control.Diagnostic
	fileRoles
	unread bool // the declarations cannot be read: what is known is of before

	mistakesTold
	status func(words string) // shows words in the status line of pfard's own unit
}

// fileRoles tells of files that are not the declaration of a server by themselves.
type fileRoles struct {
	dropIns map[string]string // by file: its declaration
	hidden  map[string]string // by file that does not count: the one that stands for it
}

// mistakesTold are those that an administrator was told.
type mistakesTold struct {
	logged map[string]bool   // by control.Diagnostic.Text
	shown  map[string]string // by server: in the status line of its unit; absent: nothing
	last   string            // in the status line of pfard's own unit
}

func newReader(o options, log *slog.Logger, f *fleet, a *auditor) *reader {
	return &reader{
		options: o, log: log, fleet: f, audit: a, folder: os.DirFS,
		services:     &services{dir: o.dirs.Services(), open: os.DirFS},
		mistakesTold: mistakesTold{logged: map[string]bool{}, shown: map[string]string{}}, status: func(string) {},
	}
}

// makeFolder makes the directory of the declarations: a user has none at first. One that has gone since is not the same
// as an empty one.
func (r *reader) makeFolder() error {
	if r.earlier.any() {
		return nil
	}
	if err := os.MkdirAll(r.options.declarations, 0o755); err != nil {
		return fmt.Errorf("making the directory of the declarations: %w", err)
	}
	return nil
}

// showMistakes tells what is wrong with the files as they are now.
func (r *reader) showMistakes() {
	r.record(r.diagnostics)
	for name, s := range r.fleet.servers {
		words := ""
		if s.stale && s.held == nil && s.want != nil && s.want.Fault == "" {
			words = "runs by the last good version of its file: " + r.mistakeOf(s)
		}
		if r.shown[name] != words {
			r.shown[name] = words
			r.fleet.units.mistaken(name, words)
		}
	}
	for name := range r.shown {
		if r.fleet.servers[name] == nil {
			delete(r.shown, name)
		}
	}
	r.showTrouble()
}

// mistakeOf is the first mistake that keeps a server from running as its file says.
func (r *reader) mistakeOf(s *server) string {
	for _, g := range r.diagnostics {
		if g.Severity == "error" && (g.Server == s.name || r.declares(g.File) == s.want.File ||
			slices.Contains(r.options.folders(), g.File)) {
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
func (r *reader) record(diags []control.Diagnostic) {
	now := map[string]bool{}
	for _, g := range diags {
		if now[g.Text] = true; r.logged[g.Text] {
			continue
		}
		words, say := "a file has a mistake", r.log.Error
		if g.Severity != "error" {
			words, say = "a file has something doubtful", r.log.Warn
		}
		say(words, "server", g.Server, "file", g.File, "line", g.Line, "column", g.Column, "problem", g.Summary,
			"remedy", "pfar check shows the line and says what to write")
	}
	r.logged = now
}

// showTrouble has pfard's own unit say what is not as it was declared.
func (r *reader) showTrouble() {
	var all []string
	for _, g := range r.diagnostics {
		if g.Severity == "error" {
			all = append(all, brief(g))
		}
	}
	if words := r.audit.stuckWords(); words != "" {
		all = append([]string{words}, all...)
	}
	if why := r.audit.failing(); why != nil {
		all = append([]string{why.Error()}, all...)
	}
	words := fmt.Sprintf("%d declared", len(r.fleet.servers))
	switch len(all) {
	case 0:
	case 1:
		words = all[0] + " (pfar status)"
	default:
		words = fmt.Sprintf("%s, and %d more (pfar status)", all[0], len(all)-1)
	}
	if words != r.last {
		r.last = words
		r.status(strings.ReplaceAll(words, "\n", " "))
	}
}

// nameServers says of each diagnostic which server its file declares.
func (r *reader) nameServers(set declaration.Set) {
	names := map[string]string{}
	for _, b := range set.Broken {
		names[b.File] = b.Name
	}
	for _, s := range slices.Concat(set.Earlier, set.Servers) {
		names[s.File] = s.Name
	}
	for i, g := range r.diagnostics {
		r.diagnostics[i].Server = names[r.declares(g.File)]
	}
}

// known is what the loader is to know beyond the files. A file that has never been good has no claim on its name.
func (r *reader) known() declaration.Options {
	o := declaration.Options{Servers: r.options.servers, Kept: r.earlier.files()}
	for _, s := range r.fleet.servers {
		if s.want != nil && s.want.Fault == "" {
			o.Known = append(o.Known, s.want.File)
		}
	}
	return o
}

// stays returns which servers go on as they are, because nobody knows what their file says now.
func (r *reader) stays(unread bool, broken []declaration.Broken) func(*server) bool {
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
func (r *reader) standIns(set declaration.Set, broken []declaration.Broken, o declaration.Options) (plans []plan.Plan) {
	if set.Unread {
		for _, s := range set.Earlier {
			broken = append(broken, declaration.Broken{Name: s.Name, File: s.File})
		}
	}
	for _, b := range broken {
		if r.inForce(b) {
			continue
		}
		if s := o.Earlier(b.File); s != nil {
			if p, diags := generator.Compile(*s, r.host()); !diags.HasErrors() {
				plans = append(plans, p)
				continue
			}
		}
		if declaration.ValidName(b.Name) {
			plans = append(plans, plan.Plan{
				Name: b.Name, File: b.File, Enabled: true, Autostart: true,
				Gateway: handover.Server{Name: b.Name}, Fault: r.faultOf(b.File),
			})
		}
	}
	return plans
}

// inForce reports whether an earlier version of a file is.
func (r *reader) inForce(b declaration.Broken) bool {
	for _, s := range r.fleet.servers {
		if s.want != nil && s.want.Fault == "" && s.declaredBy(b) {
			return true
		}
	}
	return false
}

// faultOf says why a file cannot be used.
func (r *reader) faultOf(file string) string {
	if fault := r.installs.faultOf(file); fault != "" {
		return fault
	}
	for _, g := range r.diagnostics {
		if g.Severity == "error" && r.declares(g.File) == file {
			return brief(g) + "; pfar check says more"
		}
	}
	return file + " cannot be used; pfar check says more"
}

// declares is the declaration that a file is, or is a drop-in of.
func (r *reader) declares(file string) string { return cmp.Or(r.dropIns[file], file) }

// wordOf tells what a declaration and its drop-ins say from anything else, and what is wrong with it.
func wordOf(from []declaration.Source, fault string) string {
	h := sha256.New()
	for i, s := range from {
		if i > 0 {
			fmt.Fprintf(h, "%q\n", s.File)
		}
		h.Write(s.Text)
	}
	io.WriteString(h, fault)
	return hex.EncodeToString(h.Sum(nil))
}

// describe renders diagnostics as the CLI prints them.
func (r *reader) describe(files map[string]*hcl.File, diags hcl.Diagnostics) []control.Diagnostic {
	var list []control.Diagnostic
	for _, g := range diags {
		c := control.Diagnostic{Severity: "error", Summary: g.Summary, Detail: g.Detail}
		if g.Severity == hcl.DiagWarning {
			c.Severity = "warning"
		}
		if g.Subject != nil {
			c.File, c.Line, c.Column = g.Subject.Filename, g.Subject.Start.Line, g.Subject.Start.Column
		}
		var text bytes.Buffer
		if err := declaration.Write(&text, files, hcl.Diagnostics{g}, 100, false); err != nil {
			r.log.Warn("rendering a diagnostic, ignoring", "error", err)
		}
		c.Text = text.String()
		list = append(list, c)
	}
	return list
}

// host is what the compiler may know of this machine.
func (r *reader) host() generator.Host {
	home, _ := os.UserHomeDir() // without one there is none to protect
	dirs := r.options.dirs
	return generator.Host{
		FS: os.DirFS("/").(fs.ReadLinkFS), Ours: control.OurFiles(),
		Path: filepath.SplitList(os.Getenv("PATH")), Home: home,
		StateDir: dirs.Homes(), Packages: dirs.Packages(), Private: dirs.Private(r.options.declarations),
		Services: r.services.now, SignIn: r.signIns.login, Adapter: adapter(), UID: os.Getuid(),
	}
}

// undeclared returns an error if a server is declared, still runs, or might be declared.
func (r *reader) undeclared(name string) error {
	if r.unread {
		return fmt.Errorf("%w: perhaps; the declarations in %q cannot be read", control.ErrDeclared, r.options.declarations)
	}
	s := r.fleet.servers[name]
	if s == nil {
		return nil
	}
	file := ""
	if p := s.want; p != nil {
		file = " in " + p.File
	}
	return fmt.Errorf("%w: %q%s", control.ErrDeclared, name, file)
}
