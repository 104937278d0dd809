package schema

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// kinds of values, as bits.
const (
	isNull uint8 = 1 << iota
	isBool
	isNumber
	isString
	isArray
	isObject
	allKinds = isNull | isBool | isNumber | isString | isArray | isObject
)

var kindOf = map[string]uint8{
	"null": isNull, "boolean": isBool, "number": isNumber, "integer": isNumber, "string": isString, "array": isArray, "object": isObject,
}

// graph is which subschemas lead to which, to foresee what a check costs. Subschemas are numbered so that one that is
// applied to the same part of a value as another (allOf, $ref, if) has a greater number than that.
type graph struct {
	nodes []node
	root  int32
	marks bool // what is evaluated is kept, for any part of a value
	// Where no subschema leads back to itself, these bound the cost of any value.
	bounded bool
	weight  int64 // of all that a part of a value can have applied to it
	scan    int64 // instructions of the patterns in that
	meters  sync.Pool
}

// node is a subschema and where it leads.
type node struct {
	kinds    uint8 // of values that it goes on with
	numeric  bool  // it calculates
	unique   bool  // it compares all items
	marks    bool  // it keeps what is evaluated: unevaluated, contains
	dynamic  bool  // it looks back on all that led here
	weight   int64 // of one application to a small value
	pattern  pattern
	same     []int32
	props    map[string]int32
	patterns []edge
	other    int32 // additionalProperties
	uneval   int32 // unevaluatedProperties
	names    int32
	prefix   []int32
	items    int32 // those after prefix
	contains int32
	unevalIt int32 // unevaluatedItems
}

// edge leads to a subschema for the names that match.
type edge struct {
	pattern pattern
	to      int32
}

// newGraph takes the compiled schema as its own: it puts linear code in the place of what is quadratic in the library,
// and makes "format" the annotation that it is.
func newGraph(root *jsonschema.Schema, anchored []*jsonschema.Schema) (*graph, error) {
	b := builder{ids: map[*jsonschema.Schema]int32{}}
	for _, s := range append([]*jsonschema.Schema{root}, anchored...) {
		b.id(s)
	}
	for i := 0; i < len(b.list); i++ {
		n, err := b.node(b.list[i])
		if err != nil {
			return nil, err
		}
		b.nodes = append(b.nodes, n)
	}
	b.dynamic()
	return b.graph()
}

// builder collects subschemas in the order in which they are found.
type builder struct {
	ids   map[*jsonschema.Schema]int32
	list  []*jsonschema.Schema
	nodes []node
}

const none = int32(-1)

// id returns the number of a subschema, which is a new one if it was not met before.
func (b *builder) id(s *jsonschema.Schema) int32 {
	if s == nil {
		return none
	}
	id, ok := b.ids[s]
	if !ok {
		id = int32(len(b.list))
		b.ids[s] = id
		b.list = append(b.list, s)
	}
	return id
}

func (b *builder) of(list []*jsonschema.Schema) []int32 {
	var ids []int32
	for _, s := range list {
		if s != nil {
			ids = append(ids, b.id(s))
		}
	}
	return ids
}

func (b *builder) node(s *jsonschema.Schema) (node, error) {
	s.Format = nil
	n := node{kinds: allKinds, weight: 1, other: none, uneval: none, names: none, items: none, contains: none, unevalIt: none}
	if s.Bool != nil {
		return n, nil
	}
	if s.Types != nil {
		n.kinds = 0
		for _, t := range s.Types.ToStrings() {
			n.kinds |= kindOf[t]
			n.numeric = n.numeric || t == "integer"
		}
	}
	n.same = b.of(slices.Concat([]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf))
	for _, d := range s.DependentSchemas {
		n.same = append(n.same, b.id(d))
	}
	for _, d := range s.Dependencies {
		if sub, ok := d.(*jsonschema.Schema); ok {
			n.same = append(n.same, b.id(sub))
		}
	}
	if err := b.references(s, &n); err != nil {
		return n, err
	}
	b.object(s, &n)
	b.array(s, &n)
	b.scalar(s, &n)
	return n, nil
}

// references adds where $dynamicRef and $recursiveRef lead.
func (b *builder) references(s *jsonschema.Schema, n *node) error {
	if r := s.RecursiveRef; r != nil {
		if r.RecursiveAnchor {
			return fmt.Errorf("the schema has a $recursiveRef to a $recursiveAnchor at %s; write $ref instead", quoted(rulePath(s.Location), 200))
		}
		n.same = append(n.same, b.id(r))
	}
	if r := s.DynamicRef; r != nil {
		n.dynamic = true
		n.same = append(n.same, b.id(r.Ref))
	}
	return nil
}

