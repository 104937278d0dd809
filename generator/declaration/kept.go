package declaration

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/block"
)

// maxKept bounds a kept version: a declaration with its drop-ins.
const maxKept = 64 * maxSize

// Pack is the last good version of a declaration as Options.Kept has it: the name of one file, and its text. A
// declaration with drop-ins is kept in one file as well, so that no crash leaves half of them.
func Pack(from []Source) (name string, text []byte) {
	name = path.Base(from[0].File)
	if len(from) == 1 {
		return name, from[0].Text
	}
	text, _ = json.Marshal(from) // strings alone
	return name + extJSON, text
}

// KeptName returns the file name of the declaration that a file of Options.Kept is a version of.
func KeptName(entry string) (name string, ok bool) {
	name = strings.TrimSuffix(entry, extJSON)
	return name, IsDeclaration(name)
}

// KeptOf finds the version of a declaration that is kept: of that file name, or of one that only ends in the other
// syntax.
func (o Options) KeptOf(file string) (entry string) {
	if o.Kept == nil {
		return ""
	}
	base, stem := path.Base(file), stemOf(path.Base(file))
	entries, _ := fs.ReadDir(o.Kept, ".") // nothing was kept, or it cannot be read: the folders themselves are there
	rank := 4
	for _, e := range entries {
		name, ok := KeptName(e.Name())
		if !ok || stemOf(name) != stem {
			continue
		}
		r := 0 // a crash may have left two of them: both were good
		if name != base {
			r += 2
		}
		if name == e.Name() {
			r++
		}
		if r < rank {
			rank, entry = r, e.Name()
		}
	}
	return entry
}

func stemOf(name string) string {
	stem, _ := block.SplitName(name)
	return stem
}

// Earlier returns the last good version of a file, nil if none was kept.
func (o Options) Earlier(file string) *Server {
	entry := o.KeptOf(file)
	if entry == "" {
		return nil
	}
	b, err := policies.ReadFile(o.Kept, entry, maxKept)
	if err != nil {
		return nil
	}
	name, _ := KeptName(entry)
	from := []Source{{path.Join(path.Dir(file), name), b}}
	if name != entry && (json.Unmarshal(b, &from) != nil || len(from) == 0) {
		return nil
	}
	s, _, _ := parse(from, o)
	if s != nil {
		s.File = file
	}
	return s
}

// known are the paths of files whose servers are known: those that Known names, and those of which a version was kept.
func (o Options) known(folders []Folder) []string {
	list := slices.Clone(o.Known)
	if o.Kept == nil {
		return list
	}
	entries, _ := fs.ReadDir(o.Kept, ".") // as in KeptOf
	for _, f := range folders {
		for _, e := range entries {
			if name, ok := KeptName(e.Name()); ok {
				list = append(list, path.Join(f.Path, name))
			}
		}
	}
	return list
}

// stand adds the last good versions of the files that cannot be used; of all files that are known, if a folder cannot
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
