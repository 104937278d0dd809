package step

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/flow"
)

// search is a tool with every kind of port.
func search() *flow.Node {
	return &flow.Node{
		Server: "github", Tool: "search_code",
		Inputs: []flow.Port{{Name: "query", Required: true}, {Name: "language"}},
		Params: []flow.Port{
			{Name: "max_results", Default: json.RawMessage("10")}, {Name: "mode", Required: true,
				Default: json.RawMessage(`"all"`)},
		},
		Outputs: []flow.Port{{Name: "results"}, {Name: "total"}, {Name: "search_code"}},
	}
}

// values reads what stands as name=JSON in words.
func values(words string) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	for _, w := range strings.Fields(words) {
		name, value, _ := strings.Cut(w, "=")
		m[name] = json.RawMessage(value)
	}
	return m
}

func names(words string) map[string]string {
	m := map[string]string{}
	for name, value := range values(words) {
		m[name] = string(value)
	}
	return m
}

// spelt is the opposite of values.
func spelt(m map[string]json.RawMessage) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		words = append(words, name+"="+string(m[name]))
	}
	return strings.Join(words, " ")
}

// TestArguments: each row is a step and a store, and the arguments that are made of them, or the error after "!".
func TestArguments(t *testing.T) {
	needed := search()
	needed.Params = append(needed.Params, flow.Port{Name: "token", Required: true})
	open := &flow.Node{Open: true, Inputs: []flow.Port{}, Params: []flow.Port{{Name: "template", Required: true}}}
	tests := []struct {
		name                      string
		node                      *flow.Node
		params, set, reads, store string
		want                      string
		after                     string // the store, if it is another one by then
	}{
		{"nothing", search(), "", "", "", "", "!Missing required 'query' in shared store", ""},
		{"null", search(), "", "", "", "query=null", "!Missing required 'query' in shared store", ""},
		{"mapped away", search(), "", "", "query=terms", `query="x"`,
			"!Missing required 'terms' in shared store, for the input 'query'", ""},
		{"a required param", needed, "", "", "", "query=1", "!Missing required param 'token'", ""},
		{"a param is not read from the store", needed, "", "", "", "query=1 token=2", "!Missing required param 'token'", ""},
		{"no JSON", search(), "", "", "", "query=x",
			"!the value of 'query' is not JSON: invalid character 'x' looking for beginning of value", ""},

		{"an input from the store", search(), "", "", "", `query="a<b" other=1`, `{"mode":"all","query":"a<b"}`, ""},
		{"an optional input", search(), "", "", "", `query=1 language="go"`, `{"language":"go","mode":"all","query":1}`, ""},
		{"a param of the store's name", search(), "", "", "", "query=1 max_results=99", `{"mode":"all","query":1}`, ""},
		{"params", search(), `max_results=20 mode="x"`, "", "", "query=1", `{"max_results":20,"mode":"x","query":1}`, ""},
		{"mapped", search(), "", "", "query=terms", "query=1 terms=2", `{"mode":"all","query":2}`, ""},
		{"a mapped param", search(), "max_results=20", "", "max_results=n", "query=1 n=3",
			`{"max_results":3,"mode":"all","query":1}`, ""},
		{"a mapped param that the store does not have", search(), "max_results=20", "", "max_results=n", "query=1",
			`{"max_results":20,"mode":"all","query":1}`, ""},
		{"set", search(), "", "query=7", "", "query=1", `{"mode":"all","query":7}`, "query=7"},
		{"set and mapped", search(), "", "query=7", "query=terms", "query=1", `{"mode":"all","query":7}`, "query=1 terms=7"},
		{"open", open, `template="x"`, "", "who=person", "person=1 other=2", `{"template":"x","who":1}`, ""},
		{"open without a value", open, `template="x"`, "", "who=person", "who=1",
			"!Missing required 'person' in shared store, for the input 'who'", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &flow.Planned{Node: tt.node}
			p.Params, p.Set, p.Reads = values(tt.params), values(tt.set), names(tt.reads)
			store := values(tt.store)
			got, err := Arguments(p, store)
			if err != nil && (tt.want != "!"+err.Error() || got != nil) || err == nil && string(got) != tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
			want := tt.after
			if want == "" {
				want = spelt(values(tt.store))
			}
			if spelt(store) != want {
				t.Errorf("the store is %s, want %s", spelt(store), want)
			}
		})
	}
	var missing *Missing
	if _, err := Arguments(&flow.Planned{Node: search()}, Store{}); !errors.As(err, &missing) || missing.Port != "query" {
		t.Errorf("%v", err)
	}
}

