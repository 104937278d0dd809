package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// kind is what a flag takes.
type kind int

const (
	kindJSON kind = iota // anything: the text is JSON
	kindString
	kindNumber
	kindInteger
	kindBoolean
	kindArray // of scalars, one for each use of the flag
)

func (k kind) String() string {
	return [...]string{"json", "string", "number", "integer", "boolean", "array"}[k]
}

// property is one argument of a tool, and the flag that sets it.
type property struct {
	name        string
	flag        string // without dashes; "" if the name makes no usable flag, then only --json sets it
	kind        kind
	item        kind // of an array
	text        bool // kindJSON, but what is not JSON is taken as a string
	enum        []json.RawMessage
	description string
	def         json.RawMessage
	required    bool
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
}

// readProperties turns an input schema into the tool's arguments: required ones first, then by name.
func readProperties(input json.RawMessage) []property {
	members := object(input)
	definitions := map[string]json.RawMessage{}
	for _, key := range []string{"$defs", "definitions"} {
		for name, d := range object(members[key]) {
			definitions["#/"+key+"/"+name] = d
		}
	}
	var required []string
	for _, raw := range array(members["required"]) {
		var name string
		if json.Unmarshal(raw, &name) == nil {
			required = append(required, name)
		}
	}
	var properties []property
	for name, raw := range object(members["properties"]) {
		p := property{name: name, required: slices.Contains(required, name)}
		p.read(raw, definitions, schemaDepth)
		properties = append(properties, p)
	}
	slices.SortFunc(properties, func(a, b property) int {
		if a.required != b.required {
			if a.required {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	nameFlags(properties)
	return properties
}

// object and array read a container, or nothing if it is none.
func object(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	json.Unmarshal(raw, &m)
	return m
}

func array(raw json.RawMessage) []json.RawMessage {
	var a []json.RawMessage
	json.Unmarshal(raw, &a)
	return a
}

// lenient reads each member by itself, so that one of a wrong type does not hide the others.
func lenient(raw json.RawMessage) schema {
	m := object(raw)
	s := schema{
		Type: m["type"], Const: m["const"], Items: m["items"], Default: m["default"], Enum: array(m["enum"]),
		AnyOf: array(m["anyOf"]), OneOf: array(m["oneOf"]), AllOf: array(m["allOf"]),
	}
	json.Unmarshal(m["$ref"], &s.Ref)
	json.Unmarshal(m["description"], &s.Description)
	return s
}

func (p *property) read(raw json.RawMessage, definitions map[string]json.RawMessage, depth int) {
	s := lenient(raw)
	if p.description == "" {
		p.description = s.Description
	}
	if p.def == nil {
		p.def = s.Default
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
	p.enum = s.Enum
	if s.Const != nil {
		p.enum = []json.RawMessage{s.Const}
	}
	types := typesOf(s, p.enum)
	switch {
	case len(types) == 1 && types[0] == "array":
		item := property{}
		item.read(s.Items, definitions, depth-1)
		if item.kind != kindJSON && item.kind != kindArray {
			p.kind, p.item, p.enum = kindArray, item.kind, item.enum
		}
	case len(types) == 1:
		p.kind = scalars()[types[0]]
	default:
		p.text = len(types) == 0 && len(arms) == 0 || slices.Contains(types, "string")
	}
	if p.kind != kindJSON { // only JSON says null
		p.enum = slices.DeleteFunc(slices.Clone(p.enum), func(e json.RawMessage) bool { return typeOf(e) == "null" })
	}
}

func scalars() map[string]kind {
	return map[string]kind{"string": kindString, "number": kindNumber, "integer": kindInteger, "boolean": kindBoolean}
}

// typesOf returns the types that a value may have, without null: no flag says null, --json does.
func typesOf(s schema, enum []json.RawMessage) []string {
	var types []string
	var one string
	if json.Unmarshal(s.Type, &one) == nil && one != "" {
		types = []string{one}
	}
	for _, raw := range array(s.Type) {
		var t string
		json.Unmarshal(raw, &t)
		types = append(types, t)
	}
	if types == nil {
		for _, e := range enum {
			if t := typeOf(e); !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	return slices.DeleteFunc(types, func(t string) bool { return t == "null" })
}

func typeOf(value json.RawMessage) string {
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

// usableFlag holds the names that a person can type after two dashes without quoting.
var usableFlag = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,63}$`)

// collisionPrefix goes before a property whose flag would be one of pfar's own.
const collisionPrefix = "arg-"

// nameFlags gives each property its flag: dashes for underscores, the prefix where pfar has a flag of that name. Two
// properties that come out the same (foo_bar, foo-bar): the one that is spelt so has it, the other only --json sets.
func nameFlags(properties []property) {
	taken := map[string]bool{}
	for _, own := range ownFlags() {
		taken[own] = true
	}
	for _, exact := range []bool{true, false} {
		for i := range properties {
			p := &properties[i]
			flag := strings.ReplaceAll(p.name, "_", "-")
			if (flag == p.name) != exact || !usableFlag.MatchString(flag) {
				continue
			}
			if slices.Contains(ownFlags(), flag) {
				flag = collisionPrefix + flag
			}
			if !taken[flag] {
				p.flag, taken[flag] = flag, true
			}
		}
	}
}

// unquoted is what a JSON string spells, and whether it is one: null would be decoded as the empty one.
func unquoted(value json.RawMessage) (text string, ok bool) {
	ok = typeOf(value) == "string" && json.Unmarshal(value, &text) == nil
	return text, ok
}
