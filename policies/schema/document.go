package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds on schemas. They are generous: the largest of the servers on npm have schemas of 30 KiB.
const (
	maxBytes      = 256 << 10
	maxNesting    = 128     // of the JSON text
	maxSubschemas = 8 << 10 // the compiler compares each with each
	maxPointers   = 8 << 20 // bytes of all subschemas' locations, which the compiler keeps
	maxIDs        = 64      // the compiler compares each with each subschema
	maxAnchors    = 1 << 10 // likewise with each other
	maxRefs       = 2 << 20 // references to odd places, times the subschemas that are copied for each
	maxEnumTrees  = 256     // arrays and objects in one enum, compared with each other by draft-06
)

// What a trivial schema asks of a value.
const (
	nothing   byte = 0   // not trivial
	anyValue  byte = 'a' // {} or true
	anyObject byte = '{' // {"type":"object"}
)

// document is a schema as text that is cheap to compile.
type document struct {
	root     any
	draft    string // that "$schema" says, "" if it says none that is known
	anchors  []string
	path     []string
	refs     map[string]bool // targets that the compiler does not expect a schema at
	schemas  int             // at most: all objects and booleans
	ids      int
	named    int
	pointers int
}

// drafts are the values of "$schema" without scheme and "#".
var drafts = map[string]*jsonschema.Draft{
	"json-schema.org/schema":               jsonschema.Draft2020,
	"json-schema.org/draft/2020-12/schema": jsonschema.Draft2020,
	"json-schema.org/draft/2019-09/schema": jsonschema.Draft2019,
	"json-schema.org/draft-07/schema":      jsonschema.Draft7,
	"json-schema.org/draft-06/schema":      jsonschema.Draft6,
	"json-schema.org/draft-04/schema":      jsonschema.Draft4,
}

// draftName returns the key of drafts that the value of a "$schema" means.
func draftName(uri string) (string, bool) {
	uri = strings.TrimSuffix(uri, "#")
	name, ok := strings.CutPrefix(uri, "http://")
	if !ok {
		name = strings.TrimPrefix(uri, "https://")
	}
	_, known := drafts[name]
	return name, known
}

func readDocument(raw []byte) (*document, error) {
	if len(raw) > maxBytes {
		return nil, fmt.Errorf("the schema has %d bytes, more than %d", len(raw), maxBytes)
	}
	dec := decoder{s: string(raw), maxDepth: maxNesting, maxNodes: maxBytes}
	root, err := dec.document()
	if err != nil {
		return nil, fmt.Errorf("the schema cannot be read: %w", err)
	}
	d := &document{root: root, refs: map[string]bool{}}
	switch top := root.(type) {
	case bool:
	case map[string]any:
		if uri, ok := top["$schema"].(string); ok {
			if name, known := draftName(uri); known {
				d.draft = name
			}
		}
	default:
		return nil, fmt.Errorf("the schema is %s, want an object", typeName(root))
	}
	d.walk(root, 0, false)
	return d, d.bounded()
}

// bounded compares what was counted with what the compiler does for each.
func (d *document) bounded() error {
	for _, c := range []struct {
		what     string
		n, limit int
	}{
		{"subschemas", d.schemas, maxSubschemas},
		{"bytes of paths to its subschemas", d.pointers, maxPointers},
		{"ids", d.ids, maxIDs},
		{"anchors", d.named, maxAnchors},
		{"steps to follow its references", len(d.refs) * d.schemas, maxRefs},
	} {
		if c.n > c.limit {
			return fmt.Errorf("the schema has %d %s, more than %d", c.n, c.what, c.limit)
		}
	}
	return d.enums(d.root)
}

// walk counts what a schema has, and mends what the compiler would stumble over. Within data (const, default) it
// only counts.
func (d *document) walk(v any, pathBytes int, data bool) {
	d.pointers += 3*pathBytes + len(base)
	switch v := v.(type) {
	case bool:
		d.schemas++
	case []any:
		for i, item := range v {
			d.descend(strconv.Itoa(i), item, pathBytes, data)
		}
	case map[string]any:
		d.schemas++
		for name, member := range v {
			switch text := member.(type) {
			case string:
				d.keyword(v, name, text, data)
			case json.Number:
				if !data {
					v[name] = clamped(name, text)
				}
			default:
				d.descend(name, member, pathBytes, data || isData(name))
			}
		}
	}
}

func (d *document) descend(name string, v any, pathBytes int, data bool) {
	d.path = append(d.path, name)
	d.walk(v, pathBytes+len(name)+1, data)
	d.path = d.path[:len(d.path)-1]
}

func isData(name string) bool {
	switch name {
	case "const", "enum", "default", "examples":
		return true
	}
	return false
}

// keyword looks at a member that is a string, wherever it stands: a few too many are counted.
func (d *document) keyword(obj map[string]any, name, text string, data bool) {
	switch name {
	case "$schema":
		if _, known := draftName(text); !known && !data {
			delete(obj, name) // a metaschema of the server's own: read as if it had none
		}
	case "$id", "id":
		d.ids++
	case "$anchor":
		d.named++
	case "$dynamicAnchor":
		d.named++
		d.anchors = append(d.anchors, pointer(d.path))
	case "$ref", "$dynamicRef", "$recursiveRef":
		if !d.expected(text) {
			d.refs[text] = true
		}
	}
}

