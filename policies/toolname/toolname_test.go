package toolname

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// town has every kind of trouble that names can make.
func town() []Tool {
	long := strings.Repeat("very_long-", 12) + "tool.name" // 129 with what the gateway adds
	return []Tool{
		{"notion", "search", "notion__search", nil},
		{"notion", "create_page", "notion__create_page", []string{"mcp-notion-page"}},
		{"notion", "-", "notion__-", nil},
		{"notion", "Search", "notion__Search", nil},
		{"github", "search_repositories", "github__search_repositories",
			[]string{"mcp-github-search-repos", "find_repos"}},
		{"github", "search_repos_v2", "github__search_repos_v2", []string{"gh.s"}},
		{"github", "get_repo", "github__get_repo", []string{"notion.search", "notion", "mcp__notion__search"}},
		{"my-files", "read.file", "my-files__read.file", nil},
		{"my-files", "a__b", "my-files__a__b", nil},
		{"my-files", "_hidden", "my-files___hidden", nil},
		{"fs", "read_file", "fs__read_file", nil},
		{"fs", "read-file", "fs__read-file", nil},
		{"fs", "list_dir", "fs__list_dir", []string{"ls"}},
		{"disk", "list", "disk__list", []string{"ls"}},
		{"a", "b-c", "a__b-c", nil},
		{"a-b", "c", "a-b__c", nil},
		{"long", long, "long__very_long-very~1a2b3c4d", nil},
		{"mcp", "x__y", "mcp__x__y", nil},
		{"x", "y", "x__y", nil},
		{"evil", "z;reboot", "evil__z;reboot", nil},
		{"mcp-x-y", "go", "mcp-x-y__go", nil},
	}
}

func TestNamesThatAreRefused(t *testing.T) {
	tests := []struct {
		words   string
		unknown bool
		err     string // contained; "": it names a tool
		hint    string // contained
	}{
		{"", false, "missing NAME.TOOL", "pfar tools"},
		{"fs", false, `which tool of "fs"?`, "pfar tools fs"},
		{"my_files", false, `which tool of "my-files"?`, "pfar tools my-files"},
		{"fs --path x", false, `which tool of "fs"?`, "pfar tools fs"},
		{"fs -", false, `which tool of "fs"?`, "pfar tools fs"},
		{"notion -", false, "", ""}, // not the tool "-": it is an alias, with its arguments on standard input
		{"notion.", true, `no such tool: "notion."`, ""},
		{".search", true, `no such tool: ".search"`, ""},
		{"../x", true, `no such tool: "../x"`, ""},
		{"__search", true, "no such tool", ""},
		{"search", true, "no such tool", ""},
		{"notion-search", true, "no such tool", `did you mean "notion.Search" or "notion.search"?`},
		{"Notion.search", true, "no such tool", `"notion.search"`},
		{"NOTION__SEARCH", true, "no such tool", `"notion.search"`},
		{"mcp_Notion_search", true, "no such tool", `"notion.search"`},
		{"MCP__notion__search", true, "no such tool", `"notion.search"`},
		{"notion.create.page", true, "no such tool", `"notion.create_page"`},
		{"notion:search", true, "no such tool", `"notion.search"`},
		{"notion/search", true, "no such tool", `"notion.search"`},
		{"notion.serch", true, `no such tool: "notion.serch"`, `did you mean "notion.Search" or "notion.search"?`},
		{"notoin search --query x", true, `no such tool: "notoin.search"`, `"notion.search"`},
		{"mcp-githb-search-repos", true, "no such tool", `did you mean "mcp-github-search-repos"`},
		{"find_repso", true, "no such tool", `did you mean "find_repos"?`},
		{"find_repso extra", true, "no such tool", `did you mean "find_repos"?`},
		{"nothing.like-it", true, `no such tool: "nothing.like-it"`, `"pfar tools" lists the tools`},
		{strings.Repeat("x", 5000), true, "no such tool", `"pfar tools" lists the tools`},
		{"evil.z", true, "no such tool", `"pfar tools" lists the tools`},
		{"mcp__notion_search__x", true, "no such tool", ""},
		{"mcp_mcp_notion_search", true, "no such tool", ""},
		{"mcp-search", true, "no such tool", ""},

		{"mcp-a-b-c", false, `"mcp-a-b-c" may name any of 2 tools: "a-b.c", "a.b-c"`, "a-b.c"},
		{"mcp_a_b_c", false, `"a-b.c", "a.b-c"`, "a-b.c"},
		{"mcp-a_b-c", false, `"a-b.c", "a.b-c"`, "a-b.c"},
		{"mcp-fs-read-file", false, `"fs.read-file", "fs.read_file"`, "fs.read-file"},
		{"mcp_fs_read_file", false, `"fs.read-file", "fs.read_file"`, "fs.read-file"},
		{"fs--read-file", false, `"fs.read-file", "fs.read_file"`, "fs.read-file"},
		{"ls", false, `"ls" may name any of 2 tools: "disk.list", "fs.list_dir"`, "disk.list"},
	}
	for _, tt := range tests {
		m, rest, err := Resolve(town(), strings.Fields(tt.words))
		var e *Error
		switch ok := errors.As(err, &e); {
		case !ok && err == nil && tt.err == "":
		case !ok, e.Unknown != tt.unknown, tt.err == "",
			!strings.Contains(e.Text, tt.err), !strings.Contains(e.Advice, tt.hint):
			t.Errorf("%.40q: %+v, rest %q: %+v", tt.words, m, rest, e)
		}
		if err != nil && rest != nil {
			t.Errorf("%.40q: refused, with the rest %q", tt.words, rest)
		}
	}
}

