package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

// declarer writes and removes declarations in the owner's folder. It keeps nothing: files win. It works in the loop, so
// that requests follow one another, and nothing is read between what it writes and what it answers.
type declarer struct {
	inbox
	reader *reader
	audit  *auditor
	around around
}

func (d *daemon) declarer() declarer { return declarer{d.inbox, d.reader, d.audit, d} }

// answer carries out a request. Mistakes in the text are no error: the answer has them, and nothing was changed.
func (w declarer) answer(p control.Peer, q control.Request) (r *control.Declared, err error) {
	if q.Text == nil {
		q.Text = &control.Text{}
	}
	switch {
	case !units.IsServer(q.Server):
		return nil, fmt.Errorf("%w: %q is not the name of a server", control.ErrInvalid, q.Server)
	case q.Verb == control.Declare && len(q.Text.New) == 0:
		return nil, fmt.Errorf("%w: a declaration without text", control.ErrInvalid)
	}
	by := audit.Record{User: fmt.Sprintf("uid %d", p.UID)}
	err = w.do(func() (err error) {
		if q.Verb == control.Declare {
			r, err = w.declare(by, q)
		} else {
			r, err = w.undeclare(by, q)
		}
		return err
	})
	return r, err
}

// owned is the owner's file for a server, as it is.
type owned struct {
	path   string
	info   fs.FileInfo // nil: there is none, or a link that hides what was installed
	text   []byte
	masked bool
}

// declare checks a text as part of all declarations, and writes it if nothing is wrong. by says who asks for it.
func (w declarer) declare(by audit.Record, q control.Request) (*control.Declared, error) {
	now, err := w.load("", nil)
	if err != nil {
		return nil, err
	}
	file, err := w.file(now, q.Server)
	if err == nil {
		err = file.seen(q.Text.Old)
	}
	if err != nil {
		return nil, err
	}
	then, err := w.load(filepath.Base(file.path), q.Text.New)
	if err != nil {
		return nil, err
	}
	past := upgrades(w.reader.options.dirs.Upgrades())
	r := &control.Declared{
		Server: q.Server, File: file.path, Digest: control.DigestOf(q.Text.New), Upgraded: past.of(q.Server),
	}
	r.Diagnostics = w.reader.describe(then.Files, w.judge(now, then, q.Server, file.path))
	for _, s := range now.Servers {
		if s.Name == q.Server && s.File != file.path {
			r.Hides = s.File
		}
	}
	if !r.Sound() || q.Text.Dry {
		return r, nil
	}
	if err := w.record(by, q, file, r.Digest); err != nil {
		return nil, err
	}
	if err := past.note(q, now, then); err != nil {
		return nil, err
	}
	mode, uid, gid := fs.FileMode(0o644), -1, -1
	if file.info != nil {
		mode = file.info.Mode().Perm() &^ 0o022
		s := file.info.Sys().(*syscall.Stat_t)
		uid, gid = int(s.Uid), int(s.Gid)
	}
	if err := durable.WriteFileFor(file.path, q.Text.New, mode, uid, gid); err != nil {
		return nil, unwritten("writing", file.path, err)
	}
	w.around.reload()
	r.Done, r.Diagnostics = true, w.told(q.Server, file.path)
	return r, nil
}

