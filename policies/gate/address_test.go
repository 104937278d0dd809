package gate

import (
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/egress"
)

// TestAddresses: whoever names an argument is heard, and about the server's own tools only.
func TestAddresses(t *testing.T) {
	p := &Policy{
		Services: map[string]Service{"browser": {Packages: []string{"@playwright/mcp"}, Words: []Word{
			{Addresses: []string{"url"}}, {Tool: "open_*", Addresses: []string{"page", "url"}},
		}}},
		Words: []Word{
			{Server: "browser-work", Tool: "open_*", Addresses: []string{"frame"}},
			{Service: "browser", Tool: "x", Addresses: []string{"from"}}, {Server: "other", Addresses: []string{"target"}},
			{Service: "browser", Effect: Irreversible},
		},
	}
	for _, c := range []struct {
		server Declared
		kind   Kind
		name   string
		want   string
	}{
		{Declared{Server: "browser"}, Tool, "navigate", "url"},
		{Declared{Server: "browser"}, Tool, "open_tab", "page url"},
		{Declared{Server: "browser"}, Tool, "x", "from url"},
		{Declared{Server: "browser-work"}, Tool, "open_tab", "frame"}, // nothing says what it is an instance of
		{Declared{Server: "browser-work", Of: "browser"}, Tool, "open_tab", "frame page url"},
		{Declared{Server: "browser-work", Packages: []string{"@playwright/mcp"}}, Tool, "open_tab", "frame page url"},
		{Declared{Server: "browser", Words: []Word{{Tool: "navigate", Addresses: []string{"to"}}}}, Tool, "navigate", "to url"},
		{Declared{Server: "browser"}, Prompt, "navigate", ""},
		{Declared{Server: "browser"}, Resource, "https://x", ""},
		{Declared{Server: "notes"}, Tool, "navigate", ""},
	} {
		if got := strings.Join(p.Addresses(Offer{Server: c.server, Kind: c.kind, Name: c.name}), " "); got != c.want {
			t.Errorf("%+v %s: %q, want %q", c.server, c.name, got, c.want)
		}
	}
	if got := (*Policy)(nil).Addresses(Offer{Name: "x"}); len(got) > 0 {
		t.Errorf("without a policy %q", got)
	}
	if w := p.Services["browser"].Words; slices.ContainsFunc(w, Word.Silent) {
		t.Error("a word that names an address says nothing")
	}
}

func TestServiceOfInstance(t *testing.T) {
	p := &Policy{Services: map[string]Service{"browser": {}, "notion": {Packages: []string{"notion-mcp"}}, "browser-work": {}}}
	for _, c := range []struct {
		server Declared
		want   string

		certain bool
	}{
		{Declared{Server: "browser-research", Of: "browser"}, "browser", false},
		{Declared{Server: "browser-work", Of: "browser"}, "browser-work", false},
		{Declared{Server: "browser-research", Of: "browser", Packages: []string{"notion-mcp"}}, "notion", true},
		{Declared{Server: "browser-research", Of: "browser", Service: "notion"}, "notion", true},
		{Declared{Server: "browser-research", Of: "browser", Service: "nothing"}, "", false},
		{Declared{Server: "x-research", Of: "x"}, "", false},
		{Declared{Server: "browser-research"}, "", false},
		{Declared{Server: "notion"}, "notion", false},
		{Declared{Server: "notion", Packages: []string{"other-mcp"}}, "", false},
		{Declared{Server: "notion-work", Of: "notion", Packages: []string{"other-mcp"}}, "", false},
		{Declared{Server: "browser", Packages: []string{"other-mcp"}}, "", false},
		{Declared{Server: "browser", Service: "notion", Packages: []string{"other-mcp"}}, "notion", true},
	} {
		if got, certain := p.Service(c.server); got != c.want || certain != c.certain {
			t.Errorf("%+v is of %q, %t, want %q, %t", c.server, got, certain, c.want, c.certain)
		}
	}
}

func TestAstray(t *testing.T) {
	reach := egress.Policy{Endpoints: []egress.Endpoint{{Host: "example.com"}}}
	for url, want := range map[string]string{
		"https://example.com/a":       "",
		"https://evil.test/?secret=1": "url leads to evil.test, which the server's declaration does not allow (name-not-declared)",
		"file:///etc/passwd":          "url is not an http or https address that all programs read alike (scheme)",
	} {
		if got := Astray(reach, "url", url); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
		if Astray(egress.Policy{}, "url", url) == "" {
			t.Errorf("%s: a server that reaches nothing may open it", url)
		}
	}
}
