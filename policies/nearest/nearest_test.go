package nearest

import "testing"

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
