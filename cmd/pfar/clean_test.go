package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// leaving is a report of servers that left something behind.
func leaving(names ...string) control.Report {
	return control.Report{Undeclared: control.Undeclared{Leftovers: names}}
}

// TestClean: only a yes deletes, and it is exactly what was shown.
func TestClean(t *testing.T) {
	b := newPins(t)
	refuse := error(nil)
	p := b.pfard(t, leaving("mail", "notion"), func(_ *fakePfard, r control.Request) error { return refuse })
	asked := func() (list []string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.requests {
			if r.Verb != control.Status {
				list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s%s %t", r.Verb, r.Server, r.Key, r.Remove)))
			}
		}
		p.requests = nil
		return list
	}
	pinned := func() bool { return len(b.store.Status()) > 0 && b.store.Status()[0].Accepted > 0 }
	run := func(stdin string, args ...string) (int, *bench) {
		n := b.again(stdin)
		return n.run(t.Context(), append([]string{"clean"}, args...)), n
	}
	const look, remove = "clean notion false", "clean notion true"

	code, n := run("", "ntion")
	if code != exitNoSuch || n.err.String() != "pfar: server \"ntion\" left nothing\nhint: did you mean \"notion\"?\n" {
		t.Errorf("nothing left: exit %d, %s", code, n.err)
	}
	refuse = fmt.Errorf("%w: %q in /d/notion.hcl", control.ErrDeclared, "notion")
	if code, n := run("", "notion", "--yes"); code != exitFailed || !strings.Contains(n.err.String(), "pfar: still declared: \"notion\" in /d/notion.hcl\nhint: remove its file first") {
		t.Errorf("declared: exit %d, %s", code, n.err)
	}
	refuse = nil
	asked()
	p.left = control.Leftovers{Keys: []string{"own"}, Items: []control.Leftover{
		{What: control.LeftHome, Path: "/var/lib/pfar/home/notion\x1b[2J", Bytes: 3 << 20, Files: 2, Partly: true}, {What: control.LeftID, ID: 60706},
	}}
	b.offer("1", pinnedTool("search", "x"))
	if code, n := run("y\n", "notion"); code != exitUsage || !strings.Contains(n.err.String(), "--yes") || !slices.Equal(asked(), []string{look}) {
		t.Errorf("nobody to ask: exit %d, %s", code, n.err)
	}
	for answer, want := range map[string]int{"\n": exitFailed, "n\n": exitFailed} {
		operator, program := terminalPair(t)
		n := b.again("")
		n.pfar.stdin = program
		if _, err := operator.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if code := n.run(t.Context(), []string{"clean", "notion"}); code != want || !slices.Equal(asked(), []string{look}) || !pinned() {
			t.Errorf("%q: exit %d, %s", answer, code, n.err)
		}
		for _, words := range []string{"more than 3.0 MiB in 2 files", "60706", "what was accepted of it", "[y/N]"} {
			if shown := n.err.String(); !strings.Contains(shown, words) || strings.Contains(shown, "\x1b[2J") || strings.Contains(shown, "own") {
				t.Errorf("%q: asked with %q", answer, shown)
			}
		}
	}
	if code, n := run("", "notion", "--yes"); code != exitOK || !slices.Equal(asked(), []string{look, remove}) || pinned() {
		t.Errorf("--yes: exit %d, %s%s", code, n.out, n.err)
	}
	code, n = run("", "notion", "--yes", "--secrets", "--json")
	if want := []string{look, remove, "remove own false"}; code != exitOK || !slices.Equal(asked(), want) || !strings.Contains(n.out.String(), `"removed": true`) || !strings.Contains(n.out.String(), `"pins": false`) {
		t.Errorf("--secrets: exit %d, %s%s", code, n.out, n.err)
	}
}

// TestLeftoversAreTold: in the status and by doctor.
func TestLeftoversAreTold(t *testing.T) {
	const words = "undeclared servers left something behind: mail, notion; pfar clean NAME shows what, and deletes it"
	b := newBench(t, "")
	b.pfard(t, leaving("mail", "notion"), nil)
	if code := b.run(t.Context(), []string{"status"}); code != exitOK || !strings.Contains(b.out.String(), "note:  "+words) {
		t.Errorf("exit %d, %s%s", code, b.out, b.err)
	}
	for name, c := range map[string]struct {
		report control.Report
		err    error
		want   finding
	}{
		"some":        {leaving("mail", "notion"), nil, finding{"leftovers", warn, words, ""}},
		"none":        {control.Report{}, nil, finding{"leftovers", pass, "none: every server with files is declared", ""}},
		"not running": {control.Report{}, control.ErrNotRunning, finding{"leftovers", none, "pfar is not running", ""}},
	} {
		if got := leftoverCheck(func() (control.Report, error) { return c.report, c.err }); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