// dynamic adds the places that a $dynamicRef leads to if they are on the way to it: any with the anchor.
func (b *builder) dynamic() {
	anchors := map[string][]int32{}
	for id, s := range b.list {
		if s.DynamicAnchor != "" {
			anchors[s.DynamicAnchor] = append(anchors[s.DynamicAnchor], int32(id))
		}
	}
	for id, s := range b.list {
		r := s.DynamicRef
		if r == nil || r.Anchor == "" || r.Ref.DynamicAnchor != r.Anchor {
			continue
		}
		for _, to := range anchors[r.Anchor] {
			if to != b.ids[r.Ref] {
				b.nodes[id].same = append(b.nodes[id].same, to)
			}
		}
	}
}

func (b *builder) object(s *jsonschema.Schema, n *node) {
	if s.PropertyNames != nil && s.DraftVersion != 4 {
		n.names = b.id(s.PropertyNames)
		s.Extensions = append(s.Extensions, names{s.PropertyNames})
		s.PropertyNames = nil
	}
	if len(s.Properties) > 0 {
		n.props = make(map[string]int32, len(s.Properties))
		for name, sub := range s.Properties {
			n.props[name] = b.id(sub)
		}
	}
	for re, sub := range s.PatternProperties {
		n.patterns = append(n.patterns, edge{re.(pattern), b.id(sub)})
	}
	if sub, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
		n.other = b.id(sub)
	}
	n.uneval = b.id(s.UnevaluatedProperties)
	n.marks = n.marks || s.UnevaluatedProperties != nil
	listed := len(s.Required) + len(s.DependentSchemas) + len(s.Dependencies) + len(s.DependentRequired)
	for _, list := range s.DependentRequired {
		listed += len(list)
	}
	for _, d := range s.Dependencies {
		if list, ok := d.([]string); ok {
			listed += len(list)
		}
	}
	n.weight += int64(listed / 4)
}

func (b *builder) array(s *jsonschema.Schema, n *node) {
	n.prefix = b.of(s.PrefixItems)
	n.items = b.id(s.Items2020)
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		n.items = b.id(items)
	case []*jsonschema.Schema:
		n.prefix = b.of(items)
		if sub, ok := s.AdditionalItems.(*jsonschema.Schema); ok {
			n.items = b.id(sub)
		}
	}
	n.contains = b.id(s.Contains)
	n.unevalIt = b.id(s.UnevaluatedItems)
	n.marks = n.marks || s.UnevaluatedItems != nil || s.Contains != nil
	if s.UniqueItems {
		n.unique = true
		s.UniqueItems = false
		s.Extensions = append(s.Extensions, unique{})
	}
}

func (b *builder) scalar(s *jsonschema.Schema, n *node) {
	n.numeric = n.numeric || s.Minimum != nil || s.Maximum != nil || s.ExclusiveMinimum != nil ||
		s.ExclusiveMaximum != nil || s.MultipleOf != nil
	if s.Pattern != nil {
		n.pattern = s.Pattern.(pattern)
	}
	size := 0.0
	if s.Const != nil {
		size += comparing(*s.Const)
	}
	if s.Enum != nil {
		for _, v := range s.Enum.Values {
			size += comparing(v)
		}
	}
	n.weight += int64(size)
}

// comparing returns the cost of comparing a value with v.
func comparing(v any) float64 {
	switch v := v.(type) {
	case json.Number:
		return 2 + float64(len(v))/16
	case string:
		return 1.0/16 + float64(len(v))/4096
	case []any:
		n := 0.1
		for _, item := range v {
			n += comparing(item)
		}
		return n
	case map[string]any:
		n := 0.1
		for _, member := range v {
			n += 0.2 + comparing(member)
		}
		return n
	}
	return 1.0 / 16
}

// children returns all that n leads to that is applied further down in a value.
func (n *node) children() []int32 {
	list := append(slices.Clone(n.prefix), n.other, n.uneval, n.names, n.items, n.contains, n.unevalIt)
	for _, to := range n.props {
		list = append(list, to)
	}
	for _, e := range n.patterns {
		list = append(list, e.to)
	}
	return slices.DeleteFunc(list, func(id int32) bool { return id == none })
}

// saturated bounds counts, so that products of two of them and of a value's size are numbers.
const saturated = math.MaxInt32

func add(a, b int64) int64 { return min(a+b, saturated) }
