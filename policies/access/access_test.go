package access

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

func TestTools(t *testing.T) {
	all := BuiltIn("a")
	some := Client{Servers: []string{"notion", "github"}}
	hides := map[string]Server{"notion": {Hide: []string{"del*"}}}
	searches := map[string]Server{"notion": {Allow: []string{"search"}}}
	with := func(c Client, allow, hide []string, settings map[string]Server) Client {
		c.Allow, c.Hide, c.Settings = allow, hide, settings
		return c
	}
	tests := []struct {
		name         string
		client       Client
		server, tool string
		want         bool
	}{
		{"the zero value grants nothing", Client{}, "notion", "search", false},
		{"a server that is not named", some, "slack", "post", false},
		{"a name in another case", some, "Notion", "search", false},
		{"the beginning of a name", some, "notio", "search", false},
		{"no server of no name", some, "", "search", false},
		{"hidden", with(some, nil, []string{"notion.search"}, nil), "notion", "search", false},
		{"hidden wins over allowed", with(some, []string{"*"}, []string{"notion.*"}, nil), "notion", "search", false},
		{"not among the allowed", with(some, []string{"github.*"}, nil, nil), "notion", "search", false},
		{"allowed of a server that is not", with(some, []string{"slack.*"}, nil, nil), "slack", "post", false},
		{"hidden in the server's settings", with(all, nil, nil, hides), "notion", "delete", false},
		{"not among the server's allowed", with(all, nil, nil, searches), "notion", "delete", false},
		{"allowed there, not above", with(all, []string{"github.*"}, nil, searches), "notion", "search", false},

		{"a hidden model", with(some, nil, []string{"pfar.model.*"}, nil), "pfar.model", "main", false},
		{"a hidden part of pfar", with(all, nil, []string{"pfar.*"}, nil), "pfar.model", "main", false},
		{"pfar's own tool is no part", some, "pfar", "connect", false},

		{"a model", with(some, []string{"notion.search"}, nil, nil), "pfar.model", "main", true},
		{"every server", all, "slack", "post", true},
		{"a server that is named", some, "notion", "search", true},
		{"another is hidden", with(some, nil, []string{"notion.delete*"}, nil), "notion", "search", true},
		{"among the allowed", with(some, []string{"*.search"}, nil, nil), "notion", "search", true},
		{"settings of another", with(all, nil, nil, searches), "github", "delete", true},
	}
	for _, tt := range tests {
		if got := tt.client.Rights().Tool(tt.server, tt.tool); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if new(Rights).Tool("pfar.model", "main") {
		t.Error("rights that are none grant a model")
	}
	if new(Rights).Server("notion") || new(Rights).Tool("notion", "x") || new(Rights).All() {
		t.Error("rights that are none grant something")
	}
}

func TestLabelOnlyRises(t *testing.T) {
	r := Client{Settings: map[string]Server{"notion": {Label: gate.Sensitive}}}.Rights()
	for _, tt := range [][3]string{
		{"notion", "public", "sensitive"}, {"notion", "internal", "sensitive"}, {"notion", "sensitive", "sensitive"},
		{"notion", "secret", "secret"},
		{"notion", "nonsense", "sensitive"}, {"github", "public", "public"}, {"github", "nonsense", "nonsense"},
	} {
		if got := r.Label(tt[0], tt[1]); got != tt[2] {
			t.Errorf("%s %s is %s, want %s", tt[0], tt[1], got, tt[2])
		}
	}
}

func TestShape(t *testing.T) {
	base := func() Client {
		return Client{Servers: []string{"a", "b"}, Allow: []string{"a.x", "a.y"}, Settings: map[string]Server{"a": {Hide: []string{"z"}}}}
	}
	want := base().Rights().Shape()
	same := base()
	same.Name, same.Profile, same.Servers, same.Allow = "other", "balanced", []string{"b", "a", "a"}, []string{"a.y", "a.x"}
	if same.Rights().Shape() != want {
		t.Error("the same rights have another shape")
	}
	for i, change := range []func(*Client){
		func(c *Client) { c.Servers = []string{"a"} },
		func(c *Client) { c.Servers = []string{"a, b"} },
		func(c *Client) { c.Servers = []string{Every} },
		func(c *Client) { c.Allow, c.Hide = nil, c.Allow },
		func(c *Client) { c.Settings = nil },
		func(c *Client) { c.Settings = map[string]Server{"b": {Hide: []string{"z"}}} },
		func(c *Client) { c.Settings = map[string]Server{"a": {Allow: []string{"z"}}} },
		func(c *Client) { c.Settings = map[string]Server{"a": {Hide: []string{"z"}, Label: gate.Secret}} },
		func(c *Client) {
			c.Settings = map[string]Server{"a": {Hide: []string{"z"}, Trust: Trust{PublicSink: true}}}
		},
	} {
		c := base()
		change(&c)
		if c.Rights().Shape() == want {
			t.Errorf("change %d has the same shape", i)
		}
	}
}

func TestJSON(t *testing.T) {
	want := []Client{BuiltIn("a"), {
		Name: "b", File: "/etc/pfar/clients.d/b.hcl", Tokens: []Digest{DigestOf([]byte("x"))}, UIDs: []uint32{1000},
		Sessions: Connection, Relax: "tests",
		Settings: map[string]Server{"notion": {Label: gate.Sensitive, Trust: Trust{SecretData: true}, Allow: []string{"x"}}},
	}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got []Client
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %+v\n%s", err, got, b)
	}
	for _, bad := range []string{`["00"]`, `["` + strings.Repeat("zz", 32) + `"]`} {
		var d []Digest
		if json.Unmarshal([]byte(bad), &d) == nil {
			t.Errorf("%s is taken for a digest", bad)
		}
	}
}

func TestHandles(t *testing.T) {
	for _, bad := range []string{"", ".", "..", "a/b", "a b", "é", "a\x00", strings.Repeat("a", 65)} {
		if ValidHandle(bad) {
			t.Errorf("%q is a handle", bad)
		}
	}
	for _, good := range []string{DefaultSession, "Ab_-9", strings.Repeat("a", 64)} {
		if !ValidHandle(good) {
			t.Errorf("%q is none", good)
		}
	}
}

// FuzzMatch compares with a regular expression of the same meaning.
func FuzzMatch(f *testing.F) {
	for _, s := range [][2]string{
		{"*", ""}, {"a*b?c", "axxbyc"}, {"", ""}, {"**a", "a"}, {"a.*", "a.b.c"}, {"?", ""}, {"*a*a*a*b", "aaaaaaaaaaaa"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		var b strings.Builder
		for i := range len(pattern) {
			switch c := pattern[i]; {
			case c == '*':
				b.WriteString(".*")
			case c == '?':
				b.WriteString(".")
			case c < 0x80:
				b.WriteString(regexp.QuoteMeta(string(rune(c))))
			default:
				return // bytes, where the expression has characters
			}
		}
		if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 }) {
			return
		}
		want := regexp.MustCompile(`(?s)\A(?:` + b.String() + `)\z`).MatchString(name)
		if got := Match(pattern, name); got != want {
			t.Errorf("%q matches %q: %v", pattern, name, got)
		}
	})
}

