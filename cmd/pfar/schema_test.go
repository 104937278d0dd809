package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/argument"
)

// describeProperty is a property on one line: name, flag, kind and what else it has.
func describeProperty(p property) string {
	s := fmt.Sprintf("%q --%s %s", p.Name, p.flag, p.Kind)
	if p.Kind == argument.Array {
		s += " of " + p.Item.String()
	}
	if p.Text {
		s += " or text"
	}
	if len(p.Enum) > 0 {
		s += " enum " + strings.Join(argument.EnumTexts(p.Enum), "|")
	}
	if p.Required {
		s += " required"
	}
	if p.Default != nil {
		s += " default " + string(p.Default)
	}
	return s
}

func TestReadProperties(t *testing.T) {
	tests := []struct {
		name, schema string
		want         []string
	}{
		{"scalars", `{"properties":{"s":{"type":"string"},"n":{"type":"number"},"i":{"type":"integer"},"b":{"type":"boolean"}}}`,
			[]string{`"b" --b boolean`, `"i" --i integer`, `"n" --n number`, `"s" --s string`}},
		{"required first, underscores", `{"properties":{"a":{"type":"string"},"page_size":{"type":"integer","default":10}},"required":["page_size"]}`,
			[]string{`"page_size" --page-size integer required default 10`, `"a" --a string`}},
		{"arrays", `{"properties":{"a":{"type":"array","items":{"type":"integer"}},"e":{"type":"array","items":{"enum":["x","y"]}},"o":{"type":"array","items":{"type":"object"}},"u":{"type":"array"},"aa":{"type":"array","items":{"type":"array","items":{"type":"string"}}}}}`,
			[]string{`"a" --a array of integer`, `"aa" --aa json`, `"e" --e array of string enum x|y`, `"o" --o json`, `"u" --u json`}},
		{"enum and const", `{"properties":{"e":{"enum":["a","b"]},"n":{"type":"number","enum":[1,2.5]},"c":{"const":"only"}}}`,
			[]string{`"c" --c string enum only`, `"e" --e string enum a|b`, `"n" --n number enum 1|2.5`}},
		{"nullable in three spellings", `{"properties":{"a":{"type":["string","null"]},"b":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null},"c":{"oneOf":[{"type":"null"},{"$ref":"#/$defs/C"}]}},"$defs":{"C":{"enum":["x"]}}}`,
			[]string{`"a" --a string`, `"b" --b integer default null`, `"c" --c string enum x`}},
		{"nullable enumerations", `{"properties":{"a":{"type":["string","null"],"enum":["x",null]},"b":{"enum":["y",null]},"c":{"enum":[1,"z",null]},"d":{"type":"array","items":{"enum":[null,"w"]}}}}`,
			[]string{`"a" --a string enum x`, `"b" --b string enum y`, `"c" --c json or text enum 1|z|null`, `"d" --d array of string enum w`}},
		{"references", `{"properties":{"a":{"$ref":"#/definitions/A"},"gone":{"$ref":"#/$defs/none"}},"definitions":{"A":{"type":"boolean"}}}`,
			[]string{`"a" --a boolean`, `"gone" --gone json or text`}},
		{"objects and unions", `{"properties":{"o":{"type":"object"},"u":{"type":["number","string"]},"v":{"anyOf":[{"type":"number"},{"type":"object"}]},"any":{}}}`,
			[]string{`"any" --any json or text`, `"o" --o json`, `"u" --u json or text`, `"v" --v json`}},
		{"pfar's own names get the prefix", `{"properties":{"json":{"type":"string"},"output":{"type":"string"},"help":{"type":"boolean"},"arg_json":{"type":"string"}}}`,
			[]string{`"arg_json" -- string`, `"help" --arg-help boolean`, `"json" --arg-json string`, `"output" --arg-output string`}},
		{"two that come out the same: the exact one has the flag", `{"properties":{"a_b":{"type":"string"},"a-b":{"type":"string"}}}`,
			[]string{`"a-b" --a-b string`, `"a_b" -- string`}},
		{"names that make no flag", `{"properties":{"with space":{},"-rf":{},"--help":{},"":{},"a=b":{},"$(reboot)":{},"\u001b[2J":{},"ünï":{},"` + strings.Repeat("x", 65) + `":{}}}`,
			[]string{`"" -- json or text`, `"\x1b[2J" -- json or text`, `"$(reboot)" -- json or text`, `"--help" -- json or text`, `"-rf" -- json or text`, `"a=b" -- json or text`,
				`"with space" -- json or text`, `"` + strings.Repeat("x", 65) + `" -- json or text`, `"ünï" -- json or text`}},
		{"wrong types throughout", `{"properties":{"a":true,"b":7,"c":{"type":7,"enum":"x","description":[],"anyOf":{}},"d":{"type":"string","enum":{}}},"required":"a","$defs":[]}`,
			[]string{`"a" --a json or text`, `"b" --b json or text`, `"c" --c json or text`, `"d" --d string`}},
		{"required is mixed", `{"properties":{"a":{"type":"string"}},"required":[1,null,"a","ghost"]}`, []string{`"a" --a string required`}},
		{"a reference to itself ends", `{"properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"$ref":"#/$defs/A"}}}`, []string{`"a" --a json`}},
		{"anyOf of itself ends", `{"properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"anyOf":[{"$ref":"#/$defs/A"}]}}}`, []string{`"a" --a json`}},
		{"items of itself end", `{"properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"array","items":{"$ref":"#/$defs/A"}}}}`, []string{`"a" --a json`}},
		{"no object", `[]`, nil},
		{"null", `null`, nil},
		{"nothing", ``, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, p := range readProperties(json.RawMessage(tt.schema)) {
				got = append(got, describeProperty(p))
			}
			if g, w := strings.Join(got, "\n"), strings.Join(tt.want, "\n"); g != w {
				t.Errorf("got:\n%s\nwant:\n%s", g, w)
			}
		})
	}
}

