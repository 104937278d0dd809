package declaration

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/block"
)

// Folder is a directory of declarations.
type Folder struct {
	Path string // for messages
	FS   fs.FS  // rooted there
}

// Folders are directories, each opened by a function such as os.DirFS.
func Folders(open func(dir string) fs.FS, dirs ...string) []Folder {
	list := make([]Folder, len(dirs))
	for i, dir := range dirs {
		list[i] = Folder{dir, open(dir)}
	}
	return list
}

// null reports whether a name is a link to /dev/null, which declares that there is nothing of that name.
func (f Folder) null(entry string) bool {
	to, err := fs.ReadLink(f.FS, entry)
	return err == nil && to == "/dev/null"
}

// empty reports whether a file is empty. Alone it is a mistake, and above one of its name it hides that.
func (f Folder) empty(entry string) bool {
	info, err := fs.Stat(f.FS, entry)
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// text reads a file, or says why it cannot be read.
func (f Folder) text(entry string) (Source, *hcl.Diagnostic) {
	file := path.Join(f.Path, entry)
	b, err := policies.ReadFile(f.FS, entry, maxSize)
	if err != nil {
		return Source{File: file}, block.Problem(start(file), "File not readable",
			"Reading the declaration: %s. Make it a regular file that pfar may read, or remove "+
				"it.", block.Escape(policies.Reason(err)))
	}
	return Source{file, b}, nil
}

// Set is what folders of declarations say.
type Set struct {
	Servers []Server // valid and enabled or not, by name
	Broken  []Broken // names whose file has an error, by name: what runs of them keeps running
	Earlier []Server // last good versions of those files, as far as one was kept, by name
	Diags   hcl.Diagnostics
	Files   map[string]*hcl.File // source of every file that was read, for Write
	Sources map[string][]Source  // by declaration: its text, and then those of its drop-ins in their order
	Of      map[string]string    // by drop-in: its declaration
	Hidden  map[string]string    // by file that does not count: the one in an earlier folder that stands for it
	Unread  bool                 // a folder is not there or cannot be read: nothing is known of any server
}

// Broken is a declaration that cannot be used as it stands.
type Broken struct {
	Name string // that the file says, or else its base name
	File string
}

// leftovers are the ends, before .hcl or .toml, of names under which editors and package tools leave copies.
func leftovers() []string {
	return []string{
		"~", ".bak", ".orig", ".swp", ".tmp", ".save", ".dpkg-new", ".dpkg-old", ".dpkg-dist", ".dpkg-tmp", ".dpkg-bak",
		".dpkg-backup", ".dpkg-remove",
		".ucf-new", ".ucf-old", ".ucf-dist", ".rpmnew", ".rpmsave", ".rpmorig", ".pacnew", ".pacsave", ".sync-conflict",
	}
}

// IsDeclaration reports whether a file of this name is read. "x.toml.dpkg-new", ".#x.hcl", "x.hcl~" and the like are
// not.
func IsDeclaration(name string) bool {
	base, ext := block.SplitName(name)
	if ext == "" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "#") || base == "" {
		return false
	}
	return !slices.ContainsFunc(leftovers(), func(end string) bool { return strings.HasSuffix(base, end) })
}

// list lists a folder by name, and before all others the files whose paths are known.
func (f Folder) list(known []string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.FS, ".") // sorted by name
	rank := func(e fs.DirEntry) int {
		if slices.Contains(known, path.Join(f.Path, e.Name())) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return rank(a) - rank(b) })
	return entries, err
}

// Load reads every declaration of some folders. What stands in one of them hides what has its name in those after it, as
// in systemd.unit(5). A file that cannot be used costs its own server only, and no name that a good file of its folder
// claims. Only the folders after the first need not be there.
func Load(folders []Folder, o Options) Set {
	s := Set{Files: map[string]*hcl.File{}, Sources: map[string][]Source{}, Of: map[string]string{},
		Hidden: map[string]string{}}
	l := &loader{Set: &s, options: o, known: o.known(folders), drops: dropIns{}, stems: map[string]string{},
		names: map[string]candidate{}}
	for i, f := range folders {
		entries, err := f.list(l.known)
		if err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			s.Unread = true
			s.Diags = s.Diags.Append(block.Problem(start(f.Path), "Directory not readable",
				"Reading the directory of declarations: %s. Make it, or name another one.", block.Escape(policies.Reason(err))))
		}
		l.entries = append(l.entries, entries)
	}
	if !s.Unread { // what one that cannot be read hides or changes is not known
		l.load(folders)
	}
	s.stand(l.known, o)
	slices.SortFunc(s.Servers, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Broken, func(a, b Broken) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File)) })
	return s
}

