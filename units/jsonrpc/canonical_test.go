package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestCanonicalRefuses: what two programs may read differently has no canonical form.
func TestCanonicalRefuses(t *testing.T) {
	for text, reason := range map[string]string{
		`{"a":1,"a":2}`:                    `member "a" comes twice`,
		`{"a":1,"\u0061":2}`:               `member "a" comes twice`,
		`[{"x":{"b":1,"c":2,"b":1}}]`:      `member "b" comes twice`,
		"{\"a\":\"\xff\"}":                 "not UTF-8",
		"{\"a\xc3\":1}":                    "not UTF-8",
		`"\ud800"`:                         "half a character",
		`"\udc00\ud800"`:                   "half a character",
		`{"\ud83d":1}`:                     "half a character",
		`"\ud800\u0041"`:                   "half a character",
		``:                                 "ends too early",
		`{`:                                "ends too early",
		`{"a"`:                             "ends too early",
		`{"a":1,}`:                         "a member name",
		`[1,]`:                             "a value",
		`[1 2]`:                            "found",
		`{"a" 1}`:                          "found",
		`{a:1}`:                            "a member name",
		`{"a":1} {"a":2}`:                  "the end",
		`01`:                               "the end",
		`1.`:                               "ends too early",
		`NaN`:                              "a value",
		"\"a\nb\"":                         "control character",
		"\"\x00\"":                         "control character",
		"\uFEFF{}":                         "found",
		strings.Repeat("[", 600):           "nests deeper",
		strings.Repeat(`{"a":`, 600) + "1": "nests deeper",
		`{"a":1/*x*/}`:                     "found",
		`'a'`:                              "a value",
		`"\x41"`:                           "an escape",
		strings.Repeat(`{"a":`, 300) + `"` + strings.Repeat("a", 1<<20) + `"` +
			strings.Repeat("}", 300): "too much in too many levels",
	} {
		if got, err := Canonical(nil, []byte(text)); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%.60q: %q, %v, want %q", text, got, err, reason)
		}
	}
}

// TestCanonicalForms: equal forms are the same call, and different ones another.
func TestCanonicalForms(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":2}`, "{ \"b\" : 2,\n\t\"a\":1 }", true},
		{`"a"`, `"\u0061"`, true},
		{`"/"`, `"\/"`, true},
		{`"😀"`, `"\ud83d\ude00"`, true},
		{`{"\u0061":1}`, `{"a":1}`, true},
		{`"\u2028"`, "\"\u2028\"", true},
		{`"<&>"`, `"\u003c\u0026\u003e"`, true},
		{`1`, `1.0`, false},
		{`1`, `1e0`, false},
		{`0`, `-0`, false},
		{`100`, `1e2`, false},
		{`12345678901234567890`, `12345678901234567891`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`"1"`, `1`, false},
		{`null`, `{}`, false},
		{`[]`, `{}`, false},
		{`{"a":null}`, `{}`, false},
		{`[1,2]`, `[2,1]`, false},
		{`"é"`, `"e\u0301"`, false}, // one form of Unicode and the other are two texts
		{`"a"`, `"A"`, false},
		{`"a"`, `"\u0430"`, false},
		{`{"a":"b","c":"d"}`, `{"a":"b\",\"c\":\"d"}`, false},
		{`"\u0000"`, `""`, false},
		{`"\\u0061"`, `"a"`, false},
		{`[[]]`, `[]`, false},
		{`["a,b"]`, `["a","b"]`, false},
	} {
		a, errA := Canonical(nil, []byte(c.a))
		b, errB := Canonical(nil, []byte(c.b))
		if errA != nil || errB != nil || bytes.Equal(a, b) != c.same {
			t.Errorf("%s and %s: %s and %s (%v, %v), want the same: %v", c.a, c.b, a, b, errA, errB, c.same)
		}
	}
	got, err := Canonical([]byte("x"), []byte(` {"z":[1.50,{"b":"\u0062","a":true}],"":null} `))
	if err != nil || string(got) != `x{"":null,"z":[1.50,{"a":true,"b":"b"}]}` {
		t.Errorf("%s, %v", got, err)
	}
}

