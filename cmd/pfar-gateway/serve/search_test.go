package serve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// searcher is a gateway with servers of several tools, and a client that finds them by searching.
func searcher(t *testing.T, declared []byte, more ...func(*access.Client)) (*gateway, *client) {
	t.Helper()
	g := start(t, DefaultLimits())
	tool := func(name, description, schema string) string {
		return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"%s}}`, name, description, schema)
	}
	for name, tools := range map[string]string{
		"tracker": tool("create_issue", "Creates an issue",
			`,"properties":{"title":{"type":"string"}},"required":["title"]`) + "," + tool("search_tools", "Finds hammers", ""),
		"files": tool("read_text", "Reads a file", `,"properties":{"path":{"type":"string"}}`) +
			"," + tool("delete", "Deletes a file", ""),
	} {
		s := everything()
		s.Lists["tools/list"] = `{"tools":[` + tools + `]}`
		g.Launch(t, handover.Server{Name: name, Label: "internal", Declared: withName(declared, name)}, s).Ready(t)
	}
	desk := declaredClient("desk", deskToken)
	for _, f := range more {
		f(&desk)
	}
	g.srv.Learn([]access.Client{desk})
	return g, g.as(deskToken).session(t, "/mcp")
}

func withName(declared []byte, name string) []byte {
	if declared == nil {
		return registrytest.Trusted(name)
	}
	return []byte(strings.ReplaceAll(string(declared), `"one"`, fmt.Sprintf("%q", name)))
}

func declaredClient(name, token string) access.Client {
	c := declared(name, token, "tracker", "files")
	c.Search = true
	return c
}

