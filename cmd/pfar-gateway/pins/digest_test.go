package pins

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestSame: what no reader can tell apart has one digest.
func TestSame(t *testing.T) {
	for _, same := range [][]string{
		{`{"a":1,"b":[true,null,"x"]}`, ` { "b" : [ true , null , "x" ] ,` + "\n\t" + `"a" : 1 } `},
		{`{"a":"é😀/\n"}`, `{"\u0061":"\u00e9\ud83d\ude00\/\u000a"}`},
		{`{"a":1}`, `{"a":1,"_meta":{"t":[]},"icons":7}`},
		{`"<&>\u2028"`, `"\u003c\u0026\u003e` + "\u2028" + `"`},
		{`{}`, `{"_meta":null}`},
		{`{"a":"\ud83d\ude00"}`, `{"_meta":"\udc00\ud800","a":"\ud83d\ude00"}`, `{"a":"\ud83d\ude00","icons":[{"x":1,"x":2}],"\u005fmeta" : {"\ud800":1} }`},
	} {
		first, err := digest([]byte(same[0]))
		if err != nil || len(first) != 64 {
			t.Fatalf("%s: %q, %v", same[0], first, err)
		}
		for _, s := range same[1:] {
			if got, err := digest([]byte(s)); got != first || err != nil {
				t.Errorf("%s differs from %s: %v", s, same[0], err)
			}
		}
	}
}

// TestKeptDigest: a digest is in the files of pins, so that it is the same in every version.
func TestKeptDigest(t *testing.T) {
	const kept = "20f93b3eb2dd6dfd3f3606b6a5aeda9e5f46ad817a43e1ba614511dbc4ff51dd" // of {"n":1.50,"name":"é\u003c","o":{"a":{},"z":[null,false]}}
	if d, err := digest([]byte(`{"o":{"z":[ null,false ],"a":{}}, "name":"\u00e9<", "icons":[], "n":1.50, "_meta":{"n":2}}`)); d != kept || err != nil {
		t.Errorf("%s, %v, want %s", d, err, kept)
	}
}

// TestDifferent: no two of these have the same digest, and people see that they differ.
func TestDifferent(t *testing.T) {
	seen, looks := map[string]string{}, map[string]string{}
	for _, s := range []string{
		`{}`, `[]`, `null`, `""`, `0`, `"0"`, `-0`, `0.0`, `1`, `1.0`, `1e0`, `1E0`, `true`, `"true"`, `[null]`, `[[]]`, `[{}]`,
		`12345678901234567890`, `12345678901234567891`, `{"a":1}`, `{"A":1}`, `{"a":"1"}`, `{"a":{}}`, `{"a":[]}`, `{"a":1,"b":1}`, `[1,2]`, `[2,1]`, `["1,2"]`,
		`"a"`, `"a "`, `" a"`, `"a\n"`, `"a\\n"`, `"a\nb"`, `["a\n","b"]`, `"a\r"`, `"\u0000"`, `"\u200b"`, `"\\u200b"`, `"\u202ea"`, `"\udb40\udc41"`, `"\ufffd"`, `"\ufe0f"`,
		`"\u00a0"`, `"\u3000"`, `"\u2800"`, `"\u3164"`, `"é"`, `"e\u0301"`, `{"icon":1}`, `{"x":{"icons":1}}`, `{"x":{"_meta":1}}`, `{"Icons":1}`, `"{}"`, `"(it cannot be read)"`,
	} {
		d, err := digest([]byte(s))
		if err != nil {
			t.Errorf("%s: %v", s, err)
		}
		look, left := show([]byte(s))
		if other, twice := seen[d]; twice {
			t.Errorf("%s has the digest of %s", s, other)
		}
		if other, twice := looks[look]; twice || left != 0 {
			t.Errorf("%s looks like %s", s, other)
		}
		seen[d], looks[look] = s, s
	}
}

// deepest is how deep a definition may nest (jsonrpc.Canonical).
const deepest = 512

