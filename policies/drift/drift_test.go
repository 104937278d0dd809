package drift

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
		{`{"properties":{"a":{"type":"string"}}}`, `{"properties":{"a":{"anyOf":[{"type":"null"},{"type":"string"}]}}}`, ""},
		{`{"properties":{"a":{"oneOf":[{"type":"null"},{"type":"string"}]}}}`, `{"properties":{"a":{"type":"string"}}}`,
			"a may no longer be null"},
		{`{"properties":{"a":{"properties":{"b":{}}}}}`,
			`{"$defs":{"x":{"required":["c"]}},"properties":{"a":{"$ref":"#/$defs/x"}}}`, "needs a.c; no longer has a.b"},
		{`{"properties":{"a":{}}}`, `{"properties":{"a":{"$ref":"#/$defs/none"}}}`, ""},
		{`{"properties":{"a":{}}}`, `{"$defs":{"x":{"$ref":"#/$defs/x"}},"properties":{"a":{"$ref":"#/$defs/x"}}}`, ""},
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

var update = flag.Bool("update", false, "write the golden files of TestReal")

// TestReal compares what real servers offered in one version and offer in a later one, as their tools/list had it.
func TestReal(t *testing.T) {
	for before, now := range map[string]string{
		"notion-mcp-server@1.9.1": "2.5.2", "server-filesystem@2025.3.28": "2026.8.31",
		"server-memory@2025.4.25": "2026.8.31",
	} {
		name, _, _ := strings.Cut(before, "@")
		var got strings.Builder
		breaking := true
		for _, c := range Compare(definitions(t, before), definitions(t, name+"@"+now)) {
			line := fmt.Sprint(c.What, " ", c.Kind, " ", c.Name, " ", strings.Join(c.Breaks, "; "))
			fmt.Fprintln(&got, strings.TrimSpace(line))
			if c.Breaking() && !breaking {
				t.Errorf("%s: %s breaks callers, and comes after what does not", before, c.Name)
			}
			breaking = c.Breaking()
		}
		golden := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || got.String() != string(want) {
			t.Errorf("%v: from %s to %s:\n%s", err, before, now, got.String())
		}
		if back := Compare(definitions(t, before), definitions(t, before)); len(back) > 0 {
			t.Errorf("%s has changed without a change: %+v", before, back)
		}
	}
}

// definitions are the tools of a version.
func definitions(t *testing.T, name string) (list []Definition) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil || len(list) == 0 {
		t.Fatalf("%s: %d tools, %v", name, len(list), err)
	}
	return list
}