// loader fills a set from folders.
type loader struct {
	*Set
	options Options
	known   []string
	entries [][]fs.DirEntry // of each folder
	drops   dropIns
	stems   map[string]string    // by file name without its end: the file that has it
	names   map[string]candidate // by server
}

func (l *loader) load(folders []Folder) {
	for i, f := range folders {
		for _, e := range l.entries[i] {
			l.Diags = append(l.Diags, l.drops.gather(f, e)...)
		}
	}
	for i, f := range folders {
		l.folder(f, i)
	}
	l.Diags = append(l.Diags, l.drops.orphans(l.stems)...)
}

// folder reads the declarations of a folder that none before it hides.
func (l *loader) folder(f Folder, n int) {
	var sure, broken []candidate
	here := map[string]string{}
	for _, e := range l.entries[n] {
		file := path.Join(f.Path, e.Name())
		if !IsDeclaration(e.Name()) {
			l.other(f, e)
			continue
		}
		stem, _ := block.SplitName(e.Name())
		if by, ok := l.stems[stem]; ok {
			l.Hidden[file] = by
			continue
		}
		here[stem] = file
		if f.null(e.Name()) || l.below(stem, n) && f.empty(e.Name()) {
			continue
		}
		if c := l.read(f, e.Name(), n); c.server != nil || slices.Contains(l.known, c.file) {
			sure = append(sure, c)
		} else {
			broken = append(broken, c)
		}
	}
	maps.Copy(l.stems, here)
	for _, c := range append(sure, broken...) {
		l.assign(c)
	}
}

// below reports whether a folder after the nth has a declaration of that file name, whatever its end.
func (l *loader) below(stem string, n int) bool {
	return slices.ContainsFunc(slices.Concat(l.entries[n+1:]...), func(e fs.DirEntry) bool {
		base, _ := block.SplitName(e.Name())
		return base == stem && IsDeclaration(e.Name())
	})
}

// other warns of a file that was perhaps meant to be read.
func (l *loader) other(f Folder, e fs.DirEntry) {
	file := path.Join(f.Path, e.Name())
	if lower := strings.ToLower(e.Name()); lower != e.Name() && IsDeclaration(lower) {
		if _, ext := block.SplitName(e.Name()); ext == "" {
			l.Diags = l.Diags.Append(block.Caution(start(file), "File not read",
				"Declarations end in .hcl or .toml, in lower case. Rename the file."))
		}
	} else if clientExt(e.Name()) != "" && !strings.HasPrefix(e.Name(), ".") {
		l.clientFile(f.FS, file, e.Name())
	}
}

// candidate is a file that claims a server's name.
type candidate struct {
	name, file string
	folder     int
	server     *Server // nil: the file cannot be used
}

// read reads one declaration with its drop-ins.
func (l *loader) read(f Folder, entry string, folder int) candidate {
	main, diag := f.text(entry)
	if diag != nil {
		base, _ := nameOfFile(entry)
		l.Diags = l.Diags.Append(diag)
		return candidate{name: base, file: main.File, folder: folder}
	}
	from, whole := []Source{main}, true
	for _, d := range l.drops.of(entry) {
		l.Of[d.file()] = main.File
		one, diag := d.folder.text(d.entry)
		if diag != nil {
			l.Diags, whole = l.Diags.Append(diag), false
			continue
		}
		from = append(from, one)
	}
	for _, one := range from {
		l.Files[one.File] = &hcl.File{Bytes: one.Text}
	}
	l.Sources[main.File] = from
	server, name, diags := parse(from, l.options)
	l.Diags = append(l.Diags, diags...)
	if !whole {
		server = nil
	}
	return candidate{name, main.File, folder, server}
}

// assign gives a file its name, unless another one has it.
func (l *loader) assign(c candidate) {
	if other, taken := l.names[c.name]; taken {
		switch {
		case other.folder != c.folder:
			l.Hidden[c.file] = other.file
		case c.server != nil:
			l.Diags = l.Diags.Append(twice(c.file, c.name, other.file))
		}
		return
	}
	l.names[c.name] = c
	if c.server == nil {
		l.Broken = append(l.Broken, Broken{c.name, c.file})
		return
	}
	l.Servers = append(l.Servers, *c.server)
}

func twice(file, name, other string) *hcl.Diagnostic {
	return block.Problem(start(file), "Duplicate server", "The name %q is taken by %s, which has it already. Write "+
		"another name = in one of the two, or remove one.", name, block.Quote(other))
}