// own calls one of pfar's tools, and returns what it says.
func (c *client) own(t testing.TB, name, arguments string) string {
	t.Helper()
	return c.call(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
}

func found(t *testing.T, answer string) (names []string) {
	t.Helper()
	var got struct {
		Result struct {
			StructuredContent struct {
				Tools []struct{ Name string }
			}
		}
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	for _, tool := range got.Result.StructuredContent.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// TestSearch: a client that searches is listed pfar's three tools, and finds, reads and calls the others through them.
func TestSearch(t *testing.T) {
	g, c := searcher(t, nil)
	list := c.call(t, "tools/list", `{}`)
	for _, name := range []string{"search_tools", "describe_tool", "call_tool"} {
		if !strings.Contains(list, fmt.Sprintf(`"name":%q`, name)) {
			t.Errorf("%s is not listed: %s", name, list)
		}
	}
	one := g.as(deskToken).session(t, "/mcp/files").call(t, "tools/list", `{}`)
	if strings.Contains(list, "__") || !strings.Contains(one, "read_text") {
		t.Errorf("listed: %s\nof one server: %s", list, one)
	}
	got := found(t, c.own(t, "search_tools", `{"query":"make a new issue"}`))
	if len(got) == 0 || got[0] != "tracker__create_issue" {
		t.Errorf("an issue: %q", got)
	}
	got = found(t, c.own(t, "search_tools", `{"query":"file","limit":1}`))
	if len(got) != 1 || !strings.HasPrefix(got[0], "files__") {
		t.Errorf("a file: %q", got)
	}
	got = found(t, c.own(t, "search_tools", `{"query":"hammers"}`))
	if len(got) != 1 || got[0] != "tracker__search_tools" {
		t.Errorf("a tool of the same name: %q", got)
	}
	described := c.own(t, "describe_tool", `{"name":"tracker__create_issue"}`)
	for _, part := range []string{`"required":["title"]`, `"pfar/server":"tracker"`} {
		if !strings.Contains(described, part) {
			t.Errorf("described without %s: %s", part, described)
		}
	}
	plain := c.call(t, "tools/call", `{"name":"tracker__create_issue","arguments":{"title":"x"}}`)
	called := c.own(t, "call_tool", `{"name":"tracker__create_issue","arguments":{"title":"x"}}`)
	if called != plain || !strings.Contains(called, `"result"`) {
		t.Errorf("called: %s\nwant    %s", called, plain)
	}
	const turned = `{"arguments":{"arguments":{"title":"x"},"name":"tracker__create_issue"},"name":"call_tool"}`
	if called := c.call(t, "tools/call", turned); called != plain {
		t.Errorf("called with its arguments first: %s\nwant    %s", called, plain)
	}
	const folded = `"name":"call_tool","arguments":{"name":"files__read_text"}`
	modern := g.as(deskToken).modern(t, "/mcp", "tools/call", "call_tool", folded, `{}`)
	if !strings.Contains(modern, `"resultType":"complete"`) || strings.Contains(modern, `"error"`) {
		t.Errorf("called, 2026-07-28: %s", modern)
	}
}

// TestSearchRefuses: each mistake gets a sentence, and no server a call.
func TestSearchRefuses(t *testing.T) {
	_, c := searcher(t, nil, func(c *access.Client) { c.Hide = []string{"files.delete"} })
	for call, want := range map[[2]string]string{
		{"search_tools", `{}`}:                                                     "query",
		{"search_tools", `{"query":7}`}:                                            "query",
		{"search_tools", `{"query":"` + strings.Repeat("x", 2000) + `"}`}:          "1024 bytes",
		{"search_tools", `{"query":"file","limit":0}`}:                             "1 to 50",
		{"search_tools", `{"query":"file","limit":51}`}:                            "1 to 50",
		{"search_tools", `{"query":"file","limit":"all"}`}:                         "1 to 50",
		{"search_tools", `{"query":"file","Query":"x"}`}:                           "Query",
		{"search_tools", `{"query":"file","server":"files"}`}:                      "server",
		{"describe_tool", `{"name":"files__delete"}`}:                              "no tool",
		{"describe_tool", `{"name":"search_tools"}`}:                               "no tool",
		{"describe_tool", `{}`}:                                                    "name",
		{"call_tool", `{}`}:                                                        "name",
		{"call_tool", `{"name":"call_tool","arguments":{"name":"files__delete"}}`}: "unknown tool",
		{"call_tool", `{"name":"files__delete"}`}:                                  "unknown tool",
		{"call_tool", `{"name":"tracker__create_issue"}`}:                          "title",
		{"call_tool", `{"name":"tracker__create_issue","arguments":[1]}`}:          "not an object",
		{"call_tool", `{"name":"tracker__create_issue","arguments":{"title":7}}`}:  "title",
		{"call_tool", `{"name":"files__read_text","argumentS":{}}`}:                "argumentS",
	} {
		got := c.own(t, call[0], call[1])
		if !strings.Contains(got, want) || strings.Contains(got, `"isError":false`) {
			t.Errorf("%s %.100s: %s, want %q", call[0], call[1], got, want)
		}
	}
	for _, query := range []string{"delete", "file", "Deletes a file"} {
		if got := c.own(t, "search_tools", fmt.Sprintf(`{"query":%q}`, query)); strings.Contains(got, "files__delete") {
			t.Errorf("%s finds what the client may not use: %s", query, got)
		}
	}
}

// TestSearchTaints: text that nobody has reviewed taints the session that it is shown to, as in a list, and only what
// is shown.
func TestSearchTaints(t *testing.T) {
	g, c := searcher(t, untold)
	sessions := g.srv.calls.Gate.Sessions
	for call, want := range map[[2]string]gate.Integrity{
		{"search_tools", `{"query":"issue"}`}:                 gate.Raw,
		{"describe_tool", `{"name":"tracker__create_issue"}`}: gate.Raw,
		{"search_tools", `{"query":"nothingofthekind"}`}:      gate.Clean,
		{"describe_tool", `{"name":"tracker__other"}`}:        gate.Clean,
	} {
		if err := sessions.Reset("desk", access.DefaultSession, "a test"); err != nil {
			t.Fatal(err)
		}
		c.call(t, "tools/list", `{}`)
		c.own(t, call[0], call[1])
		if got, err := sessions.Label("desk", access.DefaultSession); got.Integrity != want || err != nil {
			t.Errorf("%s %s: the session is %s (%v), want %s", call[0], call[1], got, err, want)
		}
	}
}

// TestSearchFindsNothingPrivate: a client that searches finds neither the tools of a server that is not its own, nor
// those hidden from it; their names are those of nobody, also after it was told of them.
func TestSearchFindsNothingPrivate(t *testing.T) {
	var rights access.Client
	g, c := searcher(t, nil, func(desk *access.Client) { rights = *desk })
	const query = `{"query":"file read_text delete issue"}`
	if got := c.own(t, "search_tools", query); !strings.Contains(got, "files__read_text") {
		t.Fatalf("found %s", got)
	}
	for name, narrow := range map[string]func(*access.Client){
		"the server": func(desk *access.Client) { desk.Servers = []string{"tracker"} },
		"each tool":  func(desk *access.Client) { desk.Hide = []string{"files.*"} },
		"all but":    func(desk *access.Client) { desk.Allow = []string{"tracker.*"} },
	} {
		desk := rights
		narrow(&desk)
		g.srv.Learn([]access.Client{desk})
		c := g.as(deskToken).session(t, "/mcp")
		got := c.own(t, "search_tools", query)
		if strings.Contains(got, "files") || !strings.Contains(got, "tracker__create_issue") {
			t.Errorf("%s: found %s", name, got)
		}
		for _, tool := range []string{"describe_tool", "call_tool"} {
			ask := func(name string) string {
				return strings.ReplaceAll(c.own(t, tool, `{"name":"`+name+`"}`), name, "NAME")
			}
			if got, want := ask("files__read_text"), ask("files__raed_text"); got != want {
				t.Errorf("%s, %s: got  %s\nwant %s", name, tool, got, want)
			}
		}
	}
}