// TestCompact: the order stays, and nothing else that has no meaning.
func TestCompact(t *testing.T) {
	for in, want := range map[string]string{
		" {\"z\" :\t[1.50 ,{\"b\":\"\\u0062\\/\"}],\r\n\"a\":null} ": `{"z":[1.50,{"b":"b/"}],"a":null}`,
		`{"b":{"d":1,"c":2},"a":[]}`:                                 `{"b":{"d":1,"c":2},"a":[]}`,
		`{"b":1,"a":2,"\u0062":3}`:                                   "",
		`{"b":1,"a":"\ud800"}`:                                       "",
	} {
		if got, err := Compact(nil, []byte(in)); string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
}

// written is a random value in two spellings of the same meaning.
func written(r *rand.Rand, depth int) (a, b string) {
	kind := r.IntN(6)
	if depth > 4 {
		kind = r.IntN(4)
	}
	switch kind {
	case 0:
		n := fmt.Sprint(r.Uint64())
		return n, n
	case 1:
		word := []string{"true", "false", "null", "-0", "1.0", "1e400"}[r.IntN(6)]
		return word, word
	case 2, 3:
		return text(r), text(r)
	}
	var as, bs []string
	for i := range r.IntN(5) {
		x, y := written(r, depth+1)
		if kind == 4 {
			x, y = fmt.Sprintf(`"%d":%s`, i, x), fmt.Sprintf("\n\"\\u00%02x\" : %s", '0'+i, y)
		}
		as, bs = append(as, x), append(bs, y)
	}
	if kind == 5 {
		return "[" + strings.Join(as, ",") + "]", "[ " + strings.Join(bs, " , ") + "]"
	}
	r.Shuffle(len(bs), func(i, j int) { bs[i], bs[j] = bs[j], bs[i] })
	return "{" + strings.Join(as, ",") + "}", "{" + strings.Join(bs, ",") + " }"
}

func text(*rand.Rand) string { return `"a\n😀"` }

// TestCanonicalProperty: two spellings of one value have one form, which is its own, and what encoding/json reads in it
// is what it reads in either.
func TestCanonicalProperty(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		a, b := written(r, 0)
		one, errA := Canonical(nil, []byte(a))
		two, errB := Canonical(nil, []byte(b))
		if errA != nil || errB != nil || !bytes.Equal(one, two) {
			t.Fatalf("%s and %s: %s and %s (%v, %v)", a, b, one, two, errA, errB)
		}
		if again, err := Canonical(nil, one); err != nil || !bytes.Equal(again, one) {
			t.Fatalf("%s becomes %s (%v)", one, again, err)
		}
		if read(t, []byte(a)) != read(t, one) {
			t.Fatalf("%s and %s are read differently", a, one)
		}
	}
}

func read(t *testing.T, b []byte) string {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return fmt.Sprintf("%#v", v)
}

// FuzzCanonical: what has a form is JSON, and the form is stable and means the same.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"a":[1,"\u0061",{"b":null}]}`, `"\ud83d\ude00"`, ` [ 1e5 , -0.0 ] `, `{"a":1,"a":2}`,
		"\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		form, err := Canonical(nil, b)
		if err != nil {
			return
		}
		if !json.Valid(b) || !json.Valid(form) {
			t.Fatalf("%q has the form %q", b, form)
		}
		if read(t, b) != read(t, form) {
			t.Fatalf("%q and its form %q are read differently", b, form)
		}
		if again, err := Canonical(nil, form); err != nil || !bytes.Equal(again, form) {
			t.Fatalf("%q becomes %q (%v)", form, again, err)
		}
	})
}
