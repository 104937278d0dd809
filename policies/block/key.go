package block

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/nearest"
)

// Value checks the value of a key and stores it.
type Value func(*Field)

// Key describes one key of a section.
type Key struct {
	Name    string
	Example string // a value as both syntaxes write it, or the whole block; "": the key is a table
	Unsaid  string // the default, as both syntaxes write it; "": none
	Value   Value
}

// Written returns the key with its example, "" for a table.
func (k Key) Written() string {
	if k.Example == "" || strings.HasPrefix(k.Example, k.Name+" ") {
		return k.Example
	}
	return k.Name + " = " + k.Example
}

// Section describes a table with fixed keys; the one without a name is the file itself.
type Section struct {
	Name  string
	Where string // how diagnostics name it; "": in NAME
	Keys  []Key
	Top   bool // its keys may also stand at the top of the file
	Many  bool // there is one for each name: Places does not have its keys
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

// where names the section in diagnostics.
func (s Section) where() string {
	switch {
	case s.Where != "":
		return s.Where
	case s.Name == "":
		return "at the top"
	}
	return "in " + s.Name
}

// Tree parses the file. It reports a syntax error and returns nil.
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

// Reader reads the tree of one file by descriptions of its keys.
type Reader struct {
	*File
	// Given has the keys of the file and of its Top sections, valid or not.
	Given map[string]*Field
	// Places says where each key was given, and each entry of lists: "sandbox.read_only[1]".
	Places map[string]hcl.Range
	// Remedy says what to write instead of an unknown key; nil or "": the nearest key of the section.
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
			remedy := ""
			if r.Remedy != nil {
				remedy = r.Remedy(s, f.Key)
			}
			if remedy == "" {
				remedy = nearestKey(s, f.Key)
			}
			r.Problem(f.At, "Unknown key", "%s is not known %s. %s", QuoteName(f.Key), s.where(), remedy)
			r.Hidden.Unread(f)
			continue
		}
		if first, twice := seen[k.Name]; s.Top && twice {
			r.Problem(f.At, "Duplicate key", r.Says.Elsewhere, Quote(k.Name), first.At.Start.Line)
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

// nearestKey says what to write instead of an unknown key.
func nearestKey(s Section, name string) string {
	names := slices.Sorted(slices.Values(s.Names()))
	near := nearest.Keyword(strings.ToLower(name), names)
	if near == "" {
		return "Known are " + strings.Join(names, ", ") + "."
	}
	k, _ := s.Find(near)
	return "Did you mean " + near + "? Write " + k.Written() + "."
}

// place records where a key stands. A key of a Top section has the same name in both places.
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

// PlaceEntry records where the nth valid entry of a list stands.
func (r *Reader) PlaceEntry(list string, n int, at hcl.Range) {
	r.Places[list+"["+strconv.Itoa(n)+"]"] = at
}
