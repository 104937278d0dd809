package schema

import (
	"fmt"
	"strings"
	"testing"
)

// each joins n texts by commas.
func each(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strings.ReplaceAll(format, "%", fmt.Sprint(i)))
	}
	return b.String()
}

func nested(open, inner, end string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
}

// chain is $defs in which each refers to the next as often as the format says, and the last to none.
func chain(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"d%d":%s,`, i, strings.ReplaceAll(format, "%", fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)))
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s"d%d":{"type":"string"}}}`, b.String(), n)
}

const self = `{"$ref":"#"}`

// bombs are small schemas and values that would take a plain validator years, or all memory. Each is fine for a small
// value, with the cost that a meter counts for it, and refused for a big one.
var bombs = []struct {
	name, schema, small string
	cost                int64
	big                 string
	err                 error
}{
	{"properties and patternProperties", `{"properties":{"a":` + self + `},"patternProperties":{".":` + self + `}}`,
		nested(`{"a":`, `1`, `}`, 3), 36, nested(`{"a":`, `1`, `}`, 64), errSteps},
	{"patternProperties", `{"patternProperties":{"a":` + self + `,"a$":` + self + `,"^a":` + self + `}}`,
		nested(`{"a":`, `1`, `}`, 2), 37, nested(`{"a":`, `1`, `}`, 64), errSteps},
	{"allOf on each level", `{"allOf":[{"additionalProperties":` + self + `},{"additionalProperties":` + self + `}]}`,
		nested(`{"a":`, `1`, `}`, 2), 27, nested(`{"a":`, `1`, `}`, 64), errSteps},
	{"anyOf", `{"anyOf":[{"items":` + self + `},{"items":` + self + `}]}`, nested(`[`, `1`, `]`, 2), 27, nested(`[`, `1`, `]`, 64), errSteps},
	{"oneOf", `{"oneOf":[{"items":` + self + `},{"items":` + self + `}]}`, nested(`[`, `1`, `]`, 2), 27, nested(`[`, `1`, `]`, 64), errSteps},
	{"not", `{"not":{"items":` + self + `},"items":` + self + `}`, nested(`[`, `1`, `]`, 2), 20, nested(`[`, `1`, `]`, 64), errSteps},
	{"if", `{"if":{"items":` + self + `},"then":{"items":` + self + `},"else":{"items":` + self + `}}`,
		nested(`[`, `1`, `]`, 1), 19, nested(`[`, `1`, `]`, 64), errSteps},
	{"dependentSchemas", `{"properties":{"a":` + self + `},"dependentSchemas":{"a":{"properties":{"a":` + self + `}}}}`,
		nested(`{"a":`, `1`, `}`, 2), 20, nested(`{"a":`, `1`, `}`, 64), errSteps},
	{"dependencies", `{"$schema":"http://json-schema.org/draft-07/schema","properties":{"a":` + self + `},"dependencies":{"a":{"properties":{"a":` + self + `}}}}`,
		nested(`{"a":`, `1`, `}`, 2), 20, nested(`{"a":`, `1`, `}`, 64), errSteps},
	{"contains", `{"contains":` + self + `,"items":` + self + `}`, nested(`[`, `1`, `]`, 3), 42, nested(`[`, `1`, `]`, 64), errSteps},
	{"unevaluatedItems", `{"anyOf":[{"contains":` + self + `},true],"unevaluatedItems":` + self + `}`,
		nested(`[`, `1`, `]`, 1), 14, nested(`[`, `1`, `]`, 64), errSteps},
	{"unevaluatedProperties", `{"anyOf":[{"required":["x"],"additionalProperties":` + self + `},true],"unevaluatedProperties":` + self + `}`,
		nested(`{"a":`, `1`, `}`, 1), 14, nested(`{"a":`, `1`, `}`, 64), errSteps},
	{"dynamicRef", `{"$dynamicAnchor":"n","allOf":[{"items":{"$dynamicRef":"#n"}},{"items":{"$dynamicRef":"#n"}}]}`,
		nested(`[`, `1`, `]`, 1), 15, nested(`[`, `1`, `]`, 64), errSteps},
	{"propertyNames", `{"propertyNames":{"allOf":[` + each(100, `{"maxLength":9}`) + `]}}`, `{"a":1}`, 102, `{` + each(5000, `"%":1`) + `}`, errSteps},
	{"enum", `{"items":{"enum":[` + each(20000, `%`) + `]}}`, `[1]`, 45557, `[` + each(100, `%`) + `]`, errSteps},
	{"required", `{"items":{"required":[` + each(20000, `"%"`) + `]}}`, `[{}]`, 5002, `[` + each(100, `{}`) + `]`, errSteps},
	{"unevaluated, wide", `{"allOf":[` + each(100, `{"properties":{"%":true}}`) + `],"unevaluatedProperties":true}`, `{}`, 101, `{` + each(20000, `"%":1`) + `}`, errSteps},
	{"uniqueItems", `{"uniqueItems":true}`, `[1,2,3]`, 5, `[` + each(1_000_000, `%`) + `]`, errSteps},
	{"wide", `{"items":{"type":"string"}}`, `[""]`, 2, `[` + each(300_000, `1`) + `]`, errSteps},
	{"deep and wide", `{"items":` + self + `}`, `[[]]`, 3, nested(`[`, `[`+each(10_000, `1`)+`]`, `]`, 500), errSteps},
	{"pattern", `{"pattern":"^(a?){60}$"}`, `"a"`, 2, `"` + strings.Repeat("a", 2<<20) + `"`, errScan},
	{"patterns of names", `{"patternProperties":{` + each(500, `"[a-z]%":{}`) + `}}`, `{"a":1}`, 501, `{` + each(2000, `"%":1`) + `}`, errSteps},
}