// TestTaskHeaders: a task is named by no header that a server, a model or a proxy can set.
func TestTaskHeaders(t *testing.T) {
	for _, name := range []string{"X-Conversation-Id", "x-openwebui-chat-id", "X-Task"} {
		if fault := TaskHeaderFault(name); fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
	}
	for _, name := range []string{
		"", "X", "X-", "Mcp-Param-Conversation", "mcp-param-x", "Mcp-Session-Id", "Mcp-Name", "MCP-Protocol-Version",
		"Last-Event-ID", "Authorization", "Cookie", "User-Agent", "Origin", "Traceparent", "X-Request-Id",
		"x-correlation-id", "X-Forwarded-For",
		"X-B3-TraceId", "X-Amzn-Trace-Id", "X-A b", "X-A:", "X-A_b", "X-\u00e4", "X-A\n",
		"X-" + strings.Repeat("a", 63),
	} {
		if TaskHeaderFault(name) == "" {
			t.Errorf("%q names tasks", name)
		}
	}
}

// TestTaskHandles: each name has a handle of its own, which is valid and tells nothing of it; what is no name has none.
func TestTaskHandles(t *testing.T) {
	seen := map[string]bool{DefaultSession: true}
	for _, name := range []string{"a", "A", DefaultSession, "task-1", "../x", "{{BODY}}", strings.Repeat("a", 256)} {
		h := TaskHandle(name)
		if !ValidHandle(h) || seen[h] || len(name) > 4 && strings.Contains(h, name) {
			t.Errorf("%q: %q", name, h)
		}
		seen[h] = true
	}
	for _, name := range []string{"", " ", "a b", "a\n", "\u00e4", strings.Repeat("a", 257)} {
		if h := TaskHandle(name); h != "" {
			t.Errorf("%q: %q", name, h)
		}
	}
}
