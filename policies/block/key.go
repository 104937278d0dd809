package block

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/nearest"
)

// Value reads what a key is given, and has it go where it belongs.
type Value func(*Field)

// Key describes one key of a section.
type Key struct {
	Name    string
	Example string // a value as both syntaxes write it, or the whole block; "": a table
	Unsaid  string // what holds where a file says nothing; "": nothing
	Value   Value
}

// Written is how a key is written; "": it is a table.
func (k Key) Written() string {
	if k.Example == "" || strings.HasPrefix(k.Example, k.Name+" ") {
		return k.Example
	}
	return k.Name + " = " + k.Example
}

// Section describes a table with fixed keys; the one without a name is the file itself.
type Section struct {
	Name  string
	Where string // it is, for people; "": in NAME
	Keys  []Key
	Top   bool // its keys stand in one of several places: the top of the file, or here
	Many  bool // there is one for each name, so that its keys have no place of their own
}

// Find returns the key of a name.
func (s Section) Find(name string) (Key, bool) {
	i := slices.IndexFunc(s.Keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return s.Keys[i], true
}

// Names returns the names of the keys.
func (s Section) Names() []string {
	names := make([]string, len(s.Keys))
	for i, k := range s.Keys {
		names[i] = k.Name
	}
	return names
}

// where says for people which section it is.
func (s Section) where() string {
	switch {
	case s.Where != "":
		return s.Where
	case s.Name == "":
		return "at the top"
	}
	return "in " + s.Name
}

// Tree returns what stands in the file, or nil if its syntax is wrong, which it reports.
func (f *File) Tree() *Node {
	var root *Node
	if f.TOML {
		root = (&tomlParser{File: f}).read()
	} else {
		root = (&hclParser{File: f}).read()
	}
	f.Hidden.unknown = root == nil
	return root
}

// Reader reads the tree of one file by descriptions.
type Reader struct {
	*File
	// Given has the keys of the file, and of sections that may stand at its top, whether their values are good or not.
	Given map[string]*Field
	// Places says where each key was given, and each entry of lists: "sandbox.read_only[1]".
	Places map[string]hcl.Range
	// Remedy says what to write instead of a key that a section does not have; nil: the nearest of its keys.
	Remedy func(s Section, name string) string
}

// NewReader returns a reader of a file.
func NewReader(f *File) *Reader {
	return &Reader{File: f, Given: map[string]*Field{}, Places: map[string]hcl.Range{}}
}

// Section reads the fields of a table.
func (r *Reader) Section(s Section, n *Node) {
	seen := map[string]*Field{}
	if s.Top {
		seen = r.Given
	}
	for _, f := range n.Fields {
		k, ok := s.Find(f.Key)
		if !ok {
			remedy := nearestKey
			if r.Remedy != nil {
				remedy = r.Remedy
			}
			r.Problem(f.At, "Unknown key", "%s is not known %s. %s", QuoteName(f.Key), s.where(), remedy(s, f.Key))
			r.Hidden.Unread(f)
			continue
		}
		if first, twice := seen[k.Name]; s.Top && twice {
			r.Problem(f.At, "Duplicate key",
				"%s was given already in line %d: it stands at the top or in server. Keep one of the two.",
				Quote(k.Name), first.At.Start.Line)
			continue
		}
		seen[k.Name] = f
		if f.Val.Kind == Null {
			r.Problem(f.Val.At, "Wrong type", r.Says.Null, k.Name)
			continue
		}
		if !s.Many {
			r.place(s, f)
		}
		f.Example = k.Written()
		k.Value(f)
	}
}

// nearestKey says what to write instead of a key that a section does not have.
func nearestKey(s Section, name string) string {
	names := slices.Sorted(slices.Values(s.Names()))
	near := nearest.Keyword(strings.ToLower(name), names)
	if near == "" {
		return "Known are " + strings.Join(names, ", ") + "."
	}
	k, _ := s.Find(near)
	return "Did you mean " + near + "? Write " + k.Written() + "."
}

// place notes where a key was given. Those of a section that stand at the top as well have no other name.
func (r *Reader) place(s Section, f *Field) {
	at, key := f.Val.At, f.Key
	if f.Val.Kind == Table {
		at = f.At
	}
	if !s.Top {
		key = s.Name + "." + key
	}
	r.Places[key] = at
}

// PlaceEntry notes where the entry of a list stands that is the nth to be taken.
func (r *Reader) PlaceEntry(list string, n int, at hcl.Range) {
	r.Places[list+"["+strconv.Itoa(n)+"]"] = at
}
