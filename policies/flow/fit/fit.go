// Package fit says whether values and outputs of steps fit the inputs that take them, by their JSON Schemas.
package fit

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/schema"
)

// Value says what is wrong with a value for a schema, "" for nothing. A schema that cannot be read, or nil, takes any
// value: what is called has a check of its own. Of a nil value, which is not known, nothing is wrong.
func Value(s, value json.RawMessage) string {
	if s == nil || value == nil {
		return ""
	}
	compiled, err := schema.Compile(s)
	if err != nil {
		return ""
	}
	if v := compiled.Check(value); v != nil {
		return v.Text
	}
	return ""
}

// Output reports whether what conforms to one schema may conform to another: only types that exclude each other do not
// fit. Schemas are a server's words; the values themselves are checked when they are there.
func Output(out, in json.RawMessage) bool {
	return overlap(read(out, out, maxDepth), read(in, in, maxDepth))
}

// Text reports whether a value of a schema may be a text.
func Text(s json.RawMessage) bool {
	t := read(s, s, maxDepth)
	return t.any() || slices.Contains(t.names, "string")
}

// maxDepth bounds how many references and arms are followed: a hostile schema refers to itself.
const maxDepth = 8

// types are those that a value may have.
type types struct {
	names []string // nil: any
	items *types   // of an array; nil: any
}

func (t types) any() bool { return t.names == nil }

func overlap(out, in types) bool {
	if out.any() || in.any() {
		return true
	}
	for _, name := range out.names {
		switch {
		case name == "integer" && slices.Contains(in.names, "number"), name == "number" && slices.Contains(in.names,
			"integer"):
			return true
		case !slices.Contains(in.names, name):
		case name != "array" || out.items == nil || in.items == nil || overlap(*out.items, *in.items):
			return true
		}
	}
	return false
}

// read reads which types a schema allows. Where it is not sure, it allows any.
func read(s, root json.RawMessage, depth int) types {
	members := argument.Object(s)
	if members == nil || depth == 0 {
		return types{}
	}
	var ref, one string
	var many []string
	_ = json.Unmarshal(members["$ref"], &ref)
	_ = json.Unmarshal(members["type"], &one)
	_ = json.Unmarshal(members["type"], &many)
	switch {
	case ref != "":
		return read(definition(root, ref), root, depth-1)
	case one != "":
		many = []string{one}
	case members["const"] != nil:
		many = []string{argument.TypeOf(members["const"])}
	case members["enum"] != nil:
		var values []json.RawMessage
		_ = json.Unmarshal(members["enum"], &values)
		for _, v := range values {
			many = append(many, argument.TypeOf(v))
		}
	case members["anyOf"] != nil:
		return union(members["anyOf"], root, depth-1)
	case members["oneOf"] != nil:
		return union(members["oneOf"], root, depth-1)
	}
	t := types{names: many}
	if slices.Contains(many, "array") && members["items"] != nil {
		items := read(members["items"], root, depth-1)
		t.items = &items
	}
	return t
}

// union is what one of several schemas allows.
func union(raw, root json.RawMessage, depth int) types {
	var arms []json.RawMessage
	_ = json.Unmarshal(raw, &arms)
	var all types
	for _, arm := range arms {
		t := read(arm, root, depth)
		if t.any() {
			return types{}
		}
		all.names = append(all.names, t.names...) // lists of one arm may be those of another: any items
	}
	return all
}

// definition is what a reference within a schema leads to; nil: it leads nowhere that is known.
func definition(root json.RawMessage, ref string) json.RawMessage {
	members := argument.Object(root)
	for _, key := range []string{"$defs", "definitions"} {
		for name, d := range argument.Object(members[key]) {
			if ref == "#/"+key+"/"+name {
				return d
			}
		}
	}
	return nil
}

// Words says in a few words which types a schema allows.
func Words(s json.RawMessage) string {
	t := read(s, s, maxDepth)
	if t.any() {
		return "any value"
	}
	text := strings.Join(slices.Compact(slices.Clone(t.names)), " or ")
	if t.items != nil && !t.items.any() {
		text += " of " + strings.Join(slices.Compact(slices.Clone(t.items.names)), " or ")
	}
	return text
}