// allow adds a host to what the owner's file lets a server reach.
func (w declarer) allow(by audit.Record, server string, entry egress.Endpoint) error {
	now, err := w.load("", nil)
	if err != nil {
		return err
	}
	s, ok := declaration.Find(now.Servers, server)
	if !ok {
		return fmt.Errorf("%w: %q", control.ErrNoServer, server)
	}
	if err := s.MayAllow(entry, w.reader.options.declarations); err != nil {
		if u, ok := errors.AsType[*declaration.Unallowed](err); ok {
			return fmt.Errorf("%s: %s", u.Why, u.Hint)
		}
		return err
	}
	text, err := os.ReadFile(s.File)
	if err != nil {
		return err
	}
	then, err := declaration.WithDomains(s.File, text, []string{entry.String()}, w.reader.known())
	if err != nil {
		return fmt.Errorf("adding %s to %s: %w", entry, s.File, err)
	}
	next := control.Text{New: then, Old: control.DigestOf(text)}
	r, err := w.declare(by, control.Request{Verb: control.Declare, Server: server, Text: &next})
	if err != nil || r.Done {
		return err
	}
	for _, d := range r.Diagnostics {
		if d.Severity == "error" {
			return fmt.Errorf("%s would have a mistake: %s: %s", s.File, d.Summary, d.Detail)
		}
	}
	return fmt.Errorf("%s was not written", s.File)
}

// undeclare removes the owner's file, and has a link to /dev/null in its place where another declaration of that server
// would count then.
func (w declarer) undeclare(by audit.Record, q control.Request) (*control.Declared, error) {
	now, err := w.load("", nil)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(claims(now), func(b declaration.Broken) bool { return b.Name == q.Server }) {
		return nil, fmt.Errorf("%w: %q", control.ErrNoServer, q.Server)
	}
	file, err := w.file(now, q.Server)
	if err == nil && q.Text.Old != "" {
		err = file.seen(q.Text.Old)
	}
	if err != nil {
		return nil, err
	}
	without, err := w.load(filepath.Base(file.path), nil)
	if err != nil {
		return nil, err
	}
	r := &control.Declared{Server: q.Server, File: file.path, Diagnostics: []control.Diagnostic{}}
	for _, b := range claims(without) {
		if b.Name == q.Server && b.File != file.path {
			r.Hides = b.File
		}
	}
	if q.Text.Dry {
		r.Digest = file.digest()
		return r, nil
	}
	if err := w.record(by, q, file, ""); err != nil {
		return nil, err
	}
	mask := ""
	if r.Hides != "" {
		mask = filepath.Join(filepath.Dir(file.path), filepath.Base(r.Hides))
		err = durable.WriteLink(mask, os.DevNull)
	}
	if err == nil && file.info != nil && mask != file.path {
		err = durable.Remove(file.path)
	}
	if err != nil {
		return nil, unwritten("removing", file.path, err)
	}
	upgrades(w.reader.options.dirs.Upgrades()).forget(q.Server)
	w.around.reload()
	r.Done = true
	return r, nil
}

// load reads all declarations, as if an entry of the owner's folder had another text.
func (w declarer) load(entry string, text []byte) (declaration.Set, error) {
	folders := declaration.Folders(w.reader.folder, w.reader.options.folders()...)
	if entry != "" {
		folders[0] = folders[0].With(entry, text)
	}
	set := declaration.Load(folders, w.reader.known())
	if set.Unread {
		return set, fmt.Errorf("nothing is changed while the declarations in %q cannot be read; pfar check says why",
			folders[0].Path)
	}
	return set, nil
}

// claims are all files that stand for a server, sound or not.
func claims(set declaration.Set) []declaration.Broken {
	list := slices.Clone(set.Broken)
	for _, s := range set.Servers {
		list = append(list, declaration.Broken{Name: s.Name, File: s.File})
	}
	return list
}

// file is the owner's file that declares a server or, if none does, the one that will.
func (w declarer) file(set declaration.Set, name string) (owned, error) {
	dir := w.reader.options.declarations
	f := owned{path: filepath.Join(dir, name+".hcl")}
	for _, b := range claims(set) {
		if b.Name == name && filepath.Dir(b.File) == dir {
			f.path = b.File
		}
	}
	info, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return f, err
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(f.path)
		if f.masked = err == nil && to == os.DevNull; f.masked {
			return f, nil
		}
		return f, fmt.Errorf("%w: %q is a link to %q; change what it leads to", control.ErrInvalid, f.path, to)
	case !info.Mode().IsRegular():
		return f, fmt.Errorf("%w: %q is not a regular file", control.ErrInvalid, f.path)
	}
	f.info = info
	f.text, err = os.ReadFile(f.path)
	return f, err
}

