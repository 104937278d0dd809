package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
)

// town has every kind of trouble that names can make.
func town() []listed {
	long := strings.Repeat("very_long-", 12) + "tool.name" // 129 with what the gateway adds
	return []listed{
		{"notion", "search", "notion__search", nil},
		{"notion", "create_page", "notion__create_page", []string{"mcp-notion-page"}},
		{"notion", "-", "notion__-", nil},
		{"notion", "Search", "notion__Search", nil},
		{"github", "search_repositories", "github__search_repositories", []string{"mcp-github-search-repos", "find_repos"}},
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
		words string
		code  int
		err   string // contained
		hint  string // contained
	}{
		{"", exitUsage, "missing NAME.TOOL", "pfar tools"},
		{"fs", exitUsage, `which tool of "fs"?`, "pfar tools fs"},
		{"my_files", exitUsage, `which tool of "my-files"?`, "pfar tools my-files"},
		{"fs --path x", exitUsage, `which tool of "fs"?`, "pfar tools fs"},
		{"fs -", exitUsage, `which tool of "fs"?`, "pfar tools fs"},
		{"notion -", exitOK, "", ""}, // not the tool "-": it is an alias, with its arguments on standard input
		{"notion.", exitNoSuch, `no such tool: "notion."`, ""},
		{".search", exitNoSuch, `no such tool: ".search"`, ""},
		{"../x", exitNoSuch, `no such tool: "../x"`, ""},
		{"__search", exitNoSuch, "no such tool", ""},
		{"search", exitNoSuch, "no such tool", ""},
		{"notion-search", exitNoSuch, "no such tool", `did you mean "notion.Search" or "notion.search"?`},
		{"Notion.search", exitNoSuch, "no such tool", `"notion.search"`},
		{"NOTION__SEARCH", exitNoSuch, "no such tool", `"notion.search"`},
		{"mcp_Notion_search", exitNoSuch, "no such tool", `"notion.search"`},
		{"MCP__notion__search", exitNoSuch, "no such tool", `"notion.search"`},
		{"notion.create.page", exitNoSuch, "no such tool", `"notion.create_page"`},
		{"notion:search", exitNoSuch, "no such tool", `"notion.search"`},
		{"notion/search", exitNoSuch, "no such tool", `"notion.search"`},
		{"notion.serch", exitNoSuch, `no such tool: "notion.serch"`, `did you mean "notion.Search" or "notion.search"?`},
		{"notoin search --query x", exitNoSuch, `no such tool: "notoin.search"`, `"notion.search"`},
		{"mcp-githb-search-repos", exitNoSuch, "no such tool", `did you mean "mcp-github-search-repos"`},
		{"find_repso", exitNoSuch, "no such tool", `did you mean "find_repos"?`},
		{"find_repso extra", exitNoSuch, "no such tool", `did you mean "find_repos"?`},
		{"nothing.like-it", exitNoSuch, `no such tool: "nothing.like-it"`, `"pfar tools" lists the tools`},
		{strings.Repeat("x", 5000), exitNoSuch, "no such tool", `"pfar tools" lists the tools`},
		{"evil.z", exitNoSuch, "no such tool", `"pfar tools" lists the tools`},
		{"mcp__notion_search__x", exitNoSuch, "no such tool", ""},
		{"mcp_mcp_notion_search", exitNoSuch, "no such tool", ""},
		{"mcp-search", exitNoSuch, "no such tool", ""},

		{"mcp-a-b-c", exitUsage, `"mcp-a-b-c" may name any of 2 tools: "a-b.c", "a.b-c"`, "a-b.c"},
		{"mcp_a_b_c", exitUsage, `"a-b.c", "a.b-c"`, "a-b.c"},
		{"mcp-a_b-c", exitUsage, `"a-b.c", "a.b-c"`, "a-b.c"},
		{"mcp-fs-read-file", exitUsage, `"fs.read-file", "fs.read_file"`, "fs.read-file"},
		{"mcp_fs_read_file", exitUsage, `"fs.read-file", "fs.read_file"`, "fs.read-file"},
		{"fs--read-file", exitUsage, `"fs.read-file", "fs.read_file"`, "fs.read-file"},
		{"ls", exitUsage, `"ls" may name any of 2 tools: "disk.list", "fs.list_dir"`, "disk.list"},
	}
	for _, tt := range tests {
		m, rest, err := resolve(town(), strings.Fields(tt.words))
		code, hint := classify(err)
		if code != tt.code || tt.code != exitOK && (!strings.Contains(err.Error(), tt.err) || !strings.Contains(hint, tt.hint)) {
			t.Errorf("%.40q: %+v, rest %q, exit %d: %v\nhint: %s", tt.words, m, rest, code, err, hint)
		}
		if err != nil && rest != nil {
			t.Errorf("%.40q: refused, with the rest %q", tt.words, rest)
		}
	}
}

