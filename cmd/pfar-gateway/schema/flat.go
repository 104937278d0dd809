package schema

import (
	"slices"
	"strings"
	"unsafe"
)

// flat is a schema of the kind that most tools have: an object of named strings, numbers and booleans. That a value
// conforms to it is seen while the value is read, of which nothing is kept. What is wrong with one that may not, the
// library finds and says.
type flat struct {
	members  []member
	required uint64 // of members, as bits
	closed   bool   // there may be no others
}

// member is one of the names, and the type of its value.
type member struct{ name, kind string }

const (
	maxMembers = 64
	maxOthers  = 8 // members without a schema: each is compared with each
)

// flat returns the schema as a flat one, nil if it asks for anything else.
func (d *document) flat() *flat {
	root, ok := d.root.(map[string]any)
	if !ok || root["type"] != "object" {
		return nil
	}
	f := &flat{}
	var required []any
	for name, v := range root {
		switch name {
		case "type", "$schema":
		case "properties":
			if !f.named(v.(map[string]any)) { // the library has compiled it, so it is one
				return nil
			}
		case "required":
			required = v.([]any)
		case "additionalProperties":
			if o, isObject := v.(map[string]any); isObject && len(o) > 0 {
				return nil
			}
			f.closed = v == false
		default:
			if !isAnnotation(name) {
				return nil
			}
		}
	}
	for _, name := range required {
		i := f.index(name.(string))
		if i < 0 {
			return nil
		}
		f.required |= 1 << i
	}
	return f
}

// named takes over the properties, and reports whether they are all plain.
func (f *flat) named(properties map[string]any) bool {
	if len(properties) > maxMembers {
		return false
	}
	for name, v := range properties {
		property, ok := v.(map[string]any)
		if !ok {
			return false
		}
		for keyword := range property {
			if keyword != "type" && !isAnnotation(keyword) {
				return false
			}
		}
		kind, _ := property["type"].(string)
		switch kind {
		case "string", "number", "integer", "boolean":
			f.members = append(f.members, member{name, kind})
		default:
			return false
		}
	}
	return true
}

func (f *flat) index(name string) int {
	return slices.IndexFunc(f.members, func(m member) bool { return m.name == name })
}

// conforms reports whether a value is certain to conform. It reads with the code that reads for the library, and leaves
// to that whatever would take many steps.
func (f *flat) conforms(value []byte) bool {
	if len(value) > heavyBytes {
		return false
	}
	d := decoder{s: unsafe.String(unsafe.SliceData(value), len(value))} // as in check
	if d.next() != '{' {
		return false
	}
	d.i++
	met := encounter{flat: f}
	if d.next() == '}' {
		d.i++
	} else {
		for more := true; more; {
			if d.next() != '"' {
				return false
			}
			name, err := d.string()
			if err != nil || d.next() != ':' {
				return false
			}
			d.i++
			kind, ok := met.with(name)
			if !ok || !d.scalar(kind) {
				return false
			}
			if more, err = d.more('}'); err != nil {
				return false
			}
		}
	}
	d.space()
	return d.i == len(d.s) && met.members&f.required == f.required
}

// encounter is which names an object has had so far.
type encounter struct {
	*flat
	members uint64
	others  [maxOthers]string
	n       int // of others
}

// with takes note of a name and returns the type of its value, "" for any; false if it comes twice or may not come.
func (e *encounter) with(name string) (kind string, ok bool) {
	if i := e.index(name); i >= 0 {
		twice := e.members&(1<<i) != 0
		e.members |= 1 << i
		return e.flat.members[i].kind, !twice
	}
	if e.closed || e.n == maxOthers || slices.Contains(e.others[:e.n], name) {
		return "", false
	}
	e.others[e.n] = name
	e.n++
	return "", true
}

// scalar reads a value of a type that is no array and no object, and reports whether it is of that type. An integer it
// takes in plain digits only: others are the library's to calculate.
func (d *decoder) scalar(kind string) bool {
	free := kind == ""
	switch d.next() {
	case '"':
		_, err := d.string()
		return err == nil && (free || kind == "string")
	case 't':
		return d.literal("true") == nil && (free || kind == "boolean")
	case 'f':
		return d.literal("false") == nil && (free || kind == "boolean")
	case 'n':
		return d.literal("null") == nil && free
	}
	start := d.i
	if d.numeral() != nil {
		return false
	}
	return free || kind == "number" || kind == "integer" && !strings.ContainsAny(d.s[start:d.i], ".eE")
}
