package block

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Join takes over what was found in another file, whose tree goes into this file's.
func (f *File) Join(other *File) {
	f.joined = append(f.joined, other.Source)
	f.Diags = append(f.Diags, other.Diags...)
	f.Hidden.ranges = append(f.Hidden.ranges, other.Hidden.ranges...)
}

// Written returns the text of a range of this file, or of one that it was joined with.
func (f *File) Written(at hcl.Range) string {
	for _, s := range append([]*Source{f.Source}, f.joined...) {
		if s.Name == at.Filename && at.CanSliceBytes(s.Bytes) {
			return string(at.SliceBytes(s.Bytes))
		}
	}
	return ""
}

// Override lays what another file says over a table: a value or a list replaces that of its key, null takes the key
// away, and two tables become one, key by key.
func (n *Node) Override(with *Node) {
	for _, f := range with.Fields {
		old, ok := n.Index[f.Key]
		switch {
		case !ok:
			n.Index[f.Key] = f
			n.Fields = append(n.Fields, f)
		case f.Val.Kind == Null:
			n.remove(old)
		case f.Val.Kind == Table && old.Val.Kind == Table:
			old.Val.Override(f.Val)
		default:
			n.Index[f.Key] = f
			n.Fields[slices.Index(n.Fields, old)] = f
		}
	}
}

func (n *Node) remove(f *Field) {
	delete(n.Index, f.Key)
	n.Fields = slices.DeleteFunc(n.Fields, func(x *Field) bool { return x == f })
}

// Lift moves the fields of the table at a key up beside it. Only those of these names are moved, and none that stands
// there already.
func (n *Node) Lift(key string, names []string) {
	below, ok := n.Index[key]
	if !ok || below.Val.Kind != Table {
		return
	}
	for _, f := range slices.Clone(below.Val.Fields) {
		if _, taken := n.Index[f.Key]; !taken && slices.Contains(names, f.Key) {
			below.Val.remove(f)
			n.Index[f.Key] = f
			n.Fields = append(n.Fields, f)
		}
	}
	if len(below.Val.Fields) == 0 {
		n.remove(below)
	}
}

// Leaves calls a function with each key of a table that has a value of its own, and with the path to it, such as
// "sandbox.state".
func (n *Node) Leaves(path string, visit func(path string, f *Field)) {
	for _, f := range n.Fields {
		if f.Val.Kind == Table && len(f.Val.Fields) > 0 {
			f.Val.Leaves(path+f.Key+".", visit)
		} else {
			visit(path+f.Key, f)
		}
	}
}