func TestThousandProperties(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"properties":{`)
	for i := range 1000 {
		fmt.Fprintf(&b, `"p_%d":{"type":"string"},`, i)
	}
	b.WriteString(`"json":{}},"required":["p_999"]}`)
	properties := readProperties(json.RawMessage(b.String()))
	c := newPfar(nil, nil, nil, func(string) string { return "" }, 0)
	flags, _ := toolsVerb{c}.callFlags()
	values := addFlags(flags, properties)
	if len(values) != 1001 {
		t.Fatalf("%d flags, want 1001", len(values))
	}
	if err := flags.Parse([]string{"--p-999", "x", "--p-0=y", "--arg-json", "z"}); err != nil {
		t.Fatal(err)
	}
	got, err := assemble(nil, values, properties)
	if want := `{"json":"z","p_0":"y","p_999":"x"}`; err != nil || compactJSON(t, got) != want {
		t.Errorf("got %s, %v; want %s", compactJSON(t, got), err, want)
	}
}

func compactJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const argumentSchema = `{"properties":{
	"query":{"type":"string"},"limit":{"type":"integer"},"ratio":{"type":"number"},"deep":{"type":"boolean"},
	"tag":{"type":"array","items":{"type":"string"}},"id":{"type":"array","items":{"type":"integer"}},
	"sort":{"type":"string","enum":["up","down"]},"level":{"type":"number","enum":[1,2]},
	"filter":{"type":"object"},"any":{},"bad name":{"type":"string"},"json":{"type":"string"},
	"sized":{"type":"integer","default":5},"mode":{"type":["string","null"],"enum":["on",null]}}`

func TestArguments(t *testing.T) {
	tests := []struct {
		name     string
		required string
		whole    string
		args     []string
		want     string // JSON, or the start of an error after "!"
	}{
		{"scalars", ``, ``, []string{"--query", "a b", "--limit=3", "--ratio", "-1.5e3", "--deep"}, `{"deep":true,"limit":3,"query":"a b","ratio":-1.5e3}`},
		{"large numbers are not rounded", ``, ``, []string{"--limit", "12345678901234567890123"}, `{"limit":12345678901234567890123}`},
		{"a string stays one", ``, ``, []string{"--query", "true"}, `{"query":"true"}`},
		{"a string that looks like a flag", ``, ``, []string{"--query=--deep"}, `{"query":"--deep"}`},
		{"false", ``, ``, []string{"--deep=false"}, `{"deep":false}`},
		{"lists", ``, ``, []string{"--tag", "a,b", "--tag", "[c]", "--id", "1", "--id=2"}, `{"id":[1,2],"tag":["a,b","[c]"]}`},
		{"enum", ``, ``, []string{"--sort", "up", "--level", "2.0"}, `{"level":2.0,"sort":"up"}`},
		{"object and anything", ``, ``, []string{"--filter", `{"a":[1]}`, "--any", "plain"}, `{"any":"plain","filter":{"a":[1]}}`},
		{"anything as JSON", ``, ``, []string{"--any", `[1]`}, `{"any":[1]}`},
		{"the prefix", ``, ``, []string{"--arg-json", "x"}, `{"json":"x"}`},
		{"flags over the whole", ``, `{"query":"a","limit":1,"bad name":"ok"}`, []string{"--query", "b"}, `{"bad name":"ok","limit":1,"query":"b"}`},
		{"required with a default is filled in", `"sized"`, ``, nil, `{"sized":5}`},
		{"required in the whole", `"query","bad name"`, `{"query":"a","bad name":"b"}`, nil, `{"bad name":"b","query":"a"}`},
		{"every missing one is named", `"query","limit","bad name"`, ``, []string{"--deep"}, `!missing "bad name" (by --json), --limit, --query`},
		{"not an integer", ``, ``, []string{"--limit", "1.5"}, `!invalid argument "1.5" for "--limit" flag: want a whole number`},
		{"not hexadecimal", ``, ``, []string{"--limit", "0x10"}, `!invalid argument "0x10" for "--limit" flag: want a whole number`},
		{"not a number", ``, ``, []string{"--ratio", "NaN"}, `!invalid argument "NaN" for "--ratio" flag: want a number`},
		{"no injection through a number", ``, ``, []string{"--ratio", `1,"query":"x"`}, `!invalid argument`},
		{"not a boolean", ``, ``, []string{"--deep=yes"}, `!invalid argument "yes" for "--deep" flag: want "true" or "false"`},
		{"not in the enum", ``, ``, []string{"--sort", "left"}, `!invalid argument "left" for "--sort" flag: want one of up, down`},
		{"null is not the empty string", ``, ``, []string{"--mode", ""}, `!invalid argument "" for "--mode" flag: want one of on`},
		{"not JSON", ``, ``, []string{"--filter", "{"}, `!invalid argument "{" for "--filter" flag: want JSON`},
		{"twice", ``, ``, []string{"--query", "a", "--query", "b"}, `!invalid argument "b" for "--query" flag: given more than once`},
		{"unknown", ``, ``, []string{"--quary", "a"}, `!unknown flag: --quary`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			properties := readProperties(json.RawMessage(argumentSchema + `,"required":[` + tt.required + `]}`))
			c := newPfar(nil, nil, nil, func(string) string { return "" }, 0)
			flags, _ := toolsVerb{c}.callFlags()
			values := addFlags(flags, properties)
			var got map[string]json.RawMessage
			err := flags.Parse(tt.args)
			if err == nil {
				got, err = assemble(argument.Object(json.RawMessage(tt.whole)), values, properties)
			}
			if text, wantError := strings.CutPrefix(tt.want, "!"); wantError {
				if err == nil || !strings.HasPrefix(err.Error(), text) {
					t.Errorf("error %v, want %q", err, text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			b, _ := json.Marshal(got)
			if string(b) != tt.want {
				t.Errorf("got %s, want %s", b, tt.want)
			}
		})
	}
}

func FuzzProperties(f *testing.F) {
	f.Add(argumentSchema+`}`, "x")
	f.Add(`{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`, "[")
	f.Fuzz(func(t *testing.T, schema, value string) {
		properties := readProperties(json.RawMessage(schema))
		c := newPfar(nil, nil, nil, func(string) string { return "" }, 0)
		flags, _ := toolsVerb{c}.callFlags() // a flag defined twice panics
		for _, a := range addFlags(flags, properties) {
			if a.Set(value) == nil && !json.Valid(a.json()) {
				t.Errorf("--%s %q became %s", a.property.flag, value, a.json())
			}
		}
	})
}