func TestNames(t *testing.T) {
	long := town()[16].tool
	tests := []struct {
		words string
		id    string
		rest  string
		by    naming
	}{
		{"notion search", "notion.search", "", byIdentity},
		{"notion.search", "notion.search", "", byIdentity},
		{"notion__search", "notion.search", "", byIdentity},
		{"notion Search", "notion.Search", "", byIdentity},
		{"mcp_notion.Search", "notion.Search", "", byForm},
		{"mcp_notion.search", "notion.search", "", byForm},
		{"mcp-notion-search", "notion.search", "", byLikeness},
		{"mcp_notion_search", "notion.search", "", byLikeness},
		{"mcp-notion_search", "notion.search", "", byLikeness},
		{"mcp-notion.search", "notion.search", "", byLikeness},
		{"mcp-notion-create-page", "notion.create_page", "", byLikeness},
		{"mcp_notion.create-page", "notion.create_page", "", byLikeness},
		{"notion.create-page", "notion.create_page", "", byLikeness},
		{"notion__create-page --title x", "notion.create_page", "--title x", byLikeness},
		{"notion create-page --title x", "notion.create_page", "--title x", byLikeness},
		{"notion.- -", "notion.-", "-", byIdentity},

		// The rest of the words is left alone.
		{"notion search --query x y", "notion.search", "--query x y", byIdentity},
		{"notion.search search", "notion.search", "search", byIdentity},
		{"notion.search -", "notion.search", "-", byIdentity},
		{"mcp-notion-page -", "notion.create_page", "-", byAlias},
		{"mcp-notion-page notion", "notion.create_page", "notion", byAlias},

		// An exact identity is not taken by the alias of another server; an alias is not taken by a form.
		{"notion", "github.get_repo", "", byAlias},
		{"notion --x", "github.get_repo", "--x", byAlias},
		{"mcp__notion__search", "github.get_repo", "", byAlias},
		{"mcp--notion--search", "github.get_repo", "", byLikeAlias},
		{"mcp-github-search-repos", "github.search_repositories", "", byAlias},
		{"mcp_github_search_repos", "github.search_repositories", "", byLikeAlias},
		{"find-repos", "github.search_repositories", "", byLikeAlias},
		{"gh.s", "github.search_repos_v2", "", byAlias},

		// Dots, dashes and underscores of a tool's own name.
		{"my-files.read.file", "my-files.read.file", "", byIdentity},
		{"my-files__read.file", "my-files.read.file", "", byIdentity},
		{"my-files read.file", "my-files.read.file", "", byIdentity},
		{"my_files.read.file", "my-files.read.file", "", byLikeness},
		{"mcp_my-files.read.file", "my-files.read.file", "", byForm},
		{"mcp_my_files_read.file", "my-files.read.file", "", byLikeness},
		{"my-files__a__b", "my-files.a__b", "", byIdentity},
		{"my-files.a__b", "my-files.a__b", "", byIdentity},
		{"mcp__my-files__a__b", "my-files.a__b", "", byForm},
		{"my-files.a--b", "my-files.a__b", "", byLikeness},
		{"my-files___hidden", "my-files._hidden", "", byIdentity},
		{"mcp_my-files._hidden", "my-files._hidden", "", byForm},

		// Two that are alike are told apart by whoever spells them out.
		{"fs.read_file", "fs.read_file", "", byIdentity},
		{"fs.read-file", "fs.read-file", "", byIdentity},
		{"fs read-file", "fs.read-file", "", byIdentity},
		{"mcp__fs__read_file", "fs.read_file", "", byForm},
		{"mcp_fs.read-file", "fs.read-file", "", byForm},
		{"a.b-c", "a.b-c", "", byIdentity},
		{"a-b.c", "a-b.c", "", byIdentity},
		{"a-b__c", "a-b.c", "", byIdentity},
		{"mcp__a-b__c", "a-b.c", "", byForm},
		{"mcp__a__b-c", "a.b-c", "", byForm},
		{"mcp_a-b.c", "a-b.c", "", byForm},
		{"a_b c", "a-b.c", "", byLikeness},

		// A server that is called as the forms begin.
		{"mcp__x__y", "mcp.x__y", "", byIdentity},
		{"mcp.x__y", "mcp.x__y", "", byIdentity},
		{"mcp__mcp__x__y", "mcp.x__y", "", byForm},
		{"mcp_x.y", "x.y", "", byForm},
		{"mcp_x_y", "x.y", "", byLikeness},
		{"mcp-x-y go", "mcp-x-y.go", "", byIdentity},
		{"mcp_x_y go", "mcp-x-y.go", "", byLikeness},
		{"mcp_x_y -", "x.y", "-", byLikeness},

		// Long names: whole, and as the gateway shortens them.
		{"long." + long, "long." + long, "", byIdentity},
		{"long " + long + " -", "long." + long, "-", byIdentity},
		{"mcp-long-" + strings.ReplaceAll(long, "_", "-"), "long." + long, "", byLikeness},
		{"long__very_long-very~1a2b3c4d", "long." + long, "", byIdentity},
	}
	for _, order := range []string{"as listed", "backwards"} {
		tools := town()
		if order == "backwards" {
			slices.Reverse(tools)
		}
		for _, tt := range tests {
			m, rest, err := resolve(tools, strings.Fields(tt.words))
			if err != nil {
				t.Errorf("%s: %q: %v", order, tt.words, err)
				continue
			}
			if id := tools[m.at].id(); id != tt.id || m.by != tt.by || strings.Join(rest, " ") != tt.rest {
				t.Errorf("%s: %q is %s by %d with %q, want %s by %d with %q", order, tt.words, id, m.by, rest, tt.id, tt.by, tt.rest)
			}
		}
	}
}

