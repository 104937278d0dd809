package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/failure"
)

// What the tests compare by is a scanner of its own: the gateway's would see a mistake of the gateway's as right.

// field is one member of an object: its decoded name, and where it begins, its value begins and it ends.
type field struct {
	name              string
	start, value, end int
}

func (f field) raw(b []byte) []byte { return b[f.value:f.end] }

// membersOf splits an object, which is valid JSON.
func membersOf(b []byte) ([]field, error) {
	if !json.Valid(b) {
		return nil, fmt.Errorf("not JSON: %.200q", b)
	}
	i := skipSpace(b, 0)
	if b[i] != '{' {
		return nil, fmt.Errorf("not an object: %.200q", b)
	}
	var list []field
	for i = skipSpace(b, i+1); b[i] != '}'; {
		f := field{start: i}
		end := skipValue(b, i)
		if err := json.Unmarshal(b[i:end], &f.name); err != nil {
			return nil, err
		}
		f.value = skipSpace(b, skipSpace(b, end)+1) // behind the colon
		f.end = skipValue(b, f.value)
		list = append(list, f)
		if i = skipSpace(b, f.end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return list, nil
}

// values splits an array.
func values(b []byte) ([][]byte, error) {
	if !json.Valid(b) || b[0] != '[' {
		return nil, fmt.Errorf("not an array: %.200q", b)
	}
	var list [][]byte
	for i := skipSpace(b, 1); b[i] != ']'; {
		end := skipValue(b, i)
		list = append(list, b[i:end])
		if i = skipSpace(b, end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return list, nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the index behind the value that begins at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			continue
		default:
			for i+1 < len(b) && strings.IndexByte(`,:]} `+"\t\n\r", b[i+1]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}

// member returns the value of a member, nil if there is none.
func member(b []byte, name string) []byte {
	list, err := membersOf(b)
	if err != nil {
		return nil
	}
	if i := slices.IndexFunc(list, func(f field) bool { return f.name == name }); i >= 0 {
		return list[i].raw(b)
	}
	return nil
}

// without takes out the members that drop names: each from its first quote to the end of its value, with the comma that
// follows, or with the one before if it is the last. No other byte changes.
func without(b []byte, drop func(name string, value []byte) bool) ([]byte, error) {
	for {
		list, err := membersOf(b)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(list, func(f field) bool { return drop(f.name, f.raw(b)) })
		switch {
		case i < 0:
			return b, nil
		case i+1 < len(list):
			comma := skipSpace(b, list[i].end)
			b = slices.Concat(b[:list[i].start], b[comma+1:])
		case i > 0:
			b = slices.Concat(b[:list[i-1].end], b[list[i].end:])
		default:
			b = slices.Concat(b[:list[i].start], b[list[i].end:])
		}
	}
}

// replaced gives a member that is there another value.
func replaced(b []byte, name string, value []byte) ([]byte, error) {
	list, err := membersOf(b)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if f.name == name {
			return slices.Concat(b[:f.value], value, b[f.end:]), nil
		}
	}
	return nil, fmt.Errorf("no member %q in %.200q", name, b)
}

// unmarked is an object as it came from pfar without what pfar says in its _meta; direct is what the server says. The
// marks must name the server.
func unmarked(through, direct []byte, server string) ([]byte, error) {
	meta := member(through, "_meta")
	if meta == nil {
		return nil, errors.New("nothing of pfar's in _meta")
	}
	if got := string(member(meta, "pfar/server")); got != `"`+server+`"` {
		return nil, fmt.Errorf("pfar/server is %s, want %q", got, server)
	}
	own, err := without(meta, func(name string, _ []byte) bool { return strings.HasPrefix(name, "pfar/") })
	if err != nil {
		return nil, err
	}
	if member(direct, "_meta") == nil && string(own) == "{}" {
		return without(through, func(name string, _ []byte) bool { return name == "_meta" })
	}
	return replaced(through, "_meta", own)
}

// unclassed is an error object as it came from pfar without the class that pfar says in its data; direct is what the
// server says.
func unclassed(through, direct []byte) ([]byte, error) {
	data := member(through, "data")
	if data == nil || data[0] != '{' {
		return through, nil
	}
	own, err := without(data, func(name string, _ []byte) bool { return name == failure.Key })
	if err != nil {
		return nil, err
	}
	if member(direct, "data") == nil && string(own) == "{}" {
		return without(through, func(name string, _ []byte) bool { return name == "data" })
	}
	return replaced(through, "data", own)
}

// younger takes out what pfar adds for a client of 2026-07-28 to the result of an older server, which lacks it.
func younger(through, direct []byte) ([]byte, error) {
	added := map[string]string{"resultType": `"complete"`, "ttlMs": "0", "cacheScope": `"private"`}
	return without(through, func(name string, value []byte) bool {
		return added[name] == string(value) && member(direct, name) == nil
	})
}

// differ says where two texts differ first, "" if they do not.
func differ(got, want []byte) string {
	if bytes.Equal(got, want) {
		return ""
	}
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	from := max(0, i-80)
	return fmt.Sprintf("byte %d of %d, want %d:\nthrough pfar %q\ndirect       %q", i, len(got), len(want), got[from:min(len(got), i+120)], want[from:min(len(want), i+120)])
}

// TestComparison shows that the comparison misses nothing and forgives nothing but what it is to forgive.
func TestComparison(t *testing.T) {
	t.Parallel()
	const direct = `{ "b":1.0,"a":[1,{"c":"\u0041}"}] , "_meta":{"x":-0}}`
	const bare = `{"content":[]}`
	tests := []struct {
		name, through, direct string
		same                  bool
	}{
		{"marked", `{ "b":1.0,"a":[1,{"c":"\u0041}"}] , "_meta":{"x":-0,"pfar/server":"s","pfar/label":"l"}}`, direct, true},
		{"marked where there was nothing", `{"_meta":{"pfar/server":"s"},"content":[]}`, bare, true},
		{"marked where there was nothing at all", `{"_meta":{"pfar/server":"s"}}`, `{}`, true},
		{"not marked", direct, direct, false},
		{"another server's", `{"_meta":{"pfar/server":"t"},"content":[]}`, bare, false},
		{"number rewritten", `{ "b":1,"a":[1,{"c":"\u0041}"}] , "_meta":{"x":-0,"pfar/server":"s"}}`, direct, false},
		{"number in _meta rewritten", `{ "b":1.0,"a":[1,{"c":"\u0041}"}] , "_meta":{"x":0,"pfar/server":"s"}}`, direct, false},
		{"escape rewritten", `{ "b":1.0,"a":[1,{"c":"A}"}] , "_meta":{"x":-0,"pfar/server":"s"}}`, direct, false},
		{"space lost", `{"b":1.0,"a":[1,{"c":"\u0041}"}] , "_meta":{"x":-0,"pfar/server":"s"}}`, direct, false},
		{"order changed", `{ "a":[1,{"c":"\u0041}"}],"b":1.0 , "_meta":{"x":-0,"pfar/server":"s"}}`, direct, false},
		{"member lost", `{ "b":1.0 , "_meta":{"x":-0,"pfar/server":"s"}}`, direct, false},
		{"member of _meta lost", `{ "b":1.0,"a":[1,{"c":"\u0041}"}] , "_meta":{"pfar/server":"s"}}`, direct, false},
		{"empty _meta lost", `{"_meta":{"pfar/server":"s"},"content":[]}`, `{"_meta":{},"content":[]}`, true},
		{"_meta made up", `{"_meta":{"y":1,"pfar/server":"s"},"content":[]}`, bare, false},
		{"member added", `{"_meta":{"pfar/server":"s"},"resultType":"complete","content":[]}`, bare, false},
		{"mark elsewhere", `{"_meta":{"pfar/server":"s"},"pfar/server":"s","content":[]}`, bare, false},
	}
	for _, tt := range tests {
		got, err := unmarked([]byte(tt.through), []byte(tt.direct), "s")
		if same := err == nil && differ(got, []byte(tt.direct)) == ""; same != tt.same {
			t.Errorf("%s: same is %t, want %t: %s, %v", tt.name, same, tt.same, got, err)
		}
	}
	for through, want := range map[string]string{
		`{"resultType":"complete","ttlMs":0,"cacheScope":"private","a":1}`: `{"a":1}`,
		`{"resultType":"complete"}`:                                        `{}`,
		`{"resultType":"input_required","a":1}`:                            `{"resultType":"input_required","a":1}`,
		`{"ttlMs":5,"cacheScope":"public","a":1}`:                          `{"ttlMs":5,"cacheScope":"public","a":1}`,
	} {
		if got, err := younger([]byte(through), []byte(want)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", through, got, err, want)
		}
	}
	for text, want := range map[string]int{`[]`: 0, `[ 1 , "a,]" ,{"b":[2]},[] ]`: 4, `[null]`: 1} {
		if got, err := values([]byte(text)); err != nil || len(got) != want {
			t.Errorf("%s: %q, %v, want %d values", text, got, err, want)
		}
	}
	for text, want := range map[string]bool{
		`"\ud800"`: true, `"\udc00\ud800"`: true, `"\uD83D\uDE00"`: false, `"\ud800\udc00\ud800"`: true, `"\\ud800"`: false, `"\\\ud800"`: true,
		`"\ud83d\n\ude00"`: true, `"\ud83d","\ude00"`: true, `"\u00e9\\"`: false, `{"\uDFFF":1}`: true,
	} {
		if got := halved([]byte(text)); got != want {
			t.Errorf("%s is halved: %t, want %t", text, got, want)
		}
	}
}
