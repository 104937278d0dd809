package schema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const flatTool = `{"$schema":"http://json-schema.org/draft-07/schema#","title":"T","type":"object","required":["s","b"],"properties":{` +
	`"s":{"type":"string","description":"d","default":7},"n":{"type":"number","examples":["x"]},"i":{"type":"integer"},"b":{"type":"boolean"},"é":{"type":"integer"}}`

func TestFlatSchemas(t *testing.T) {
	for _, c := range []struct {
		schema string
		flat   bool
	}{
		{flatTool + `}`, true},
		{flatTool + `,"additionalProperties":false}`, true},
		{flatTool + `,"additionalProperties":true}`, true},
		{flatTool + `,"additionalProperties":{}}`, true},
		{flatTool + `,"additionalProperties":{"type":"string"}}`, false},
		{flatTool + `,"minProperties":1}`, false},
		{flatTool + `,"x-unknown":1}`, false},
		{`{"type":"object"}`, true},
		{`{"properties":{"a":{"type":"string"}}}`, false},
		{`{"type":["object"],"properties":{"a":{"type":"string"}}}`, false},
		{`{"type":"object","required":["a"]}`, false},
		{`{"type":"object","properties":{"a":{"type":"null"}}}`, false},
		{`{"type":"object","properties":{"a":{"type":["string"]}}}`, false},
		{`{"type":"object","properties":{"a":{"type":"string","minLength":1}}}`, false},
		{`{"type":"object","properties":{"a":{"type":"string","$id":"x"}}}`, false},
		{`{"type":"object","properties":{"a":{}}}`, false},
		{`{"type":"object","properties":{"a":true}}`, false},
		{`{"type":"object","properties":{` + many(maxMembers) + `}}`, true},
		{`{"type":"object","properties":{` + many(maxMembers+1) + `}}`, false},
		{`true`, false},
	} {
		if got := compiled(t, c.schema).flat != nil; got != c.flat {
			t.Errorf("%.200s: flat is %v", c.schema, got)
		}
	}
}

