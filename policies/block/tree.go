package block

import (
	"github.com/hashicorp/hcl/v2"
)

// Kind is what a value is.
type Kind int

const (
	Broken Kind = iota // a diagnostic was given already
	Text
	Number
	Boolean
	List
	Table
	Null
	Date
)

func (k Kind) String() string {
	return [...]string{"nothing", "a string", "a number", "true or false", "a list", "a table", "null", "a date"}[k]
}

// Node is a value of either syntax.
type Node struct {
	Kind   Kind
	At     hcl.Range
	Text   string // of a string its value, of a number how it was written
	Truth  bool
	Items  []*Node
	Fields []*Field
	Index  map[string]*Field
	origin origin
}

// origin says how a table came about, on which TOML makes depend who may add to it.
type origin int

const (
	implicit origin = iota // by the header of a table below it
	header
	dotted
	closed // inline, or an HCL object: complete where it stands
	block  // of HCL
	top    // an HCL file
)

// Field is a key with its value, or a block.
type Field struct {
	Key     string
	At      hcl.Range // of the key
	Val     *Node
	Labels  []Label
	Example string // of the key, for remedies; Section sets it
}

// Label is a name of a block: "search" of tool "search" { ... }.
type Label struct {
	Text string
	At   hcl.Range
}

func newTable(at hcl.Range, o origin) *Node {
	return &Node{Kind: Table, At: at, Index: map[string]*Field{}, origin: o}
}

// add puts a field into a table, or reports the second of two.
func (f *File) add(t *Node, x *Field) {
	first, ok := t.Index[x.Key]
	if !ok || f.Labels && (len(x.Labels) > 0 || t.origin == top) {
		t.Index[x.Key] = x
		t.Fields = append(t.Fields, x)
		return
	}
	f.duplicate(x.Key, x.At, first.At)
	f.Hidden.Unread(x)
}

func (f *File) duplicate(key string, at, first hcl.Range) {
	f.Problem(at, "Duplicate key", f.Says.Twice, QuoteName(key), Escape(key), first.Start.Line)
}
