package declaration

import (
	"io/fs"
	"maps"

	"github.com/hashicorp/hcl/v2"

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

// ModelSet is the content of a folder of models.
type ModelSet struct {
	Models []Model  // by name
	Broken []Broken // names whose file has an error, by name: the last good version stays
	Diags  hcl.Diagnostics
	Files  map[string]*hcl.File
	Unread bool // the folder exists but cannot be read, so its models are unknown
}

// Taken are the places of models and of others, by name: their processes and those of chats are called alike.
func (s ModelSet) Taken(others map[string]hcl.Range) map[string]hcl.Range {
	taken := maps.Clone(others)
	if taken == nil {
		taken = map[string]hcl.Range{}
	}
	for _, m := range s.Models {
		taken[m.Name] = m.Place("")
	}
	return taken
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
	list, s := loadFolder(Folder{dir, fsys}, taken, kindOfFile[Model]{
		word: "model", words: "models",
		others: "An inspector or a notice", most: MaxModels,
		parse: ParseModel, name: func(m *Model) string { return m.Name },
	})
	return ModelSet{Models: list, Broken: s.broken, Diags: s.diags, Files: s.files, Unread: s.unread}
}
