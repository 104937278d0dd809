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
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
)

// Model is one declaration of models.d, complete and valid: every default is filled in.
type Model struct {
	gate.Model
	File string

	places map[string]hcl.Range
}

// Place returns where the file gives a key, as Server.Place does.
func (m *Model) Place(key string) hcl.Range {
	if at, ok := m.places[key]; ok {
		return at
	}
	return start(m.File)
}

// MaxModels bounds the models of a machine.
const MaxModels = 32

// ModelSet is what a folder of models says.
type ModelSet struct {
	Models []Model  // by name
	Broken []Broken // names whose file has an error, by name: the last good version stays
	Diags  hcl.Diagnostics
	Files  map[string]*hcl.File
	Unread bool // the folder is there and cannot be read: nothing is known of any model
}

// ParseModel reads one declaration of a model, as Parse does one of a server.
func ParseModel(filename string, b []byte) (*Model, hcl.Diagnostics) {
	base, _ := block.SplitName(filename)
	f := block.NewFile(filename, b, modelLanguage())
	root := tree(f, `Write at least where the model is and what for: url = "https://api.example.com/v1", `+
		`model = "small" and phases = ["plan", "answer"].`)
	if root == nil {
		return nil, f.Finish()
	}
	m := &Model{File: filename, Model: gate.Model{Audience: gate.Public, Local: true}}
	m.Name, m.Chat = base, new(inspector.Chat)
	newModelFile(f, m).read(root)
	diags := f.Finish()
	if diags.HasErrors() {
		return nil, diags
	}
	return m, diags
}

// LoadModels reads every declaration of a folder, as Load does. A folder that is not there declares none. taken are the
// places of inspectors and notices, by name: their processes are called as those of models are.
func LoadModels(fsys fs.FS, dir string, taken map[string]hcl.Range) ModelSet {
	s := ModelSet{Files: map[string]*hcl.File{}}
	entries, err := Folder{dir, fsys}.list(nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Unread = true
		s.Diags = s.Diags.Append(block.Problem(start(dir), "Directory not readable", "Reading the directory of "+
			"models: %s. Make it a directory that pfar may read, or remove it.", block.Escape(policies.Reason(err))))
	}
	names := map[string]string{}
	for _, e := range entries {
		if IsDeclaration(e.Name()) {
			s.read(Folder{dir, fsys}, e.Name(), names, taken)
		}
	}
	slices.SortFunc(s.Models, func(a, b Model) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Broken, func(a, b Broken) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// read adds one file. names are the files that have a name already.
func (s *ModelSet) read(f Folder, entry string, names map[string]string, taken map[string]hcl.Range) {
	name, _ := block.SplitName(entry)
	file := path.Join(f.Path, entry)
	refused := func(summary, format string, args ...any) {
		s.Diags = s.Diags.Append(block.Problem(start(file), summary, format, args...))
	}
	if other, twice := names[name]; twice {
		refused("Duplicate model", "%s declares %q already. Rename or remove one of the two.", block.Quote(other), name)
		return
	}
	names[name] = file
	b, err := policies.ReadFile(f.FS, entry, maxSize)
	if err != nil {
		refused("File not readable", "Reading the declaration: %s. Make it a regular file that pfar may read, or "+
			"remove it.", block.Escape(policies.Reason(err)))
		s.Broken = append(s.Broken, Broken{name, file})
		return
	}
	s.Files[file] = &hcl.File{Bytes: b}
	m, diags := ParseModel(file, b)
	s.Diags = append(s.Diags, diags...)
	if at, is := taken[name]; is && m != nil {
		refused("Name of an inspector", "An inspector or a notice is called %q as well, at %s:%d, and each has a "+
			"process of its name. Rename this file.", name, path.Base(at.Filename), at.Start.Line)
		m = nil
	}
	if m != nil && len(s.Models) == MaxModels {
		refused("Too many models", "There are %d models already, and room for no more. Remove those that are not "+
			"in use.", MaxModels)
		m = nil
	}
	if m == nil {
		s.Broken = append(s.Broken, Broken{name, file})
		return
	}
	s.Models = append(s.Models, *m)
}
