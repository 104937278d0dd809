package approval

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// follow is what a JSON pointer leads to, by Go's own parser.
func follow(t *testing.T, v any, pointer string) any {
	t.Helper()
	for part := range strings.SplitSeq(pointer[1:], "/") {
		members, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("%q leads through what is no object", pointer)
		}
		name := strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		if v, ok = members[name]; !ok {
			t.Fatalf("%q leads to what is not there", pointer)
		}
	}
	return v
}

// FuzzLocate: what a pointer leads to is what Go's parser finds there, and nothing else of the arguments is touched.
func FuzzLocate(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":"x"}`, "/a"}, {`{"a":{"b":[1,"c"]}}`, "/a/b"}, {`{"a/b":1,"~":2}`, "/a~1b"}, {`{"":{"":0}}`, "//"}, {`{"a":"x"}`, "a"}, {`{"a":"x"}`, ""},
		{`{"a":{"a":{"a":null}}}`, "/a/a/a"}, {`[1]`, "/0"}, {`{"é":"\ud83d\ude00"}`, "/é"}, {`{"a":1}`, "/~2"}, {`{"a":1}`, "/~"},
	} {
		f.Add([]byte(seed[0]), seed[1])
	}
	f.Fuzz(func(t *testing.T, arguments []byte, pointer string) {
		canonical, err := jsonrpc.Canonical(nil, arguments)
		if err != nil {
			return
		}
		start, end, err := locate(canonical, pointer)
		if err != nil {
			return
		}
		if start < 1 || end <= start || end >= len(canonical) {
			t.Fatalf("%q is at %d to %d of %d bytes", pointer, start, end, len(canonical))
		}
		var whole, part any
		if err := json.Unmarshal(canonical, &whole); err != nil {
			t.Fatalf("%s: %v", canonical, err)
		}
		if err := json.Unmarshal(canonical[start:end], &part); err != nil {
			t.Fatalf("%q leads to %s: %v", pointer, canonical[start:end], err)
		}
		if want := follow(t, whole, pointer); !reflect.DeepEqual(part, want) {
			t.Errorf("%q leads to %s, want %v", pointer, canonical[start:end], want)
		}
	})
}

// FuzzFits: a pattern fits what an expression that says the same fits, and no way out of where it begins.
func FuzzFits(f *testing.F) {
	for _, seed := range [][2]string{
		{"*", "a"}, {"/notes/*", "/notes/a.md"}, {"/notes/*", "/notes/../etc"}, {"/notes/*", "/notes/.hidden"}, {"a*b*c", "aXbXc"}, {"*@x", "a@b@x"}, {"a*", "a"}, {"..", ".."},
		{"*é", "éé"}, {`\*`, `\.x`}, {"*.*", "a.b"}, {"x", "x"}, {"a*a*a*a", "aaaaaaaaaaaa"}, {"\xff*", "\xffa"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, glob, text string) {
		if checkGlob(glob) != nil || strings.Count(glob, "*") > 16 || len(text) > 512 || !utf8.ValidString(glob) || !utf8.ValidString(text) {
			return
		}
		got := fits(glob, text)
		if !strings.Contains(glob, "*") {
			if got != (glob == text) {
				t.Fatalf("%q fits %q: %t", glob, text, got)
			}
			return
		}
		parts := strings.Split(glob, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		// A star begins with no dot at the beginning of a name: that is checked apart, below.
		loose, err := regexp.MatchString(`^(?s:`+strings.Join(parts, `[\p{L}\p{Nd}_.-]+`)+`)$`, text)
		if err != nil {
			t.Fatal(err)
		}
		if got && !loose {
			t.Errorf("%q fits %q", glob, text)
		}
		if !got && loose && !strings.Contains(text, ".") && utf8.RuneCountInString(text) <= maxWild {
			t.Errorf("%q does not fit %q", glob, text)
		}
		if !got {
			return
		}
		if over := utf8.RuneCountInString(text) - utf8.RuneCountInString(strings.ReplaceAll(glob, "*", "")); over > maxWild {
			t.Errorf("%q lets %d characters of %q be anything", glob, over, text)
		}
		for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '/' || r == '\\' }) {
			if part == "." || part == ".." {
				t.Errorf("%q fits the way out %q", glob, text)
			}
		}
		for _, apart := range "/ @,;:\\\"'\n\x00" {
			if strings.Count(text, string(apart)) != strings.Count(glob, string(apart)) {
				t.Errorf("a star of %q stands for %q in %q", glob, apart, text)
			}
		}
	})
}

// FuzzTemplate: what is left of arguments with null in the place of what is matched decides, and what a rule was made
// of it covers.
func FuzzTemplate(f *testing.F) {
	for _, seed := range [][3]string{
		{`{"a":"x","b":1}`, "/a", "x"}, {`{"a":{"b":"note-1"}}`, "/a/b", "note-*"}, {`{"a":1}`, "/a", "1"}, {`{"a":"x"}`, "/b", "x"}, {`{"a":"x","b":null}`, "/a", "*"}, {`{"a":"\u0000"}`, "/a", "*"},
	} {
		f.Add([]byte(seed[0]), seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, arguments []byte, pointer, glob string) {
		canonical, err := jsonrpc.Canonical(nil, arguments)
		if err != nil || checkGlob(glob) != nil {
			return
		}
		whole, err := template(canonical, nil)
		if sum := sha256.Sum256(canonical); err != nil || whole != hex.EncodeToString(sum[:]) {
			t.Fatalf("nothing is matched: %s, %v", whole, err)
		}
		match := matching(pointer, glob)
		before := bytes.Clone(canonical)
		rest, err := template(canonical, match)
		if !bytes.Equal(canonical, before) {
			t.Fatalf("the arguments are %s, were %s", canonical, before)
		}
		if err != nil {
			if rest != "" {
				t.Errorf("%v, and the digest %s", err, rest)
			}
			return
		}
		if rest == whole {
			t.Errorf("nothing is taken out at %q of %s", pointer, canonical)
		}
		if _, err := template(canonical, append(match, match...)); err == nil {
			t.Errorf("an argument is matched twice: %q", pointer)
		}
		// Another value that fits is covered, one that does not is not.
		start, end, err := locate(canonical, pointer)
		if err != nil {
			t.Fatal(err)
		}
		other := func(text string) (string, error) {
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			return template(jsonrpc.Splice(nil, canonical, jsonrpc.Edit{Start: start, End: end, Text: quoted}), match)
		}
		if _, err := other("../" + glob); err == nil {
			t.Errorf("%q fits a way out", glob)
		}
		if fitting := strings.ReplaceAll(glob, "*", "a"); utf8.ValidString(glob) && fits(glob, fitting) {
			if got, err := other(fitting); err != nil || got != rest {
				t.Errorf("%q in the place of %s: %s, %v, want %s", fitting, canonical[start:end], got, err, rest)
			}
		}
	})
}
