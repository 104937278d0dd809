package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/wants"
)

// choresOf are views of a pfard whose user has learned of a server and can import the file of a program. text stands
// wherever the server or the file can put one.
func choresOf(n int, text string) map[string]string {
	found := &wants.Lesson{Refused: []wants.Denial{{Target: "10.0.0.1:443" + text, Reason: text, Times: 2}}}
	f := chores.File{File: "/home/ann/.cursor/mcp.json" + text}
	for i := range n {
		found.Suggested = append(found.Suggested,
			wants.Suggestion{Entry: fmt.Sprintf("x%d.example", i), Ports: []uint16{443}, Protocols: []string{text}},
			wants.Suggestion{Entry: "- " + text, LookedUp: true, Times: 1})
		f.Servers = append(f.Servers, chores.Server{
			Name: "Echo" + text, Server: "echo", Package: "npm:echo" + text, Absent: true,
			Declaration: "description = \"" + text + "\"\nserver {\n}\n",
			Secrets:     []chores.Secret{{Key: "echo_token" + text, Variable: "TOKEN" + text}},
			Notes:       []chores.Note{{Text: "a note" + text}},
		}, chores.Server{Name: "Old" + text, Refused: "it exists already" + text})
	}
	lesson, _ := json.Marshal(chores.Learning{ // strings, numbers and times
		Began: time.Unix(1, 0), Ended: time.Unix(2, 0), Failed: text, Found: found,
	})
	preview, _ := json.Marshal(chores.Importing{
		Program: "cursor", Digest: strings.Repeat("ab", 32), Import: &chores.Import{Files: []chores.File{f}},
	})
	return map[string]string{attach.ViewLesson: string(lesson), attach.ViewImport: string(preview)}
}

// inArguments lists the processes that have a text among their arguments.
func inArguments(t *testing.T, text string) (list []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	check(t, err)
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			list = append(list, path)
		}
	}
	return list
}

// orders lists what the operator has ordered at a console, of these methods.
func (s *stage) orders(methods ...string) (list []string) {
	s.t.Helper()
	for _, r := range s.records(nil) {
		if r.Channel == "console" && r.Outcome == "requested" && slices.Contains(methods, r.Method) {
			list = append(list, string(r.Kind)+" "+r.Method+" "+r.Server+r.Subject)
		}
	}
	return list
}

// TestConsoleImports: a person sees at the console what pfar would make of a program's file, and has it done. The
// server runs with its token, which stands in no page, log or argument.
func TestConsoleImports(t *testing.T) {
	if os.Getuid() == 0 {
		return // root has no console: TestAsOrdinaryUser
	}
	t.Parallel()
	p := prepare(t, nil)
	p.clientHome(map[string]string{cursorFile: fmt.Sprintf(`{"mcpServers": {
		"Echo": {"command": %q, "env": {"ECHO_TOKEN": %q}}, "none": {"command": "/nowhere/x"}}}`,
		program(t, "echo"), importedToken)})
	p.up()
	s := &stage{pfar: p}
	b, now := s.visit(`
await page.click("nav >> text=Add");
while (!(await page.$('a[href$="/import/cursor"]'))) await page.reload();
if (await page.$('a[href$="/import/zed"]')) throw new Error("zed has no file");
await page.click('a[href$="/import/cursor"]');
await page.waitForSelector("button[value=import], section.bad");`)
	for _, want := range []string{
		"+ server {", "ECHO_TOKEN, into the vault as echo_token", "Import 1 server", "Command not found", cursorFile,
	} {
		if !strings.Contains(now.Text, want) {
			t.Errorf("the preview has no %q: %s", want, now.Text)
		}
	}
	shown := now.Text
	if got := p.declaredFiles(); len(got) > 0 || p.vaultKeys() != "[]" {
		t.Errorf("before a yes there are %q, %s", got, p.vaultKeys())
	}
	now = b.looks(`
await page.click("button[value=import]");
await page.waitForSelector("text=The import ended at", { timeout: args.soon });`,
		map[string]any{"soon": soon.Milliseconds()})
	if shown += now.Text; !strings.Contains(now.Text, "Imported: server") {
		t.Fatalf("the result: %s", now.Text)
	}
	p.awaitRunning("echo")
	if keys := p.vaultKeys(); !strings.Contains(keys, `"key": "echo_token"`) {
		t.Errorf("the vault has %s", keys)
	}
	now = b.looks(`
await page.click("text=Read the file again");
await page.waitForSelector("text=There is nothing to import");
await page.click("text=Servers");
await page.click("main h2 a:has-text('echo')");`, nil)
	if shown += now.Text; strings.Contains(shown, importedToken) {
		t.Error("a page has the token")
	}
	if got := p.trace(importedToken); got != nil {
		t.Errorf("the token is in %q", got)
	}
	if got := inArguments(t, importedToken); got != nil {
		t.Errorf("the token is among the arguments of %q", got)
	}
	if got := s.orders("import"); !slices.Equal(got, []string{string(audit.Declaration) + " import cursor"}) {
		t.Errorf("the audit has %q", got)
	}
	if out, stderr, code := p.command("import", "--undo", "--yes"); code != 0 || len(p.declaredFiles()) > 0 {
		t.Errorf("undo: %d: %s %s", code, out, stderr)
	}
}

// TestConsoleLearns: a person has a server learn at the console, sees the host that it wants, allows it, and the
// declaration has it.
func TestConsoleLearns(t *testing.T) {
	if os.Getuid() == 0 {
		return // root has no console: TestAsOrdinaryUser
	}
	t.Parallel()
	p := start(t, map[string]string{"asks.hcl": declare(program(t, "clients"), nil, "")})
	s := &stage{pfar: p}
	p.awaitRunning("asks")
	b, now := s.visit(`
await page.click("text=Servers");
await page.click("main h2 a:has-text('asks')");
await page.click("button[value=learn]");
await page.waitForSelector("text=pfar has watched since", { timeout: 60000 });`)
	if !strings.Contains(now.Text, "asks restarts in learning mode") || strings.Contains(now.Text, "Find the hosts") {
		t.Errorf("while it learns: %s", now.Text)
	}
	p.await("asks learns", soon, func(r control.Report) bool {
		one := server(r, "asks")
		return one.Learning && one.State == control.Running
	})
	p.client("/mcp").must("asks__run", map[string]any{"argv": []string{"go", "http", "https://cdn.example.com/"}})
	s.operate(0, "stop", "asks") // or it would take two minutes
	now = b.looks(`await page.waitForSelector("text=Allow cdn.example.com", { timeout: args.soon });`,
		map[string]any{"soon": soon.Milliseconds()})
	if !strings.Contains(now.Text, "Find the hosts that it needs") {
		t.Errorf("the result: %s", now.Text)
	}
	now = b.looks(`
await page.click("text=Allow cdn.example.com");
await page.click("button[value=allow]");
await page.waitForSelector("text=Its declaration allows this host");`, nil)
	if !strings.Contains(now.Text, "asks may reach cdn.example.com") {
		t.Errorf("after a yes: %s", now.Text)
	}
	if text := string(mustRead(t, p.path("asks.hcl"))); !strings.Contains(text, `"cdn.example.com"`) {
		t.Errorf("the declaration: %s", text)
	}
	if got := s.orders("learn"); !slices.Equal(got, []string{string(audit.Lifecycle) + " learn asks"}) {
		t.Errorf("the audit has %q", got)
	}
}