// TestNamesOfSilentServers: a server whose tools are not known may have any tool, so nobody else gets its calls.
func TestNamesOfSilentServers(t *testing.T) {
	tools := append(town(), listed{server: "slack"}, listed{server: "a-b-c"}, listed{server: "github-search"})
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
		{"mcp-github-search-repos-v2", "", `"github.search_repos_v2", one of "github-search", which offers no tools now`},
		{"slackk.send", "", "no such tool"},
		{"slack-send", "", "no such tool"},
		{"mcp-slack", "", "no such tool"},
		{"mcp-slack-", "", "no such tool"},
		{"SLACK.send", "", "no such tool"},
	}
	for _, tt := range tests {
		_, _, err := resolve(tools, strings.Fields(tt.words))
		var silent *silentServer
		if errors.As(err, &silent) != (tt.silent != "") || silent != nil && silent.server != tt.silent || err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %v", tt.words, err)
		}
	}
	for words, id := range map[string]string{ // what is spelt out, or declared, is not in doubt
		"github.search_repos_v2": "github.search_repos_v2", "mcp-github-search-repos": "github.search_repositories", "mcp__a-b__c": "a-b.c",
	} {
		m, _, err := resolve(tools, []string{words})
		if err != nil || tools[m.at].id() != id {
			t.Errorf("%q: %v", words, err)
		}
	}
	if _, _, err := resolve(tools, []string{"slakc.send"}); err == nil {
		t.Error("a misspelt server is found")
	} else if _, hint := classify(err); !strings.Contains(hint, `"slack.send"`) {
		t.Errorf("hint: %s", hint)
	}
}

