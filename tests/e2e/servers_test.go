package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

func TestEverything(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"everything.hcl": declare("node", []string{npm(t, "@modelcontextprotocol/server-everything/dist/index.js")}, "")})
	r := p.awaitRunning("everything")
	if got := server(r, "everything").Tools; got < 10 {
		t.Errorf("%d tools in the status", got)
	}
	c := p.client("/mcp")
	if names := c.names(); !slices.Contains(names, "everything__echo") {
		t.Errorf("tools: %q", names)
	}
	if got := c.must("everything__echo", map[string]any{"message": "hello"}); got != "Echo: hello" {
		t.Errorf("echo returned %q", got)
	}
	own := p.client("/mcp/everything")
	if names := own.names(); !slices.Contains(names, "echo") || slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "__") }) {
		t.Errorf("tools of the server itself: %q", names)
	}
	if got := own.must("get-sum", map[string]any{"a": 2, "b": 3}); !strings.Contains(got, "5") {
		t.Errorf("get-sum returned %q", got)
	}
	for method, want := range map[string]string{"prompts/list": "simple-prompt", "resources/list": "uri"} {
		if raw, err := own.request(method, map[string]any{}); err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("%s: %.300s, %v; want %q in it", method, raw, err, want)
		}
	}
	// No host is declared, so there is no way to any.
	refused, err := own.call("gzip-file-as-resource", map[string]any{"data": "https://example.com/"})
	if err != nil || !refused.isError {
		t.Errorf("fetching from a host that is not declared: %+v, %v", refused, err)
	}
}

func TestFilesystem(t *testing.T) {
	t.Parallel()
	files := directory(t, "")
	allowed, other := filepath.Join(files, "allowed"), filepath.Join(files, "other")
	for dir, text := range map[string]string{allowed: "for the server", other: "not for the server"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(other, "note.txt"), filepath.Join(allowed, "link.txt")); err != nil {
		t.Fatal(err)
	}
	// The server is told that all of files is its own: it is the sandbox that has to say no.
	args := []string{npm(t, "@modelcontextprotocol/server-filesystem/dist/index.js"), files}
	p := start(t, map[string]string{"files.hcl": declare("node", args, fmt.Sprintf("sandbox { read_only = [%s] }", quote(allowed)))})
	p.awaitRunning("files")
	c := p.client("/mcp/files")
	if got := c.must("read_text_file", map[string]any{"path": filepath.Join(allowed, "note.txt")}); !strings.Contains(got, "for the server") {
		t.Errorf("the declared file reads %q", got)
	}
	for _, path := range []string{filepath.Join(other, "note.txt"), filepath.Join(allowed, "link.txt")} {
		r, err := c.call("read_text_file", map[string]any{"path": path})
		if err != nil || !r.isError || strings.Contains(r.text, "not for the server") {
			t.Errorf("reading %s: %+v, %v", path, r, err)
		}
	}
	r, err := c.call("write_file", map[string]any{"path": filepath.Join(allowed, "new.txt"), "content": "x"})
	if err != nil || !r.isError {
		t.Errorf("writing where only reading is declared: %+v, %v", r, err)
	}
	if _, err := os.Lstat(filepath.Join(allowed, "new.txt")); !os.IsNotExist(err) {
		t.Errorf("a file was made where only reading is declared: %v", err)
	}
}

func TestMemoryOutlivesRestart(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"memory.hcl": declare("node", []string{npm(t, "@modelcontextprotocol/server-memory/dist/index.js")},
		"env = { MEMORY_FILE_PATH = \"/home/mcp/memory.json\" }\nsandbox { state = true }")})
	p.awaitRunning("memory")
	p.client("/mcp/memory").must("create_entities", map[string]any{"entities": []any{
		map[string]any{"name": "pfar", "entityType": "program", "observations": []string{"remembers"}},
	}})
	before := p.mark()
	if _, stderr, code := p.command("restart", "memory"); code != 0 {
		t.Fatalf("pfar restart: %d: %s", code, stderr)
	}
	p.awaitFrom(before, "memory running again", soon, func(r control.Report) bool { return server(r, "memory").State == control.Running })
	if got := p.client("/mcp/memory").must("read_graph", map[string]any{}); !strings.Contains(got, "remembers") {
		t.Errorf("after a restart the graph is %s", got)
	}
	p.again()
	p.awaitRunning("memory")
	if got := p.client("/mcp/memory").must("read_graph", map[string]any{}); !strings.Contains(got, "remembers") {
		t.Errorf("after a restart of pfar the graph is %s", got)
	}
}

func TestPagesOfTools(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"many.hcl": echo(t, "-tools", "137", "-page", "10")})
	r := p.awaitRunning("many")
	names := p.client("/mcp/many").names()
	count := 0
	for _, n := range names {
		if strings.HasPrefix(n, "dummy-") {
			count++
		}
	}
	if count != 137 || server(r, "many").Tools != len(names) {
		t.Errorf("%d of 137 dummy tools, %d in all, %d in the status", count, len(names), server(r, "many").Tools)
	}
}

// TestExamples checks what examples/ says, and runs those that need no token.
func TestExamples(t *testing.T) {
	t.Parallel()
	dir, err := npmServers()
	check(t, err)
	p := prepare(t, examples(t))
	p.env = append(p.env, "PFAR_SERVERS_DIR="+dir)
	if stdout, stderr, code := p.command("check", p.declarations); code != 0 || !strings.Contains(stdout, "0 errors, 0 warnings") {
		t.Errorf("pfar check: %d\n%s%s", code, stdout, stderr)
	}
	p.up()
	r := p.awaitRunning("everything", "files", "memory", "pipe")
	if s := server(r, "linear"); s.State != control.NeedsLogin || s.Remedy.Command != "pfar login linear" {
		t.Errorf("linear is %s: %s; %s", s.State, s.Detail, s.Remedy)
	}
	if s := server(r, "notion"); s.State != control.Waiting || !strings.Contains(s.Detail, "notion_token") {
		t.Errorf("notion is %s: %s", s.State, s.Detail)
	}
	p.await("socket and port asleep", soon, func(r control.Report) bool {
		return server(r, "socket").State == control.Sleeping && server(r, "port").State == control.Sleeping
	})
	for _, call := range []string{"socket.echo --message here", "port.echo --message here", "pipe.read_graph"} {
		if stdout, stderr, code := p.command(append([]string{"call"}, strings.Fields(call)...)...); code != 0 {
			t.Errorf("pfar call %s: %d\n%s%s", call, code, stdout, stderr)
		}
	}
	for _, name := range []string{"everything", "files", "memory", "notion", "linear", "pipe", "port", "socket"} {
		for _, verb := range []string{"plan", "explain"} {
			if stdout, stderr, code := p.command(verb, name); code != 0 || !strings.Contains(stdout, name) {
				t.Errorf("pfar %s %s: %d\n%s%s", verb, name, code, stdout, stderr)
			}
		}
	}
}

// examples reads the folder that users read, or the copy of it that another user can.
func examples(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, e := range exampleFiles(t) {
		b, err := os.ReadFile(e)
		check(t, err)
		all[filepath.Base(e)] = string(b)
	}
	if len(all) < 4 {
		t.Fatalf("%d examples", len(all))
	}
	return all
}

func exampleFiles(t *testing.T) []string {
	t.Helper()
	dir := os.Getenv(examplesVariable)
	if dir == "" {
		dir = filepath.Join("..", "..", "examples")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.*"))
	check(t, err)
	return paths
}
