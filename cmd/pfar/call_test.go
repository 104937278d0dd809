package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator/ask"
)

const searchSchema = `{"type":"object","properties":{"query":{"type":"string","description":"what to \u001b[31mfind"},"page_size":{"type":"integer","default":10},
	"sort":{"enum":["up","down"]},"tag":{"type":"array","items":{"type":"string"}},"json":{"type":"string"},"odd name":{}},"required":["query"]}`

// longTool is as long as MCP lets a tool's name be.
var longTool = strings.Repeat("tool_", 25) + "end"

// aliased gives a tool the name that the gateway serves it by, and aliases.
func aliased(t server.ServerTool, served string, aliases ...string) server.ServerTool {
	t.Tool.Name = served
	t.Tool.Meta.AdditionalFields["pfar/aliases"] = aliases
	return t
}

func searchGateway(t *testing.T, stdin string) *bench {
	b := newBench(t, stdin)
	b.serveHTTP(t, gatewayOf(
		tooled("notion", "search", "Search pages. Second sentence.", searchSchema, echo),
		tooled("web", "refuse", "Is refused", `{"type":"object"}`, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			r := mcp.NewToolResultError("pfar has not called the tool: at /a")
			r.Meta = mcp.NewMetaFromMap(map[string]any{"pfar/violation": map[string]any{"path": "/a"}})
			return r, nil
		}),
		tooled("notion", "fail", "Fails", `{"type":"object"}`, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError("no such page \x1b[2J"), nil
		}),
		tooled("notion", "break", "Breaks", `{"type":"object"}`, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, errors.New("upstream is gone")
		}),
		tooled("my-files", "read.file", "Read\na file", `{"type":"object","properties":{"path":{"type":"string"}}}`, echo),
		aliased(tooled("web", "search_for_all", "Search the web", searchSchema, echo), "web__search_for_all", "mcp-web-find-all", "find-all"),
		aliased(tooled("web", longTool, "Long", searchSchema, echo), "web__tool_tool_tool~0a1b2c3d"),
		tooled("notion", "work-list", "Lists", `{"type":"object"}`, echo),
		tooled("notion-work", "list", "Lists", `{"type":"object"}`, echo),
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
		{"arguments that pfar refuses", "", []string{"web.refuse"}, 2, "", "pfar: pfar has not called the tool: at /a\nhint: pfar call web.refuse --help"},
		{"arguments that pfar refuses, as JSON", "", []string{"web.refuse", "-o", "json"}, 2, `"pfar/violation"`, "pfar has not called web.refuse"},
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
		{"no such server", "", []string{"notoin.search"}, 4, "", `did you mean "notion.search"?`},
		{"form of other programs", "", []string{"mcp__notion__search", "--query", "a"}, 0, `{"query":"a"}`, ""},
		{"form with dashes", "", []string{"mcp-my-files-read.file", "--path", "/x"}, 0, `{"path":"/x"}`, ""},
		{"two words, alike", "", []string{"my_files", "read.file", "--path", "/x"}, 0, `{"path":"/x"}`, ""},
		{"alias", "", []string{"mcp-web-find-all", "--query", "a"}, 0, `{"query":"a"}`, ""},
		{"alias, alike, and standard input", `{"query":"stdin"}`, []string{"find_all", "-"}, 0, `{"query":"stdin"}`, ""},
		{"name that the gateway shortened", "", []string{"web." + longTool, "--query", "a"}, 0, `{"query":"a"}`, ""},
		{"its other names in help", "", []string{"mcp-web-find-all", "--help"}, 0, "Also called:\n  web__search_for_all, mcp-web-find-all, find-all\n", ""},
		{"ambiguous", "", []string{"mcp-notion-work-list"}, 2, "", `"notion-work.list", "notion.work-list"` + "\nhint: write NAME.TOOL: notion-work.list"},
		{"stray argument of an alias", "", []string{"find-all", "x"}, 2, "", `unexpected argument "x"`},
		{"which tool", "", []string{"notion"}, 2, "", `which tool of "notion"?` + "\nhint: pfar tools notion"},
		{"no line to be copied", "", []string{"evil.x;reboot", "--odd"}, 2, "", "unknown flag: --odd\nhint: pfar call NAME.TOOL --help\n"},
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
	plain := []server.ServerTool{
		tooled("notion", "search", "Search pages. Second sentence.", searchSchema, echo),
		tooled("my-files", "read.file", "Read\na file", `{"type":"object"}`, echo),
		tooled("evil", "x;reboot", "\x1b]0;owned\x07", `{"type":"object"}`, echo),
	}
	found := aliased(tooled("web", "all", "Search the web", searchSchema, echo), "web__all", "find-all", "f\x1b[2J")
	tests := []struct {
		tools []server.ServerTool
		want  string
	}{
		{plain, `TOOL                DOES   LABEL     DESCRIPTION
evil.x;reboot       write  internal  \x1b]0;owned\x07
my-files.read.file  write  internal  Read
notion.search       write  internal  Search pages
`},
		{append(plain[:1:1], found), `TOOL           ALIAS               DOES   LABEL     DESCRIPTION
notion.search                      write  internal  Search pages
web.all        find-all, f\x1b[2J  write  internal  Search the web
`},
	}
	for _, tt := range tests {
		b := newBench(t, "")
		b.serveHTTP(t, gatewayOf(tt.tools...))
		if code := b.run(t.Context(), []string{"tools"}); code != 0 || b.out.String() != tt.want {
			t.Errorf("exit %d, got:\n%s\nwant:\n%s%s", code, b.out, tt.want, b.err)
		}
	}
}