// TestWrite: each row is a result, and the store that it makes of the one before, or the error after "!".
func TestWrite(t *testing.T) {
	native := &flow.Node{ID: "pick", Outputs: []flow.Port{{Name: "picked"}, {Name: "pick"}}}
	tests := []struct {
		name           string
		node           *flow.Node
		writes, unread string
		store, result  string
		want           string
	}{
		{"an error of the tool", search(), "", "", "", `{"isError":true,"content":[]}`,
			"!the result is an error of the tool"},
		{"no result", search(), "", "", "", `[]`, "!the result does not have the form of a tool result: "},
		{"no content", search(), "", "", "", `{"content":7}`, "!the content of the result does not have the form of MCP: "},
		{"members that the node does not declare", search(), "", "", `channel="#ours"`,
			`{"structuredContent":{"channel":"#theirs","results":1}}`,
			`channel="#ours" results=1 search_code={"channel":"#theirs","results":1}`},
		{"an older value goes", search(), "", "", "results=1 total=2", `{"structuredContent":{"total":3}}`,
			`search_code={"total":3} total=3`},
		{"null is no value", search(), "", "", "results=1", `{"structuredContent":{"results":null}}`,
			`search_code={"results":null}`},
		{"text", search(), "", "", "", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b<"}]}`,
			`search_code="a\nb<"`},
		{"text is not read as JSON", search(), "", "", "", `{"content":[{"type":"text","text":"{\"results\":1}"}]}`,
			`search_code="{\"results\":1}"`},
		{"a resource", search(), "", "", "", `{"content":[{"type":"resource","resource":{"text":"r"}}]}`, `search_code="r"`},
		{"an image", search(), "", "", "", `{"content":[{"type":"image","data":"x"}]}`,
			`search_code=[{"type":"image","data":"x"}]`},
		{"nothing", search(), "", "", "", `{}`, `search_code=""`},
		{"structured before text", search(), "", "", "",
			`{"structuredContent":{"total":1},"content":[{"type":"text","text":"a"}]}`,
			`search_code={"total":1} total=1`},
		{"mapped", search(), "results=found search_code=all", "", "results=0",
			`{"structuredContent":{"results":1,"total":2}}`,
			`all={"results":1,"total":2} found=1 results=0 total=2`},
		{"unread", search(), "", "total search_code", "total=9", `{"structuredContent":{"results":1,"total":2}}`,
			`results=1 total=9`},
		{"a native value", native, "", "", "", `{"picked":[1],"isError":true}`,
			`pick={"picked":[1],"isError":true} picked=[1]`},
		{"a native text", native, "", "", "", `"x"`, `pick="x" picked="x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &flow.Planned{Node: tt.node, Unread: strings.Fields(tt.unread)}
			p.Writes = names(tt.writes)
			store := values(tt.store)
			err := Write(p, json.RawMessage(tt.result), store)
			if text, wrong := strings.CutPrefix(tt.want, "!"); wrong {
				if err == nil || !strings.HasPrefix(err.Error(), text) || spelt(store) != tt.store {
					t.Errorf("error %v, store %s", err, spelt(store))
				}
				return
			}
			if err != nil || spelt(store) != tt.want {
				t.Errorf("got %s, %v\nwant %s", spelt(store), err, tt.want)
			}
		})
	}
}

// FuzzStep: whatever a server answers, the store has only names that the step knows, and only JSON.
func FuzzStep(f *testing.F) {
	f.Add(`{"structuredContent":{"results":[1],"channel":"x"},"content":[{"type":"text","text":"a"}]}`)
	f.Add(`{"content":[{"type":"resource","resource":{"text":"\ud800"}},{"type":"image"}]}`)
	f.Fuzz(func(t *testing.T, result string) {
		store := Store{}
		p := &flow.Planned{Node: search()}
		p.Writes = map[string]string{"total": "query"}
		if err := Write(p, json.RawMessage(result), store); err != nil {
			return
		}
		for name, value := range store {
			if !slices.Contains([]string{"results", "query", "search_code"}, name) || !json.Valid(value) {
				t.Errorf("%q writes %q: %q", result, name, value)
			}
		}
		if arguments, err := Arguments(p, store); err == nil && !json.Valid(arguments) {
			t.Errorf("%q: arguments %q", result, arguments)
		}
	})
}
