package units

import (
	"slices"
	"strings"
	"testing"
)

// A server waits for what its launcher says last, and only in that state.
func TestWait(t *testing.T) {
	wait := Wait{For: WaitProgram, Remedy: ToDo(AcceptPins, "x")}
	for name, c := range map[string]struct {
		vars map[string]string
		want Wait
	}{
		"waits":           {map[string]string{NotifyState: StateWaiting, NotifyWait: wait.Notification()}, wait},
		"of no kind":      {map[string]string{NotifyState: StateWaiting}, Wait{}},
		"no JSON":         {map[string]string{NotifyState: StateWaiting, NotifyWait: `{"remedy":"x`}, Wait{}},
		"another state":   {map[string]string{NotifyState: StateStopping, NotifyWait: wait.Notification()}, Wait{}},
		"nothing of that": {map[string]string{"STATUS": "words"}, Wait{For: WaitCredentials}},
	} {
		u := Update{Wait: Wait{For: WaitCredentials}}
		if u.Take(c.vars); u.Wait != c.want {
			t.Errorf("%s: %+v, want %+v", name, u.Wait, c.want)
		}
	}
}

// TestScopeOptions: what a server names stands in a command only if every shell takes it for words, and a person can
// type it.
func TestScopeOptions(t *testing.T) {
	long := strings.Repeat("a", maxScope)
	for want, scopes := range map[string][]string{
		" --scope a:b --scope https://c.example/d": {"a:b", "https://c.example/d"},
		" --scope " + long:                         {long},
	} {
		if got := ScopeOptions(scopes); got != want {
			t.Errorf("%q: %q", scopes, got)
		}
	}
	for _, scopes := range [][]string{
		nil, {""}, {"a", ""}, {"a b"}, {"--yes"}, {"a;id"}, {"$(id)"}, {"a\n"}, {"a\x1b[2J"}, {"\u00e4"}, {"a\u202e"},
		{long + "a"}, {long, long, long}, slices.Repeat([]string{"a"}, 100), {".a"}, {"a&b"}, {"a*"}, {"~a"}, {"a\\b"},
	} {
		if got := ScopeOptions(scopes); got != "" {
			t.Errorf("%q: %q", scopes, got)
		}
	}
}