// TestToolsOf: pfar tools takes a server, and whatever pfar call takes for a tool.
func TestToolsOf(t *testing.T) {
	first := searchGateway(t, "")
	for args, want := range map[string]string{
		"notion": "break fail search work-list", "my_files": "read.file", "notion search": "search", "notion__search": "search", "mcp-my-files-read.file": "read.file",
		"find-all": "search_for_all", "notion-work": "list",
	} {
		b := first.again("")
		var tools []tool
		if code := b.run(t.Context(), append([]string{"tools", "--json"}, strings.Fields(args)...)); code != 0 || json.Unmarshal(b.out.Bytes(), &tools) != nil {
			t.Errorf("%q: exit %d, %s%s", args, code, b.out, b.err)
		}
		var names []string
		for _, tool := range tools {
			names = append(names, tool.Meta.Tool)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
	first.pfard(t, control.Report{Servers: []control.Server{{Name: "slow", State: control.BackOff, Detail: "crashed, again in 5 s"}, {Name: "notion-play", State: control.Stopped}}}, nil)
	for args, want := range map[string]string{
		"tools slow":                 "1 slow offers no tools now: it is back-off: crashed, again in 5 s\nhint: pfar logs slow\n",
		"call slow.x":                "1 slow offers no tools now: it is back-off: crashed, again in 5 s\nhint: pfar logs slow\n",
		"tools notion-play":          "1 notion-play offers no tools now: it is stopped\nhint: pfar start notion-play\n",
		"call mcp-notion-play-x":     "1 notion-play offers no tools now: it is stopped\nhint: pfar start notion-play\n",
		"tools slov":                 "4 no such server: \"slov\"\nhint: did you mean \"slow\"?\n",
		"tools notion serch":         "4 no such tool: \"notion.serch\"\nhint: did you mean \"notion.search\"?\n",
		"tools mcp-notion-serch":     "4 no such tool: \"mcp-notion-serch\"\nhint: did you mean \"notion.search\"?\n",
		"tools find-all x":           "2 unexpected argument \"x\"\nhint: pfar tools NAME\n",
		"tools mcp-notion-work-list": "2 \"mcp-notion-work-list\" may name any of 2 tools: \"notion-work.list\", \"notion.work-list\"\nhint: write NAME.TOOL: notion-work.list\n",
	} {
		b := first.again("")
		code := b.run(t.Context(), strings.Fields(args))
		if got := fmt.Sprint(code) + strings.TrimPrefix(b.err.String(), "pfar:"); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

func TestNotRunning(t *testing.T) {
	for _, args := range [][]string{{"tools"}, {"tools", "a"}, {"call", "a.b"}, {"connect"}, {"status"}, {"start", "a"}, {"vault", "list"}} {
		b := newBench(t, "")
		code := b.run(t.Context(), args)
		if code != 5 || !strings.HasPrefix(b.err.String(), "pfar: pfar is not running: ") || !strings.Contains(b.err.String(), `hint: start it with "pfar up"`) {
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
	if _, err := ask.Dial(t.Context(), b.dirs.Gateway(), 4242); !errors.Is(err, control.ErrDenied) && os.Getuid() != 0 {
		t.Errorf("another user's directory: %v", err)
	}
}

func TestCompletion(t *testing.T) {
	first := searchGateway(t, "")
	first.pfard(t, control.Report{Servers: []control.Server{{Name: "notion", State: control.Running, Tools: 2}}}, nil)
	if b := first.again(""); b.run(t.Context(), []string{"client", "add", "desk"}) != 0 {
		t.Fatal(b.err)
	}
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"call", ""}, "my-files.read.file notion-work.list notion.break notion.fail notion.search notion.work-list web.refuse web.search_for_all mcp-web-find-all find-all web." + longTool + " :4"},
		{[]string{"call", "notion", ""}, "break fail search work-list :4"},
		{[]string{"call", "my_files", ""}, "read.file :4"},
		{[]string{"call", "notion."}, "notion.break notion.fail notion.search notion.work-list :4"},
		{[]string{"call", "notion__se"}, "notion__search :4"},
		{[]string{"call", "mcp__notion__s"}, "mcp__notion__search :4"},
		{[]string{"call", "mcp-notion-"}, "mcp-notion-break mcp-notion-fail mcp-notion-search :4"}, // and none that is ambiguous
		{[]string{"call", "mcp_notion.w"}, "mcp_notion.work-list :4"},
		{[]string{"call", "mcp-evil"}, ":4"},
		{[]string{"call", "find"}, "find-all :4"},
		{[]string{"call", "find-all", "--q"}, "--query --arg-json --page-size --sort --tag --help --json --output :4"},
		{[]string{"call", "mcp-notion-search", "--sort", ""}, "up down :4"},
		{[]string{"tools", ""}, "notion :4"},
		{[]string{"tools", "mcp-notion-se"}, "notion mcp-notion-search :4"},
		{[]string{"describe", "mcp-notion-se"}, "notion mcp-notion-search :4"},
		{[]string{"tools", "notion", ""}, "break fail search work-list :4"},
		{[]string{"tools", "notion", "search", ""}, ":4"},
		{[]string{"call", "notion.search", "--"}, "--query --arg-json --page-size --sort --tag --help --json --output :4"},
		{[]string{"call", "notion.search", "--query", "x", "--"}, "--arg-json --page-size --sort --tag --help --json --output :4"},
		{[]string{"call", "notion.search", "--sort", ""}, "up down :4"},
		{[]string{"call", "notion.search", "--sort="}, "--sort=up --sort=down :4"},
		{[]string{"call", "notion.search", "--json", ""}, ":0"},
		{[]string{"call", "--output", ""}, ":0"},
		{[]string{"call", "--"}, "--json --output --help --client --session :4"},
		{[]string{"call", "--client", ""}, "desk :4"},
		{[]string{"connect", "notion", "--client", ""}, "desk :4"},
		{[]string{"client", "config", ""}, "desk :4"},
		{[]string{"client", "config", "desk", ""}, ":4"},
		{[]string{"audit", "--server", ""}, "notion :4"},
		{[]string{"audit", "--tool", ""}, ":4"},
		{[]string{"call", "ghost.x", "--"}, ":4"},
		{[]string{"restart", ""}, "notion :4"},
		{[]string{"restart", "notion", ""}, ":4"},
		{[]string{"vault", "remove", ""}, "notion_token other :4"},
		{[]string{"vault", "set", ""}, "notion_token other :4"},
		{[]string{"vault", "set", "other", ""}, ":4"},
		{[]string{"vault", "rotate", ""}, "notion_token other :4"},
		{[]string{"vault", "has", ""}, "notion_token other :4"},
		{[]string{"vault", "export", ""}, ":0"},
		{[]string{"vault", "export", "x", ""}, "notion_token other :4"},
		{[]string{"vault", "import", ""}, ":0"},
		{[]string{"vault", "set", "k", "--file", ""}, ":0"},
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

// TestPlainly: of an error of the gateway's socket only what it is about is left; all others stay as they are.
func TestPlainly(t *testing.T) {
	down := fmt.Errorf("%w: nothing answers at %q", control.ErrNotRunning, "/x")
	denied := fmt.Errorf("%w: connecting to %q", control.ErrDenied, "/x")
	other := fmt.Errorf("calling x.y: %w", errors.New("odd"))
	for _, tt := range []struct{ err, want error }{
		{down, down},
		{fmt.Errorf("greeting: %w", &url.Error{Op: "Post", URL: "u", Err: down}), down},
		{fmt.Errorf("calling x.y: %w", fmt.Errorf("transport: %w", denied)), denied},
		{control.ErrNotRunning, control.ErrNotRunning},
		{other, other},
		{nil, nil},
	} {
		if got := plainly(tt.err); got != tt.want {
			t.Errorf("%v: %v", tt.err, got)
		}
	}
}

// TestCallRefused: whom the gateway does not let in hears it in the gateway's words.
func TestCallRefused(t *testing.T) {
	for _, tt := range []struct {
		status, code int
		body, want   string
	}{
		{http.StatusNotFound, exitNoSuch, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"there is no client \u001b[2J of this name"}}`, `pfar: there is no client \x1b[2J of this name` + "\n"},
		{http.StatusForbidden, exitDenied, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"uid 7 is not a client"}}`, "pfar: uid 7 is not a client\n"},
		{http.StatusBadRequest, exitFailed, `{"error":"no\nhint: rm -r /"}`, "pfar: no\n  hint: rm -r /\n"}, // which is none of ours
		{http.StatusNotFound, exitFailed, `404 page not found`, `pfar: the gateway answers "404 Not Found": pfar and pfar-gateway may be of different versions` + "\n"},
		{http.StatusNotFound, exitFailed, `{"error":[]}`, `pfar: the gateway answers "404 Not Found": pfar and pfar-gateway may be of different versions` + "\n"},
	} {
		b := newBench(t, "")
		b.serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tt.status)
			fmt.Fprint(w, tt.body)
		}))
		if code := b.run(t.Context(), []string{"call", "--client", "nobody", "a.echo"}); code != tt.code || b.err.String() != tt.want {
			t.Errorf("%d %s: exit %d, %q", tt.status, tt.body, code, b.err)
		}
	}
}

