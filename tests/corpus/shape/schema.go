package shape

import (
	"fmt"
	"strings"
)

// typed is a JSON Schema and values that are valid by it.
type typed struct {
	schema string
	value  func(Source) string
}

// typed chooses a schema, at most so deep.
func (s Source) typed(depth int) typed {
	kinds := []func(int) typed{s.anything, s.stringType, s.patterned, s.enumerated, s.integerType, s.numberType, s.either, s.constant}
	if depth > 0 {
		kinds = append(kinds, s.arrayType, s.arrayType, s.objectType, s.objectType, s.choice)
	}
	return pick(s, kinds)(depth)
}

// described is a schema with members that no validator acts on.
func (s Source) described(members ...Member) string {
	if s.one(3) {
		members = append(members, named("description", s.text()))
	}
	if s.one(6) {
		members = append(members, named("x-vendor", s.value(2)))
	}
	return s.object(members)
}

func (s Source) anything(int) typed {
	return typed{pick(s, []string{"true", "{}", s.described()}), func(s Source) string { return s.value(3) }}
}

func (s Source) stringType(int) typed {
	least := s.IntN(4)
	return typed{s.described(named("type", `"string"`), named("minLength", fmt.Sprint(least))), func(s Source) string {
		return strings.TrimSuffix(s.text(), `"`) + strings.Repeat("z", least) + `"`
	}}
}

func (s Source) patterned(int) typed {
	return typed{s.described(named("type", `"string"`), named("pattern", pick(s, []string{`"^[a-z]{2,9}$"`, `"^\\p{L}+$"`, `"^[a-z]\u002a$"`}))),
		func(s Source) string { return s.spelled(pick(s, []string{"abc", "zz", "pattern"})) }}
}

func (s Source) enumerated(int) typed {
	values := []string{s.number(), `"red"`, `"gr\u00fcn"`, "null", `{"a":[1.0]}`}
	return typed{s.described(named("enum", s.array(values))), func(s Source) string { return pick(s, values) }}
}

func (s Source) constant(int) typed {
	value := pick(s, []string{`"fixed"`, "1e2", "false", "[1,[2]]"})
	return typed{s.described(named("const", value)), func(Source) string { return value }}
}

// integerType takes integers in all their spellings: 3, 3.0 and 30e-1 are one.
func (s Source) integerType(int) typed {
	return typed{s.described(named("type", `"integer"`), named("minimum", "-5"), named("maximum", "123456789012345678901")),
		func(s Source) string {
			return pick(s, []string{"3", "3.0", "30e-1", "0.3E+1", "-0", "12345678901234567890", "7e0", "-5"})
		}}
}

func (s Source) numberType(int) typed {
	return typed{s.described(named("type", `"number"`)), Source.number}
}

func (s Source) either(int) typed {
	return typed{s.described(named("type", `["boolean","null"]`)), func(s Source) string { return pick(s, []string{"true", "false", "null"}) }}
}

func (s Source) arrayType(depth int) typed {
	item := s.typed(depth - 1)
	least := s.IntN(3)
	return typed{s.described(named("type", `"array"`), named("items", item.schema), named("minItems", fmt.Sprint(least))), func(s Source) string {
		values := make([]string, least+s.IntN(3))
		for i := range values {
			values[i] = item.value(s)
		}
		return s.array(values)
	}}
}

func (s Source) choice(depth int) typed {
	one, other := s.typed(depth-1), s.typed(depth-1)
	return typed{s.described(named("anyOf", s.array([]string{one.schema, other.schema}))), func(s Source) string {
		return pick(s, []typed{one, other}).value(s)
	}}
}

// property is a member that a schema knows.
type property struct {
	name     string // with its quotes
	required bool
	typed
}

var propertyNames = []string{`"query"`, `"limit"`, `"größe"`, `"a b"`, `"nested"`, `"x\/y"`, `"Name"`, `"_meta"`, `"name"`}

func (s Source) objectType(depth int) typed {
	var list []property
	for _, i := range s.Perm(len(propertyNames))[:s.IntN(5)] {
		list = append(list, property{propertyNames[i], s.one(2), s.typed(depth - 1)})
	}
	members := []Member{named("type", `"object"`)}
	var known []Member
	var required []string
	for _, p := range list {
		known = append(known, Member{p.name, p.schema})
		if p.required {
			required = append(required, p.name)
		}
	}
	if len(known) > 0 || s.one(2) {
		members = append(members, named("properties", s.object(known)))
	}
	if len(required) > 0 {
		members = append(members, named("required", s.array(required)))
	}
	closed := s.one(2)
	if closed {
		members = append(members, named("additionalProperties", "false"))
	}
	return typed{s.described(members...), func(s Source) string {
		var members []Member
		for _, p := range list {
			if p.required || s.one(2) {
				members = append(members, Member{p.name, p.value(s)})
			}
		}
		if !closed {
			members = append(members, s.unknown(3, 3)...)
		}
		return s.object(members)
	}}
}

// whole is a schema for arguments or for structured content: an object, here and there by reference to a definition of
// its own, or saying which draft it is.
func (s Source) whole() typed {
	object := s.objectType(3)
	switch s.IntN(4) {
	case 0:
		schema := s.object([]Member{named("type", `"object"`), named("$ref", `"#\/$defs\/it"`), named("$defs", s.object([]Member{named("it", object.schema)}))})
		return typed{schema, object.value}
	case 1:
		draft := pick(s, []string{"https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"})
		rest := strings.TrimPrefix(object.schema, "{")
		return typed{`{"$schema":"` + draft + `",` + rest, object.value}
	}
	return object
}
