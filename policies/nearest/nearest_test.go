package nearest

import (
	"strings"
	"testing"
)

// TestNearest: a key has to be closer than a name, and nothing is made of a short one.
func TestNearest(t *testing.T) {
	words := []string{"ask", "env", "tool", "allowed_domains", "memory_limit"}
	for misspelt, want := range map[string][2]string{ // as a key, as a name
		"allowed_domain": {"allowed_domains", "allowed_domains"}, "memroy_limit": {"memory_limit", "memory_limit"}, "aks": {"ask", "ask"},
		"envs": {"env", "env"}, "tl": {"", "tool"}, "zzzzzz": {"", ""}, "": {"", ""}, "alowd_domans": {"", "allowed_domains"},
	} {
		if got := [2]string{Keyword(misspelt, words), Name(misspelt, words)}; got != want {
			t.Errorf("%q: %q, want %q", misspelt, got, want)
		}
	}
}

// TestLength: a long word is compared with nothing, and nothing with a long word.
func TestLength(t *testing.T) {
	long := strings.Repeat("x", maxLength)
	for word, want := range map[string]string{long[1:]: long, long: long, long + "x": ""} {
		if key, name := Keyword(word, []string{long}), Name(word, []string{long}); key != want || name != want {
			t.Errorf("%d bytes: %q and %q", len(word), key, name)
		}
		key, name := Keyword(long, []string{word}), Name(long, []string{word})
		if (key == "") != (want == "") || key != name {
			t.Errorf("a word of %d bytes is near: %q and %q", len(word), key, name)
		}
	}
}
