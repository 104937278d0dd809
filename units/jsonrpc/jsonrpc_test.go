package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestGrammar(t *testing.T) {
	for _, text := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":[]}`, `{"a":[[],{}]}`, `{"a":-0}`, `{"a":0.0}`, `{"a":1e5}`, `{"a":1E+5}`,
		`{"a":-1.5e-7}`,
		`{"a":"\"\\\/\b\f\n\r\t\u00e9"}`, `{"a":true,"b":false,"c":null}`, "{\"a\"\t:\r\n1 , \"b\":2}",
		`{"a":"0123456789\u0000abcdefgh"}`,
		`{"a":" control\x7f"}`,
		"", " ", "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{a:1}`, `{'a':1}`, `{"a":1}}`,
		`{"a":1} x`,
		`{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`, `{"a":+1}`, `{"a":-}`, `{"a":NaN}`, `{"a":tru}`, `{"a":"}`,
		`{"a":"\x"}`, `{"a":"\u12g4"}`,
		`{"a":"\u12`, "{\"a\":\"\n\"}", "{\"a\":\"01234567\t\"}", `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":[}`, `{"a":[}]}`,
		`{"a":{]}`, `[1]`, `1`, `"a"`,
	} {
		want := json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{")
		if _, err := Object([]byte(text), nil); (err == nil) != want {
			t.Errorf("%q: %v, want valid %t", text, err, want)
		}
	}
}

// FuzzObject holds the scanner to encoding/json: what one takes the other takes, and the values are the same bytes.
func FuzzObject(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,{"b":"c"}],"d":-1.5e7}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"\u0061":1}`, `{"a":"\ud83d\ude00é"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ms, err := Object(b, nil)
		if err != nil {
			if json.Valid(b) && bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) &&
				!strings.Contains(err.Error(), "twice") && !strings.Contains(err.Error(), "more than") &&
				!strings.Contains(err.Error(), "deeper") {
				t.Fatalf("%q refused: %v", b, err)
			}
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatalf("%q taken: %v", b, err)
		}
		for _, m := range ms {
			if !json.Valid(m.Raw()) {
				t.Fatalf("%q: value %q is not JSON", b, m.Raw())
			}
		}
		if len(ms) < len(want) {
			t.Fatalf("%q: %d members, want %d", b, len(ms), len(want))
		}
		for i := range ms {
			if out := Splice(nil, b, ms.Remove(i)); !json.Valid(out) {
				t.Fatalf("%q without member %d is %q", b, i, out)
			}
		}
		if out := Splice(nil, b, ms.Prepend(b, []byte(`"pfar/x":1`))); !json.Valid(out) {
			t.Fatalf("%q with a member more is %q", b, out)
		}
	})
}

func TestWhatParsersReadDifferently(t *testing.T) {
	for _, text := range []string{
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"method":"ping","b":{},"m\u0065thod":"tools/call"}`,
	} {
		if ms, err := Object([]byte(text), nil); err == nil {
			t.Errorf("%s: %v, want a refusal", text, ms)
		}
	}
	for _, text := range []string{
		`{"Name":1}`, `{"naMe":1}`, `{"\u212Aey":1}`, `{"name":1,"NAME":2}`, `{"KEY":1}`, `{"key\u017F":1}`,
		"{\"\u212Aey\u017F\":1}",
	} {
		ms, err := Object([]byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		if ms.LookAlike("name", "keys", "key") == nil {
			t.Errorf("%s is taken", text)
		}
	}
	ms, err := Object([]byte(`{"name":1,"names":2,"nam":3,"näme":4,"nam\u0435":5}`), nil)
	if err != nil || ms.LookAlike("name") != nil {
		t.Error("an exact name is refused")
	}
}

func TestManyMembers(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"a":0`)
	for i := range 100_000 {
		fmt.Fprintf(&b, `,"%d":0`, i)
	}
	b.WriteString(`}`)
	if _, err := Object(b.Bytes(), nil); err == nil {
		t.Error("an object that is slow to look into is taken")
	}
}