// many are so many properties.
func many(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"p%02d":{"type":"string"}`, i))
	}
	return strings.Join(list, ",")
}

// TestFlatValues: what is seen to conform at once, and what is left to the library, whether or not it conforms.
func TestFlatValues(t *testing.T) {
	open, closed := compiled(t, flatTool+`}`), compiled(t, flatTool+`,"additionalProperties":false}`)
	others := strings.Repeat(`,"x%d":null`, maxOthers+1)
	for _, c := range []struct {
		value        string
		open, closed bool
	}{
		{`{"s":"","b":true}`, true, true},
		{" {\t\"s\" : \"a\\u00e9\\\"\" ,\r\n\"b\":false , \"n\":-1.5e+3,\"i\":-0} ", true, true},
		{`{"b":true,"s":"x","i":` + strings.Repeat("9", maxDigits) + `}`, true, true},
		{`{"b":true,"s":"x","i":` + strings.Repeat("9", maxDigits+1) + `}`, false, false},
		{`{"b":true,"s":"x","n":1e1024}`, true, true},
		{`{"b":true,"s":"x","n":1e1025}`, false, false},
		{`{"b":true,"s":"x","i":1.0}`, false, false},
		{`{"b":true,"s":"x","i":1e2}`, false, false},
		{`{"b":true,"s":"x","i":01}`, false, false},
		{`{"b":true,"s":"x","\u0069":1}`, true, true},
		{`{"b":true,"s":"x","\u0069":1,"i":1}`, false, false},
		{`{"b":true,"s":"x","\u00e9":1}`, true, true},
		{`{"b":true,"s":"x","S":1}`, true, false},
		{`{"b":true,"s":"x","o":null,"p":1.0,"q":"","r":false}`, true, false},
		{`{"b":true,"s":"x","o":1,"o":1}`, false, false},
		{"{\"b\":true,\"s\":\"x\",\"\xff\":1,\"\xfe\":1}", false, false},
		{`{"b":true,"s":"x","o":{}}`, false, false},
		{`{"b":true,"s":"x","o":[]}`, false, false},
		{fmt.Sprintf(`{"b":true,"s":"x"`+others[:len(others)-len(`,"x%d":null`)]+`}`, 0, 1, 2, 3, 4, 5, 6, 7), true, false},
		{fmt.Sprintf(`{"b":true,"s":"x"`+others+`}`, 0, 1, 2, 3, 4, 5, 6, 7, 8), false, false},
		{`{"b":true,"s":"` + strings.Repeat("x", heavyBytes) + `"}`, false, false},
		{`{"b":true}`, false, false},
		{`{"b":1,"s":"x"}`, false, false},
		{`{"b":true,"s":null}`, false, false},
		{`{"b":true,"s":1}`, false, false},
		{`{"b":true,"s":"x","n":"1"}`, false, false},
		{`{"b":true,"s":"x","i":true}`, false, false},
		{`{"b":true,"s":"x"}1`, false, false},
		{`{"b":true,"s":"x",}`, false, false},
		{`{"b":true,"s":"x"`, false, false},
		{`{"b":true,"s":"\x"}`, false, false},
		{`{}`, false, false}, {`[]`, false, false}, {`null`, false, false}, {``, false, false}, {`{`, false, false}, {`{"s"`, false, false},
	} {
		for _, s := range []struct {
			schema *Schema
			want   bool
		}{{open, c.open}, {closed, c.closed}} {
			if got := s.schema.flat.conforms([]byte(c.value)); got != s.want {
				t.Errorf("%.100q (closed: %v): %v", c.value, s.schema == closed, got)
			}
			compareFlat(t, s.schema, []byte(c.value))
		}
	}
	if v := compiled(t, `{"type":"object","additionalProperties":false}`); !v.flat.conforms([]byte(` { } `)) {
		t.Error("an empty object does not conform")
	}
}

// compareFlat holds the short cut to the whole way: it never takes what that refuses, and of the rest leaves only what it
// has a reason to.
func compareFlat(t *testing.T, s *Schema, value []byte) {
	t.Helper()
	if s.flat == nil {
		return
	}
	fast, v := s.flat.conforms(value), s.check(value, false)
	if fast && v != nil {
		t.Fatalf("%.300q conforms, and %v", value, v)
	}
	if fast || v != nil || len(value) > heavyBytes {
		return
	}
	var members map[string]any
	d := json.NewDecoder(strings.NewReader(string(value)))
	d.UseNumber()
	if err := d.Decode(&members); err != nil {
		t.Fatal(err)
	}
	others := 0
	for name, m := range members {
		if s.flat.index(name) < 0 {
			others++
		}
		switch m := m.(type) {
		case map[string]any, []any:
			return
		case json.Number:
			if strings.ContainsAny(m.String(), ".eE") {
				return
			}
		}
	}
	if others <= maxOthers {
		t.Fatalf("%.300q conforms, and it was not seen at once", value)
	}
}

func FuzzFlat(f *testing.F) {
	for _, value := range []string{`{"s":"a\n","b":true,"i":1}`, `{"s":"","s":"","b":true}`, `{"s":"","b":false,"n":1.5,"x":null,"\u0078":0}`, `{"i":1e2}`} {
		f.Add([]byte(flatTool+`}`), []byte(value))
		f.Add([]byte(flatTool+`,"additionalProperties":false}`), []byte(value))
	}
	f.Fuzz(func(t *testing.T, raw, value []byte) {
		if s, err := Compile(raw); err == nil {
			compareFlat(t, s, value)
		}
	})
}

// TestFlatInvented makes up flat schemas of every draft, and values near them.
func TestFlatInvented(t *testing.T) {
	fast := 0
	for seed := range uint64(300) {
		r := invention{rand.New(rand.NewPCG(seed, 1))}
		properties, required := map[string]any{}, []any{}
		for range 1 + r.IntN(4) {
			name := r.name()
			properties[name] = map[string]any{"type": pick(r, "string", "number", "integer", "boolean"), pick(r, "title", "description"): "x"}
			if r.IntN(3) == 0 && len(required) == 0 {
				required = append(required, name)
			}
		}
		doc := map[string]any{"type": "object", "properties": properties}
		if len(required) > 0 {
			doc["required"] = required
		}
		if r.IntN(2) == 0 {
			doc["additionalProperties"] = r.IntN(2) == 0
		}
		if draft := pick(r, "", "draft/2020-12", "draft/2019-09", "draft-07", "draft-06", "draft-04"); draft != "" {
			doc["$schema"] = fmt.Sprintf("http://json-schema.org/%s/schema#", draft)
		}
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		s := compiled(t, string(raw))
		if s.flat == nil {
			t.Fatalf("%s is not flat", raw)
		}
		for range 10 {
			value := r.near(properties)
			compareFlat(t, s, value)
			compareVerdicts(t, raw, value)
			if s.flat.conforms(value) {
				fast++
			}
		}
	}
	if fast < 500 {
		t.Errorf("only %d values conform", fast)
	}
}

// near makes an object that mostly has the members, of mostly the right types, and sometimes one twice.
func (r invention) near(properties map[string]any) []byte {
	var list []string
	add := func(name string, v any) {
		b, _ := json.Marshal(v) // of our own making
		list = append(list, fmt.Sprintf("%q:%s", name, b))
	}
	for name, p := range properties {
		switch p.(map[string]any)["type"] {
		case "string":
			add(name, pick(r, "", "a", "\n", "é"))
		case "boolean":
			add(name, r.IntN(2) == 0)
		default:
			add(name, json.Number(pick(r, "0", "-0", "12", "1.0", "0.5", "1e1")))
		}
		if r.IntN(8) == 0 {
			list = list[:len(list)-1]
		}
	}
	if r.IntN(3) == 0 {
		add(r.name(), r.value(1))
	}
	return []byte("{" + strings.Join(list, pick(r, ",", " , ")) + "}")
}
