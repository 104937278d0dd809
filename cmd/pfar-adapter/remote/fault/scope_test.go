package fault

import (
	"strings"
	"testing"
)

// TestStepUp: only what a shell takes for one word stands in the command that a person is told to type.
func TestStepUp(t *testing.T) {
	const want = ", for want of a scope: its owner asks for it with pfar login x --scope a:b --scope https://c.example/d"
	if got := (Challenge{Scope: "a:b https://c.example/d", Reason: "insufficient_scope"}).asks("x"); got != want {
		t.Errorf("%q", got)
	}
	for _, c := range []Challenge{
		{}, {Scope: "a"}, {Scope: "a", Reason: "invalid_token"}, {Reason: "insufficient_scope"},
		{Scope: "a $(id)", Reason: "insufficient_scope"}, {Scope: "a;id", Reason: "insufficient_scope"},
		{Scope: "--yes", Reason: "insufficient_scope"}, {Scope: "`id`", Reason: "insufficient_scope"},
		{Scope: "a\x1b[2J", Reason: "insufficient_scope"}, {Scope: "a&b", Reason: "insufficient_scope"},
		{Scope: strings.Repeat("a ", maxAsked+1), Reason: "insufficient_scope"},
		{Scope: strings.Repeat("a", 500), Reason: "insufficient_scope"},
	} {
		if got := c.asks("x"); got != "" {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
