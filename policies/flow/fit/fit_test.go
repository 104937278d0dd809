package fit

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestOutput: only types that exclude each other do not fit.
func TestOutput(t *testing.T) {
	for _, tt := range []struct {
		out, in string
		want    bool
	}{
		{`{"type":"array"}`, `{"type":"string"}`, false},
		{`{"type":"string"}`, `{"type":"number"}`, false},
		{`{"type":["string","null"]}`, `{"type":"object"}`, false},
		{`{"enum":["a"]}`, `{"type":"integer"}`, false},
		{`{"const":7}`, `{"type":"boolean"}`, false},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `{"type":"array"}`, false},
		{`{"type":"array","items":{"type":"string"}}`, `{"type":"array","items":{"type":"object"}}`, false},
		{`{"$ref":"#/$defs/d","$defs":{"d":{"type":"string"}}}`, `{"type":"array"}`, false},

		{`{"type":"array","items":{}}`, `{"type":"array","items":{"type":"object"}}`, true},
		{`{"type":"integer"}`, `{"type":"number"}`, true},
		{`{"type":"number"}`, `{"type":"integer"}`, true},
		{`{"type":"string"}`, `{"enum":["a"]}`, true},
		{`{"anyOf":[{"type":"string"},{}]}`, `{"type":"array"}`, true},
		{`{}`, `{"type":"array"}`, true},
		{``, `{"type":"array"}`, true},
		{`{"type":"array"}`, ``, true},
		{`{"type":7}`, `{"type":"array"}`, true},
		{`{"$ref":"#/$defs/d","$defs":{"d":{"$ref":"#/$defs/d"}}}`, `{"type":"array"}`, true},
		{`{"$ref":"https://evil.test/x"}`, `{"type":"array"}`, true},
	} {
		if got := Output(json.RawMessage(tt.out), json.RawMessage(tt.in)); got != tt.want {
			t.Errorf("%s into %s: %t", tt.out, tt.in, got)
		}
	}
}

// TestText: what may be a text can take one from standard input.
func TestText(t *testing.T) {
	for s, want := range map[string]bool{
		`{"type":"array"}`: false, `{"type":"integer"}`: false, `{"enum":[1]}`: false,
		`{"type":"string"}`: true, `{"type":["null","string"]}`: true, `{}`: true, ``: true,
	} {
		if got := Text(json.RawMessage(s)); got != want {
			t.Errorf("%s: %t", s, got)
		}
	}
}

// TestValue: a value that does not fit is told, and a schema that cannot be read stops nothing.
func TestValue(t *testing.T) {
	for _, tt := range []struct{ schema, value, want string }{
		{`{"type":"integer","maximum":100}`, `101`, "100"}, {`{"type":"integer"}`, `"5"`, "string"},
		{`{"type":"integer","maximum":100}`, `7`, ""}, {``, `7`, ""}, {`{"type":"nothing that exists"}`, `7`, ""},
	} {
		var s json.RawMessage
		if tt.schema != "" {
			s = json.RawMessage(tt.schema)
		}
		got := Value(s, json.RawMessage(tt.value))
		if tt.want == "" && got != "" || tt.want != "" && !strings.Contains(got, tt.want) {
			t.Errorf("%s for %s: %q, want %q", tt.value, tt.schema, got, tt.want)
		}
		if got := Value(s, nil); got != "" {
			t.Errorf("a value that is not known, for %s: %q", tt.schema, got)
		}
	}
}
