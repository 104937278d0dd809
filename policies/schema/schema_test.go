package schema

import (
	"strings"
	"sync"
	"testing"
)

func compiled(t testing.TB, raw string) *Schema {
	t.Helper()
	s, err := Compile([]byte(raw))
	if err != nil {
		t.Fatalf("%.200s: %v", raw, err)
	}
	return s
}

const object = `{"type":"object","properties":{` +
	`"s":{"type":"string","minLength":2,"maxLength":4,"pattern":"^[a-z]+$"},"n":{"type":"number","minimum":1,"exclusiveMaximum":10,"multipleOf":0.5},` +
	`"i":{"type":"integer","maximum":5,"exclusiveMinimum":-3},"e":{"enum":["a",1,null,{"x":1}]},"c":{"const":"k"},` +
	`"l":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":3,"uniqueItems":true},` +
	`"t":{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false},` +
	`"has":{"contains":{"const":1},"minContains":2,"maxContains":3},` +
	`"o":{"type":"object","minProperties":1,"maxProperties":2,"additionalProperties":{"type":"boolean"},"propertyNames":{"maxLength":3}},` +
	`"p":{"patternProperties":{"^x-":{"type":"string"}},"additionalProperties":false},` +
	`"any":{"anyOf":[{"type":"string"},{"type":"null"}]},` +
	`"one":{"oneOf":[{"type":"integer"},{"minimum":3}]},"not":{"not":{"type":"string"}},` +
	`"union":{"anyOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"string"}},"required":["k","v"]},` +
	`{"type":"object","properties":{"k":{"const":"b"},"w":{"type":"integer"}},"required":["k","w"]}]},` +
	`"ref":{"$ref":"#/$defs/d~1e f"},"if":{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}},` +
	`"dep":{"dependentRequired":{"a":["b"]},"dependentSchemas":{"x":{"required":["y"]}}},` +
	`"un":{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}` +
	`},"required":["s"],"additionalProperties":false,"$defs":{"d/e f":{"type":"object","properties":{"a":{"type":"string"}}}}}`

