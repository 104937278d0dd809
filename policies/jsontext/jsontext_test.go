package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestTokens lists tokens, with their places.
func TestTokens(t *testing.T) {
	for text, want := range map[string]string{
		``:                                   `0 JSON ends too early`,
		` `:                                  `1 JSON ends too early`,
		`null`:                               `n0-4 .4-4`,
		` -1.5e+7 `:                          `01-8 .9-9`,
		`{}`:                                 `{0-1 }1-2 .2-2`,
		"{ \"a\\\"\" :\t[ true,false ]\r\n}": `{0-1 "2-7: [10-11 t12-16 f17-22 ]23-24 }26-27 .27-27`,
		`[{"a":{"b":"c"},"d":1}]`:            `[0-1 {1-2 "2-5: {6-7 "7-10: "11-14 }14-15 "16-19: 020-21 }21-22 ]22-23 .23-23`,
		`[1 2]`:                              `[0-1 01-2 3 want "," or the closing bracket at byte 3, found '2'`,
		`[1,]`:                               `[0-1 01-2 3 want a value at byte 3, found ']'`,
		`[,1]`:                               `[0-1 1 want a value at byte 1, found ','`,
		`{,}`:                                `{0-1 1 want a member name at byte 1, found ','`,
		`{"a":1,}`:                           `{0-1 "1-4: 05-6 7 want a member name at byte 7, found '}'`,
		`{"a"}`:                              `{0-1 4 want ":" at byte 4, found '}'`,
		`{"a":}`:                             `{0-1 "1-4: 5 want a value at byte 5, found '}'`,
		`[}`:                                 `[0-1 1 want a value at byte 1, found '}'`,
		`{]`:                                 `{0-1 1 want a member name at byte 1, found ']'`,
		`[1}`:                                `[0-1 01-2 2 want "," or the closing bracket at byte 2, found '}'`,
		`1 2`:                                `00-1 2 want the end at byte 2, found '2'`,
		`{}}`:                                `{0-1 }1-2 2 want the end at byte 2, found '}'`,
		`nul`:                                `0 want null at byte 0, found 'n'`,
		`[1.]`:                               `[0-1 3 want a digit at byte 3, found ']'`,
		`[1e]`:                               `[0-1 3 want a digit at byte 3, found ']'`,
		`-`:                                  `1 JSON ends too early`,
		`01`:                                 `00-1 1 want the end at byte 1, found '1'`,
		`"\ud8`:                              `5 JSON ends too early`,
		`"\x"`:                               `2 want an escape at byte 2, found 'x'`,
		`"\u12g4"`:                           `5 want a hexadecimal digit at byte 5, found 'g'`,
		"\"\n\"":                             `1 control character '\n' in a string at byte 1`,
	} {
		var r Reader
		r.Reset([]byte(text))
		var got []string
		for {
			token, err := r.Next()
			var wrong *SyntaxError
			if errors.As(err, &wrong) {
				got = append(got, fmt.Sprint(wrong.At), wrong.Error())
				break
			}
			kind, name := string(token.Kind), ""
			if token.Name {
				name = ":"
			}
			if token.Kind == End {
				kind = "."
			}
			if got = append(got, fmt.Sprintf("%s%d-%d%s", kind, token.Start, token.End, name)); token.Kind == End {
				break
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q:\n%s, want\n%s", text, strings.Join(got, " "), want)
		}
	}
}

// TestSkip: the rest of a value is passed over, and how deep it nests is told.
func TestSkip(t *testing.T) {
	for text, want := range map[string]int{`1`: 0, `"[["`: 0, `[]`: 1, `{"a":[1,{"b":[]}],"c":[]}`: 4, strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000): 200_000} {
		whole := []byte(`[` + text + `,2]`)
		var r Reader
		r.Reset(whole)
		r.Known()
		end, depth, err := r.Skip(r.Known())
		if err != nil || end != 1+len(text) || depth != want {
			t.Errorf("%.20s: to %d, %d levels, %v", text, end, depth, err)
		}
		if next := r.Known(); string(whole[next.Start:next.End]) != "2" {
			t.Errorf("%.20s: %v is next", text, next)
		}
	}
	var r Reader
	r.Reset([]byte(`[[1,]]`))
	r.Known()
	if _, _, err := r.Skip(r.Known()); err == nil {
		t.Error("nonsense is passed over")
	}
	r.Reset([]byte(strings.Repeat("[", maxNesting+1)))
	if _, _, err := r.Skip(r.Known()); err == nil || !strings.Contains(err.Error(), "deeper") {
		t.Errorf("brackets without end: %v", err)
	}
}

