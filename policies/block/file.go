// Package block reads files of keys and blocks, in HCL or TOML, by descriptions of their keys: bytes in, values where
// the descriptions say, and diagnostics with line and column out.
package block

import (
	"cmp"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Language is a kind of file: what its blocks are like, and how its mistakes are told.
type Language struct {
	Named    string // the section of which each has a name, as tool "search" is one of tool; "": none
	Instance string // one such name, for remedies
	// Labels has every block keep its labels, and come again where it has some or stands at the top.
	Labels   bool
	Dotted   string            // the section whose keys may stand at the top of TOML as "SECTION.KEY"
	Forms    map[string]string // how tables are written whose keys stand in quotes
	Variable Variable
	Public   func(key string) bool // reports whether the value of a key is no secret; nil: none is
	Remedies bool                  // say what to write instead of a mistake of syntax
	Says     Sentences
}

// Variable is the one ${NAME} that strings may hold.
type Variable struct {
	Name    string // "": there is none
	Value   string // what it stands for; "": nothing
	Unknown string // says so of another one; %[1]s: what was written, quoted, %[2]s: as it was written
	Capital string // goes behind that where it looks like a variable of the environment
	None    string // says that it stands for nothing
}

// Sentences are formats.
type Sentences struct {
	Computed, Template, TooDeep string
	Label, Nameless             string // Label: %[1]s: the block
	Twice                       string // %[1]s: the key, quoted, %[2]s: as it was written, %[3]d: the line
	Null, Empty                 string // %[1]s: the key, %[2]s: how it is written
	// WrongType: %[1]s: the key, %[2]s: what it takes, %[3]s: what stands there, %[4]s: how it is written.
	WrongType string
	NoBlock   string // a block for a value; %[1]s: the key; "": as any other value of a wrong type
	Truth     string // what takes true or false
	Quoted    string // a text for true or false; %[1]s: the key, %[2]s: what is meant; "": likewise
	Meant     string // which word was meant: WORD, for the key KEY
}

// File is one file while it is read.
type File struct {
	*Source
	Language
	Report
	TOML bool
}

// NewFile returns a file that is to be read.
func NewFile(name string, b []byte, l Language) *File {
	_, ext := SplitName(name)
	f := &File{Source: NewSource(name, b), Language: l, TOML: ext == TOML}
	f.Hidden.public = l.Public
	return f
}

// MaxDiagnostics bounds what is said of one file.
const MaxDiagnostics = 100

// Finish sorts what was found by place, and has every diagnostic carry what must not be printed with it.
func (f *File) Finish() hcl.Diagnostics {
	slices.SortStableFunc(f.Diags, func(x, y *hcl.Diagnostic) int {
		return cmp.Or(x.Subject.Start.Byte-y.Subject.Start.Byte, int(x.Severity)-int(y.Severity))
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