func TestNames(t *testing.T) {
	long := town()[16].Tool
	tests := []struct {
		words string
		id    string
		rest  string
		by    Kind
	}{
		{"notion search", "notion.search", "", ByIdentity},
		{"notion.search", "notion.search", "", ByIdentity},
		{"notion__search", "notion.search", "", ByIdentity},
		{"notion Search", "notion.Search", "", ByIdentity},
		{"mcp_notion.Search", "notion.Search", "", ByForm},
		{"mcp_notion.search", "notion.search", "", ByForm},
		{"mcp-notion-search", "notion.search", "", ByLikeness},
		{"mcp_notion_search", "notion.search", "", ByLikeness},
		{"mcp-notion_search", "notion.search", "", ByLikeness},
		{"mcp-notion.search", "notion.search", "", ByLikeness},
		{"mcp-notion-create-page", "notion.create_page", "", ByLikeness},
		{"mcp_notion.create-page", "notion.create_page", "", ByLikeness},
		{"notion.create-page", "notion.create_page", "", ByLikeness},
		{"notion__create-page --title x", "notion.create_page", "--title x", ByLikeness},
		{"notion create-page --title x", "notion.create_page", "--title x", ByLikeness},
		{"notion.- -", "notion.-", "-", ByIdentity},

		// The rest of the words is left alone.
		{"notion search --query x y", "notion.search", "--query x y", ByIdentity},
		{"notion.search search", "notion.search", "search", ByIdentity},
		{"notion.search -", "notion.search", "-", ByIdentity},
		{"mcp-notion-page -", "notion.create_page", "-", ByAlias},
		{"mcp-notion-page notion", "notion.create_page", "notion", ByAlias},

		// An exact identity is not taken by the alias of another server; an alias is not taken by a form.
		{"notion", "github.get_repo", "", ByAlias},
		{"notion --x", "github.get_repo", "--x", ByAlias},
		{"mcp__notion__search", "github.get_repo", "", ByAlias},
		{"mcp--notion--search", "github.get_repo", "", ByLikeAlias},
		{"mcp-github-search-repos", "github.search_repositories", "", ByAlias},
		{"mcp_github_search_repos", "github.search_repositories", "", ByLikeAlias},
		{"find-repos", "github.search_repositories", "", ByLikeAlias},
		{"gh.s", "github.search_repos_v2", "", ByAlias},

		// Dots, dashes and underscores of a tool's own name.
		{"my-files.read.file", "my-files.read.file", "", ByIdentity},
		{"my-files__read.file", "my-files.read.file", "", ByIdentity},
		{"my-files read.file", "my-files.read.file", "", ByIdentity},
		{"my_files.read.file", "my-files.read.file", "", ByLikeness},
		{"mcp_my-files.read.file", "my-files.read.file", "", ByForm},
		{"mcp_my_files_read.file", "my-files.read.file", "", ByLikeness},
		{"my-files__a__b", "my-files.a__b", "", ByIdentity},
		{"my-files.a__b", "my-files.a__b", "", ByIdentity},
		{"mcp__my-files__a__b", "my-files.a__b", "", ByForm},
		{"my-files.a--b", "my-files.a__b", "", ByLikeness},
		{"my-files___hidden", "my-files._hidden", "", ByIdentity},
		{"mcp_my-files._hidden", "my-files._hidden", "", ByForm},

		// Two that are alike are told apart by whoever spells them out.
		{"fs.read_file", "fs.read_file", "", ByIdentity},
		{"fs.read-file", "fs.read-file", "", ByIdentity},
		{"fs read-file", "fs.read-file", "", ByIdentity},
		{"mcp__fs__read_file", "fs.read_file", "", ByForm},
		{"mcp_fs.read-file", "fs.read-file", "", ByForm},
		{"a.b-c", "a.b-c", "", ByIdentity},
		{"a-b.c", "a-b.c", "", ByIdentity},
		{"a-b__c", "a-b.c", "", ByIdentity},
		{"mcp__a-b__c", "a-b.c", "", ByForm},
		{"mcp__a__b-c", "a.b-c", "", ByForm},
		{"mcp_a-b.c", "a-b.c", "", ByForm},
		{"a_b c", "a-b.c", "", ByLikeness},

		// A server that is called as the forms begin.
		{"mcp__x__y", "mcp.x__y", "", ByIdentity},
		{"mcp.x__y", "mcp.x__y", "", ByIdentity},
		{"mcp__mcp__x__y", "mcp.x__y", "", ByForm},
		{"mcp_x.y", "x.y", "", ByForm},
		{"mcp_x_y", "x.y", "", ByLikeness},
		{"mcp-x-y go", "mcp-x-y.go", "", ByIdentity},
		{"mcp_x_y go", "mcp-x-y.go", "", ByLikeness},
		{"mcp_x_y -", "x.y", "-", ByLikeness},

		// Long names: whole, and as the gateway shortens them.
		{"long." + long, "long." + long, "", ByIdentity},
		{"long " + long + " -", "long." + long, "-", ByIdentity},
		{"mcp-long-" + strings.ReplaceAll(long, "_", "-"), "long." + long, "", ByLikeness},
		{"long__very_long-very~1a2b3c4d", "long." + long, "", ByIdentity},
	}
	for _, order := range []string{"as Tool", "backwards"} {
		tools := town()
		if order == "backwards" {
			slices.Reverse(tools)
		}
		for _, tt := range tests {
			m, rest, err := Resolve(tools, strings.Fields(tt.words))
			if err != nil {
				t.Errorf("%s: %q: %v", order, tt.words, err)
				continue
			}
			if id := tools[m.At].ID(); id != tt.id || m.By != tt.by || strings.Join(rest, " ") != tt.rest {
				t.Errorf("%s: %q is %s by %d with %q, want %s by %d with %q", order,
					tt.words, id, m.By, rest, tt.id, tt.by, tt.rest)
			}
		}
	}
}