func TestDepth(t *testing.T) {
	for _, depth := range []int{1, 64, 200_000} {
		m, err := Parse([]byte(`{"id":1,"result":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}`))
		if err != nil || m.Depth != depth+1 || string(m.ID) != "1" {
			t.Errorf("depth %d, %v, want %d", m.Depth, err, depth+1)
		}
	}
	if _, err := Parse([]byte(`{"id":1,"result":` + strings.Repeat("[", 5_000_000))); err == nil {
		t.Error("brackets without end are taken")
	}
}

func TestParse(t *testing.T) {
	m, err := Parse([]byte(`{"id":"x","jsonrpc":"2.0","method":"tools\/call","params":{"b":1.0,"a":2}}`))
	if err != nil || !m.Version || string(m.ID) != `"x"` || m.Method != "tools/call" ||
		string(m.Params) != `{"b":1.0,"a":2}` {
		t.Errorf("got %+v, %v", m, err)
	}
	m, err = Parse([]byte("{\"id\":7,\"result\":{\"a\":\"\xff\"}}"))
	if !errors.Is(err, ErrUTF8) || string(m.ID) != "7" {
		t.Errorf("got id %q, %v, want 7 and invalid UTF-8", m.ID, err)
	}
	for _, text := range []string{`{"method":1}`, `{"method":""}`, `[]`, `{}{}`} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{
		`1`: true, `-7`: true, `"a"`: true, `""`: true, `0`: true, `9007199254740993`: true,
		``: false, `null`: false, `1.5`: false, `1e3`: false, `-`: false, `true`: false, `[]`: false, `{}`: false,
		`"` + strings.Repeat("x", 300) + `"`: false,
	} {
		if ValidID([]byte(id)) != want {
			t.Errorf("%.20s: want %t", id, want)
		}
	}
}

// TestOneLine shows that a client cannot make two messages of one by breaking a line.
func TestOneLine(t *testing.T) {
	params := []byte("{\"a\":1,\r\n\"b\":\"\\n\"\n}\n")
	line := AppendRequest(nil, 3, "tools/call", params)
	if n := bytes.Count(line, []byte("\n")); n != 1 || bytes.ContainsRune(line, '\r') {
		t.Errorf("%d line ends in %q", n, line)
	}
	want := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"a":1,  "b":"\n" } }` + "\n"
	if string(line) != want {
		t.Errorf("got %q, want %q", line, want)
	}
	if string(params) != "{\"a\":1,\r\n\"b\":\"\\n\"\n}\n" {
		t.Error("the client's bytes were changed")
	}
}

func TestEdits(t *testing.T) {
	b := []byte(`{ "name" : "x", "_meta":{"a":1.0}, "z":[1, 2] }`)
	ms, err := Object(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := Splice(nil, b, ms.Replace(0, []byte(`"y"`)), ms.Remove(1))
	if want := `{ "name" : "y", "z":[1, 2] }`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	meta, _ := Object(ms.Get("_meta"), nil)
	if got := meta.Merge(nil, func([]byte) bool { return true }, []byte(`"b":2`)); string(got) != `{"a":1.0,"b":2}` {
		t.Errorf("merged %s", got)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, one := range []struct{ name, text string }{
		{"64 KiB", strings.Repeat("lorem ipsum dolor ", 3640)},
		{"64 KiB in lines", strings.Repeat(`lorem ipsum \"dolor\"\n`, 2900)}, {"a word", "hello"},
	} {
		line := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + one.text + `"}]}}`)
		b.Run(one.name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if _, err := Parse(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzString reads strings as encoding/json does, and nothing else.
func FuzzString(f *testing.F) {
	for _, s := range []string{
		`"a"`, `""`, `"\u00e9\ud83d\ude00\ud83d\n\/"`, `"\x"`, `"\u12"`, `"a" `, `"a\"`, `"a"b"`, "\"\\n\n\"",
		"\"\\n\xff\xfe\"", `1`, ``, `"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var want string
		wrong := json.Unmarshal([]byte(raw), &want) != nil || strings.TrimSpace(raw) != raw || raw[0] != '"'
		if !strings.Contains(raw, `\`) { // of what was parsed
			return
		}
		got, err := String([]byte(raw))
		if (err != nil) != wrong || !wrong && got != want {
			t.Errorf("%q: got %q, %v, want %q", raw, got, err, want)
		}
	})
}
