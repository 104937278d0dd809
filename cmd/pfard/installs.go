package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/cmd/pfard/install"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/installer"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/control"
)

// installs installs the packages that declarations name. It is install.Around.
type installs struct {
	jobs      *install.Jobs
	inbox     inbox
	reader    *reader
	redaction *redaction
	around    around
	tries     map[source.Package]*installTry // of declared packages that are not installed
}

// installTry is pfard's own attempt to install a declared package.
type installTry struct {
	words string // why it failed; "": it is under way
	retry retry
}

// want installs the packages that declarations name and that are not installed. After a failure pfard tries again
// later. want forgets a package that no declaration needs any more.
func (i *installs) want(servers []declaration.Server) {
	missing, host := map[source.Package]bool{}, i.reader.host()
	for _, s := range servers {
		p, ok := packageOf(s)
		if !ok || !s.Enabled || i.reader.fleet.disabled(s.Name) || !errors.Is(host.Installed(p), fs.ErrNotExist) {
			continue
		}
		if missing[p] = true; i.tries[p] == nil {
			i.try(p, &installTry{})
		}
	}
	for p, t := range i.tries {
		if !missing[p] {
			t.retry.end()
			delete(i.tries, p)
		}
	}
}

// packageOf is the package that a declaration names.
func packageOf(s declaration.Server) (p source.Package, ok bool) {
	p, err := source.ParseExact(s.Package)
	p.Bin = ""
	return p, err == nil
}

// try begins to install a package.
func (i *installs) try(p source.Package, t *installTry) {
	job, err := i.jobs.Begin(p)
	if err != nil { // pfard is only starting
		return
	}
	i.tries[p], t.words = t, ""
	go func() {
		err := job.Watch(context.Background(), func(control.Installing) error { return nil })
		i.inbox.post(func() { i.tried(p, t, err) })
	}()
}

// tried takes the outcome of an installation.
func (i *installs) tried(p source.Package, t *installTry, err error) {
	if i.tries[p] != t {
		return
	}
	if err == nil { // Installed makes pfard read the declarations again
		delete(i.tries, p)
		return
	}
	t.words = err.Error()
	t.retry.begin(i.inbox, i.reader.fleet.after, pauses(), func() {
		if i.tries[p] == t {
			i.try(p, t)
			i.around.reload()
		}
	})
	i.around.reload()
}

// of returns the package of the declaration in a file, and pfard's attempt to install it; nil: there is none.
func (i *installs) of(file string) (p source.Package, t *installTry) {
	at := slices.IndexFunc(i.reader.declared, func(s declaration.Server) bool { return s.File == file })
	if at < 0 {
		return p, nil
	}
	p, _ = packageOf(i.reader.declared[at])
	return p, i.tries[p]
}

// faultOf returns why the declaration in a file cannot be used, if its package is missing; "": that is not why.
func (i *installs) faultOf(file string) string {
	switch p, t := i.of(file); {
	case t == nil:
		return ""
	case t.words == "":
		return "its package is being installed: " + p.String()
	default:
		return t.words + "; to try at once, run: pfar install " + p.String()
	}
}

// shown returns the diagnostics of a declaration for people. It leaves out that a package is missing while pfard
// installs it. If the installation failed, it says why.
func (i *installs) shown(s declaration.Server, diags hcl.Diagnostics) (list hcl.Diagnostics) {
	p, _ := packageOf(s)
	t := i.tries[p]
	for _, g := range diags {
		if g.Summary == generator.NotInstalled && t != nil {
			if t.words == "" {
				continue
			}
			told := *g
			told.Detail = fmt.Sprintf("%s. pfar tries again %s after that. To try at once, run: pfar install %s", t.words,
				pauseWords(t.retry.pause), p)
			g = &told
		}
		list = append(list, g)
	}
	return list
}

// rest keeps pfard from starting servers that wait for their package.
func (i *installs) rest() {
	for _, s := range i.reader.fleet.servers {
		if i.under(s) {
			s.run, s.asleep = false, false
		}
	}
}

// under reports whether a server waits for its package.
func (i *installs) under(s *server) bool {
	if s.want == nil || s.want.Fault == "" {
		return false
	}
	_, t := i.of(s.want.File)
	return t != nil && t.words == ""
}

// show sets the status of a server whose package is being installed.
func (i *installs) show(s *server, c *control.Server) {
	if i.under(s) && s.has.Started == nil {
		p, _ := i.of(s.want.File)
		c.State, c.Detail = control.Fetching, p.String()
	}
}

// Settings returns the reader of this host's npm and pip settings. It reads a person's own settings only if pfard runs
// as that person.
func (i *installs) Settings() installer.Reader {
	return installer.Reader{Host: i.reader.host(), Own: os.Getuid() != 0, Env: os.Getenv}
}

// Clean removes secrets from a text, and makes it one printable line.
func (i *installs) Clean(text string) string { return printable(i.redaction.clean(text)) }

// Integrity returns the digest of a package that the catalogue names, as the registry had it when the entry was made.
func (i *installs) Integrity(p source.Package) string {
	for _, s := range i.reader.services.now().All() {
		if named, err := source.ParseExact(s.Program.Package); err == nil && named.Key() == p.Key() &&
			named.Version == p.Version {
			return s.Program.Integrity
		}
	}
	return ""
}

// Installed makes pfard read the declarations again after an installation.
func (i *installs) Installed(source.Package) { i.inbox.post(i.around.reload) }

// Log says where to find the output of a job's process. Without systemd, all jobs write to one file.
func (i *installs) Log(instance string) string {
	if i.reader.options.local {
		instance = installer.Server
	}
	return i.reader.fleet.runner.Log(instance)
}

// packageNamed returns the package that the declaration of a server names.
func (i *installs) packageNamed(server string) (string, error) {
	s, ok := declaration.Find(i.reader.declared, server)
	switch {
	case !ok:
		return "", fmt.Errorf("%w: %q", control.ErrNoServer, server)
	case s.Package == "":
		return "", fmt.Errorf("%w: %q names no package in %s", control.ErrInvalid, server, s.File)
	}
	return s.Package, nil
}