func metered(s *Schema, value string) (*meter, error) {
	d := decoder{s: value, maxDepth: maxDepth, maxNodes: maxNodes}
	tree, err := d.document()
	if err != nil {
		return nil, err
	}
	m := s.graph.meters.New().(*meter)
	return m, m.measure(tree)
}

func TestBombs(t *testing.T) {
	for _, c := range bombs {
		t.Run(c.name, func(t *testing.T) {
			s := compiled(t, c.schema)
			m, err := metered(s, c.small)
			if err != nil || m.steps != c.cost {
				t.Errorf("the small value costs %d, %v, want %d", m.steps, err, c.cost)
			}
			if v := s.Check([]byte(c.small)); unchecked(v) {
				t.Errorf("the small value: %v", v)
			}
			v := s.Check([]byte(c.big))
			if want := refused("%v", c.err).Text; v == nil || v.Text != want {
				t.Errorf("the big value: %v, want %s", v, want)
			}
			// The meter stops in time itself: it is what stands between the value and the library.
			m, err = metered(s, c.big)
			if err != c.err || m.work > 4*maxSteps {
				t.Errorf("the big value took the meter %d steps, %v", m.work, err)
			}
		})
	}
}

// TestMemory tries that a meter which stopped in the middle counts right the next time.
func TestMemory(t *testing.T) {
	s := compiled(t, bombs[0].schema)
	for range 3 {
		if v := s.Check([]byte(bombs[0].big)); !unchecked(v) {
			t.Fatal(v)
		}
		d := decoder{s: bombs[0].small, maxDepth: maxDepth, maxNodes: maxNodes}
		tree, err := d.document()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := s.graph.cost(tree, &d); err != nil || n != bombs[0].cost {
			t.Fatalf("costs %d, %v, want %d", n, err, bombs[0].cost)
		}
	}
}

