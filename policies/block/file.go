// Package block reads files of keys and blocks, in HCL or TOML, by descriptions of their keys: bytes in, values where
// the descriptions say, and diagnostics with line and column out.
package block

import (
	"cmp"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Language describes one kind of file: its blocks, and the sentences of its diagnostics.
type Language struct {
	Named    string // section in which each block has a name, as tool "search" has; "": none
	Instance string // an example of such a name
	// Labels keeps the labels of all blocks. A block may then repeat if it has labels or is at the top of the file.
	Labels   bool
	Dotted   string            // section whose keys TOML may write at the top as "SECTION.KEY"
	Forms    map[string]string // examples of the tables whose keys are in quotes
	Variable Variable
	Public   func(key string) bool // reports whether a key never has a secret value; nil: no key has
	Remedies bool                  // say what to write instead of each syntax error
	Says     Sentences
}

// Variable is the one ${NAME} that strings may contain.
type Variable struct {
	Name    string // "": strings contain none
	Value   string // "": it is not set
	Unknown string // message for any other variable; %[1]s: its name, quoted, %[2]s: its name
	Capital string // addition to Unknown for a name in capitals
	None    string // message if it is not set
}

// Sentences are the formats of diagnostics that all kinds of files have.
type Sentences struct {
	Computed, Template, TooDeep string
	Label, Nameless             string // %[1]s: the block
	Twice                       string // %[1]s: the key, quoted, %[2]s: the key, %[3]d: the line
	Elsewhere                   string // a key at the top and in a Top section; %[1]s: the key, quoted, %[2]d: the line
	Null, Empty                 string // %[1]s: the key, %[2]s: an example
	// WrongType: %[1]s: the key, %[2]s: the type it takes, %[3]s: the type it has, %[4]s: an example.
	WrongType string
	NoBlock   string // a block instead of a value; %[1]s: the key; "": WrongType
	Truth     string // the type of true and false
	Quoted    string // a string instead of true or false; %[1]s: the key, %[2]s: what is meant; "": WrongType
	Meant     string // the likely word, WORD, for the key KEY
}

// File is one file while it is read.
type File struct {
	*Source
	Language
	Report
	TOML   bool
	joined []*Source
}

// NewFile returns a file to read.
func NewFile(name string, b []byte, l Language) *File {
	_, ext := SplitName(name)
	f := &File{Source: NewSource(name, b), Language: l, TOML: ext == TOML}
	f.Hidden.public = l.Public
	return f
}

// MaxDiagnostics bounds the diagnostics of one file.
const MaxDiagnostics = 100

// rank orders the files that were joined: this one is the first.
func (f *File) rank(name string) int {
	return slices.IndexFunc(f.joined, func(s *Source) bool { return s.Name == name })
}

// Finish sorts the diagnostics by place and attaches the parts of the file that must not be printed with them.
func (f *File) Finish() hcl.Diagnostics {
	slices.SortStableFunc(f.Diags, func(x, y *hcl.Diagnostic) int {
		return cmp.Or(
			f.rank(x.Subject.Filename)-f.rank(y.Subject.Filename),
			x.Subject.Start.Byte-y.Subject.Start.Byte, int(x.Severity)-int(y.Severity))
	})
	if n := len(f.Diags); n > MaxDiagnostics {
		at := *f.Diags[MaxDiagnostics].Subject
		f.Diags = f.Diags[:MaxDiagnostics:MaxDiagnostics]
		f.Problem(at, "Too many mistakes",
			"%d more follow. Correct these first, or look whether this is a declaration at all.", n-MaxDiagnostics)
	}
	for _, d := range f.Diags {
		d.Extra = &f.Hidden
	}
	return f.Diags
}