// FuzzReader holds the reader to encoding/json: what one takes the other takes, and strings and names are the same.
func FuzzReader(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"c"}],"d":-1.5e-7}`, ` [ true , null ] `, `"é😀\ud83d"`, `{"a":1,"a":2}`, `{"a":}`, "\"\xff\"", "\ufeff1", `[1,2`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		valid := json.Valid(b)
		if Valid(b) != valid {
			t.Fatalf("%q: valid is %v", b, !valid)
		}
		if !valid {
			return
		}
		var want, got []string
		for d := json.NewDecoder(bytes.NewReader(b)); ; {
			token, err := d.Token()
			if err != nil {
				break
			}
			if s, ok := token.(string); ok {
				want = append(want, s)
			}
		}
		var r Reader
		r.Reset(b)
		for token := r.Known(); token.Kind != End; token = r.Known() {
			if token.Kind == '"' {
				got = append(got, string([]rune(r.Text(token))))
			}
		}
		if r.Close(); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", b, got, want)
		}
	})
}

func FuzzText(f *testing.F) {
	for _, s := range []string{`"plain"`, `"\"\\\/\b\f\n\r\t\u0041\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx\udc00"`, `"\ud83d\u0041"`, `"\ud83d\ud83d\ude00"`, `"\ud83d\n"`, `"é"`, `""`,
		`"` + strings.Repeat(`many words and\n`, 200) + `\\"`, `"` + strings.Repeat("x", 3000) + `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var want string
		if json.Unmarshal([]byte(raw), &want) != nil || !strings.HasPrefix(raw, `"`) || !strings.HasSuffix(raw, `"`) {
			return
		}
		got := Text([]byte(raw))
		if got = strings.ToValidUTF8(got, "\ufffd"); got != want && strings.ToValidUTF8(raw, "") == raw {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	})
}

// TestAgain: what is read stands until the next string is, long strings that stand again are told, and nothing of
// another is left.
func TestAgain(t *testing.T) {
	long := strings.Repeat("some words, ", 100)
	for _, one := range []struct {
		strings []string
		again   []bool
	}{
		{[]string{`a`, `a`, ``, `a\n`}, []bool{false, false, false, false}},
		{[]string{long, long, `x`, long}, []bool{false, true, false, true}},
		{[]string{long + `\n`, long + `\n`, long, long + `\n`}, []bool{false, true, false, false}},
		{[]string{long, long + `x`, long + `\"`, long}, []bool{false, false, false, false}},
		{[]string{long + `\\`, long + `\\\"`, long + `\\`}, []bool{false, false, false}},
	} {
		b := []byte(`["` + strings.Join(one.strings, `","`) + `"]`)
		var want []string
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		var r Reader
		r.Reset(b)
		r.Known()
		for i, at := 0, 2; i < len(want); i++ {
			token := r.Known()
			if r.Again() != one.again[i] || token.Start != at-1 || token.End != at+len(one.strings[i])+1 {
				t.Errorf("%.30q, string %d: %v, again %v", one.strings, i, token, r.Again())
			}
			if text := r.Text(token); text != want[i] {
				t.Errorf("%.30q, string %d: %q", one.strings, i, text)
			}
			at = token.End + 2
		}
		r.Close()
	}
}

// TestKnownIsNot: what was to be JSON, and is not, is not passed on as read.
func TestKnownIsNot(t *testing.T) {
	for _, text := range []string{`"` + strings.Repeat("a", 200), `}`, ` `, `{"a`, `tru`} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%.20q is read", text)
				}
			}()
			var r Reader
			r.Reset([]byte(text))
			r.Known()
			r.Known()
		}()
	}
	var r Reader
	if r.Reset(nil); r.Known().Kind != End {
		t.Error("nothing has tokens")
	}
}