// seen returns an error unless the file has the text with this digest, "" for none.
func (f owned) seen(digest string) error {
	switch {
	case f.digest() == digest:
		return nil
	case digest == "":
		return fmt.Errorf("%w: %q is there already", control.ErrChanged, f.path)
	case f.info == nil:
		return fmt.Errorf("%w: %q is gone", control.ErrChanged, f.path)
	}
	return fmt.Errorf("%w: somebody has changed %q meanwhile", control.ErrChanged, f.path)
}

func (f owned) digest() string {
	if f.info == nil {
		return ""
	}
	return control.DigestOf(f.text)
}

// judge says what is wrong with a file, and with what it would do to other servers.
func (w declarer) judge(now, then declaration.Set, name, file string) (diags hcl.Diagnostics) {
	own := func(g *hcl.Diagnostic) bool {
		return g.Subject != nil && (g.Subject.Filename == file || then.Of[g.Subject.Filename] == file)
	}
	for _, g := range then.Diags {
		if own(g) {
			diags = append(diags, g)
		}
	}
	start := hcl.Range{Filename: file, Start: hcl.InitialPos, End: hcl.InitialPos}
	stands := map[string]string{}
	for _, s := range then.Servers {
		stands[s.Name] = s.File
		if s.File != file {
			continue
		}
		if s.Name != name {
			diags = diags.Append(block.Problem(s.Place("name"), "Other name", "This declares %q and not %q. Write "+
				"name = %s, or leave the key out.", s.Name, name, block.Quote(name)))
		}
		_, found := generator.Compile(s, w.reader.host())
		diags = append(diags, found...)
	}
	if stands[name] != file && !diags.HasErrors() {
		diags = diags.Append(block.Problem(start, "Not a declaration of its own", "With this text the file would not "+
			"declare %q. Give it a name that no other file has.", name))
	}
	for _, s := range now.Servers {
		if s.Name != name && s.File != file && stands[s.Name] != s.File {
			diags = diags.Append(block.Problem(start, "Hides another server", "With this file %s would no longer "+
				"declare %q. Choose another name.", block.Quote(s.File), s.Name))
		}
	}
	for _, s := range now.Servers {
		if s.Name != name && s.File == file {
			diags = diags.Append(block.Problem(start, "Another server's file", "This file declares %q. Choose another name.",
				s.Name))
		}
	}
	return diags
}

// record writes down who changes what before it is done.
func (w declarer) record(by audit.Record, q control.Request, file owned, next string) error {
	by.Kind, by.Method, by.Server, by.Subject = audit.Declaration, string(q.Verb), q.Server, file.path
	by.Old, by.New, by.Outcome = file.digest(), next, "asked"
	if err := w.audit.append(by); err != nil {
		return fmt.Errorf("%w; without a record no declaration is changed", err)
	}
	return nil
}

// told is what is known to be wrong with a server now.
func (w declarer) told(server, file string) []control.Diagnostic {
	list := []control.Diagnostic{}
	for _, g := range w.reader.diagnostics {
		if g.Server == server || w.reader.declares(g.File) == file {
			list = append(list, g)
		}
	}
	return list
}

// unwritten says what to do about a folder that pfard's unit may not write.
func unwritten(doing, path string, err error) error {
	err = fmt.Errorf("%s %q: %w", doing, path, err)
	if errors.Is(err, unix.EROFS) || strings.Contains(err.Error(), "read-only") {
		return fmt.Errorf("%w; pfard's unit may write /etc/pfar/mcp.d alone: start it again if that was made anew "+
			"(systemctl restart pfard), and name another directory in ReadWritePaths= (systemctl edit pfard)", err)
	}
	return err
}
