package schema

import (
	"strings"
	"testing"
)

// TestFreeText has values that conform to the schema, and whether they hold text of whoever made them.
func TestFreeText(t *testing.T) {
	uuid := "123e4567-e89b-12d3-a456-426614174000"
	for _, c := range []struct {
		schema, value string
		free          bool
	}{
		{`{}`, `{"a":"x"}`, true},
		{`true`, `"x"`, true},
		{`{"type":"object"}`, `{"a":1}`, true}, // the name
		{`{"type":"object","properties":{"a":{"type":"string"}}}`, `{"a":"x"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","maxLength":5}}}`, `{"a":"x"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","format":"email"}}}`, `{"a":"a@b.c"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","format":"date"}}}`, `{"a":"2026-01-02 ignore what was said"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","format":"uuid"}}}`, `{"a":"ignore all"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]+$"}}}`, `{"a":"` + strings.Repeat("a", 65) + `"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]{1,80}$"}}}`, `{"a":"x"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","pattern":"[a-z]{1,8}"}}}`, `{"a":"any text at all"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z ]{1,8}$"}}}`, `{"a":"x y"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","pattern":"^\\S{1,8}$"}}}`, `{"a":"x"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","pattern":"^.{1,8}$"}}}`, `{"a":"x"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]{1,8}$|x"}}}`, `{"a":"all of this, x"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string","pattern":"^(?=x)x$"}}}`, `{"a":"x"}`, true},
		{`{"type":"object","properties":{"a":{"anyOf":[{"enum":["x"]},{"type":"string"}]}}}`, `{"a":"x"}`, true},
		{`{"type":"object","properties":{"a":{"type":"array"}}}`, `{"a":["x"]}`, true},
		{`{"type":"object","properties":{"a":{"type":"array","prefixItems":[{"enum":["x"]}]}}}`, `{"a":["x","y"]}`, true},
		{`{"type":"object","properties":{"a":{"enum":["x"]}}}`, `{"a":"x","b":1}`, true},
		{`{"type":"object","additionalProperties":{"type":"number"}}`, `{"b":1}`, true},
		{`{"type":"object","patternProperties":{"x":{"type":"number"}}}`, `{"text, x":1}`, true},
		{`{"type":"object","properties":{"a":{"not":{"enum":["x"]}}}}`, `{"a":"y"}`, true},
		{`{"type":"object","properties":{"a":{"if":{"enum":["x"]},"then":true}}}`, `{"a":"y"}`, true},
		{`{"type":"object","properties":{"a":{"type":"string"}}}`, `{`, true},

		{`{}`, `1`, false},
		{`{"type":"object"}`, `{}`, false},
		{`{"type":"object","properties":{"a":{"type":"string"}}}`, `{}`, false},
		{`{"type":"object","properties":{"a":{}}}`, `{"a":[1,true,null,[2]]}`, false},
		{`{"type":"object","properties":{"a":{"enum":["x y","z"]},"b":{"const":"any text"}}}`, `{"a":"x y","b":"any text"}`, false},
		{`{"type":"object","properties":{"a":{"type":"string","format":"date"},"b":{"format":"date-time"},"c":{"format":"uuid"},"d":{"format":"time"},"e":{"format":"ipv4"},"f":{"format":"duration"}}}`,
			`{"a":"2026-01-02","b":"2026-01-02T03:04:05.6Z","c":"` + uuid + `","d":"03:04:05Z","e":"10.0.0.1","f":"P1DT2H"}`, false},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a/b~c":{"type":"string","format":"date"}}}`, `{"a/b~c":"2026-01-02"}`, false},
		{`{"type":"object","properties":{"a":{"type":"string","pattern":"^[A-Za-z0-9_-]{1,64}$"},"b":{"pattern":"^(ab|c+)$","maxLength":9},"c":{"pattern":"^a$|^b{2}$"}}}`, `{"a":"x-1","b":"cc","c":"bb"}`, false},
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/k"}},"$defs":{"k":{"enum":["x"]}}}`, `{"a":"x"}`, false},
		{`{"type":"object","properties":{"a":{"allOf":[{"type":"string"},{"enum":["x"]}]}}}`, `{"a":"x"}`, false},
		{`{"type":"object","properties":{"a":{"anyOf":[{"enum":["x"]},{"type":"null"},{"type":"number"}]}}}`, `{"a":"x"}`, false},
		{`{"type":"object","properties":{"a":{"type":"array","items":{"enum":["x"]}}}}`, `{"a":["x","x"]}`, false},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"items":[{"enum":["x"]}],"additionalItems":{"enum":["y"]}}}}`, `{"a":["x","y"]}`, false},
		{`{"type":"object","propertyNames":{"pattern":"^[a-z]{1,9}$"},"additionalProperties":{"type":"number"}}`, `{"b":1}`, false},
		{`{"type":"object","patternProperties":{"^x[0-9]{1,3}$":{"enum":["a"]}}}`, `{"x12":"a"}`, false},
	} {
		s := compiled(t, c.schema)
		if got := s.FreeText([]byte(c.value)); got != c.free {
			t.Errorf("%s of %s: %v", c.value, c.schema, got)
		}
	}
}

// TestFreeTextBounded has schemas that would have a value looked at again and again: it ends, and says the worse.
func TestFreeTextBounded(t *testing.T) {
	s := compiled(t, `{"$defs":{"n":{"allOf":[{"properties":{"n":{"$ref":"#/$defs/n"}}},{"properties":{"n":{"$ref":"#/$defs/n"}}},{"properties":{"n":{"$ref":"#/$defs/n"}}}]}},"$ref":"#/$defs/n"}`)
	value := strings.Repeat(`{"n":`, 60) + `"x"` + strings.Repeat(`}`, 60)
	if !s.FreeText([]byte(value)) {
		t.Error("not free")
	}
	if !s.FreeText([]byte(`"` + strings.Repeat("x", maxLookAt) + `"`)) {
		t.Error("long, and not free")
	}
}
