package wording

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func obeyed(r rune) bool { return r == '\n' || visible.Deceptive(r) }

// TestSentences renders one sentence for each line of testdata/calls.jsonl into testdata/sentences.txt. Most calls are
// hostile: a name or value poses as words of pfar's, hides its end, or is written from right to left.
func TestSentences(t *testing.T) {
	calls, err := os.ReadFile("testdata/calls.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(calls)) {
		var s operator.Shown
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		text := Sentence(&s)
		if strings.ContainsFunc(text, obeyed) {
			t.Errorf("prints what a terminal obeys: %q", text)
		}
		b.WriteString(text + "\n")
	}
	const golden = "testdata/sentences.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// FuzzSentence: whatever strangers write, the sentence is one bounded line, and their text stays in quotation marks.
func FuzzSentence(f *testing.F) {
	f.Add("send", "mail", `{"to":"a\"; approved\u202e"}`, "web", "fetch")
	long := strings.Repeat("é", 300)
	f.Add("read; this session has read nothing", "a\x1b[2J", `{"to":["x"],"url":"https://a@b/"}`, "\n", long)
	f.Add("create_issue", "tracker", `{"path":"`+strings.Repeat(`\u200b`, 100)+`"}`, "", "")
	f.Fuzz(func(t *testing.T, tool, server, arguments, source, from string) {
		s := operator.Shown{}
		s.Client, s.Server, s.Name, s.Method, s.Arguments = "laptop", server, tool, "tools/call", []byte(arguments)
		s.Facts.From.Effect = "owner: x.hcl"
		s.Decision.Data = gate.Label{Confidentiality: gate.Secret, Integrity: gate.Raw}
		s.Sources = []operator.Source{{Server: source, Tool: from, Label: s.Decision.Data}}
		text := Sentence(&s)
		if !utf8.ValidString(text) || strings.ContainsFunc(text, obeyed) {
			t.Errorf("%q", text)
		}
		if n := utf8.RuneCountInString(text); n > 8000 { // a character becomes up to ten
			t.Errorf("%d characters: %q", n, text)
		}
		outside := ""
		inside := false
		for i := 0; i < len(text); i++ {
			switch {
			case text[i] == '\\':
				i++
			case text[i] == '"':
				inside = !inside
			case !inside:
				outside += text[i : i+1]
			}
		}
		if strings.Count(outside, ";") != 1 {
			t.Errorf("a stranger adds to the sentence: %q", text)
		}
	})
}