func TestRefusedSchemas(t *testing.T) {
	for _, c := range []struct{ name, schema, want string }{
		{"2^24 allOf", chain(24, `{"allOf":[%,%]}`), `the schema at "/$defs/d11" applies 32765 subschemas to the same value, more than 16384`},
		{"2^24 anyOf", chain(24, `{"anyOf":[%,%]}`), `subschemas to the same value`},
		{"2^24 oneOf", chain(24, `{"oneOf":[%,%]}`), `subschemas to the same value`},
		{"2^24 if", chain(24, `{"if":%,"then":%}`), `subschemas to the same value`},
		{"2^24 not", chain(24, `{"not":%,"else":{},"if":%}`), `subschemas to the same value`},
		{"2^24 dependentSchemas", chain(24, `{"dependentSchemas":{"a":%,"b":%}}`), `subschemas to the same value`},
		{"2^24 below a property", `{"properties":{"a":` + strings.ReplaceAll(chain(24, `{"allOf":[%,%]}`), `#/$defs`, `#/properties/a/$defs`) + `}}`, `subschemas to the same value`},
		{"to itself", `{"$ref":"#"}`, `the schema at "" refers to itself without going deeper into the value`},
		{"to itself by allOf", `{"allOf":[{"$ref":"#"}]}`, `refers to itself`},
		{"to itself by not", `{"not":{"$ref":"#"}}`, `refers to itself`},
		{"to itself by if", `{"if":{"$ref":"#"}}`, `refers to itself`},
		{"to itself by dependentSchemas", `{"dependentSchemas":{"a":{"$ref":"#"}}}`, `refers to itself`},
		{"to each other", `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, `refers to itself`},
		{"dynamic", `{"$dynamicAnchor":"a","$dynamicRef":"#a"}`, `refers to itself`},
		{"dynamic, elsewhere", `{"properties":{"x":{"$ref":"#/$defs/list"}},"$defs":{"list":{"$id":"list","$dynamicAnchor":"a","items":{"$dynamicRef":"#a"}},` +
			`"evil":{"$dynamicAnchor":"a","allOf":[{"$dynamicRef":"#a"}]}}}`, `refers to itself`},
		{"recursive", `{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"items":{"$recursiveRef":"#"}}`, `write $ref instead`},
		{"a long way", chain(200, `%`), `leads on to 129 others in a row, more than 128`},
		{"http", `{"$ref":"http://127.0.0.1/x"}`, `the schema refers to "http://127.0.0.1/x": ` +
			`the reference leads outside of the schema, and pfar fetches nothing`},
		{"file", `{"properties":{"a":{"$ref":"file:///etc/passwd"}}}`, `pfar fetches nothing`},
		{"relative", `{"$ref":"other.json#/a"}`, `the schema refers to "other.json"`},
		{"no such draft", `{"$ref":"http://json-schema.org/draft-99/schema"}`, `pfar fetches nothing`},
		{"below default", `{"$ref":"#/default","default":{"$schema":"http://127.0.0.1/x"}}`, `pfar fetches nothing`},
		{"no such place", `{"$ref":"#/$defs/a"}`, `cannot be compiled`},
		{"type", `{"properties":{"a":{"type":"strin"}}}`, `the schema is not valid: at "/properties/a/type": want one of "array", "boolean", "integer", "null", "number", "object", "string", got "strin"`},
		{"pattern", `{"pattern":"("}`, `at "/pattern": want "regex", got "("`},
		{"long pattern", `{"pattern":"` + strings.Repeat("a", 20<<10) + `"}`, `a pattern of 20480 bytes, more than 16384`},
		{"repeated", `{"pattern":"([a-c]?[a-c]?[a-c]?[a-c]?[a-c]?[a-c]?[a-c]?[a-c]?[a-c]?[a-c]?[a-c]?){1000}","$defs":{"a":{"pattern":"(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa){1000}"}}}`, `patterns of more than 65536 steps`},
		{"groups", `{"pattern":"(?!x)` + nested("(", "a", ")", 1500) + `"}`, `more than 1000 groups`},
		{"long and backtracking", `{"pattern":"(?!x)` + strings.Repeat("a", 5<<10) + `"}`, `that only backtracking can match`},
		{"multipleOf", `{"multipleOf":1e-1000000000}`, `a number of more than 1024 digits, or with a greater exponent`},
		{"maxLength", `{"maxLength":1e1000000000}`, `greater exponent`},
		{"digits", `{"minimum":` + strings.Repeat("9", 5000) + `}`, `more than 1024 digits`},
		{"deep", nested(`{"not":`, `{}`, `}`, 200), `more than 128 levels deep`},
		{"long", `{"description":"` + strings.Repeat("x", 300<<10) + `"}`, `the schema has 307218 bytes, more than 262144`},
		{"many", `{"properties":{` + each(9000, `"%":{}`) + `}}`, `the schema has 9002 subschemas, more than 8192`},
		{"many booleans", `{"properties":{` + each(9000, `"%":true`) + `}}`, `subschemas, more than`},
		{"long paths", `{"properties":{"` + strings.Repeat("k", 8000) + `":{"properties":{` + each(2000, `"%":{}`) + `}}}}`, `bytes of paths`},
		{"ids", `{"$defs":{` + each(100, `"%":{"$id":"a%"}`) + `}}`, `the schema has 100 ids, more than 64`},
		{"anchors", `{"$defs":{` + each(2000, `"%":{"$anchor":"a%"}`) + `}}`, `anchors, more than`},
		{"odd references", `{"x":{` + each(3000, `"%":{}`) + `},"allOf":[` + each(1000, `{"$ref":"#/x/%"}`) + `]}`, `steps to follow its references`},
		{"enum of lists", `{"$schema":"http://json-schema.org/draft-06/schema#","enum":[` + each(300, `[%]`) + `]}`, `an enum of 300 arrays and objects, more than 256`},
		{"twice", `{"type":"object","type":"string"}`, `the member "type" comes twice`},
		{"no object", `[]`, `the schema is an array, want an object`},
		{"nothing", ``, `the schema cannot be read: not JSON at byte 0`},
		{"escapes", "{\"type\":\"\\u001b[31m\\n\u202e\"}", `got "\x1b[31m\n\u202e"`},
	} {
		s, err := Compile([]byte(c.schema))
		if err == nil {
			t.Errorf("%s: compiled, cost %d", c.name, s.graph.weight)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2000 || strings.ContainsAny(err.Error(), "\n\x1b\u202e") {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestRefusedValues(t *testing.T) {
	recursive, number := `{"items":{"$ref":"#"}}`, `{"type":"number","multipleOf":0.01}`
	for _, c := range []struct{ name, schema, value, want string }{
		{"512 levels", recursive, nested("[", "", "]", 512), ""},
		{"513 levels", recursive, nested("[", "", "]", 513), "the value cannot be checked: more than 512 levels deep"},
		{"brackets without end", recursive, strings.Repeat("[", 5_000_000), "the value cannot be checked: more than 512 levels deep"},
		{"values", `{"properties":{"a":true}}`, `{"x":[` + each(1<<20, `1`) + `]}`, "the value cannot be checked: more than 1048576 values"},
		{"exponent", number, `1e1000000000`, "the value cannot be checked: a number of more than 1024 digits, or with a greater exponent"},
		{"negative exponent", number, `1e-1000000000`, "the value cannot be checked: a number of more than 1024 digits, or with a greater exponent"},
		{"exponent of digits", number, `1e` + strings.Repeat("0", 100_000), ""},
		{"digits", number, strings.Repeat("7", 5000), "the value cannot be checked: a number of more than 1024 digits, or with a greater exponent"},
		{"a great number", number, `1e300`, ""},
		{"lists that hash alike", `{"uniqueItems":true}`, `[` + each(2000, `[[[%]]],[[[%],[]]],[[[%]],[]],[[[%,[]]]]`) + `]`, ""},
		{"lists that are alike", `{"uniqueItems":true}`, `[[1,{"a":1,"b":[null]}],[1,{"b":[null],"a":1.0}]]`, `at the top: items 0 and 1 are equal (rule /uniqueItems)`},
		{"backtracking", `{"pattern":"^(?=a)(a+)+$"}`, `"` + strings.Repeat("a", 64) + `!"`, `the value cannot be checked: the pattern "^(?=a)(a+)+$" takes too long`},
		{"backtracking, long", `{"pattern":"^(?=a)"}`, `"` + strings.Repeat("a", 20_000) + `"`, `the value cannot be checked: the pattern "^(?=a)" is not tried on strings of more than 16384 bytes`},
		{"backtracking, name", `{"patternProperties":{"^(?=a)(a+)+$":{}}}`, `{"` + strings.Repeat("a", 64) + `!":1}`, `the value cannot be checked: the pattern "^(?=a)(a+)+$" takes too long`},
		{"no backtracking", `{"pattern":"^(a+)+$"}`, `"` + strings.Repeat("a", 64<<10) + `"`, ""},
		{"twice", `{"required":["a"]}`, `{"a":1,"\u0061":2}`, `the value cannot be checked: the member "a" comes twice`},
	} {
		text := ""
		if v := compiled(t, c.schema).Check([]byte(c.value)); v != nil {
			text = v.Text
		}
		if text != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, text, c.want)
		}
	}
}
