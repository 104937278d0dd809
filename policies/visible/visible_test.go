package visible

import "testing"

// TestEscape: what a terminal obeys is written as its code, and no byte is taken for a character of that number.
func TestEscape(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "plain é 漢 \u200d": "plain é 漢 \u200d", "\x1b[31m": `\x1b[31m`, "a\r\n\tb": `a\r\n\tb`, "\u202e": `\u202e`, "\u009b": `\u009b`, "\x9b": `\x9b`,
		"\ufffd": "\ufffd", "\xff\xfe": `\xff\xfe`, "\U000e0041": `\U000e0041`, "\x00\x7f": `\x00\x7f`, `\`: `\`,
	} {
		if got := Escape(s, Deceptive); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	asked := ""
	Escape("ab\xffc", func(r rune) bool { asked += string(r); return false })
	if asked != "abc" {
		t.Errorf("asked about %q", asked)
	}
	if got := Escape(`a\x1b`, func(r rune) bool { return r == '\\' }); got != `a\\x1b` {
		t.Errorf("a backslash that is hidden: %q", got)
	}
}
