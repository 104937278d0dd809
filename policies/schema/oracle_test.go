package schema

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// subschemas returns all that a compiled schema leads to, itself first.
func subschemas(root *jsonschema.Schema) []*jsonschema.Schema {
	met := map[*jsonschema.Schema]bool{}
	var list []*jsonschema.Schema
	add := func(more ...*jsonschema.Schema) {
		for _, s := range more {
			if s != nil && !met[s] {
				met[s] = true
				list = append(list, s)
			}
		}
	}
	of := func(v any) {
		switch v := v.(type) {
		case *jsonschema.Schema:
			add(v)
		case []*jsonschema.Schema:
			add(v...)
		}
	}
	add(root)
	for i := 0; i < len(list); i++ {
		s := list[i]
		add(s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems)
		add(s.AllOf...)
		add(s.AnyOf...)
		add(s.OneOf...)
		add(s.PrefixItems...)
		of(s.AdditionalProperties)
		of(s.Items)
		of(s.AdditionalItems)
		if s.DynamicRef != nil {
			add(s.DynamicRef.Ref)
		}
		for _, sub := range s.Properties {
			add(sub)
		}
		for _, sub := range s.PatternProperties {
			add(sub)
		}
		for _, sub := range s.DependentSchemas {
			add(sub)
		}
		for _, sub := range s.Dependencies {
			of(sub)
		}
		for _, ext := range s.Extensions {
			if n, ok := ext.(names); ok {
				add(n.schema)
			}
		}
	}
	return list
}

// applications returns how many subschemas the library really applies when it checks value: their "format" is asked for
// each, once the type is right.
func applications(t testing.TB, s *Schema, value string) int64 {
	t.Helper()
	n := int64(0)
	count := &jsonschema.Format{Name: "count", Validate: func(any) error { n++; return nil }}
	for _, sub := range subschemas(s.compiled) {
		sub.Format = count
	}
	tree, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	_ = s.compiled.Validate(tree)
	return n
}

// verdict returns what the library alone says, with none of our own code in its place.
func verdict(t testing.TB, s *Schema, raw, value []byte) error {
	t.Helper()
	d, err := readDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	for _, draft := range drafts {
		if strings.Contains(draft.String(), map[int]string{4: "-04", 6: "-06", 7: "-07", 2019: "2019", 2020: "2020"}[s.compiled.DraftVersion]) {
			c.DefaultDraft(draft)
		}
	}
	c.UseLoader(refuse{})
	c.UseRegexpEngine(newPatterns().compile)
	if err := c.AddResource(base, d.root); err != nil {
		t.Fatal(err)
	}
	plain, err := c.Compile(base)
	if err != nil {
		t.Fatalf("%s: the library does not compile it: %v", raw, err)
	}
	for _, sub := range subschemas(plain) {
		sub.Format = nil
	}
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	return plain.Validate(tree)
}

func unchecked(v *Violation) bool {
	return v != nil && strings.HasPrefix(v.Text, "the value cannot be checked: ")
}

// compareVerdicts holds Check to the library, and the foreseen cost to the true one.
func compareVerdicts(t *testing.T, raw, value []byte) {
	t.Helper()
	s, err := Compile(raw)
	if err != nil || !json.Valid(value) {
		return
	}
	v := s.Check(value)
	if unchecked(v) {
		return
	}
	if want := verdict(t, s, raw, value); (want == nil) != (v == nil) {
		t.Fatalf("schema %s\nvalue %s\ngot %v, the library says %v", raw, value, v, want)
	}
	if v != nil && (v.Text == "" || len(v.Text) > 16<<10 || strings.ContainsAny(v.Text, "\n\r\x1b\u202e\u2028")) {
		t.Fatalf("schema %s\nvalue %s\ntext %q", raw, value, v.Text)
	}
	d := decoder{s: string(value), maxDepth: maxDepth, maxNodes: maxNodes}
	tree, err := d.document()
	if err != nil {
		t.Fatal(err)
	}
	for _, always := range []bool{false, true} {
		s.graph.bounded = s.graph.bounded && !always // the second time the meter is asked
		cost, err := s.graph.cost(tree, &d)
		if err != nil {
			t.Fatalf("schema %s\nvalue %s: checked, but %v", raw, value, err)
		}
		if n := applications(t, s, string(value)); n > cost {
			t.Fatalf("schema %s\nvalue %s: %d applications, foreseen %d", raw, value, n, cost)
		}
	}
}

// FuzzCompileCheck tries that nothing panics, that Check agrees with the library and that nothing costs more than was
// foreseen.
func FuzzCompileCheck(f *testing.F) {
	for _, c := range honest {
		f.Add([]byte(c.schema), []byte(c.value))
	}
	for _, c := range bombs {
		if len(c.schema)+len(c.small) < 4<<10 {
			f.Add([]byte(c.schema), []byte(c.small))
		}
	}
	f.Add([]byte(object), []byte(`{"s":"ab","o":{"abcd":true,"b":1,"c":false},"one":4,"t":["a",1,2],"un":{"a":1,"b":2}}`))
	f.Fuzz(func(t *testing.T, raw, value []byte) {
		if len(raw) > 4<<10 || len(value) > 4<<10 {
			return
		}
		compareVerdicts(t, raw, value)
	})
}

func TestAgreement(t *testing.T) {
	for _, c := range honest {
		compareVerdicts(t, []byte(c.schema), []byte(c.value))
		compareVerdicts(t, []byte(c.schema), []byte(c.wrong))
	}
	for _, c := range bombs {
		compareVerdicts(t, []byte(c.schema), []byte(c.small))
	}
}

// listing is what a server answered to tools/list, but for what it says to people.
type listing struct {
	Package string
	Tools   []struct {
		Name         string
		InputSchema  json.RawMessage
		OutputSchema json.RawMessage
	}
}

func listings(t *testing.T) map[string]listing {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	all := map[string]listing{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var l listing
		if err := json.Unmarshal(b, &l); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = l
	}
	return all
}