// TestAmbiguityIsBounded: a server that lists thousands of tools that are alike fills no screen.
func TestAmbiguityIsBounded(t *testing.T) {
	var tools []listed
	for i := range 1 << 10 {
		name := ""
		for bit := range 10 {
			name += string("a-a_"[2*(i>>bit&1)]) + string("a-a_"[2*(i>>bit&1)+1])
		}
		tools = append(tools, listed{server: "s", tool: name, served: fmt.Sprintf("s__%d", i)})
	}
	_, _, err := resolve(tools, []string{"mcp-s-" + strings.Repeat("a-", 10)})
	if err == nil || len(err.Error()) > 600 || !strings.Contains(err.Error(), "and 1016 more") {
		t.Errorf("%v", err)
	}
}

// FuzzResolve: whatever is typed, what is found is named by it, and the identity of every tool finds that tool.
func FuzzResolve(f *testing.F) {
	for _, words := range []string{"mcp-a-b-c", "notion search -", "a__b-c", "mcp__x__y", "ls", ""} {
		f.Add(words, "x", "a.b_c-d")
	}
	f.Fuzz(func(t *testing.T, words, server, name string) {
		tools := town()
		if units.IsServer(server) && name != "" {
			tools = append(tools, listed{server: server, tool: name, served: server + "__" + name})
		}
		split := strings.Fields(words)
		m, rest, err := resolve(tools, split)
		if err == nil {
			by, taken := tools[m.at].named(split)
			if by != m.by || by == notNamed || len(rest) != len(split)-taken {
				t.Errorf("%q is %s by %d with %q", split, tools[m.at].id(), m.by, rest)
			}
		}
		for _, tool := range tools {
			if m, _, err := resolve(tools, []string{tool.id()}); err != nil || tools[m.at].id() != tool.id() || m.by != byIdentity {
				t.Errorf("%q is not found: %v", tool.id(), err)
			}
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	var tools []listed
	for i := range 20_000 {
		tools = append(tools, listed{server: fmt.Sprintf("s%d", i%50), tool: fmt.Sprintf("tool_%d", i), served: fmt.Sprintf("s%d__tool_%d", i%50, i)})
	}
	for _, word := range []string{"s1.tool_19951", "mcp-s1-tool-19951", "mcp-s1-tool-1995x"} {
		b.Run(word, func(b *testing.B) {
			for b.Loop() {
				_, _, _ = resolve(tools, []string{word})
			}
		})
	}
}

// TestNamesOfInstances: the file's name does for the server's, and takes no call from what is called so exactly.
func TestNamesOfInstances(t *testing.T) {
	tools := []listed{
		{server: "browser-research", tool: "click"}, {server: "browser-research", tool: "read.page"}, {server: "browser", tool: "click"}, {server: "browser", tool: "research.go"},
		{server: "a-b-c", tool: "d"}, {server: "browser-silent"},
	}
	for words, want := range map[string]string{
		"browser.research click": "browser-research.click", "browser.research.click": "browser-research.click", "browser.research__click": "browser-research.click",
		"browser.research.read.page": "browser-research.read.page", "browser.research.go": "browser.research.go", "a.b-c.d": "a-b-c.d", "browser click": "browser.click",
		"a-b.c.d": "a-b-c.d", "browser.research": "", "browser.other.click": "", "xbrowser.research.click": "",
	} {
		m, _, err := resolve(tools, strings.Fields(words))
		if got := map[bool]string{true: tools[m.at].id()}[err == nil]; got != want {
			t.Errorf("%q is %q, %v, want %q", words, got, err, want)
		}
	}
	var silent *silentServer
	if _, _, err := resolve(tools, []string{"browser.silent.click"}); !errors.As(err, &silent) || silent.server != "browser-silent" {
		t.Errorf("of a server without tools: %v", err)
	}
}
