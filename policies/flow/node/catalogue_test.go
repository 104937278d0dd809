package node

import (
	"errors"
	"testing"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/toolname"
)

// TestFind: which node each spelling names, or what the error says.
func TestFind(t *testing.T) {
	tool := func(server, name string, aliases ...string) flow.Node {
		return flow.Node{ID: server + "." + name, Server: server, Tool: name, Aliases: aliases}
	}
	c := New([]flow.Node{
		{ID: "llm"}, {ID: "summarize-text", Aliases: []string{"summarize"}}, {ID: "write-file"},
		tool("github", "search_code"), tool("github", "search_repositories"), tool("weather", "get_weather"),
		tool("fs", "read_file", "write_file", "llm"), tool("fs", "read-file"), tool("disk", "ls", "ls", "summarize-it"),
		tool("cat", "ls", "ls"), tool("stripe", "create_customer"),
	}, []string{"slack"})
	for name, want := range map[string]string{
		"llm": "llm", "LLM": `!no such node: "LLM"`, "summarize-text": "summarize-text", "summarize_text": "summarize-text",
		"summarize": "summarize-text", "write-file": "write-file", "write_file": "fs.read_file", // the owner's alias
		"mcp-github-search-code": "github.search_code", "mcp_github.search_code": "github.search_code",
		"github__search_code": "github.search_code", "mcp-github-search-repos": "github.search_repositories",
		"mcp-weather-get": "weather.get_weather", "mcp_stripe.create_customer": "stripe.create_customer",
		"fs.read_file":     "fs.read_file",
		"mcp-fs-read-file": `!"mcp-fs-read-file" may name any of 2 tools: "fs.read-file", "fs.read_file"`,
		"ls":               `!"ls" may name any of 2 tools: "cat.ls", "disk.ls"`, "github": `!which tool of "github"?`,
		"":                   `!no such node: ""`,
		"slack.send":         `!no such node now: "slack.send", since slack offers no tools`,
		"github search_code": `!no such node: "github search_code"`,
	} {
		n, err := c.Find(name)
		switch {
		case err == nil && n.ID == want:
		case err != nil && "!"+err.Error() == want:
		default:
			t.Errorf("%q is %v, %v; want %s", name, n, err, want)
		}
	}
	for name, advice := range map[string]string{
		"mcp-github-serch-code": `did you mean "github.search_code"?`, "summarise-text": `did you mean "summarize-text"?`,
		"zzz": `"pfar flow nodes" lists the nodes`, "slack.send": "pfar start slack", "ls": "write NAME.TOOL: cat.ls",
	} {
		_, err := c.Find(name)
		var e *toolname.Error
		if !errors.As(err, &e) || e.Advice != advice {
			t.Errorf("%q: %+v, want the advice %q", name, e, advice)
		}
	}
	if all := c.All(); len(all) != 11 || all[0].ID != "llm" || all[3].ID != "github.search_code" {
		t.Errorf("%+v", all)
	}
}