// TestNamesOfSilentServers: a server whose tools are not known may have any tool, so nobody else gets its calls.
func TestNamesOfSilentServers(t *testing.T) {
	tools := append(town(), Tool{Server: "slack"}, Tool{Server: "a-b-c"}, Tool{Server: "github-search"})
	tests := []struct{ words, silent, err string }{
		{"slack", "slack", ""},
		{"slack.send", "slack", ""},
		{"slack__send", "slack", ""},
		{"slack send --text x", "slack", ""},
		{"mcp__slack__send", "slack", ""},
		{"mcp_slack.send", "slack", ""},
		{"mcp-slack-send-message", "slack", ""},
		{"mcp_slack_send_message", "slack", ""},
		{"a_b_c d", "a-b-c", ""},
		{"mcp-a-b-c-d", "a-b-c", ""},
		{"mcp-github-search-code", "github-search", ""},
		{"mcp-github-search-repos-v2", "",
			`"github.search_repos_v2", one of "github-search", which offers no tools now`},
		{"slackk.send", "", "no such tool"},
		{"slack-send", "", "no such tool"},
		{"mcp-slack", "", "no such tool"},
		{"mcp-slack-", "", "no such tool"},
		{"SLACK.send", "", "no such tool"},
	}
	for _, tt := range tests {
		_, _, err := Resolve(tools, strings.Fields(tt.words))
		var silent *Silent
		is := errors.As(err, &silent)
		right := is == (tt.silent != "") && (!is || silent.Server == tt.silent)
		if !right || err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %v", tt.words, err)
		}
	}
	for words, id := range map[string]string{ // what is spelt out, or declared, is not in doubt
		"github.search_repos_v2": "github.search_repos_v2", "mcp-github-search-repos": "github.search_repositories",
		"mcp__a-b__c": "a-b.c",
	} {
		m, _, err := Resolve(tools, []string{words})
		if err != nil || tools[m.At].ID() != id {
			t.Errorf("%q: %v", words, err)
		}
	}
	var e *Error
	_, _, err := Resolve(tools, []string{"slakc.send"})
	if !errors.As(err, &e) || !strings.Contains(e.Advice, `"slack.send"`) {
		t.Errorf("a misspelt server: %v", err)
	}
}

