package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/handover"
)

// TestUndo: what the filesystem server writes, edits, moves and makes is listed with its calls, and taken back; that,
// too. The memory server's home is taken back as well.
func TestUndo(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	check(t, os.Chmod(files, 0o777))
	write := func(name, text string) { check(t, os.WriteFile(filepath.Join(files, name), []byte(text), 0o666)) }
	for _, name := range []string{"a.txt", "b.txt", "c.txt"} {
		write(name, "first "+name+"\n")
		check(t, os.Chmod(filepath.Join(files, name), 0o666)) // whatever the umask is: under root the server is another user
	}
	p := start(t, map[string]string{
		"files.hcl": declare("node", []string{npm(t, "@modelcontextprotocol/server-filesystem/dist/index.js"), files},
			fmt.Sprintf("sandbox { writable = [%s] }", quote(files))),
		"memory.hcl": declare("node", []string{npm(t, "@modelcontextprotocol/server-memory/dist/index.js")},
			"env = { MEMORY_FILE_PATH = \"/home/mcp/memory.json\" }\nsandbox { state = true }"),
	})
	p.awaitRunning("files", "memory")
	c := p.client("/mcp/files")
	at := func(name string) string { return filepath.Join(files, name) }
	c.must("write_file", map[string]any{"path": at("a.txt"), "content": "second"})
	edit := map[string]any{"oldText": "first", "newText": "other"}
	c.must("edit_file", map[string]any{"path": at("b.txt"), "edits": []any{edit}})
	c.must("move_file", map[string]any{"source": at("c.txt"), "destination": at("d.txt")})
	c.must("create_directory", map[string]any{"path": at("new")})
	h := p.undo(t, "files")
	if len(h.Steps) != 4 || len(h.Steps[0].Calls) != 1 || len(h.Steps[2].Changes) != 2 {
		t.Fatalf("%+v", h.Steps)
	}
	changed := treeOf(t, files)
	restored := p.undo(t, "files", "--since", h.Steps[0].Calls[0].ID, "--yes")
	for _, name := range []string{"a.txt", "b.txt", "c.txt"} {
		if b, err := os.ReadFile(at(name)); string(b) != "first "+name+"\n" {
			t.Errorf("%s: %q, %v; %+v", name, b, err, restored.Restores)
		}
	}
	if entries, err := os.ReadDir(files); err != nil || len(entries) != 3 {
		t.Errorf("%v, %v", entries, err)
	}
	h = p.undo(t, "files")
	last := h.Steps[len(h.Steps)-1]
	if len(last.Calls) != 1 || last.Calls[0].Tool != "pfar undo" {
		t.Fatalf("%+v", last)
	}
	p.undo(t, "files", "--since", last.Calls[0].ID, "--yes")
	if got := treeOf(t, files); got != changed {
		t.Errorf("after all is undone:\n%s\nwant:\n%s", got, changed)
	}
	m := p.client("/mcp/memory")
	m.must("create_entities", map[string]any{"entities": []any{
		map[string]any{"name": "pfar", "entityType": "program", "observations": []string{"remembers"}},
	}})
	p.undo(t, "memory", "--since", "1h", "--yes")
	if got := m.must("read_graph", map[string]any{}); strings.Contains(got, "remembers") {
		t.Errorf("the graph is %s", got)
	}
	_, stderr, code := p.command("undo", "files", "--since", "nocall", "--yes")
	if code == 0 || !strings.Contains(stderr, "nothing is kept from before") {
		t.Errorf("an unknown call: %d, %s", code, stderr)
	}
}

// undo is what pfar undo answers.
func (p *pfar) undo(t *testing.T, args ...string) (h handover.History) {
	t.Helper()
	stdout, stderr, code := p.command(append([]string{"undo", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("pfar undo %q: %d: %s", args, code, stderr)
	}
	check(t, json.Unmarshal([]byte(stdout), &h))
	return h
}

// treeOf is what is in a folder, in words.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var w strings.Builder
	check(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			fmt.Fprintln(&w, path)
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(&w, "%s %q\n", path, b)
		return err
	}))
	return w.String()
}