// expected reports whether a reference leads to where a draft has subschemas. For any other target the compiler copies
// all that it knows of the document.
func (d *document) expected(ref string) bool {
	_, fragment, _ := strings.Cut(ref, "#")
	fragment, err := url.PathUnescape(fragment)
	if err != nil || fragment == "" || fragment[0] != '/' {
		return err == nil // the root of a schema, or an anchor
	}
	tokens := strings.Split(fragment, "/")[1:]
	for len(tokens) > 0 {
		n := 1
		switch tokens[0] {
		case "definitions", "properties", "patternProperties", "dependencies", "allOf", "anyOf", "oneOf":
			n = 2
		case "$defs", "dependentSchemas", "prefixItems":
			if !strings.HasPrefix(d.draft, "json-schema.org/draft-0") {
				n = 2
			} else {
				return false
			}
		case "items":
			if len(tokens) > 1 && tokens[1] != "" && strings.Trim(tokens[1], "0123456789") == "" {
				n = 2
			}
		case "not", "if", "then", "else", "additionalProperties", "additionalItems", "contains", "propertyNames",
			"unevaluatedItems", "unevaluatedProperties":
		default:
			return false
		}
		if len(tokens) < n {
			return false
		}
		tokens = tokens[n:]
	}
	return true
}

// clamped returns a count that fits an int: of 18446744073709551615, which generators write for "no limit", the
// compiler keeps the lower 64 bits.
func clamped(name string, n json.Number) any {
	switch name {
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains":
		const most = 1 << 40
		if r, ok := new(big.Rat).SetString(string(n)); ok && r.Cmp(big.NewRat(most, 1)) > 0 {
			return json.Number(strconv.Itoa(most))
		}
	}
	return n
}

// enums refuses an enum of many lists: draft-06 wants the values of an enum to be unique, and the library's comparing
// can be made to take quadratic time with nothing else.
func (d *document) enums(v any) error {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if err := d.enums(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, member := range v {
			list, ok := member.([]any)
			if n := trees(list); ok && name == "enum" && n > maxEnumTrees {
				return fmt.Errorf("the schema has an enum of %d arrays and objects, more than %d", n, maxEnumTrees)
			}
			if err := d.enums(member); err != nil {
				return err
			}
		}
	}
	return nil
}

// trees counts the arrays and objects of a list.
func trees(list []any) int {
	n := 0
	for _, item := range list {
		switch item.(type) {
		case []any, map[string]any:
			n++
		}
	}
	return n
}

// compile has the library compile the document. What it would fetch, it does not get.
func (d *document) compile(ps *patterns) (*jsonschema.Schema, *jsonschema.Compiler, error) {
	tries := []*jsonschema.Draft{jsonschema.Draft2020, jsonschema.Draft7, jsonschema.Draft4}
	if d.draft != "" {
		tries = []*jsonschema.Draft{drafts[d.draft]}
	}
	var first error
	for _, draft := range tries {
		c := jsonschema.NewCompiler()
		c.DefaultDraft(draft)
		c.UseLoader(refuse{})
		c.UseRegexpEngine(ps.compile)
		if err := c.AddResource(base, d.root); err != nil {
			return nil, nil, compileError(err)
		}
		s, err := c.Compile(base)
		if err == nil {
			return s, c, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, nil, compileError(first)
}

// anchored returns the subschemas with a $dynamicAnchor: any of them may be where a $dynamicRef leads.
func (d *document) anchored(c *jsonschema.Compiler) []*jsonschema.Schema {
	var list []*jsonschema.Schema
	for _, p := range d.anchors {
		if s, err := c.Compile(base + "#" + (&url.URL{Path: p}).EscapedPath()); err == nil {
			list = append(list, s)
		}
	}
	return list
}

// refuse is a loader that has nothing.
type refuse struct{}

var errFetch = errors.New("the reference leads outside of the schema, and pfar fetches nothing")

func (refuse) Load(string) (any, error) { return nil, errFetch }

// compileError says in one line what the library says in many.
func compileError(err error) error {
	var invalid *jsonschema.SchemaValidationError
	if errors.As(err, &invalid) {
		var at *jsonschema.ValidationError
		if errors.As(invalid.Err, &at) {
			return fmt.Errorf("the schema is not valid: %s", violation(at).Text)
		}
	}
	var load *jsonschema.LoadURLError
	if errors.As(err, &load) {
		return fmt.Errorf("the schema refers to %.200q: %w", strings.TrimPrefix(load.URL, base), errFetch)
	}
	return fmt.Errorf("the schema cannot be compiled: %.300q", strings.ReplaceAll(err.Error(), base, ""))
}

// trivial returns what the schema asks of a value, if it is next to nothing.
func (d *document) trivial() byte {
	obj, ok := d.root.(map[string]any)
	if !ok {
		if d.root == true {
			return anyValue
		}
		return nothing
	}
	asks := anyValue
	for name, v := range obj {
		switch name {
		case "$schema":
		case "type":
			if v != "object" {
				return nothing
			}
			asks = anyObject
		case "additionalProperties":
			if o, isObject := v.(map[string]any); v != true && (!isObject || len(o) > 0) {
				return nothing
			}
		case "properties":
			if len(v.(map[string]any)) > 0 {
				return nothing
			}
		case "required":
			if len(v.([]any)) > 0 {
				return nothing
			}
		default:
			if !isAnnotation(name) {
				return nothing
			}
		}
	}
	return asks
}

// isAnnotation reports whether a keyword asks nothing of a value.
func isAnnotation(keyword string) bool {
	switch keyword {
	case "title", "description", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly":
		return true
	}
	return false
}
