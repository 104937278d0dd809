package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/flow"
)

// shown is a node on a few lines: its ports with what is known of them, and why it is held.
func shown(n flow.Node) string {
	var b strings.Builder
	for _, list := range []struct {
		kind  string
		ports []flow.Port
	}{{"in", n.Inputs}, {"param", n.Params}, {"out", n.Outputs}} {
		for _, p := range list.ports {
			fmt.Fprintf(&b, "%s %s", list.kind, p.Name)
			if p.Required {
				b.WriteString(" required")
			}
			if p.Default != nil {
				fmt.Fprintf(&b, " default %s", p.Default)
			}
			b.WriteString("; ")
		}
	}
	if n.Held != "" {
		b.WriteString("held: " + n.Held)
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// TestRule: each row is a schema, what the owner's declaration says, and the ports that come of both.
func TestRule(t *testing.T) {
	one := func(property string) string { return `{"properties":{"p":` + property + `}}` }
	needed := func(property string) string { return `{"properties":{"p":` + property + `},"required":["p"]}` }
	tests := []struct {
		name          string
		input, output string
		ports         Ports
		want          string
	}{
		{"default", one(`{"type":"string","default":"x"}`), ``, Ports{}, `param p default "x"; out search_code`},
		{"required with a default", needed(`{"type":"integer","default":10}`), ``, Ports{},
			`param p required default 10; out search_code`},
		{"null is no default", needed(`{"type":"string","default":null}`), ``, Ports{},
			`in p required; out search_code`},
		{"required number", needed(`{"type":"integer"}`), ``, Ports{}, `in p required; out search_code`},
		{"required enumeration", needed(`{"enum":["a","b"]}`), ``, Ports{}, `in p required; out search_code`},
		{"optional text", one(`{"type":"string"}`), ``, Ports{}, `in p; out search_code`},
		{"nullable text", one(`{"anyOf":[{"type":"string"},{"type":"null"}],"default":null}`), ``, Ports{},
			`in p; out search_code`},
		{"optional object", one(`{"type":"object"}`), ``, Ports{}, `in p; out search_code`},
		{"optional list", one(`{"type":"array","items":{"type":"string"}}`), ``, Ports{}, `in p; out search_code`},
		{"anything", one(`{}`), ``, Ports{}, `in p; out search_code`},
		{"number", one(`{"type":"number"}`), ``, Ports{}, `param p; out search_code`},
		{"truth", one(`{"type":"boolean"}`), ``, Ports{}, `param p; out search_code`},
		{"enumeration", one(`{"type":"string","enum":["a"]}`), ``, Ports{}, `param p; out search_code`},
		{"format", one(`{"type":"string","format":"date"}`), ``, Ports{}, `param p; out search_code`},
		{"pattern", one(`{"type":"string","pattern":"^a"}`), ``, Ports{}, `param p; out search_code`},

		{"the seeds' example",
			`{"properties":{"query":{"type":"string"},"language":{"type":"string"},"max_results":{"type":"integer",
				"default":10}},"required":["query"]}`,
			`{"properties":{"search_results":{"type":"array"}}}`, Ports{},
			`in query required; in language; param max_results default 10; out search_results; out search_code`},
		{"the owner moves two", `{"properties":{"a":{"type":"string"},"b":{"type":"number"},"c":{"type":"string"}}}`, ``,
			Ports{Inputs: []string{"b"}, Params: []string{"a"}}, `in b; in c; param a; out search_code`},
		{"the owner keeps one output", `{}`, `{"properties":{"a":{},"b":{}}}`, Ports{Outputs: []string{"b"}},
			`out b; out search_code`},
		{"the owner keeps the whole alone", `{}`, `{"properties":{"a":{},"b":{}}}`, Ports{Outputs: []string{}},
			`out search_code`},

		{"two outputs of one name", `{}`, `{"properties":{"search_code":{},"b":{}}}`, Ports{},
			`out b; out search_code; held: its outputSchema has the property "search_code", which is also the name of ` +
				`its whole result: leave it out of outputs in the declaration`},
		{"the owner leaves it out", `{}`, `{"properties":{"search_code":{},"b":{}}}`, Ports{Outputs: []string{"b"}},
			`out b; out search_code`},
		{"no such input", one(`{}`), ``, Ports{Inputs: []string{"q"}},
			`in p; out search_code; held: its declaration names "q", and it has no such argument`},
		{"no such output", `{}`, ``, Ports{Outputs: []string{"q"}},
			`out search_code; held: its declaration names the output "q", and its outputSchema has no such property`},
		{"both", one(`{}`), ``, Ports{Inputs: []string{"p"}, Params: []string{"p"}},
			`out search_code; held: its declaration names "p" as an input and as a param`},
		{"no schema", ``, ``, Ports{}, `out search_code`},
		{"no object", `[]`, `7`, Ports{}, `out search_code`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := `{"name":"search_code"`
			if tt.input != "" {
				d += `,"inputSchema":` + tt.input
			}
			if tt.output != "" {
				d += `,"outputSchema":` + tt.output
			}
			n := Of(Tool{Server: "github", Definition: json.RawMessage(d + "}"), Ports: tt.ports, Pin: "x"})
			if got := shown(n); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

// TestHeld: nothing that is not accepted can be called, and the reason that there was stays.
func TestHeld(t *testing.T) {
	d := json.RawMessage(`{"name":"a"}`)
	for _, tt := range []struct {
		tool Tool
		want string
	}{
		{Tool{Server: "s", Definition: d}, "nobody has accepted its definition"},
		{Tool{Server: "s", Definition: d, Held: "it has changed"}, "it has changed"},
		{Tool{Server: "s", Definition: d, Held: "the profile denies it", Pin: "x", Ports: Ports{Inputs: []string{"q"}}},
			"the profile denies it"},
		{Tool{Server: "s", Pin: "x"}, "its definition has no name"},
		{Tool{Server: "s", Definition: json.RawMessage(`{"name":7}`), Pin: "x"}, "its definition has no name"},
		{Tool{Server: "s", Definition: d, Pin: "x"}, ""},
	} {
		if got := Of(tt.tool).Held; got != tt.want {
			t.Errorf("%+v is held: %q, want %q", tt.tool, got, tt.want)
		}
	}
}

// TestIdentity: what a node is called, and where its words are from.
func TestIdentity(t *testing.T) {
	d := json.RawMessage(`{"name":"a.b","description":"theirs"}`)
	n := Of(Tool{Server: "s", Version: "1.2", Definition: d, Served: "s__short", Aliases: []string{"x"}, Pin: "x",
		Pure: true})
	if n.ID != "s.a.b" || n.Tool != "a.b" || n.Description != "theirs" || strings.Join(n.Aliases, " ") != "x s__short" ||
		n.Version != "1.2" || !n.Pure || n.Actions[0] != flow.Default {
		t.Errorf("%+v", n)
	}
	n = Of(Tool{Server: "s", Definition: d, Served: "s__a.b", Description: "ours", Pin: "x"})
	if n.Description != "ours" || n.Aliases != nil || n.Pure {
		t.Errorf("%+v", n)
	}
}

// TestSchemasStandForThemselves: a schema that refers elsewhere has it with it, unless that is too much.
func TestSchemasStandForThemselves(t *testing.T) {
	define := func(definition string) flow.Node {
		return Of(Tool{Server: "s", Pin: "x", Definition: json.RawMessage(`{"name":"a","inputSchema":{"properties":{
			"plain":{"type":"string"},"refers":{"$ref":"#/$defs/d"}},"$defs":{"d":` + definition + `}}}`)})
	}
	const whole = `{"$defs":{"d":{"type":"string"}},"$ref":"#/$defs/d"}`
	if got := string(define(`{"type":"string"}`).Inputs[1].Schema); got != whole {
		t.Errorf("%s", got)
	}
	n := define(`{"type":"string","description":"` + strings.Repeat("x", maxShared) + `"}`)
	if n.Inputs[0].Schema == nil || n.Inputs[1].Schema != nil {
		t.Errorf("a schema of %d bytes", len(n.Inputs[1].Schema))
	}
}

// TestPortsAreBounded: a server that defines thousands of properties makes no node of thousands of ports.
func TestPortsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range maxPorts + 1 {
		fmt.Fprintf(&b, `,"p%d":{}`, i)
	}
	many := `{"properties":{` + b.String()[1:] + `}}`
	for side, says := range map[string]string{"inputSchema": "it has 257 arguments, and a node has at most 256",
		"outputSchema": "it has 257 outputs, and a node has at most 256"} {
		n := Of(Tool{Server: "s", Pin: "x", Definition: json.RawMessage(`{"name":"a","` + side + `":` + many + `}`)})
		if n.Held != says || len(n.Inputs)+len(n.Params)+len(n.Outputs) != 1 {
			t.Errorf("%s: held %q, %d ports", side, n.Held, len(n.Inputs)+len(n.Outputs))
		}
	}
}

// FuzzOf: whatever a server defines, the node's ports have names of their own, and its schemas are JSON.
func FuzzOf(f *testing.F) {
	f.Add(`{"name":"a","inputSchema":{"properties":{"p":{"$ref":"#/$defs/p"}},"$defs":{"p":{"type":"string"}}}}`)
	f.Add(`{"name":"a","outputSchema":{"properties":{"a":{},"b":{"$ref":"#"}}}}`)
	f.Fuzz(func(t *testing.T, definition string) {
		n := Of(Tool{Server: "s", Pin: "x", Definition: json.RawMessage(definition)})
		for _, ports := range [][]flow.Port{append(n.Inputs, n.Params...), n.Outputs} {
			seen := map[string]bool{}
			for _, p := range ports {
				if seen[p.Name] || p.Schema != nil && !json.Valid(p.Schema) || p.Default != nil && !json.Valid(p.Default) {
					t.Errorf("%q has the port %+v", definition, p)
				}
				seen[p.Name] = true
			}
		}
		if len(n.Outputs) == 0 {
			t.Errorf("%q: no whole result", definition)
		}
	})
}
