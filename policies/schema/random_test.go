package schema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

// invention makes up schemas with every keyword, and values that meet them: bytes that are changed at random hardly
// ever make either.
type invention struct{ *rand.Rand }

func pick[T any](r invention, list ...T) T { return list[r.IntN(len(list))] }

func (r invention) name() string { return pick(r, "a", "b", "ab", "1") }

func (r invention) value(depth int) any {
	n := 9
	if depth == 0 {
		n = 7
	}
	switch r.IntN(n) {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		return pick(r, "", "a", "ab", "abc", "é", "1")
	case 3, 4:
		return r.IntN(5) - 1
	case 5:
		return json.Number(pick(r, "1.0", "0.5", "1e1", "-0", "2.50", "9007199254740993", "1e-2"))
	case 6:
		return []any{}
	case 7:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = r.value(depth - 1)
		}
		return list
	}
	m := map[string]any{}
	for range r.IntN(4) {
		m[r.name()] = r.value(depth - 1)
	}
	return m
}

func (r invention) list(depth int) []any {
	list := make([]any, 1+r.IntN(3))
	for i := range list {
		list[i] = r.schema(depth)
	}
	return list
}

func (r invention) named(depth int, name func() string) map[string]any {
	m := map[string]any{}
	for range 1 + r.IntN(2) {
		m[name()] = r.schema(depth)
	}
	return m
}

func (r invention) schema(depth int) any {
	if depth <= 0 || r.IntN(8) == 0 {
		return pick[any](r, true, false, map[string]any{}, map[string]any{"type": "string"}, map[string]any{"type": "integer"},
			map[string]any{"minimum": 1}, map[string]any{"$ref": pick(r, "#", "#/$defs/0", "#/$defs/1", "#x")})
	}
	s := map[string]any{}
	for range 1 + r.IntN(3) {
		r.keyword(s, depth-1)
	}
	return s
}

func (r invention) keyword(s map[string]any, depth int) {
	types := []any{"null", "boolean", "object", "array", "number", "string", "integer"}
	patternName := func() string { return pick(r, "^a", "b$", "^(?!a)", ".", `\d`) }
	switch key := pick(r, "type", "types", "enum", "const", "range", "multipleOf", "length", "pattern", "items", "prefixItems", "contains",
		"count", "uniqueItems", "properties", "properties", "patternProperties", "additionalProperties", "propertyNames", "required",
		"dependentRequired", "dependentSchemas", "dependencies", "allOf", "anyOf", "oneOf", "not", "if", "unevaluatedProperties",
		"unevaluatedItems", "$ref", "$dynamicRef", "format"); key {
	case "type":
		s["type"] = pick(r, types...)
	case "types":
		s["type"] = []any{pick(r, types[:3]...), pick(r, types[3:]...)}
	case "enum":
		s["enum"] = []any{r.value(1), r.value(2), r.value(0)}
	case "const":
		s["const"] = r.value(2)
	case "range":
		s[pick(r, "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")] = r.IntN(4) - 1
	case "multipleOf":
		s["multipleOf"] = json.Number(pick(r, "1", "0.5", "0.01", "3"))
	case "length":
		s[pick(r, "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")] = r.IntN(4)
	case "pattern":
		s["pattern"] = patternName()
	case "prefixItems", "allOf", "anyOf", "oneOf":
		s[key] = r.list(depth)
	case "count":
		s["contains"] = r.schema(depth)
		s[pick(r, "minContains", "maxContains")] = r.IntN(3)
	case "uniqueItems":
		s["uniqueItems"] = true
	case "properties", "dependentSchemas", "dependencies":
		s[key] = r.named(depth, r.name)
	case "patternProperties":
		s[key] = r.named(depth, patternName)
	case "required":
		s["required"] = []any{r.name()}
	case "dependentRequired":
		s[key] = map[string]any{r.name(): []any{r.name()}}
	case "if":
		s["if"], s["then"], s["else"] = r.schema(depth), r.schema(depth), r.schema(depth)
	case "$ref":
		s["$ref"] = pick(r, "#", "#/$defs/0", "#/$defs/1", "#x", "#/$defs/0/items")
	case "$dynamicRef":
		s["$dynamicRef"] = pick(r, "#x", "#y", "#/$defs/1")
	case "format":
		s["format"] = pick(r, "ipv4", "regex", "date")
	default:
		s[key] = r.schema(depth)
	}
}

func (r invention) document() any {
	s := map[string]any{"$defs": map[string]any{
		"0": r.schema(2),
		"1": map[string]any{"$dynamicAnchor": "x", "items": r.schema(1), "properties": r.named(1, r.name)},
		"2": map[string]any{"$id": "sub", "$dynamicAnchor": "y", "items": r.schema(1), "$defs": map[string]any{"3": map[string]any{"$anchor": "x"}, "0": true, "1": r.schema(1)}},
	}}
	for range 3 {
		r.keyword(s, 3)
	}
	if draft := pick(r, "", "", "", "draft/2019-09", "draft-07", "draft-06", "draft-04"); draft != "" {
		s["$schema"] = fmt.Sprintf("http://json-schema.org/%s/schema#", draft)
	}
	return s
}

// TestInvented compares what Check says with what the library alone says, and the foreseen costs with the true ones.
func TestInvented(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 200
	}
	compiles := 0
	for seed := range uint64(n) {
		r := invention{rand.New(rand.NewPCG(seed, 0))}
		raw, err := json.Marshal(r.document())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Compile(raw); err != nil {
			continue
		}
		compiles++
		for range 3 {
			value, err := json.Marshal(r.value(4))
			if err != nil {
				t.Fatal(err)
			}
			compareVerdicts(t, raw, value)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if compiles < n/4 {
		t.Errorf("%d of %d compile", compiles, n)
	}
	t.Logf("%d of %d compile", compiles, n)
}
