package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/pfar/pfar/cmd/pfard/control"
)

const searchSchema = `{"type":"object","properties":{"query":{"type":"string","description":"what to \u001b[31mfind"},"page_size":{"type":"integer","default":10},
	"sort":{"enum":["up","down"]},"tag":{"type":"array","items":{"type":"string"}},"json":{"type":"string"},"odd name":{}},"required":["query"]}`

func searchGateway(t *testing.T, stdin string) *bench {
	b := newBench(t, stdin)
	b.serveHTTP(t, gatewayOf(
		tooled("notion", "search", "Search pages. Second sentence.", searchSchema, echo),
		tooled("notion", "fail", "Fails", `{"type":"object"}`, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError("no such page \x1b[2J"), nil
		}),
		tooled("notion", "break", "Breaks", `{"type":"object"}`, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, errors.New("upstream is gone")
		}),
		tooled("my-files", "read.file", "Read\na file", `{"type":"object","properties":{"path":{"type":"string"}}}`, echo),
		tooled("evil", "x;reboot", "\x1b]0;owned\x07", `{"type":"object"}`, echo),
		server.ServerTool{Tool: mcp.NewTool("stray"), Handler: echo}, // not pfar's: no _meta
	))
	return b
}

func TestCall(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(file, []byte(`{"query":"from file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	first := searchGateway(t, "")
	tests := []struct {
		name, stdin string
		args        []string
		code        int
		out, err    string // contained
	}{
		{"flags", "", []string{"notion.search", "--query", "a b", "--page-size=3", "--tag", "x", "--tag", "y"}, 0, `{"page_size":3,"query":"a b","tag":["x","y"]}`, ""},
		{"aggregate name", "", []string{"notion__search", "--query", "a"}, 0, `{"query":"a"}`, ""},
		{"two words", "", []string{"notion", "search", "--query", "a"}, 0, `{"query":"a"}`, ""},
		{"tool with a dot", "", []string{"my-files.read.file", "--path", "/x"}, 0, `{"path":"/x"}`, ""},
		{"json literal", "", []string{"notion.search", "--json", `{"query":"a","odd name":[1]}`}, 0, `{"odd name":[1],"query":"a"}`, ""},
		{"json before the tool", "", []string{"--json", `{"query":"a"}`, "notion.search"}, 0, `{"query":"a"}`, ""},
		{"json from a file", "", []string{"notion.search", "--json", "@" + file}, 0, `{"query":"from file"}`, ""},
		{"dash", `{"query":"stdin"}`, []string{"notion.search", "-"}, 0, `{"query":"stdin"}`, ""},
		{"json dash and a flag", `{"query":"stdin"}`, []string{"notion.search", "--json", "-", "--sort", "up"}, 0, `{"query":"stdin","sort":"up"}`, ""},
		{"prefix", "", []string{"notion.search", "--query", "a", "--arg-json", "b"}, 0, `{"json":"b","query":"a"}`, ""},
		{"machine output", "", []string{"notion.search", "--query", "a", "--output", "json"}, 0, `"structuredContent": {`, ""},
		{"help of the tool", "", []string{"notion.search", "--help"}, 0, `--query      string`, ""},
		{"help of the verb", "", []string{"--help"}, 0, `Call one tool`, ""},
		{"tool error", "", []string{"notion.fail"}, 3, "", "no such page"},
		{"tool error as JSON", "", []string{"notion.fail", "-o", "json"}, 3, `"isError": true`, "notion.fail returned an error"},
		{"protocol error", "", []string{"notion.break"}, 1, "", "upstream is gone"},
		{"missing", "", []string{"notion.search"}, 2, "", "missing --query\nhint: pfar call notion.search --help"},
		{"enum", "", []string{"notion.search", "--query", "a", "--sort", "left"}, 2, "", "want one of up, down"},
		{"unknown flag", "", []string{"notion.search", "--quary", "a"}, 2, "", "did you mean --query?"},
		{"unknown flag before", "", []string{"--query", "a", "notion.search"}, 2, "", "unknown flag"},
		{"stray argument", "", []string{"notion.search", "--query", "a", "b"}, 2, "", `unexpected argument "b"`},
		{"no tool", "", nil, 2, "", "missing NAME.TOOL"},
		{"not an object", "", []string{"notion.search", "--json", "[]"}, 2, "", "not a JSON object"},
		{"null", "", []string{"notion.search", "--json", "null"}, 2, "", "null, not a JSON object"},
		{"no such file", "", []string{"notion.search", "--json", "@/nonexistent"}, 2, "", "reading arguments"},
		{"no such tool", "", []string{"notion.serch"}, 4, "", `did you mean "notion.search"?`},
		{"no such server", "", []string{"notoin.search"}, 4, "", `did you mean "notion"?`},
		{"bad output", "", []string{"notion.search", "--output", "xml"}, 2, "", `want "text" or "json"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := first.again(tt.stdin)
			code := b.run(t.Context(), append([]string{"call"}, tt.args...))
			if code != tt.code || !strings.Contains(b.out.String(), tt.out) || !strings.Contains(b.err.String(), tt.err) {
				t.Errorf("exit %d, want %d\nstdout: %s\nwant: %s\nstderr: %s\nwant: %s", code, tt.code, b.out, tt.out, b.err, tt.err)
			}
			if tt.code == 0 && b.err.Len() > 0 {
				t.Errorf("stderr: %s", b.err)
			}
			if strings.Contains(tt.name, "help") && strings.Contains(b.out.String(), "\x1b") {
				t.Errorf("help is not escaped: %q", b.out)
			}
		})
	}
}

