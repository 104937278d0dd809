package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestPatterns holds both matchers to ECMA-262, and to what other languages' libraries write into schemas.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, match, other string
		linear                bool
	}{
		{`^\d$`, "7", "٧", true},
		{`^\w$`, "_", "é", true},
		{`^\s$`, "\u00a0", "x", true},
		{`^\s$`, "\ufeff", "\u200b", true},
		{`^\S$`, "x", "\u2028", true},
		{`^[\s]$`, "\v", "x", true},
		{`^.$`, "é", "\r", true},
		{`^.$`, "\u0085", "\u2029", true},
		{`^a$`, "a", "a\n", true},
		{`^https?:\/\/`, "https://x", "ftp://x", true},
		{`^[\/\-\.]$`, "/", "a", true},
		{`^\u0041\x42$`, "AB", "ab", true},
		{`^\u{1F600}$`, "😀", "x", true},
		{`^\ud83d\ude00$`, "😀", "x", true},
		{`^[\u00e0-\u00ff]$`, "é", "e", true},
		{`^[^]$`, "\n", "", true},
		{`^[[:alpha:]]$`, "a]", "z", true},
		{`^\cJ$`, "\n", "J", true},
		{`^\0$`, "\x00", "0", true},
		{`^\p{L}\p{Lu}\p{Letter}$`, "éÉz", "1Aa", true},
		{`^\p{Script=Greek}\p{sc=Greek}\P{Greek}$`, "αβa", "abα", true},
		{`^[\p{General_Category=Nd}_]+$`, "1_٧", "a", true},
		{`^\p{Emoji}\P{Emoji}$`, "👍x", "x👍", true},
		{`^[\p{ID_Start}_][\p{ID_Continue}$]*$`, "né$1", "1a", true},
		{`^(?<year>[0-9]{4})$`, "2026", "26", true},
		{`^(?i)abc$`, "ABC", "abd", true},
		{`^(?P<x>a)$`, "a", "b", true},
		{`^.{1,2000}$`, strings.Repeat("x", 2000), strings.Repeat("x", 2001), false},
		{`^(?=.*\d)(?=.*[a-z]).{8,}$`, "passw0rd", "password", false},
		{`^(?!\.)[a-z.]+$`, "a.b", ".a", false},
		{`^(a|b)\1$`, "aa", "ab", false},
		{`(?<=\$)\d+$`, "$5", "5", false},
		{`^(?=.)\p{Emoji}+$`, "👍", "x", false},
		{`^(?=.)a$`, "a", "a\n", false},
		{`^(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}$`, "192.168.0.1", "256.0.0.1", true},
	} {
		p, err := newPatterns().compile(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		if _, linear := p.(*linear); linear != c.linear {
			t.Errorf("%s: %T", c.pattern, p)
		}
		if !p.MatchString(c.match) || p.MatchString(c.other) {
			t.Errorf("%s matches %q: %t, %q: %t", c.pattern, c.match, p.MatchString(c.match), c.other, p.MatchString(c.other))
		}
		text, err := json.Marshal(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		compiled(t, fmt.Sprintf(`{"pattern":%s,"patternProperties":{%s:{}}}`, text, text))
	}
}

// TestReferences shows that references to where schemas are kept are free, however many.
func TestReferences(t *testing.T) {
	for _, schema := range []string{
		`{"$defs":{` + each(1500, `"%":{"type":"string"}`) + `},"properties":{` + each(1500, `"%":{"$ref":"#/$defs/%"}`) + `}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{` + each(1500, `"%":{"items":[{}]}`) + `},"properties":{` + each(1500, `"%":{"$ref":"#/definitions/%/items/0"}`) + `}}`,
		`{"properties":{` + each(1500, `"%":{"anyOf":[{"properties":{"a/b":{}}}]}`) + `},"not":{"properties":{` +
			each(1500, `"%":{"$ref":"#/properties/%/anyOf/0/properties/a~1b"}`) + `}}}`,
	} {
		compiled(t, schema)
	}
}

// TestManySlowPatterns shows that strings of which none takes too long do so together.
func TestManySlowPatterns(t *testing.T) {
	s := compiled(t, `{"items":{"pattern":"^(?=a)(a+)+$"}}`)
	if v := s.Check([]byte(`[` + each(5000, `"`+strings.Repeat("a", 20)+`!"`) + `]`)); !unchecked(v) {
		t.Errorf("%v, want that it is not checked", v)
	}
	if v := s.Check([]byte(`["aaa"]`)); v != nil {
		t.Errorf("afterwards: %v", v)
	}
}