// TestReadDifferently: what programs read differently has no digest, so that nobody accepts one reading and is served
// the other.
func TestReadDifferently(t *testing.T) {
	for s, problem := range map[string]string{
		"":                                      "not JSON",
		"{}{}":                                  "not JSON",
		"{} x":                                  "not JSON",
		`{"a":1,}`:                              "not JSON",
		`{'a':1}`:                               "not JSON",
		"\"\x1b\"":                              "not JSON",
		"\"\xff\"":                              "not UTF-8",
		`{"description":"a","description":"b"}`: `member "description" comes twice`,
		`{"description":"a","\u0064escription":"b"}`:                             `member "description" comes twice`,
		`{"inputSchema":{"properties":{"x":1,"x":2}}}`:                           `member "x" comes twice`,
		`[{"` + strings.Repeat("\u202e", 9000) + `":[{"\u202e":1,"\u202e":2}]}]`: `member "\u202e" comes twice`,
		`"\ud800"`:                                "half a character",
		`"\udc00"`:                                "half a character",
		`"\ud800\ud800\udc00"`:                    "half a character",
		`"\ud800\n"`:                              "half a character",
		`"x\\\ud800\\udc00"`:                      "half a character",
		`{"\ud800":1}`:                            "half a character",
		`{"_meta":"\ud83d","a":"\ude00"}`:         "half a character",
		`{"a":"\ude00","_meta":"\ud83d"}`:         "half a character",
		`{"_meta":1,"_meta":2}`:                   `member "_meta" comes twice`,
		`{"_meta":1,"x":{"_meta":"\ud800"}}`:      "half a character",
		`{"icons":1,"_meta":2,"x":{"a":1,"a":2}}`: `member "a" comes twice`,
		`[{"_meta":"\ud800"}]`:                    "half a character",
		strings.Repeat("[", deepest+2) + strings.Repeat("]", deepest+2): "nests deeper",
		strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000):     "not JSON",
	} {
		if d, err := digest([]byte(s)); d != "" || err == nil || !strings.Contains(err.Error(), problem) || len(err.Error()) > 500 {
			t.Errorf("%.80s: %q, %v, want %q", s, d, err, problem)
		}
	}
	for _, s := range []string{`"\ud83d\ude00"`, `"\\ud800"`, `"\\\\ud800"`, `"\uD83D\uDE00\ud83d\ude00"`, `"\u00e9\\"`, "[" + strings.Repeat("[", deepest-1) + strings.Repeat("]", deepest)} {
		if _, err := digest([]byte(s)); err != nil {
			t.Errorf("%.80s: %v", s, err)
		}
	}
}

// FuzzDefinition: a digest does not depend on the form, nothing that is not seen is shown, and nothing panics.
func FuzzDefinition(f *testing.F) {
	for _, s := range []string{`{"name":"a","description":"x\ny","inputSchema":{"type":"object"},"_meta":{}}`, `"\ud83d\ude00\u202e"`, `[1e9,-0,[],{}]`, `{"a":1,"a":2}`, "\"\u0301\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := digest(raw)
		if err != nil {
			return
		}
		c, _ := canonical(raw)
		if again, err := digest(c); again != d || err != nil {
			t.Errorf("the canonical form %q of %q has another digest: %v", c, raw, err)
		}
		if indented, err := json.MarshalIndent(json.RawMessage(raw), "", " "); err == nil {
			if again, err := digest(indented); again != d || err != nil {
				t.Errorf("%q has another digest: %v", indented, err)
			}
		}
		text, _ := compare("x", nil, raw)
		onlyVisible(t, text)
	})
}

func onlyVisible(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("%q is no text", text)
	}
	for _, r := range text {
		if r != '\n' && (!unicode.IsGraphic(r) || hidden(r)) {
			t.Errorf("%q shows %U", text, r)
			return
		}
	}
}

// TestDigestOfMuch: the digest of a definition of many values takes no memory for each of them: a server can have its
// lists looked at every second.
func TestDigestOfMuch(t *testing.T) {
	raw := []byte(`{"name":"a","_meta":{},"x":[` + strings.Repeat(`1,"a",`, 50_000) + `0]}`)
	if n := testing.AllocsPerRun(1, func() { _, _ = digest(raw) }); n > 200_000 {
		t.Errorf("%.0f allocations", n)
	}
}
