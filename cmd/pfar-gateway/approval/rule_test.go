package approval

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/gate"
)

// note is a call whose path may be loosened: no stranger has a part in it, and who sees it may.
func note(path string) Request {
	return with(func(r *Request) {
		r.Decision.Data.Integrity = gate.Clean
		r.Arguments = []byte(`{"file":{"path":"` + path + `","a/b~":"x"},"mode":"w","n":1.0}`)
	})
}

// matching is what lets arguments differ: paths, each with its pattern.
func matching(pairs ...string) (all []Match) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, Match{Path: pairs[i], Glob: pairs[i+1]})
	}
	return all
}

// TestRulesRefused: what must not be remembered is not, and the call waits on.
func TestRulesRefused(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]struct {
		change func(*Request)
		m      Remember
		reason string
	}{
		"trifecta":     {func(r *Request) { r.Decision.Once = true }, Remember{For: time.Hour}, "never remembered"},
		"findings":     {func(r *Request) { r.Findings = []string{"odd"} }, Remember{For: time.Hour}, "an inspector says something"},
		"no end":       {nil, Remember{}, "one minute"},
		"too long":     {nil, Remember{For: 365 * 24 * time.Hour}, "one minute"},
		"negative":     {nil, Remember{For: -time.Hour}, "one minute"},
		"anything":     {nil, Remember{time.Hour, matching("/mode", "*")}, "says nothing"},
		"twice":        {nil, Remember{time.Hour, matching("/mode", "a**")}, "means nothing more"},
		"no pointer":   {nil, Remember{time.Hour, matching("mode", "w*")}, "not a JSON pointer"},
		"not there":    {nil, Remember{time.Hour, matching("/other", "w*")}, "there is no argument"},
		"a number":     {nil, Remember{time.Hour, matching("/n", "1*")}, "no text"},
		"an object":    {nil, Remember{time.Hour, matching("/file", "x*")}, "no text"},
		"through text": {nil, Remember{time.Hour, matching("/mode/x", "x*")}, "following the pointer"},
		"does not fit": {nil, Remember{time.Hour, matching("/mode", "x*")}, "does not fit"},
		"same twice":   {nil, Remember{time.Hour, matching("/file/path", "/notes/*.md", "/file/path", "/notes/a*")}, "matched twice"},
		"raw":          {func(r *Request) { r.Decision.Data.Integrity = gate.Raw }, Remember{time.Hour, matching("/mode", "w*")}, "only exactly the same"},
		"extracted":    {func(r *Request) { r.Decision.Data.Integrity = gate.Extracted }, Remember{time.Hour, matching("/mode", "w*")}, "only exactly the same"},
		"no clearance": {func(r *Request) { r.Facts.Audience = gate.Public }, Remember{time.Hour, matching("/mode", "w*")}, "only exactly the same"},
		"bad escape":   {nil, Remember{time.Hour, matching("/~2", "x*")}, "is written ~0"},
	} {
		r := note("/notes/a.md")
		if c.change != nil {
			c.change(&r)
		}
		shown := b.pending(t, r)
		err := b.Answer(shown.ID, Answer{Approve: true, Digest: shown.Digest, Remember: &c.m}, ann)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v", name, err)
		}
		if o := b.ask(t, r); o.State != Pending || o.ID != shown.ID {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if list := b.Rules(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// ruled is a bench that remembers a rule for notes.
func ruled(t *testing.T) *bench {
	b := newBench(t)
	b.approved(t, b.pending(t, note("/notes/a.md")), &Remember{time.Hour, matching("/file/path", "/notes/*.md")})
	if o := b.ask(t, note("/notes/a.md")); o.State != Approved {
		t.Fatalf("%+v", o)
	}
	return b
}

// TestRuleScope: a rule is of what it names, and of nothing that is like it.
func TestRuleScope(t *testing.T) {
	b := ruled(t)
	b.limits.Open, b.limits.OfOne = 1000, 1000
	for _, path := range []string{"/notes/a.md", "/notes/ä-1.b_2.md"} {
		for range 3 {
			if o := b.ask(t, note(path)); o.State != Approved || o.Rule == "" || o.By.Name != "root" {
				t.Errorf("%s: %+v", path, o)
			}
		}
	}
	for _, path := range []string{
		"/notes/.md", "/notes/..md", "/notes/.hidden.md", "/notes/a/b.md", "/notes/../x.md", "/notes/a.md\\n", "/notes/a b.md", "/notes/a.mdx", "/other/a.md", "x/notes/a.md",
		"/notes/a\\u0000.md", "/notes/a@b.md", "/notes/a,b.md", "/notes/..", "/notes/a\\\\b.md", "/notes/a\\u2215b.md", "/notes/a\\u202e.md", "", "/NOTES/a.md", "/notes/*.md", "/notes//a.md",
	} {
		if o := b.ask(t, note(path)); o.State != Pending {
			t.Errorf("%s: %+v", path, o)
		}
	}
	for name, change := range changes {
		r := note("/notes/b.md")
		change(&r)
		if name == "pin" || name == "policy" {
			continue // these end the rule, below
		}
		if o := b.ask(t, r); o.State != Pending {
			t.Errorf("%s: %+v", name, o)
		}
	}
	for name, text := range map[string]string{
		"another mode": `{"file":{"path":"/notes/b.md","a/b~":"x"},"mode":"a","n":1.0}`,
		"more":         `{"file":{"path":"/notes/b.md","a/b~":"x","more":1},"mode":"w","n":1.0}`,
		"less":         `{"file":{"path":"/notes/b.md"},"mode":"w","n":1.0}`,
		"number":       `{"file":{"path":"/notes/b.md","a/b~":"x"},"mode":"w","n":1}`,
		"null":         `{"file":{"path":null,"a/b~":"x"},"mode":"w","n":1.0}`,
		"list":         `{"file":{"path":["/notes/b.md"],"a/b~":"x"},"mode":"w","n":1.0}`,
		"gone":         `{"file":{"a/b~":"x"},"mode":"w","n":1.0}`,
	} {
		if o := b.ask(t, with(func(r *Request) { r.Arguments = []byte(text) })); o.State != Pending {
			t.Errorf("%s: %+v", name, o)
		}
	}
	r := note("/notes/b.md")
	r.Findings = []string{"odd"}
	if o := b.ask(t, r); o.State != Pending {
		t.Errorf("with a finding: %+v", o)
	}
	if o := b.ask(t, note("/notes/"+strings.Repeat("a", maxWild+1)+".md")); o.State != Pending {
		t.Errorf("room for a text: %+v", o)
	}
	r = note("/notes/c.md")
	r.Decision.Data = gate.Start
	if o := b.ask(t, r); o.State != Approved {
		t.Errorf("a session that has seen less: %+v", o)
	}
}

// TestRulesAreVoid when the tool or the policy changes, for good; and they end.
func TestRulesAreVoid(t *testing.T) {
	for name, change := range map[string]func(*Request){"pin": changes["pin"], "policy": changes["policy"]} {
		b := ruled(t)
		r := note("/notes/b.md")
		change(&r)
		if o := b.ask(t, r); o.State != Pending {
			t.Errorf("%s: %+v", name, o)
		}
		if o := b.ask(t, note("/notes/b.md")); o.State != Pending {
			t.Errorf("%s, and back: %+v", name, o)
		}
		b.restart(t)
		if list := b.Rules(); len(list) != 0 {
			t.Errorf("%s, after a restart: %+v", name, list)
		}
	}
	b := ruled(t)
	if err := b.Policy("policy1"); err != nil || len(b.Rules()) != 1 {
		t.Errorf("the same policy: %v, %v", err, b.Rules())
	}
	if err := b.Policy("policy2"); err != nil || len(b.Rules()) != 0 {
		t.Errorf("another policy: %v, %v", err, b.Rules())
	}
}

// TestRulesEnd: by either clock, whatever is done to the other.
func TestRulesEnd(t *testing.T) {
	for _, c := range []struct {
		elapsed, wall time.Duration
		holds         bool
	}{
		{0, 0, true}, {59 * time.Minute, 59 * time.Minute, true}, {time.Hour, 0, false}, {0, time.Hour, false}, {time.Hour, -24 * time.Hour, false}, {0, -24 * time.Hour, false},
	} {
		b := ruled(t)
		b.elapsed.Store(int64(c.elapsed))
		b.wall.Store(int64(c.wall))
		if o := b.ask(t, note("/notes/b.md")); (o.State == Approved) != c.holds {
			t.Errorf("after %s, the clock set by %s: %+v", c.elapsed, c.wall, o)
		}
	}
	b := ruled(t)
	b.restart(t)
	if o := b.ask(t, note("/notes/b.md")); o.State != Approved {
		t.Errorf("after a restart: %+v", o)
	}
	id := b.Rules()[0].ID
	if err := b.ForgetRule(id); err != nil {
		t.Fatal(err)
	}
	if err := b.ForgetRule(id); !errors.Is(err, ErrNoRule) {
		t.Error(err)
	}
	b.restart(t)
	if o := b.ask(t, note("/notes/b.md")); o.State != Pending {
		t.Errorf("forgotten, after a restart: %+v", o)
	}
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		glob, text string
		fits       bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a", "", false}, {"", "", true}, {"a*", "a", false}, {"a*", "ab", true}, {"*a", "ba", true}, {"*a", "a", false},
		{"a*b*c", "a1b2c", true}, {"a*b*c", "abbc", false}, {"a*b*c", "abbbc", true}, {"a*b*c", "a1b2", false}, {"*@example.com", "anna@example.com", true},
		{"*@example.com", "x@evil.com,anna@example.com", false}, {"*@example.com", "anna@example.com.evil.com", false}, {"https://*.example.com/x", "https://a.example.com/x", true},
		{"https://*.example.com/x", "https://evil.com/.example.com/x", false}, {"https://*.example.com/x", "https://evil.com?.example.com/x", false},
		{"https://*.example.com/x", "https://a#.example.com/x", false}, {"/a/*", "/a/..", false}, {"/a/*", "/a/.", false}, {"/a/*/c", "/a/../c", false}, {"/a/b*", "/a/b/../c", false},
		{"/a/../*", "/a/../x", false}, {"ä*", "äö", true}, {"*x", "éx", true}, {"*x", "e\u0301x", false}, {"a*", "a\n", false}, {"a*", "a\x00", false}, {"a*", "a\u200b", false},
		{"a*", "a" + strings.Repeat("b", maxWild), true}, {"a*", "a" + strings.Repeat("b", maxWild+1), false}, {"ä*", "ä" + strings.Repeat("ü", maxWild), true},
		{"*/*", strings.Repeat("b", maxWild/2) + "/" + strings.Repeat("b", maxWild/2), true}, {"*/*", strings.Repeat("b", maxWild) + "/b", false},
		{strings.Repeat("*a", 32), strings.Repeat("a", 63), false}, {strings.Repeat("*a", 32), strings.Repeat("a", 96), true}, {strings.Repeat("*a", 500), strings.Repeat("a", 900), false},
	} {
		if got := fits(c.glob, c.text); got != c.fits {
			t.Errorf("%q, %q: %v", c.glob, c.text, got)
		}
	}
}

// TestLooseRuleOfOld: a rule from the disk covers no call that it could not have been made of.
func TestLooseRuleOfOld(t *testing.T) {
	b := ruled(t)
	b.rulesMu.Lock()
	for _, r := range b.rules {
		r.Label.Integrity = gate.Raw // as one of an older pfar
	}
	b.rulesMu.Unlock()
	r := note("/notes/b.md")
	r.Decision.Data.Integrity = gate.Raw
	if o := b.ask(t, r); o.State != Pending {
		t.Errorf("%+v", o)
	}
}
