package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// editRun runs a command line with an editor, which is a command line of the shell.
type editRun func(editor string, args ...string) (int, *bench)

// editing is a bench with a declaration.
func editing(t *testing.T) (b *bench, p *fakePfard, file string, edit editRun) {
	t.Helper()
	b = newBench(t, "")
	dir := t.TempDir()
	file = filepath.Join(dir, "notion.hcl")
	if err := os.WriteFile(file, []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	servers := []control.Server{{Name: "notion", File: file}}
	report := control.Report{Directory: dir, Servers: servers}
	p = b.pfard(t, report, func(*fakePfard, control.Request) error { return nil })
	return b, p, file, func(editor string, args ...string) (int, *bench) {
		n := b.again("")
		was := n.getenv
		n.getenv = func(k string) string {
			if k == "EDITOR" {
				return editor
			}
			return was(k)
		}
		return n.run(t.Context(), args), n
	}
}

// copies are the texts that lie in temporary directories.
func copies(t *testing.T) (list []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), "pfar-edit-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(b))
	}
	return list
}

// TestEditRefuses: a text with mistakes changes nothing, and pfar keeps what the person typed.
func TestEditRefuses(t *testing.T) {
	_, p, _, edit := editing(t)
	var sent []control.Text
	answer := &control.Declared{}
	var refusal error
	p.declares = func(r control.Request) (*control.Declared, error) {
		if !r.Text.Dry {
			sent = append(sent, *r.Text)
		} else if refusal != nil && !errors.Is(refusal, control.ErrDenied) {
			return answer, nil
		}
		return answer, refusal
	}
	if code, n := edit("true", "edit", "ntion"); code != exitNoSuch || !strings.Contains(n.err.String(), "notion") {
		t.Errorf("no such server: exit %d, %s", code, n.err)
	}
	if code, n := edit("false", "edit", "notion"); code != exitFailed ||
		!strings.Contains(n.err.String(), "the editor \"false\"") {
		t.Errorf("an editor that fails: exit %d, %s", code, n.err)
	}
	if code, n := edit("true", "edit", "notion"); code != exitOK ||
		!strings.Contains(n.out.String(), "nothing was changed") {
		t.Errorf("nothing edited: exit %d, %s%s", code, n.out, n.err)
	}
	if len(sent) != 0 || len(copies(t)) != 0 {
		t.Errorf("sent %+v, left %q", sent, copies(t))
	}
	answer.Diagnostics = []control.Diagnostic{{Severity: "error", Text: "notion.hcl:1:1: error: Unknown\x1b[2J key\n"}}
	code, n := edit("echo wrong >", "edit", "notion")
	if words := n.err.String(); code != exitFailed || !strings.Contains(words, "Unknown") ||
		strings.Contains(words, "\x1b[2J") ||
		!strings.Contains(words, "nothing was changed; your text is in ") {
		t.Errorf("a mistake: exit %d, %q", code, words)
	}
	if want := control.DigestOf([]byte("old\n")); len(sent) != 1 || sent[0].Old != want ||
		string(sent[0].New) != "wrong\n" {
		t.Errorf("sent %+v", sent)
	}
	refusal = fmt.Errorf("%w: somebody has changed it", control.ErrChanged)
	if code, n := edit("echo late >", "edit", "notion"); code == exitOK ||
		!strings.Contains(n.err.String(), "somebody has changed") {
		t.Errorf("changed meanwhile: exit %d, %s", code, n.err)
	}
	refusal = control.ErrDenied
	if code, n := edit("echo denied >", "edit", "notion"); code != exitDenied {
		t.Errorf("who may not: exit %d, %s", code, n.err)
	}
	got := copies(t) // without an editor for who may not
	if slices.Sort(got); !slices.Equal(got, []string{"late\n", "wrong\n"}) {
		t.Errorf("left %q", got)
	}
}

