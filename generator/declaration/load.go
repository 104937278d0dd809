package declaration

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/block"
)

// Set is what a folder of declarations says.
type Set struct {
	Servers []Server // valid and enabled or not, by name
	Broken  []Broken // names whose file has an error, by name: what runs of them keeps running
	Earlier []Server // last good versions of those files, as far as one was kept, by name
	Diags   hcl.Diagnostics
	Files   map[string]*hcl.File // source of every file that was read, for Write
	Digests map[string]string    // by server: SHA-256 of its file
	Unread  bool                 // the folder is not there or cannot be read: nothing is known of any server
}

// Broken is a declaration that cannot be used as it stands.
type Broken struct {
	Name string // that the file says, or else its base name
	File string
}

// leftovers are the ends, before .hcl or .toml, of names under which editors and package tools leave copies.
func leftovers() []string {
	return []string{
		"~", ".bak", ".orig", ".swp", ".tmp", ".save", ".dpkg-new", ".dpkg-old", ".dpkg-dist", ".dpkg-tmp", ".dpkg-bak", ".dpkg-backup", ".dpkg-remove",
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

// folder lists dir, where fsys is rooted, by name, and before all others the files whose paths are known.
func folder(fsys fs.FS, dir string, known []string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(fsys, ".") // sorted by name
	rank := func(e fs.DirEntry) int {
		if slices.Contains(known, path.Join(dir, e.Name())) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return rank(a) - rank(b) })
	return entries, err
}

// Load reads every declaration of a folder. fsys is rooted there; dir is its path, for messages. A file that cannot be
// used costs its own server only, and no name that a good file claims.
func Load(fsys fs.FS, dir string, o Options) Set {
	s := Set{Files: map[string]*hcl.File{}, Digests: map[string]string{}}
	known := o.known(dir)
	entries, err := folder(fsys, dir, known)
	if err != nil {
		s.Unread = true
		at := hcl.Range{Filename: dir, Start: hcl.InitialPos, End: hcl.InitialPos}
		s.Diags = s.Diags.Append(block.Problem(at, "Folder not readable", "Reading the folder of declarations: %s. Make it, or name another one.", block.Escape(policies.Reason(err))))
	}
	var sure, broken []candidate
	for _, e := range entries {
		if IsDeclaration(e.Name()) {
			c := s.read(fsys, path.Join(dir, e.Name()), e.Name(), o)
			if c.server != nil || slices.Contains(known, c.file) {
				sure = append(sure, c)
			} else {
				broken = append(broken, c)
			}
		} else if lower := strings.ToLower(e.Name()); lower != e.Name() && IsDeclaration(lower) {
			at := hcl.Range{Filename: path.Join(dir, e.Name()), Start: hcl.InitialPos, End: hcl.InitialPos}
			if _, ext := block.SplitName(e.Name()); ext == "" {
				s.Diags = s.Diags.Append(block.Caution(at, "File not read", "Declarations end in .hcl or .toml, in lower case. Rename the file."))
			}
		} else if strings.HasSuffix(e.Name(), extJSON) && !strings.HasPrefix(e.Name(), ".") {
			s.clientFile(fsys, path.Join(dir, e.Name()), e.Name())
		}
	}
	first := map[string]string{}
	for _, c := range append(sure, broken...) {
		s.assign(c, first)
	}
	s.stand(known, o)
	slices.SortFunc(s.Servers, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Broken, func(a, b Broken) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File)) })
	return s
}

// candidate is a file that claims a server's name.
type candidate struct {
	name, file string
	text       []byte
	server     *Server // nil: the file cannot be used
}

// read reads one file.
func (s *Set) read(fsys fs.FS, file, entry string, o Options) candidate {
	b, err := policies.ReadFile(fsys, entry, maxSize)
	if err != nil {
		base, _ := nameOfFile(entry)
		at := hcl.Range{Filename: file, Start: hcl.InitialPos, End: hcl.InitialPos}
		s.Diags = s.Diags.Append(block.Problem(at, "File not readable", "Reading the declaration: %s. Make it a regular file that pfar may read, or remove it.", block.Escape(policies.Reason(err))))
		return candidate{name: base, file: file}
	}
	s.Files[file] = &hcl.File{Bytes: b}
	server, name, diags := parse(file, b, o)
	s.Diags = append(s.Diags, diags...)
	return candidate{name, file, b, server}
}

// assign gives a file its name, unless another one has it. first holds which file each name was taken by.
func (s *Set) assign(c candidate, first map[string]string) {
	if other, taken := first[c.name]; taken {
		if c.server != nil {
			s.Diags = s.Diags.Append(s.twice(c.file, c.text, c.name, other))
		}
		return
	}
	first[c.name] = c.file
	if c.server == nil {
		s.Broken = append(s.Broken, Broken{c.name, c.file})
		return
	}
	s.Servers = append(s.Servers, *c.server)
	s.Digests[c.name] = digestOf(c.text)
}

// digestOf tells a file's content from others.
func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Earlier returns the last good version of a file, nil if none was kept.
func (o Options) Earlier(file string) *Server {
	if o.Kept == nil {
		return nil
	}
	b, err := policies.ReadFile(o.Kept, path.Base(file), maxSize)
	if err != nil {
		return nil
	}
	s, _, _ := parse(file, b, o)
	return s
}

// known are the paths of files whose servers are known: those that Known names, and those of which a version was kept.
func (o Options) known(dir string) []string {
	list := slices.Clone(o.Known)
	if o.Kept == nil {
		return list
	}
	entries, _ := fs.ReadDir(o.Kept, ".") // nothing was kept, or it cannot be read: the folder itself is there
	for _, e := range entries {
		if IsDeclaration(e.Name()) {
			list = append(list, path.Join(dir, e.Name()))
		}
	}
	return list
}

// stand adds the last good versions of the files that cannot be used; of all files that are known, if the folder cannot
// be read.
func (s *Set) stand(known []string, o Options) {
	var files []string
	for _, b := range s.Broken {
		files = append(files, b.File)
	}
	if s.Unread {
		files = known
	}
	taken := map[string]bool{}
	for _, one := range s.Servers {
		taken[one.Name] = true
	}
	for _, file := range files {
		if one := o.Earlier(file); one != nil && !taken[one.Name] {
			taken[one.Name] = true
			s.Earlier = append(s.Earlier, *one)
		}
	}
	slices.SortFunc(s.Earlier, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
}

func (s *Set) twice(file string, b []byte, name, other string) *hcl.Diagnostic {
	at := block.NewSource(file, b).Start()
	return block.Problem(at, "Duplicate server", "The name %q is taken by %s, which has it already. Write another name = in one of the two, or remove one.", name, block.Quote(other))
}
