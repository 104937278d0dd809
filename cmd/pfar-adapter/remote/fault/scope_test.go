package fault

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/oauth"
)

func demand(scopes, code string) oauth.Demand {
	return oauth.Demand{Scopes: strings.Fields(scopes), Code: code}
}

// TestStepUp: only what a shell takes for one word stands in the command that a person is told to type.
func TestStepUp(t *testing.T) {
	const want = ", for want of a scope: its owner asks for it with pfar login x --scope a:b --scope https://c.example/d"
	if got := asks(demand("a:b https://c.example/d", "insufficient_scope"), "x"); got != want {
		t.Errorf("%q", got)
	}
	for _, c := range []oauth.Demand{
		{}, demand("a", ""), demand("a", "invalid_token"), demand("", "insufficient_scope"),
		demand("a $(id)", "insufficient_scope"), demand("a;id", "insufficient_scope"),
		demand("--yes", "insufficient_scope"), demand("`id`", "insufficient_scope"),
		demand("a\x1b[2J", "insufficient_scope"), demand("a&b", "insufficient_scope"),
		demand(strings.Repeat("a ", 50), "insufficient_scope"),
		demand(strings.Repeat("a", 500), "insufficient_scope"),
	} {
		if got := asks(c, "x"); got != "" {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := asks(demand("a", "insufficient_scope"), ""); got != "" {
		t.Errorf("nobody can sign in: %q", got)
	}
}
