package schema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const plainTool = `{"$schema":"http://json-schema.org/draft-07/schema#","title":"T","type":"object","required":["s","b"],"properties":{` +
	`"s":{"type":"string","description":"d","default":7},"n":{"type":"number","examples":["x"]},"i":{"type":"integer"},"b":{"type":"boolean"},"é":{"type":"integer"}}`

// TestPlainValues checks the verdict on values near a schema of the kind that most tools have.
func TestPlainValues(t *testing.T) {
	open, closed := compiled(t, plainTool+`}`), compiled(t, plainTool+`,"additionalProperties":false}`)
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
		{`{"b":true,"s":"x","i":1.0}`, true, true},
		{`{"b":true,"s":"x","i":1e2}`, true, true},
		{`{"b":true,"s":"x","i":01}`, false, false},
		{`{"b":true,"s":"x","\u0069":1}`, true, true},
		{`{"b":true,"s":"x","\u0069":1,"i":1}`, false, false},
		{`{"b":true,"s":"x","\u00e9":1}`, true, true},
		{`{"b":true,"s":"x","S":1}`, true, false},
		{`{"b":true,"s":"x","o":null,"p":1.0,"q":"","r":false}`, true, false},
		{`{"b":true,"s":"x","o":1,"o":1}`, false, false},
		{"{\"b\":true,\"s\":\"x\",\"\xff\":1,\"\xfe\":1}", false, false},
		{`{"b":true,"s":"x","o":{}}`, true, false},
		{`{"b":true,"s":"x","o":[]}`, true, false},
		{`{"b":true,"s":"` + strings.Repeat("x", heavyBytes) + `"}`, true, true},
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
			if v := s.schema.Check([]byte(c.value)); (v == nil) != s.want {
				t.Errorf("%.100q (closed: %v): %v", c.value, s.schema == closed, v)
			}
		}
	}
	if s := compiled(t, `{"type":"object","additionalProperties":false}`); s.Check([]byte(` { } `)) != nil {
		t.Error("an empty object does not conform")
	}
}

// TestPlainInvented makes up plain schemas of every draft, and values near them.
func TestPlainInvented(t *testing.T) {
	conform := 0
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
		for range 10 {
			value := r.near(properties)
			compareVerdicts(t, raw, value)
			if s.Check(value) == nil {
				conform++
			}
		}
	}
	if conform < 500 {
		t.Errorf("only %d values conform", conform)
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