// TestEdit: a sound text counts, the second time as well, and that of a package becomes the owner's.
func TestEdit(t *testing.T) {
	b, p, file, edit := editing(t)
	var sent []control.Text
	p.declares = func(r control.Request) (*control.Declared, error) {
		if !r.Text.Dry {
			sent = append(sent, *r.Text)
		}
		d := &control.Declared{Server: "notion", File: file, Done: string(r.Text.New) != "wrong\n"}
		if !d.Done {
			d.Diagnostics = []control.Diagnostic{{Severity: "error", Text: "a mistake\n"}}
		}
		return d, nil
	}
	if code, n := edit("echo new >", "edit", "notion", "--json"); code != exitOK ||
		!strings.Contains(n.out.String(), `"done": true`) {
		t.Errorf("exit %d, %s%s", code, n.out, n.err)
	}
	operator, program := terminalPair(t)
	if _, err := operator.WriteString("y\n"); err != nil {
		t.Fatal(err)
	}
	n := b.again("")
	was := n.getenv
	n.getenv = func(k string) string {
		if k == "VISUAL" {
			return `again() { if grep -q wrong "$1"; then echo right >"$1"; else echo wrong >"$1"; fi; }; again`
		}
		return was(k)
	}
	n.pfar.stdin = program
	if code := n.run(t.Context(), []string{"edit", "notion"}); code != exitOK ||
		!strings.Contains(n.err.String(), "a mistake\n") {
		t.Errorf("edited again: exit %d, %s%s", code, n.out, n.err)
	}
	p.set(func(r *control.Report) { r.Directory = "/etc/pfar/mcp.d" })
	if code, n := edit("echo mine >", "edit", "notion"); code != exitOK {
		t.Errorf("a package's: exit %d, %s", code, n.err)
	}
	var got []string
	for _, s := range sent {
		got = append(got, fmt.Sprint(strings.TrimSpace(string(s.New)), " ", s.Old == ""))
	}
	if want := []string{"new false", "wrong false", "right false", "mine true"}; !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
	if left := copies(t); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}

// TestRemove: pfar removes a declaration only after a yes, and only the text that it showed. --purge deletes the
// leftovers.
func TestRemove(t *testing.T) {
	b := newPins(t)
	servers := []control.Server{{Name: "notion", File: "/d/notion.hcl"}}
	p := b.pfard(t, control.Report{Servers: servers}, func(*fakePfard, control.Request) error { return nil })
	p.left = control.Leftovers{Keys: []string{"own"}, Items: []control.Leftover{{What: control.LeftID, ID: 60706}}}
	p.declares = func(r control.Request) (*control.Declared, error) {
		if !r.Text.Dry {
			p.set(func(r *control.Report) { r.Servers = nil })
		}
		return &control.Declared{Server: "notion", File: "/d/notion.hcl", Digest: "digest", Done: !r.Text.Dry}, nil
	}
	asked := func() (list []string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.requests {
			if r.Verb == control.Undeclare && !r.Text.Dry {
				list = append(list, "undeclare "+r.Text.Old)
			} else if r.Verb == control.Clean || r.Verb == control.Remove {
				list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s%s %t", r.Verb, r.Server, r.Key, r.Remove)))
			}
		}
		p.requests = nil
		return list
	}
	run := func(args ...string) (int, *bench) {
		n := b.again("")
		return n.run(t.Context(), append([]string{"remove"}, args...)), n
	}
	if code, n := run("notion"); code != exitUsage || !strings.Contains(n.err.String(), "--yes") {
		t.Errorf("nobody to ask: exit %d, %s", code, n.err)
	}
	if code, n := run("mail", "--yes"); code != exitNoSuch {
		t.Errorf("no such server: exit %d, %s", code, n.err)
	}
	operator, program := terminalPair(t)
	if _, err := operator.WriteString("n\n"); err != nil {
		t.Fatal(err)
	}
	n := b.again("")
	n.pfar.stdin = program
	if code := n.run(t.Context(), []string{"remove", "notion"}); code != exitFailed ||
		!strings.Contains(n.err.String(), "/d/notion.hcl") {
		t.Errorf("no: exit %d, %s", code, n.err)
	}
	if got := asked(); len(got) != 0 {
		t.Errorf("asked for %q", got)
	}
	if code, n := run("notion", "--yes"); code != exitOK || !slices.Equal(asked(), []string{"undeclare digest"}) {
		t.Errorf("--yes: exit %d, %s%s", code, n.out, n.err)
	}
	p.set(func(r *control.Report) { r.Servers = servers })
	code, n := run("notion", "--yes", "--purge", "--json")
	want := []string{"undeclare digest", "clean notion false", "clean notion true", "remove own false"}
	if got := asked(); code != exitOK || !slices.Equal(got, want) || !strings.Contains(n.out.String(), `"removed": true`) {
		t.Errorf("--purge: exit %d, %q, %s%s", code, got, n.out, n.err)
	}
}
