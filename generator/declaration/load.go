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
)

// Set is what a folder of declarations says.
type Set struct {
	Servers []Server // valid and enabled or not, by name
	Broken  []Broken // names whose file has an error, by name: what runs of them keeps running
	Diags   hcl.Diagnostics
	Files   map[string]*hcl.File // source of every file that was read, for Write
	Digests map[string]string    // by server: SHA-256 of its file
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

// IsDeclaration reports whether a file of this name is read. "x.toml.dpkg-new", ".#x.hcl", "x.hcl~" and the like are not.
func IsDeclaration(name string) bool {
	base, ext := splitName(name)
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
// used costs its own server only.
func Load(fsys fs.FS, dir string, o Options) Set {
	s := Set{Files: map[string]*hcl.File{}, Digests: map[string]string{}}
	entries, err := folder(fsys, dir, o.Known)
	if err != nil {
		at := hcl.Range{Filename: dir, Start: hcl.InitialPos, End: hcl.InitialPos}
		s.Diags = s.Diags.Append(problem(at, "Folder not readable", "Reading the folder of declarations: %s. Make it, or name another one.", escape(policies.Reason(err))))
	}
	first := map[string]string{}
	for _, e := range entries {
		if IsDeclaration(e.Name()) {
			s.read(fsys, path.Join(dir, e.Name()), e.Name(), o, first)
		} else if lower := strings.ToLower(e.Name()); lower != e.Name() && IsDeclaration(lower) {
			at := hcl.Range{Filename: path.Join(dir, e.Name()), Start: hcl.InitialPos, End: hcl.InitialPos}
			if _, ext := splitName(e.Name()); ext == "" {
				s.Diags = s.Diags.Append(caution(at, "File not read", "Declarations end in .hcl or .toml, in lower case. Rename the file."))
			}
		}
	}
	slices.SortFunc(s.Servers, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Broken, func(a, b Broken) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File)) })
	return s
}

// read adds one file. first holds which file each name was taken by.
func (s *Set) read(fsys fs.FS, file, entry string, o Options, first map[string]string) {
	b, err := policies.ReadFile(fsys, entry, maxSize)
	if err != nil {
		base, _ := nameOfFile(entry)
		at := hcl.Range{Filename: file, Start: hcl.InitialPos, End: hcl.InitialPos}
		s.Diags = s.Diags.Append(problem(at, "File not readable", "Reading the declaration: %s. Make it a regular file that pfar may read, or remove it.", escape(policies.Reason(err))))
		s.Broken = append(s.Broken, Broken{base, file})
		if _, ok := first[base]; !ok {
			first[base] = file
		}
		return
	}
	s.Files[file] = &hcl.File{Bytes: b}
	server, name, diags := parse(file, b, o)
	s.Diags = append(s.Diags, diags...)
	if other, taken := first[name]; taken {
		if server != nil {
			s.Diags = s.Diags.Append(s.twice(file, b, name, other))
		}
		return
	}
	first[name] = file
	if server == nil {
		s.Broken = append(s.Broken, Broken{name, file})
		return
	}
	s.Servers = append(s.Servers, *server)
	sum := sha256.Sum256(b)
	s.Digests[name] = hex.EncodeToString(sum[:])
}

func (s *Set) twice(file string, b []byte, name, other string) *hcl.Diagnostic {
	at := newSource(file, b).start()
	return problem(at, "Duplicate server", "The name %q is taken by %s, which has it already. Write another name = in one of the two, or remove one.", name, quote(other))
}
