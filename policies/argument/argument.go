// Package argument reads from a tool's input schema what its arguments are, and makes JSON of the texts that a person
// gives for them.
package argument

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// Kind is what a flag takes.
type Kind int

const (
	JSON Kind = iota // anything: the text is JSON
	String
	Number
	Integer
	Boolean
	Array // of scalars, one for each use of the flag
)

func (k Kind) String() string {
	return [...]string{"json", "string", "number", "integer", "boolean", "array"}[k]
}

// Property is one argument of a tool.
type Property struct {
	Name        string
	Kind        Kind
	Item        Kind // of an array
	Text        bool // JSON, but what is not JSON is taken as a string
	Formed      bool // text of a form: the schema has a format or a pattern
	Enum        []json.RawMessage
	Description string
	Default     json.RawMessage // nil: none
	Required    bool
}

// schemaDepth bounds how many $ref and one-armed anyOf are followed: a hostile schema refers to itself.
const schemaDepth = 8

// schema is as much of JSON Schema as a flag needs. Every member is read leniently: a stranger wrote it, and what
// cannot be understood still can be given as JSON.
type schema struct {
	Ref         string
	Type        json.RawMessage
	Enum        []json.RawMessage
	Const       json.RawMessage
	AnyOf       []json.RawMessage
	OneOf       []json.RawMessage
	AllOf       []json.RawMessage
	Items       json.RawMessage
	Description string
	Default     json.RawMessage
	Formed      bool
}

// Of reads the schema of one argument, which may have definitions of its own.
func Of(name string, schema json.RawMessage) Property {
	p := Property{Name: name}
	p.read(schema, definitionsOf(Object(schema)), schemaDepth)
	return p
}

// definitionsOf are what references within a schema lead to.
func definitionsOf(members map[string]json.RawMessage) map[string]json.RawMessage {
	definitions := map[string]json.RawMessage{}
	for _, key := range []string{"$defs", "definitions"} {
		for name, d := range Object(members[key]) {
			definitions["#/"+key+"/"+name] = d
		}
	}
	return definitions
}

