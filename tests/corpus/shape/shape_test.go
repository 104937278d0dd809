package shape

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestEveryShape wants all that is written to be JSON, the same for the same seed, and every shape to occur.
func TestEveryShape(t *testing.T) {
	wanted := map[string]string{
		"number beyond float64": "1e400", "negative zero": ":-0", "trailing zero": "1.0", "20 digits": "12345678901234567890", "escaped letter": `\u0041`,
		"half a surrogate pair": `\ud800`, "escaped slash": `\/`, "white space": "\t:", "empty string": `""`, "control": `\u0000`,
		"text": `"text"`, "image": `"image"`, "audio": `"audio"`, "resource": `"resource"`, "link": `"resource_link"`, "blob": `"blob"`,
		"structured": `"structuredContent"`, "meta": `"com.example/trace"`, "failed tool": `"isError":true`, "data of an error": `"data":`, "completion": `"completion"`,
		"prompt": `"messages"`, "contents": `"contents"`, "hints": `"ttlMs"`, "generation": `"resultType"`, "mebibyte": "",
	}
	deepest := 0
	v, again, other := NewServer(7, "s", 30), NewServer(7, "s", 30), NewServer(8, "s", 30)
	for i := range 4000 {
		s := New(7, "request", fmt.Sprint(i))
		r := v.Request(s, "")
		sent := r.Write(s, s.Meta())
		got := Received{Method: r.Method, Name: r.Subject, Params: r.Params}
		a := v.Answer(got, i%2 == 0)
		for _, text := range []string{sent, a.Value} {
			if !json.Valid([]byte(text)) {
				t.Fatalf("not JSON: %.1000s", text)
			}
		}
		if strings.ContainsAny(sent+a.Value, "\r\n") {
			t.Fatal("a line end, which ends the message")
		}
		if i < 50 && (again.Answer(got, i%2 == 0) != a || other.Answer(got, i%2 == 0) == a) {
			t.Fatalf("answer %d is not the seed's: %.300s", i, a.Value)
		}
		deepest = max(deepest, depth(a.Value))
		for name, part := range wanted {
			if part != "" && strings.Contains(a.Value, part) || part == "" && len(a.Value) > mebibyte {
				delete(wanted, name)
			}
		}
	}
	for name := range wanted {
		t.Errorf("no answer has this shape: %s", name)
	}
	if deepest < 300 || deepest > 480 {
		t.Errorf("the deepest answer has %d levels", deepest)
	}
}

// depth counts the levels of JSON.
func depth(text string) int {
	now, most, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '['):
			now++
			most = max(most, now)
		case !quoted && (c == '}' || c == ']'):
			now--
		}
	}
	return most
}

func TestDefinitionsAreJSON(t *testing.T) {
	for seed := range uint64(20) {
		v := NewServer(seed, "s", 40)
		texts := []string{v.Info, v.Instructions}
		for _, d := range v.Tools {
			texts = append(texts, d.Raw)
		}
		for _, d := range v.Prompts {
			texts = append(texts, d.Raw)
		}
		for _, d := range append(v.Resources, v.Templates...) {
			texts = append(texts, d.Raw)
		}
		for _, text := range texts {
			if !json.Valid([]byte(text)) {
				t.Errorf("seed %d: not JSON: %.1000s", seed, text)
			}
		}
	}
}

func TestCursor(t *testing.T) {
	var text string
	if err := json.Unmarshal([]byte(Cursor(42)), &text); err != nil {
		t.Fatal(err)
	}
	if n, ok := ReadCursor(text); n != 42 || !ok {
		t.Errorf("%q is %d, %t", text, n, ok)
	}
	for _, text := range []string{"", "page/", "page/x=é", "pages/1=é"} {
		if n, ok := ReadCursor(text); ok {
			t.Errorf("%q is %d", text, n)
		}
	}
}
