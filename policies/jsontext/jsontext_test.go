package jsontext

import (
	"encoding/json"
	"strings"
	"testing"
)

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
		got, end := Text([]byte(raw+`,"x"`), 1)
		if end != len(raw)-1 {
			t.Fatalf("%s ends at %d", raw, end)
		}
		if got = strings.ToValidUTF8(got, "\ufffd"); got != want && strings.ToValidUTF8(raw, "") == raw {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	})
}

// TestReader: what is read stands until the next string is, long strings that stand again are told, and nothing of another is left.
func TestReader(t *testing.T) {
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
		for i, at := 0, 2; i < len(want); i++ {
			end, again := r.Again(b, at)
			if again != one.again[i] || again && end != at+len(one.strings[i]) {
				t.Errorf("%.30q, string %d: again at %d, %v", one.strings, i, end, again)
			}
			text, end := r.Text(b, at)
			if text != want[i] || end != at+len(one.strings[i]) {
				t.Errorf("%.30q, string %d: %q to %d", one.strings, i, text, end)
			}
			at = end + 3
		}
		r.Close()
	}
}

// TestNoEnd: what was to be JSON, and has no end, is not read for ever.
func TestNoEnd(t *testing.T) {
	for length := range 200 {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d bytes end", length)
				}
			}()
			Text([]byte(`"`+strings.Repeat("a", length)), 1)
		}()
	}
}
