package setup

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pfar/pfar/units/control"
)

func TestCredential(t *testing.T) {
	notion := control.Wanted{Prefixes: []string{"secret_", "ntn_"}, Pattern: "ntn_[0-9]{11}[A-Za-z0-9]{35}"}
	keys := control.Wanted{Prefixes: []string{"sk-", "sk-ant-"}}
	pin := control.Wanted{Pattern: "[0-9]{6}"}
	for what, c := range map[string]struct {
		text  string
		w     control.Wanted
		value string
	}{
		"nothing":                     {"", notion, ""},
		"blanks":                      {" \n ", notion, ""},
		"a prefix alone":              {"ntn_", notion, ""},
		"a prefix in a sentence":      {"ntn_ is what it begins with", notion, ""},
		"a prefix on a second line":   {"ntn_1\nand more", notion, ""},
		"another service's prefix":    {"ghp_x", notion, ""},
		"the longer prefix alone":     {"sk-ant-", keys, ""},
		"a word":                      {"hello", notion, ""},
		"a sentence":                  {"what does the integration need to see?", notion, ""},
		"a long word":                 {"internationalization", notion, "internationalization"},
		"too short for a guess":       {"abcdefghijklmn", keys, ""},
		"long enough for a guess":     {"abcdefghijklmno", keys, "abcdefghijklmno"},
		"too long for a guess":        {strings.Repeat("a", 501), keys, ""},
		"as long as a guess may be":   {strings.Repeat("a", 500), keys, strings.Repeat("a", 500)},
		"nine of ten are plain":       {"abcdefghi!abcdefghi!", keys, ""},
		"more than nine of ten":       {"abcdefghi!abcdefghij", keys, "abcdefghi!abcdefghij"},
		"letters of other alphabets":  {"пароль-пароль-пароль", keys, ""},
		"two words of a guess":        {"abcdefghijklmno abcdefghijklmno", keys, ""},
		"a pattern, and more":         {"1234567", pin, ""},
		"a pattern on a line":         {"123456\n1", pin, ""},
		"a pattern":                   {" 123456\n", pin, "123456"},
		"a prefix":                    {"\tntn_short ", notion, "ntn_short"},
		"the longer prefix":           {"sk-ant-x", keys, "sk-ant-x"},
		"a long one with a prefix":    {"ntn_" + strings.Repeat("a", 600), notion, "ntn_" + strings.Repeat("a", 600)},
		"a pattern that is none":      {"12", control.Wanted{Pattern: "["}, ""},
		"an alternative of a pattern": {"ab", control.Wanted{Pattern: "a|b"}, ""},
		"an empty prefix":             {"short", control.Wanted{Prefixes: []string{""}}, ""},
	} {
		if value, is := Credential(c.text, c.w); value != c.value || is != (c.value != "") {
			t.Errorf("%s: %q, %v, want %q", what, value, is, c.value)
		}
	}
}

// TestFitting: where a form is known, nothing is guessed.
func TestFitting(t *testing.T) {
	for _, c := range []struct {
		text   string
		w      control.Wanted
		value  string
		formed bool
	}{
		{"hmmmmmmmmmmmmmmmm", control.Wanted{Prefixes: []string{"ntn_"}}, "", true},
		{"https://example.com/x", control.Wanted{Pattern: "[0-9]{6}"}, "", true},
		{"hmmmmmmmmmmmmmmmm", control.Wanted{Prefixes: []string{""}}, "", false},
		{"hmmmmmmmmmmmmmmmm", control.Wanted{}, "", false},
		{" ntn_1\n", control.Wanted{Prefixes: []string{"ntn_"}}, "ntn_1", true},
		{"123456", control.Wanted{Pattern: "[0-9]{6}"}, "123456", true},
	} {
		value, is := Fitting(c.text, c.w)
		if value != c.value || is != (c.value != "") || Formed(c.w) != c.formed {
			t.Errorf("%q, %+v: %q, %v, formed %v", c.text, c.w, value, is, Formed(c.w))
		}
		f := Flow{Secrets: []Secret{{Wanted: control.Wanted{Pattern: "x"}}, {Wanted: c.w}}}
		if f.View().Formed != c.formed {
			t.Errorf("%+v: a set-up with it is formed: %v", c.w, !c.formed)
		}
	}
}

func TestCancels(t *testing.T) {
	for text, want := range map[string]bool{
		"cancel": true, " Cancel\n": true, "NEVERMIND": true, "skip": true, "": false, "cancel it": false,
		"never mind": false, "skipped": false,
	} {
		if got := Cancels(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if !Skips(" SKIP ") || Skips("cancel") {
		t.Error("skip is not told from cancel")
	}
}

func TestCommand(t *testing.T) {
	known := func(service string) bool { return service == "n8n.io" || service == "notion" }
	for text, want := range map[string]string{
		"connect notion": "notion", "Add Notion": "notion", "SETUP notion": "notion", "set up notion": "notion",
		"Set  Up\tnotion ": "notion", "integrate my_thing-2": "my_thing-2", " enable notion\n": "notion",
		"connect n8n.io": "n8n.io", "add milk": "milk", "add " + strings.Repeat("a", 50): strings.Repeat("a", 50),
		"add milk to the list": "", "add": "", "add ": "", "": "", "connect": "", "notion": "", "please connect notion": "",
		"connect notion!": "", "disconnect notion": "", "connectnotion": "", "add ../etc": "", "setup a/b": "",
		"remove notion": "", "status notion": "", "list": "", "add " + strings.Repeat("a", 51): "", "set notion": "",
		"up notion": "", "connect notion\nconnect slack": "", "add жук": "", "connect notion,slack": "",
	} {
		if got, is := Command(text, known); got != want || is != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, is, want)
		}
	}
}

// FuzzCredential: a secret is a part of the text, and never empty. Without a prefix or pattern it is one word of a
// length that secrets have.
func FuzzCredential(f *testing.F) {
	for _, s := range []string{"ntn_1", "", "hello you", "abcdefghijklmnopq", "\xff\xfe", "skip"} {
		f.Add(s, "ntn_", "[0-9]+")
	}
	f.Fuzz(func(t *testing.T, text, prefix, pattern string) {
		value, is := Credential(text, control.Wanted{Prefixes: []string{prefix}, Pattern: pattern})
		if is != (value != "") || !strings.Contains(text, value) || value != strings.TrimSpace(value) {
			t.Errorf("%q: %q, %v", text, value, is)
		}
		guess, is := Credential(text, control.Wanted{})
		if n := utf8.RuneCountInString(guess); is &&
			(n < minGuess || n > maxGuess || strings.ContainsAny(guess, " \n\t\r")) {
			t.Errorf("%q is guessed to be one", guess)
		}
	})
}

// FuzzCommand: a name is one that a server or a service can have, and stands at the end of the text.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{"connect notion", "set up x", "add milk to the list", "ENABLE\n\tA-b_0", "add K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		service, is := Command(text, func(string) bool { return false })
		if is != (service != "") || is && (!name.MatchString(service) || len(strings.Fields(text)) > 3) {
			t.Errorf("%q: %q, %v", text, service, is)
		}
	})
}