func TestViolations(t *testing.T) {
	s := compiled(t, object)
	for _, c := range []struct{ value, path, rule, text string }{
		{`{"s":"abc"}`, "", "", ""},
		{`[]`, "", "/type", `at the top: want object, got array (rule /type)`},
		{`{}`, "", "/required", `at the top: the member "s" is missing (rule /required)`},
		{`{"s":"a"}`, "/s", "/properties/s/minLength", `at "/s": want at least 2 characters, got 1 (rule /properties/s/minLength)`},
		{`{"s":"abcde"}`, "/s", "/properties/s/maxLength", `at "/s": want at most 4 characters, got 5 (rule /properties/s/maxLength)`},
		{`{"s":"A1"}`, "/s", "/properties/s/pattern", `at "/s": want a match of "^[a-z]+$", got "A1" (rule /properties/s/pattern)`},
		{`{"s":"ab","n":0.7}`, "/n", "/properties/n/minimum", `at "/n": want at least 1, got 0.7 (rule /properties/n/minimum); at "/n": want a multiple of 0.5, got 0.7 (rule /properties/n/multipleOf)`},
		{`{"s":"ab","n":10}`, "/n", "/properties/n/exclusiveMaximum", `at "/n": want less than 10, got 10 (rule /properties/n/exclusiveMaximum)`},
		{`{"s":"ab","n":1e0}`, "", "", ""},
		{`{"s":"ab","i":1.5}`, "/i", "/properties/i/type", `at "/i": want integer, got number (rule /properties/i/type)`},
		{`{"s":"ab","i":6.0}`, "/i", "/properties/i/maximum", `at "/i": want at most 5, got 6 (rule /properties/i/maximum)`},
		{`{"s":"ab","i":-3}`, "/i", "/properties/i/exclusiveMinimum", `at "/i": want more than -3, got -3 (rule /properties/i/exclusiveMinimum)`},
		{`{"s":"ab","e":"b"}`, "/e", "/properties/e/enum", `at "/e": want one of "a", 1, null, an object, got "b" (rule /properties/e/enum)`},
		{`{"s":"ab","e":{"x":1.0}}`, "", "", ""},
		{`{"s":"ab","c":[]}`, "/c", "/properties/c/const", `at "/c": want "k", got an array (rule /properties/c/const)`},
		{`{"s":"ab","l":[]}`, "/l", "/properties/l/minItems", `at "/l": want at least 1 item, got 0 (rule /properties/l/minItems)`},
		{`{"s":"ab","l":["a",2,"a",3]}`, "/l", "/properties/l/maxItems",
			`at "/l": want at most 3 items, got 4 (rule /properties/l/maxItems); ` +
				`at "/l": items 0 and 2 are equal (rule /properties/l/uniqueItems); ` +
				`at "/l/1": want string, got number (rule /properties/l/items/type); ` +
				`at "/l/3": want string, got number (rule /properties/l/items/type)`},
		{`{"s":"ab","l":["a","a"]}`, "/l", "/properties/l/uniqueItems", `at "/l": items 0 and 1 are equal (rule /properties/l/uniqueItems)`},
		{`{"s":"ab","t":["a","b",3,4]}`, "/t/1", "/properties/t/prefixItems/1/type", `at "/t/1": want integer, got string (rule /properties/t/prefixItems/1/type); at "/t/2": no value is allowed here (rule /properties/t/items); at "/t/3": no value is allowed here (rule /properties/t/items)`},
		{`{"s":"ab","has":[1,2]}`, "/has", "/properties/has/minContains", `at "/has": want at least 2 items of a kind, got 1 (rule /properties/has/minContains)`},
		{`{"s":"ab","has":[1,1,1,1]}`, "/has", "/properties/has/maxContains", `at "/has": want at most 3 items of a kind, got 4 (rule /properties/has/maxContains)`},
		{`{"s":"ab","o":{}}`, "/o", "/properties/o/minProperties", `at "/o": want at least 1 member, got 0 (rule /properties/o/minProperties)`},
		{`{"s":"ab","o":{"abcd":true,"b":1,"c":false}}`, "/o", "/properties/o/maxProperties",
			`at "/o": want at most 2 members, got 3 (rule /properties/o/maxProperties); ` +
				`at "/o": the name "abcd": want at most 3 characters, got 4 (rule /properties/o/propertyNames/maxLength); ` +
				`at "/o/b": want boolean, got number (rule /properties/o/additionalProperties/type)`},
		{`{"s":"ab","p":{"x-a":1,"y":2,"z":3}}`, "/p", "/properties/p/additionalProperties", `at "/p": the members "y", "z" are not allowed (rule /properties/p/additionalProperties); at "/p/x-a": want string, got number (rule /properties/p/patternProperties/^x-/type)`},
		{`{"s":"ab","any":1}`, "/any", "/properties/any/anyOf", `at "/any": want null or string, got number (rule /properties/any/anyOf)`},
		{`{"s":"ab","one":4}`, "/one", "/properties/one/oneOf",
			`at "/one": want one alternative, the value matches numbers 0 and 1 (rule /properties/one/oneOf)`},
		{`{"s":"ab","one":"x"}`, "", "", ""},
		{`{"s":"ab","one":1.5}`, "/one", "/properties/one/oneOf/1/minimum", `at "/one": want at least 3, got 1.5 (rule /properties/one/oneOf/1/minimum, the closest of 2)`},
		{`{"s":"ab","not":"x"}`, "/not", "/properties/not/not",
			`at "/not": the value matches what "not" excludes (rule /properties/not/not)`},
		{`{"s":"ab","union":{"k":"b","w":"x"}}`, "/union/w", "/properties/union/anyOf/1/properties/w/type", `at "/union/w": want integer, got string (rule /properties/union/anyOf/1/properties/w/type, the closest of 2)`},
		{`{"s":"ab","union":{"k":"a"}}`, "/union", "/properties/union/anyOf/0/required", `at "/union": the member "v" is missing (rule /properties/union/anyOf/0/required, the closest of 2)`},
		{`{"s":"ab","union":3}`, "/union", "/properties/union/anyOf", `at "/union": want object, got number (rule /properties/union/anyOf)`},
		{`{"s":"ab","ref":{"a":1}}`, "/ref/a", "/$defs/d~1e f/properties/a/type", `at "/ref/a": want string, got number (rule "/$defs/d~1e f/properties/a/type")`},
		{`{"s":"ab","if":{"a":1}}`, "/if", "/properties/if/then/required", `at "/if": the member "b" is missing (rule /properties/if/then/required)`},
		{`{"s":"ab","if":{"b":1}}`, "/if", "/properties/if/else/required", `at "/if": the member "c" is missing (rule /properties/if/else/required)`},
		{`{"s":"ab","dep":{"a":1,"x":2}}`, "/dep", "/properties/dep/dependentRequired/a", `at "/dep": with the member "a", the member "b" is missing (rule /properties/dep/dependentRequired/a); at "/dep": the member "y" is missing (rule /properties/dep/dependentSchemas/x/required)`},
		{`{"s":"ab","un":{"a":1,"b":2}}`, "/un/b", "/properties/un/unevaluatedProperties", `at "/un/b": no value is allowed here (rule /properties/un/unevaluatedProperties)`},
		{`{"s":"ab","zz\u202e\"":1,"x":2}`, "", "/additionalProperties", `at the top: the members "x", "zz\u202e\"" are not allowed (rule /additionalProperties)`},
		{`{"s":1,"n":"x","i":"x","e":3,"c":3,"l":3,"t":3,"o":3,"any":3,"ref":3,"not":"x"}`, "/any", "/properties/any/anyOf",
			`at "/any": want null or string, got number (rule /properties/any/anyOf); ` +
				`at "/c": want "k", got 3 (rule /properties/c/const); ` +
				`at "/e": want one of "a", 1, null, an object, got 3 (rule /properties/e/enum); ` +
				`at "/i": want integer, got string (rule /properties/i/type); ` +
				`at "/l": want array, got number (rule /properties/l/type); ` +
				`at "/n": want number, got string (rule /properties/n/type); ` +
				`at "/not": the value matches what "not" excludes (rule /properties/not/not); ` +
				`at "/o": want object, got number (rule /properties/o/type); and 3 more`},
		{`{"s":"ab","n":1e1000000000}`, "", "", `the value cannot be checked: a number of more than 1024 digits, or with a greater exponent`},
		{`{"s":"ab","s":"ab"}`, "", "", `the value cannot be checked: the member "s" comes twice`},
		{`{"s":`, "", "", `the value cannot be checked: not JSON at byte 5`},
	} {
		v := s.Check([]byte(c.value))
		if v == nil {
			if c.text != "" {
				t.Errorf("%s conforms, want %s", c.value, c.text)
			}
			continue
		}
		if v.Text != c.text || v.Path != c.path || v.Rule != c.rule {
			t.Errorf("%s:\ngot  %q %q %s\nwant %q %q %s", c.value, v.Path, v.Rule, v.Text, c.path, c.rule, c.text)
		}
	}
}

// patient is Check where a pattern may take too long by the clock of a busy machine.
func patient(s *Schema, value []byte) *Violation {
	v := s.Check(value)
	for n := 0; n < 100 && v != nil && strings.Contains(v.Error(), "takes too long"); n++ {
		v = s.Check(value)
	}
	return v
}

// TestManyAtOnce uses one schema from several goroutines, as calls do.
func TestManyAtOnce(t *testing.T) {
	s := compiled(t, `{"properties":{"a":{"$ref":"#"},"e":{"pattern":"^(?!x)"},"l":{"uniqueItems":true}},"patternProperties":{".":{"$ref":"#"}}}`)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				right := []byte(nested(`{"a":`, `{"e":"a","l":[1,2]}`, `}`, i))
				if v := patient(s, right); v != nil {
					t.Error(v)
				}
				wrong := []byte(nested(`{"a":`, `{"e":"x","l":[1,1]}`, `}`, i))
				if v := patient(s, wrong); v == nil || unchecked(v) {
					t.Error(v)
				}
				if v := s.Check([]byte(nested(`{"a":`, `1`, `}`, 60))); !unchecked(v) {
					t.Error(v)
				}
			}
		})
	}
	all.Wait()
}
