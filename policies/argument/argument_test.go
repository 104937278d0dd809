package argument

import (
	"encoding/json"
	"testing"
)

// TestForms: a format or a pattern makes a text one of a form, wherever the schema says so, and no other member does.
func TestForms(t *testing.T) {
	schema := `{"properties":{"a":{"type":"string"},"b":{"type":"string","format":"date"},"c":{"anyOf":[{"type":"string",
		"pattern":"^x"},{"type":"null"}]},"d":{"$ref":"#/$defs/d"},"e":{"type":"string","maxLength":3}},
		"$defs":{"d":{"type":"string","format":"uri"}}}`
	got := map[string]bool{}
	for _, p := range Read(json.RawMessage(schema)) {
		got[p.Name] = p.Formed
	}
	for name, want := range map[string]bool{"a": false, "b": true, "c": true, "d": true, "e": false} {
		if formed, ok := got[name]; !ok || formed != want {
			t.Errorf("%s: %t, %t; want %t", name, formed, ok, want)
		}
	}
}

// TestParse: what an argument cannot be is refused, with what is wanted.
func TestParse(t *testing.T) {
	schema := `{"properties":{"s":{"type":"string"},"i":{"type":"integer"},"a":{"type":"array","items":{"enum":["x"]}},
		"o":{"type":"object"},"any":{}}}`
	properties := map[string]Property{}
	for _, p := range Read(json.RawMessage(schema)) {
		properties[p.Name] = p
	}
	for _, tt := range []struct{ name, text, want, err string }{
		{"i", "1.5", "", "want a whole number"}, {"i", `1,"s":2`, "", "want a whole number"}, {"a", "y", "", "want one of x"},
		{"o", "{", "", "want JSON"}, {"s", "null", `"null"`, ""}, {"i", "-7", "-7", ""}, {"a", "x", `"x"`, ""},
		{"any", "plain", `"plain"`, ""}, {"any", "[1]", "[1]", ""},
	} {
		got, err := properties[tt.name].Parse(tt.text)
		if string(got) != tt.want || (err != nil) != (tt.err != "") || err != nil && err.Error() != tt.err {
			t.Errorf("%s = %q: %s, %v; want %q, %q", tt.name, tt.text, got, err, tt.want, tt.err)
		}
	}
}
