package drift

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func tool(name, schema string) Definition {
	return Definition{"tool", name, json.RawMessage(fmt.Sprintf(`{"name":%q,"inputSchema":%s}`, name, schema))}
}

// TestNarrowed: a call that was right before and fails now is told, and nothing else.
func TestNarrowed(t *testing.T) {
	for _, c := range []struct{ before, now, want string }{
		{`{"type":"object"}`, `{ "type" : "object" }`, "no change"},
		{`{"type":"object"}`, `{"type":"object","description":"x"}`, ""},
		{`{}`, `{"properties":{"a":{}},"required":["a"]}`, "needs a"},
		{`{"properties":{"a":{}},"required":["a"]}`, `{"properties":{"a":{}}}`, ""},
		{`{"properties":{"a":{}}}`, `{"properties":{}}`, "no longer has a"},
		{`{"properties":{"a":{"type":["string","null"]}}}`, `{"properties":{"a":{"type":"string"}}}`,
			"a may no longer be null"},
		{`{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":{"type":["string","null"]}}}`, ""},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"properties":{"a":{"type":"number"}}}`, ""},
		{`{"properties":{"a":{"type":"number"}}}`, `{"properties":{"a":{"type":"integer"}}}`, "a may no longer be number"},
		{`{"properties":{"a":{}}}`, `{"properties":{"a":{"type":"string"}}}`, "a may only be string"},
		{`{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":{}}}`, ""},
		{`{"properties":{"a":{"enum":[1,2]}}}`, `{"properties":{"a":{"enum":[2,3]}}}`, "a may no longer be 1"},
		{`{"properties":{"a":{"enum":[1,2]}}}`, `{"properties":{"a":{}}}`, ""},
		{`{"properties":{"a":{}}}`, `{"properties":{"a":{"enum":[1]}}}`, "a may only be one of 1 values"},
		{`{"properties":{"a":{}}}`, `{"properties":{"a":{}},"additionalProperties":false}`,
			"the arguments takes no other members any more"},
		{`{"properties":{"a":{"properties":{"b":{"items":{"type":["string","null"]}}}}}}`,
			`{"properties":{"a":{"properties":{"b":{"items":{"type":"null"}}}}}}`, "a.b[] may no longer be string"},
		{`{"properties":{"\u001b[31m":{}}}`, `{}`, `no longer has \x1b[31m`},
		{`{"properties":{"a":{"type":1}}}`, `[]`, ""},
	} {
		list := Compare([]Definition{tool("x", c.before)}, []Definition{tool("x", c.now)})
		got := "no change"
		if len(list) == 1 && list[0].What == Changed {
			got = strings.Join(list[0].Breaks, "; ")
		}
		if got != c.want {
			t.Errorf("%s, then %s: %q, want %q", c.before, c.now, got, c.want)
		}
	}
}

// TestCompare: what breaks callers comes first, and a prompt is not a tool of that name.
func TestCompare(t *testing.T) {
	before := []Definition{tool("gone", `{}`), tool("same", `{}`), tool("b", `{}`), tool("a", `{}`), {"prompt", "same",
		[]byte(`{}`)}}
	now := []Definition{
		tool("b", `{"required":["x"]}`),
		tool("a", `{"title":"y"}`),
		tool("new", `{}`),
		tool("same", `{}`),
		{"resource", "r", []byte(`{}`)},
	}
	var got []string
	for _, c := range Compare(before, now) {
		got = append(got, fmt.Sprint(c.Kind, " ", c.Name, " ", c.What, " ", c.Breaking()))
	}
	want := "prompt same gone true|tool gone gone true|" +
		"tool b changed true|tool a changed false|resource r new false|tool new new false"
	if strings.Join(got, "|") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, "|"), want)
	}
	deep := strings.Repeat(`{"properties":{"a":`, 1000) + `{}` + strings.Repeat(`}}`, 1000)
	Compare([]Definition{tool("x", deep)}, []Definition{tool("x", `{}`)}) // ends
}