func TestTools(t *testing.T) {
	first := searchGateway(t, "")
	b := first.again("")
	if code := b.run(t.Context(), []string{"tools"}); code != 0 {
		t.Fatal(code, b.err)
	}
	want := `TOOL                LABEL     DESCRIPTION
evil.x;reboot       internal  \x1b]0;owned\x07
my-files.read.file  internal  Read
notion.break        internal  Breaks
notion.fail         internal  Fails
notion.search       internal  Search pages
`
	if b.out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.out, want)
	}
	b = first.again("")
	var tools []tool
	if code := b.run(t.Context(), []string{"tools", "notion", "--json"}); code != 0 || json.Unmarshal(b.out.Bytes(), &tools) != nil || len(tools) != 3 {
		t.Errorf("exit %d, %d tools, %s", code, len(tools), b.out)
	}
	b = first.again("")
	b.pfard(t, control.Report{Servers: []control.Server{{Name: "slow", State: control.BackOff, Detail: "crashed, again in 5 s"}}}, nil)
	if code := b.run(t.Context(), []string{"tools", "slow"}); code != 1 || !strings.Contains(b.err.String(), "slow has no tools: it is back-off: crashed, again in 5 s") {
		t.Errorf("exit %d, %s", code, b.err)
	}
	b = first.again("")
	if code := b.run(t.Context(), []string{"call", "slow.x"}); code != 1 || !strings.Contains(b.err.String(), "hint: pfar logs slow") {
		t.Errorf("exit %d, %s", code, b.err)
	}
	b = first.again("")
	if code := b.run(t.Context(), []string{"tools", "slov"}); code != 4 || !strings.Contains(b.err.String(), `did you mean "slow"`) {
		t.Errorf("exit %d, %s", code, b.err)
	}
}

func TestNotRunning(t *testing.T) {
	for _, args := range [][]string{{"tools"}, {"call", "a.b"}, {"connect"}, {"status"}, {"start", "a"}, {"vault", "list"}} {
		b := newBench(t, "")
		if code := b.run(t.Context(), args); code != 5 || !strings.Contains(b.err.String(), `hint: start it with "pfar up"`) {
			t.Errorf("%q: exit %d, %s", args, code, b.err)
		}
	}
}

// TestDirectoryOfOthersIsRefused: a run directory that others may write to may hold anybody's socket.
func TestDirectoryOfOthersIsRefused(t *testing.T) {
	b := searchGateway(t, "")
	if err := os.Chmod(b.dirs.Run, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"tools"}, {"connect"}} {
		b := b.again("")
		if code := b.run(t.Context(), args); code != 6 {
			t.Errorf("%q: exit %d, want 6: %s", args, code, b.err)
		}
	}
	if _, err := dialGateway(t.Context(), b.dirs.Gateway(), 4242); !errors.Is(err, control.ErrDenied) && os.Getuid() != 0 {
		t.Errorf("another user's directory: %v", err)
	}
}

func TestCompletion(t *testing.T) {
	first := searchGateway(t, "")
	first.pfard(t, control.Report{Servers: []control.Server{{Name: "notion", State: control.Running, Tools: 2}}}, nil)
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"call", ""}, "my-files.read.file notion.break notion.fail notion.search :4"},
		{[]string{"call", "notion", ""}, "break fail search :4"},
		{[]string{"call", "notion.search", "--"}, "--query --arg-json --page-size --sort --tag --help --json --output :4"},
		{[]string{"call", "notion.search", "--query", "x", "--"}, "--arg-json --page-size --sort --tag --help --json --output :4"},
		{[]string{"call", "notion.search", "--sort", ""}, "up down :4"},
		{[]string{"call", "notion.search", "--sort="}, "--sort=up --sort=down :4"},
		{[]string{"call", "notion.search", "--json", ""}, ":0"},
		{[]string{"call", "--output", ""}, ":0"},
		{[]string{"call", "ghost.x", "--"}, ":4"},
		{[]string{"restart", ""}, "notion :4"},
		{[]string{"restart", "notion", ""}, ":4"},
		{[]string{"vault", "remove", ""}, "notion_token other :4"},
		{[]string{"vault", "set", ""}, "notion_token other :4"},
		{[]string{"vault", "set", "other", ""}, ":4"},
		{[]string{"doctor", ""}, ":4"},
		{[]string{"status", "--output", ""}, "text json :4"},
	}
	for _, tt := range tests {
		b := first.again("")
		b.run(t.Context(), append([]string{"__complete"}, tt.args...))
		var got []string
		for line := range strings.Lines(b.out.String()) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q: got %q, want %q", tt.args, got, tt.want)
		}
	}
	down := newBench(t, "")
	down.run(t.Context(), []string{"__complete", "call", ""})
	if down.out.String() != ":4\n" || strings.Contains(down.err.String(), "pfar:") {
		t.Errorf("when down: %q, %q", down.out, down.err)
	}
}

// TestCompletionGivesUp: a shell must not hang at Tab because pfard does.
func TestCompletionGivesUp(t *testing.T) {
	b := newBench(t, "")
	l := b.listen(t, b.dirs.Control())
	defer l.Close()
	go func() {
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			held = append(held, c) // and never answered
		}
		for _, c := range held {
			c.Close()
		}
	}()
	b.run(t.Context(), []string{"__complete", "logs", ""})
	if b.out.String() != ":4\n" {
		t.Errorf("got %q", b.out)
	}
}
