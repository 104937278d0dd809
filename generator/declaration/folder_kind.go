package declaration

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/block"
)

// kindOfFile is what the files of a folder declare, one each, whose processes share their names with those of
// inspectors: models and chats.
type kindOfFile[T any] struct {
	word, words string // "model", "models"
	others      string // "An inspector or a notice"
	most        int
	parse       func(filename string, b []byte) (*T, hcl.Diagnostics)
	name        func(*T) string
}

// folderSet is what a folder of such files says, beside what they declare.
type folderSet struct {
	broken []Broken
	diags  hcl.Diagnostics
	files  map[string]*hcl.File
	unread bool
	names  map[string]string // the files that have a name already
}

func (s *folderSet) refuse(file, summary, format string, args ...any) {
	s.diags = s.diags.Append(block.Problem(start(file), summary, format, args...))
}

// loadFolder reads every declaration of a folder, which declare by name. A folder that is not there declares nothing.
// taken are the places of others whose processes have such names.
func loadFolder[T any](f Folder, taken map[string]hcl.Range, k kindOfFile[T]) (list []T, s *folderSet) {
	s = &folderSet{files: map[string]*hcl.File{}, names: map[string]string{}}
	entries, err := f.list(nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.unread = true
		s.refuse(f.Path, "Directory not readable", "Reading the directory of %s: %s. Make it a directory that pfar may "+
			"read, or remove it.", k.words, block.Escape(policies.Reason(err)))
	}
	for _, e := range entries {
		if !IsDeclaration(e.Name()) {
			continue
		}
		if one := readOne(f, e.Name(), s, taken, k, len(list)); one != nil {
			list = append(list, *one)
		}
	}
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(k.name(&a), k.name(&b)) })
	slices.SortFunc(s.broken, func(a, b Broken) int { return cmp.Compare(a.Name, b.Name) })
	return list, s
}

// readOne reads one file; nil: it declares nothing, and s says why. There are n already.
func readOne[T any](
	f Folder, entry string, s *folderSet, taken map[string]hcl.Range, k kindOfFile[T], n int,
) *T {
	name, _ := block.SplitName(entry)
	file := path.Join(f.Path, entry)
	if other, twice := s.names[name]; twice {
		s.refuse(file, "Duplicate "+k.word, "%s declares %q already. Rename or remove one of the two.",
			block.Quote(other), name)
		return nil
	}
	s.names[name] = file
	b, err := policies.ReadFile(f.FS, entry, maxSize)
	if err != nil {
		s.refuse(file, "File not readable", "Reading the declaration: %s. Make it a regular file that pfar may read, or "+
			"remove it.", block.Escape(policies.Reason(err)))
		s.broken = append(s.broken, Broken{name, file})
		return nil
	}
	s.files[file] = &hcl.File{Bytes: b}
	one, diags := k.parse(file, b)
	s.diags = append(s.diags, diags...)
	if at, is := taken[name]; is && one != nil {
		s.refuse(file, "Name of an inspector", "%s is called %q as well, at %s:%d, and each has a process of its "+
			"name. Rename this file.", k.others, name, path.Base(at.Filename), at.Start.Line)
		one = nil
	}
	if one != nil && n == k.most {
		s.refuse(file, "Too many "+k.words, "There are %d %s already, and room for no more. Remove those that are not "+
			"in use.", k.most, k.words)
		one = nil
	}
	if one == nil {
		s.broken = append(s.broken, Broken{name, file})
	}
	return one
}