// TestToolsEnd: a list whose cursor never ends is not followed for ever, also if nothing is in it.
func TestToolsEnd(t *testing.T) {
	b, g := newBench(t, ""), newScript()
	pages := 0
	g.answer["tools/list"] = func(w http.ResponseWriter, r *http.Request, m message) {
		pages++
		reply("application/json", fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"result":{"tools":[],"nextCursor":"%d"}}`, pages))(w, r, m)
	}
	b.serveHTTP(t, g)
	if code := b.run(t.Context(), []string{"tools"}); code != 0 || pages != maxPages || b.err.String() != "no tools\n" {
		t.Errorf("exit %d after %d pages, %s", code, pages, b.err)
	}
}

// TestArgumentsAreInterrupted: a pipe that nobody writes to is not waited for when the reader has had enough.
func TestArgumentsAreInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whoever waits is let go
		if f, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
			f.Close()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := newBench(t, "")
	if _, err := (toolsVerb{b.pfar}).readArguments(ctx, "@"+pipe); !errors.Is(err, context.Canceled) {
		t.Errorf("arguments: %v", err)
	}
	if _, err := (vaultVerb{b.pfar}).identities(ctx, openers{names: []string{pipe}}); !errors.Is(err, context.Canceled) {
		t.Errorf("identities: %v", err)
	}
}
