package main

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/loopback"
)

// importing is an import of the servers of a program, or its preview.
type importing struct {
	Program string
	Path    string // of the form
	Seen    string // names the preview that is shown; "": it is none
	Count   int    // servers that can be imported
	Words   string // how an import goes
	Bad     bool   // it failed
	Again   string // path of a new preview; "": this is one
	Files   []importedFile
}

// importedFile is one file of a program.
type importedFile struct {
	File    string
	Servers []importedServer
}

// importedServer is one server of a file.
type importedServer struct {
	Name    string // in the file
	Server  string
	Page    string // path of its page, once it is imported
	Refused bool   // it is not imported
	Failed  string // why it could not be
	Lines   []string
	Rows    rows
}

// importAt reads the path of an import behind "import/": PROGRAM, or PROGRAM/again for a new preview.
func importAt(rest string) (program string, again, ok bool) {
	program, again = strings.CutSuffix(rest, "/again")
	return program, again, chores.Programs[program] != nil
}

func importPage(ctx context.Context, s *site, one *session, program string, again bool) (content, error) {
	if err := mayCommand(s, one); err != nil {
		return content{}, err
	}
	view := func(subject string) (chores.Importing, error) {
		v := attach.View{What: attach.ViewImport, Subject: subject}
		return viewOf[chores.Importing](ctx, s.archive, v, "the import", "pfar import --from "+program)
	}
	i, err := view("")
	if err == nil && (i.Program != program || again && !i.UnderWay()) {
		i, err = view(program)
	}
	if err != nil {
		return content{}, err
	}
	b := importing{Program: program, Path: one.path("import/" + program), Bad: i.Failed != ""}
	switch {
	case i.UnderWay():
		b.Words = "The import began at " + moment(i.Began) + byItself
	case i.Began.IsZero():
		b.Seen = i.Digest
	case b.Bad:
		b.Words = "The import ended at " + moment(i.Ended) + ": " + visible.Reveal(i.Failed)
	default:
		b.Words = "The import ended at " + moment(i.Ended) + "."
	}
	if !i.Ended.IsZero() {
		b.Again = one.path("import/" + program + "/again")
	}
	if i.Import != nil {
		b.Count = len(i.Import.Wanted())
		for _, f := range i.Import.Files {
			b.Files = append(b.Files, importedFileOf(one, f))
		}
	}
	return content{
		title: "Import from " + program, template: "import", body: b, quiet: i.Began.IsZero(), again: i.UnderWay(),
	}, nil
}

func importedFileOf(one *session, f chores.File) importedFile {
	show := importedFile{File: visible.Reveal(f.File)}
	for _, each := range f.Servers {
		s := importedServer{
			Name: visible.Reveal(each.Name), Server: visible.Reveal(each.Server), Refused: each.Refused != "",
			Failed: visible.Reveal(each.Failed),
		}
		if each.Declared != "" {
			s.Page = one.path("server/" + each.Server)
			s.Rows.add("declared in", each.Declared)
		} else {
			for line := range strings.Lines(each.Declaration) {
				s.Lines = append(s.Lines, strings.TrimRight("+ "+visible.Reveal(strings.TrimSuffix(line, "\n")), " "))
			}
		}
		for _, secret := range each.Secrets {
			s.Rows.add("secret", secret.Words(each.Server))
		}
		if each.Absent {
			s.Rows.add("package", "pfar installs "+each.Package+" first")
		}
		for _, n := range each.Notes {
			s.Rows.add("note", n.Text)
		}
		if s.Refused && !slices.ContainsFunc(each.Notes, func(n chores.Note) bool { return n.Text == each.Refused }) {
			s.Rows.add("refused", each.Refused)
		}
		show.Servers = append(show.Servers, s)
	}
	return show
}

// showImport makes the page of an import.
func showImport(s *site, program string, again bool) maker {
	return func(ctx context.Context, one *session) (content, error) {
		return importPage(ctx, s, one, program, again)
	}
}

// importServers has pfard import the servers that the page has shown.
func importServers(s *site, program string) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		next := "import/" + program
		if form["act"] != attach.OrderImport {
			s.finish(w, r, one, next, notice{}, loopback.ErrForm)
			return
		}
		o := attach.Order{Act: attach.OrderImport, Program: program, Digest: form["seen"]}
		give(s, w, r, one, next, o, ": the import has begun.")
	}
}

// importable are the programs whose servers a person can import, with the paths of the previews.
func importable(s *site, one *session, known *attach.Known) (list []button) {
	if mayCommand(s, one) != nil {
		return nil
	}
	for _, program := range known.Programs {
		if chores.Programs[program] != nil {
			list = append(list, button{one.path("import/" + program), program})
		}
	}
	return list
}
