package importer

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/block"
)

// Propose makes declarations of servers.
func Propose(entries []Entry, o Options) []Proposal {
	if o.Exists == nil {
		o.Exists = func(string) bool { return true }
	}
	all := make([]Proposal, len(entries))
	same := map[string]int{}
	taken := map[string]int{}
	for i, e := range entries {
		d := draft{Entry: e, o: o}
		d.p = Proposal{Name: e.Name, Line: e.Line, Server: declaration.NameNear(e.Name)}
		if first, twice := same[e.print()]; twice && e.Refused == "" {
			d.refuse(e.Line, "it is the same as %s in line %d", block.QuoteName(entries[first].Name), entries[first].Line)
		} else {
			same[e.print()] = i
		}
		if d.Refused == "" {
			d.named(taken)
			d.make()
		}
		d.p.Notes, d.p.Refused = d.Notes, d.Refused
		if d.Refused != "" {
			d.p.Text, d.p.Secrets = "", nil
		} else {
			taken[d.p.Server] = e.Line
		}
		all[i] = d.p
	}
	return all
}

// print is equal for servers that differ in nothing that a declaration has.
func (e *Entry) print() string {
	words := []string{e.command.Text, e.url.Text, e.cwd.Text, e.path.Text}
	for _, a := range e.args {
		words = append(words, a.Text)
	}
	for _, v := range slices.Concat(e.env, e.headers) {
		words = append(words, v.Name+"="+v.Text)
	}
	return fmt.Sprintf("%q", words)
}

// named finds a name that no other server has.
func (d *draft) named(taken map[string]int) {
	wanted := d.p.Server
	if file, declared := d.o.Taken[wanted]; declared {
		d.refuse(d.Line, "the server %s exists already, in %s; rename one of the two", wanted, file)
		return
	}
	for n := 2; ; n++ {
		line, twice := taken[d.p.Server]
		_, declared := d.o.Taken[d.p.Server]
		if !twice && !declared {
			break
		}
		suffix := fmt.Sprintf("-%d", n)
		d.p.Server = strings.TrimRight(wanted[:min(len(wanted), declaration.MaxName-len(suffix))], "-") + suffix
		if n == 2 {
			d.note(d.Line, "it gets another name: %s is the server of line %d", wanted, line)
		}
	}
	if d.p.Server != d.Name && d.p.Server == wanted {
		d.note(d.Line, "its name becomes %s: names have a to z, 0 to 9 and dashes", d.p.Server)
	}
}

func (d *draft) make() {
	d.choices = catalog.Choices{
		Server: d.p.Server, Origin: d.o.Origin, Answers: map[string]string{}, Keys: map[string]string{},
	}
	d.given = map[string]bool{}
	args, env := arguments{d}, environment{d}
	for _, step := range []func(){
		d.local, d.connect, d.attach, d.program, args.put, env.sort, d.parameters, env.missing, d.folder, d.write,
	} {
		if step(); d.Refused != "" {
			return
		}
	}
}

// local refuses what pfar cannot start.
func (d *draft) local() {
	words := d.words()
	switch {
	case d.itself(words):
		d.refuse(d.Line, "it is pfar itself")
	case d.isRemote(), d.hasPath():
	case d.command.Text == "":
		d.refuse(d.Line, "it has no command")
	case len(d.command.lacks) > 0:
		d.refuse(d.command.Line, "its command needs %s, and the file does not have its value; write the command out",
			block.QuoteName(d.command.lacks[0].written))
	default:
		if _, ok := source.Container(d.words()); ok {
			d.container()
		}
	}
}

// itself reports whether a server is pfar's own endpoint, which pfar client install has written there.
func (d *draft) itself(words []string) bool {
	own := strings.HasPrefix(d.url.Text, "http://127.0.0.1:") || strings.HasPrefix(d.url.Text, "http://localhost:")
	connects := path.Base(words[0]) == "pfar" && slices.Contains(words, "connect")
	return d.Name == "pfar" && (own || connects)
}

// container says that a server runs in a container, and which package could do the same.
func (d *draft) container() {
	names, _ := source.Container(d.words())
	if s, ok := d.o.Services.Instead(names); ok {
		d.refuse(d.command.Line, "it runs in a container, and pfar starts none; pfar add %s runs %s instead", s.Name,
			s.Program.Package)
		return
	}
	d.refuse(d.command.Line, "it runs in a container, and pfar starts none; declare the program that it runs")
}

// folder says what becomes of the directory that a server starts in.
func (d *draft) folder() {
	if d.cwd.Text != "" {
		d.note(d.cwd.Line, "cwd is not translated: the server starts in its own home")
	}
	if d.Entry.Folder != "" {
		d.note(d.Line, "its program uses it in the directory %s only; pfar serves it to every client that may use it",
			block.Quote(d.Entry.Folder))
	}
	if d.Disabled {
		d.note(d.Line, "it is disabled in the file, and stays disabled; to enable it: pfar edit %s", d.p.Server)
	}
}

// write has the catalogue write the declaration, and adds what that does not know.
func (d *draft) write() {
	if d.hasPath() {
		d.service.Program.Transport, d.service.Program.Path = declaration.Transport(d.kind), d.path.Text
	}
	text, err := d.service.Declaration(d.choices)
	if err != nil {
		d.refuse(d.Line, "%s", shownError(err))
		return
	}
	d.p.Package = cmp.Or(d.choices.Package, d.service.Program.Package)
	d.p.Text = d.more(string(text))
	if read, diags := declaration.Parse(d.p.Server+".hcl", []byte(d.p.Text), declaration.Options{}); read == nil {
		d.refuse(d.Line, "its declaration would be wrong: %v", diags)
	}
	d.p.Service = d.service.Name
	if d.p.Hosts = d.known; !d.known {
		const note = "pfar does not know its hosts, so the server reaches none; to find them: pfar learn %s --write"
		d.note(d.Line, note, d.p.Server)
	}
}