// Read turns an input schema into the tool's arguments: required ones first, then by name. It reads leniently: what it
// cannot understand is an argument of any value.
func Read(input json.RawMessage) []Property {
	members := Object(input)
	definitions := definitionsOf(members)
	var required []string
	for _, raw := range items(members["required"]) {
		var name string
		if json.Unmarshal(raw, &name) == nil {
			required = append(required, name)
		}
	}
	var properties []Property
	for name, raw := range Object(members["properties"]) {
		p := Property{Name: name, Required: slices.Contains(required, name)}
		p.read(raw, definitions, schemaDepth)
		properties = append(properties, p)
	}
	slices.SortFunc(properties, func(a, b Property) int {
		if a.Required != b.Required {
			if a.Required {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return properties
}

// Object reads the members of an object, none of anything else.
func Object(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	json.Unmarshal(raw, &m)
	return m
}

// items reads the items of an array, none of anything else.
func items(raw json.RawMessage) []json.RawMessage {
	var a []json.RawMessage
	json.Unmarshal(raw, &a)
	return a
}

// lenient reads each member by itself, so that one of a wrong type does not hide the others.
func lenient(raw json.RawMessage) schema {
	m := Object(raw)
	s := schema{
		Type: m["type"], Const: m["const"], Items: m["items"], Default: m["default"], Enum: items(m["enum"]),
		AnyOf: items(m["anyOf"]), OneOf: items(m["oneOf"]), AllOf: items(m["allOf"]),
	}
	s.Formed = m["format"] != nil || m["pattern"] != nil
	json.Unmarshal(m["$ref"], &s.Ref)
	json.Unmarshal(m["description"], &s.Description)
	return s
}

func (p *Property) read(raw json.RawMessage, definitions map[string]json.RawMessage, depth int) {
	s := lenient(raw)
	if p.Description == "" {
		p.Description = s.Description
	}
	if p.Default == nil {
		p.Default = s.Default
	}
	if depth == 0 {
		return
	}
	if s.Ref != "" {
		p.read(definitions[s.Ref], definitions, depth-1)
		return
	}
	arms := slices.Concat(s.AnyOf, s.OneOf, s.AllOf)
	arms = slices.DeleteFunc(arms, func(arm json.RawMessage) bool { return string(lenient(arm).Type) == `"null"` })
	if s.Type == nil && len(arms) == 1 { // an optional value, as most generators write it
		p.read(arms[0], definitions, depth-1)
		return
	}
	p.Enum, p.Formed = s.Enum, s.Formed
	if s.Const != nil {
		p.Enum = []json.RawMessage{s.Const}
	}
	types := typesOf(s, p.Enum)
	switch {
	case len(types) == 1 && types[0] == "array":
		item := Property{}
		item.read(s.Items, definitions, depth-1)
		if item.Kind != JSON && item.Kind != Array {
			p.Kind, p.Item, p.Enum = Array, item.Kind, item.Enum
		}
	case len(types) == 1:
		p.Kind = scalars()[types[0]]
	default:
		p.Text = len(types) == 0 && len(arms) == 0 || slices.Contains(types, "string")
	}
	if p.Kind != JSON { // only JSON says null
		p.Enum = slices.DeleteFunc(slices.Clone(p.Enum), func(e json.RawMessage) bool { return TypeOf(e) == "null" })
	}
}

func scalars() map[string]Kind {
	return map[string]Kind{"string": String, "number": Number, "integer": Integer, "boolean": Boolean}
}

// typesOf returns the types that a value may have, without null: no flag says null, --json does.
func typesOf(s schema, enum []json.RawMessage) []string {
	var types []string
	var one string
	if json.Unmarshal(s.Type, &one) == nil && one != "" {
		types = []string{one}
	}
	for _, raw := range items(s.Type) {
		var t string
		json.Unmarshal(raw, &t)
		types = append(types, t)
	}
	if types == nil {
		for _, e := range enum {
			if t := TypeOf(e); !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	return slices.DeleteFunc(types, func(t string) bool { return t == "null" })
}

// TypeOf is the JSON type of a value by its first byte, "null" for no value.
func TypeOf(value json.RawMessage) string {
	switch value = bytes.TrimSpace(value); {
	case len(value) == 0 || value[0] == 'n':
		return "null"
	case value[0] == '"':
		return "string"
	case value[0] == 't' || value[0] == 'f':
		return "boolean"
	case value[0] == '{':
		return "object"
	case value[0] == '[':
		return "array"
	}
	return "number"
}

// Unquoted is what a JSON string spells, and whether it is one: null would be decoded as the empty one.
func Unquoted(value json.RawMessage) (text string, ok bool) {
	ok = TypeOf(value) == "string" && json.Unmarshal(value, &text) == nil
	return text, ok
}

// jsonNumber is RFC 8259's number; the text is passed on as it is, for a float64 would round it.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// Parse makes the JSON of a text that stands for the argument: of an array, for one of its items. Strings are taken as
// they are; all else is JSON. The error says what is wanted.
func (p Property) Parse(text string) (json.RawMessage, error) {
	k := p.Kind
	if k == Array {
		k = p.Item
	}
	value, err := parseValue(k, p.Text, text)
	if err != nil {
		return nil, err
	}
	allowed := func(e json.RawMessage) bool { return Same(e, value) }
	if len(p.Enum) > 0 && !slices.ContainsFunc(p.Enum, allowed) {
		return nil, fmt.Errorf("want one of %s", strings.Join(EnumTexts(p.Enum), ", "))
	}
	return value, nil
}

func parseValue(k Kind, text bool, s string) (json.RawMessage, error) {
	switch k {
	case String:
		return json.Marshal(s)
	case Number, Integer:
		if !jsonNumber.MatchString(s) || k == Integer && strings.ContainsAny(s, ".eE") {
			return nil, fmt.Errorf("want %s", map[Kind]string{Number: "a number", Integer: "a whole number"}[k])
		}
		return json.RawMessage(s), nil
	case Boolean:
		if s != "true" && s != "false" {
			return nil, errors.New(`want "true" or "false"`)
		}
		return json.RawMessage(s), nil
	}
	if json.Valid([]byte(s)) {
		return json.RawMessage(s), nil
	}
	if text {
		return json.Marshal(s)
	}
	return nil, errors.New("want JSON")
}

// Same compares scalars: strings by what they spell, numbers by value.
func Same(a, b json.RawMessage) bool {
	s, isText := Unquoted(a)
	if t, both := Unquoted(b); isText && both {
		return s == t
	}
	// A long exponent would make an exact number of that many digits.
	x, okX := new(big.Float).SetString(string(a))
	y, okY := new(big.Float).SetString(string(b))
	if okX && okY {
		return x.Cmp(y) == 0
	}
	return string(a) == string(b)
}

// EnumTexts are the values as one types them.
func EnumTexts(enum []json.RawMessage) []string {
	texts := make([]string, len(enum))
	for i, e := range enum {
		texts[i] = string(e)
		if text, ok := Unquoted(e); ok {
			texts[i] = text
		}
	}
	return texts
}