// TestAmbiguityIsBounded: a server that lists thousands of tools that are alike fills no screen.
func TestAmbiguityIsBounded(t *testing.T) {
	var tools []Tool
	for i := range 1 << 10 {
		name := ""
		for bit := range 10 {
			name += string("a-a_"[2*(i>>bit&1)]) + string("a-a_"[2*(i>>bit&1)+1])
		}
		tools = append(tools, Tool{Server: "s", Tool: name, Served: fmt.Sprintf("s__%d", i)})
	}
	_, _, err := Resolve(tools, []string{"mcp-s-" + strings.Repeat("a-", 10)})
	if err == nil || len(err.Error()) > 600 || !strings.Contains(err.Error(), "and 1016 more") {
		t.Errorf("%v", err)
	}
}

// isServer holds the names that servers may have.
var isServer = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// FuzzResolve: whatever is typed, what is found is named by it, and the identity of every tool finds that tool.
func FuzzResolve(f *testing.F) {
	for _, words := range []string{"mcp-a-b-c", "notion search -", "a__b-c", "mcp__x__y", "ls", ""} {
		f.Add(words, "x", "a.b_c-d")
	}
	f.Fuzz(func(t *testing.T, words, server, name string) {
		tools := town()
		if isServer.MatchString(server) && name != "" {
			tools = append(tools, Tool{Server: server, Tool: name, Served: server + "__" + name})
		}
		split := strings.Fields(words)
		m, rest, err := Resolve(tools, split)
		if err == nil {
			by, taken := tools[m.At].named(split)
			if by != m.By || by == None || len(rest) != len(split)-taken {
				t.Errorf("%q is %s by %d with %q", split, tools[m.At].ID(), m.By, rest)
			}
		}
		for _, tool := range tools {
			m, _, err := Resolve(tools, []string{tool.ID()})
			if err != nil || tools[m.At].ID() != tool.ID() || m.By != ByIdentity {
				t.Errorf("%q is not found: %v", tool.ID(), err)
			}
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	var tools []Tool
	for i := range 20_000 {
		server, tool := fmt.Sprintf("s%d", i%50), fmt.Sprintf("tool_%d", i)
		tools = append(tools, Tool{Server: server, Tool: tool, Served: server + "__" + tool})
	}
	for _, word := range []string{"s1.tool_19951", "mcp-s1-tool-19951", "mcp-s1-tool-1995x"} {
		b.Run(word, func(b *testing.B) {
			for b.Loop() {
				_, _, _ = Resolve(tools, []string{word})
			}
		})
	}
}

// TestNamesOfInstances: the file's name does for the server's, and takes no call from what is called so exactly.
func TestNamesOfInstances(t *testing.T) {
	tools := []Tool{
		{Server: "browser-research", Tool: "click"}, {Server: "browser-research", Tool: "read.page"},
		{Server: "browser", Tool: "click"}, {Server: "browser", Tool: "research.go"},
		{Server: "a-b-c", Tool: "d"}, {Server: "browser-silent"},
	}
	for words, want := range map[string]string{
		"browser.research click": "browser-research.click", "browser.research.click": "browser-research.click",
		"browser.research__click":    "browser-research.click",
		"browser.research.read.page": "browser-research.read.page", "browser.research.go": "browser.research.go",
		"a.b-c.d": "a-b-c.d", "browser click": "browser.click",
		"a-b.c.d": "a-b-c.d", "browser.research": "", "browser.other.click": "", "xbrowser.research.click": "",
	} {
		m, _, err := Resolve(tools, strings.Fields(words))
		if got := map[bool]string{true: tools[m.At].ID()}[err == nil]; got != want {
			t.Errorf("%q is %q, %v, want %q", words, got, err, want)
		}
	}
	var silent *Silent
	_, _, err := Resolve(tools, []string{"browser.silent.click"})
	if !errors.As(err, &silent) || silent.Server != "browser-silent" {
		t.Errorf("of a server without tools: %v", err)
	}
}
