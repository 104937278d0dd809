package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// TestUpgrade: pfar installs first, and writes only the version into the text that it has seen. What fails changes
// nothing.
func TestUpgrade(t *testing.T) {
	b, p, file, edit := editing(t)
	const old, next = "npm:@a/mcp-x@1.0.0", "npm:@a/mcp-x@2.0.0"
	text := "# npm:@a/mcp-x@1.0.0\npackage = \"" + old + "\"\n"
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(text)
	var installed []string
	var sent []control.Text
	var refuses error
	p.answer = func(p *fakePfard, q control.Request) error {
		if q.Verb == control.Install {
			if q.Package == "npm:@a/mcp-x" { // which version is the newest?
				q.Package += "@7.0.0"
			} else {
				installed = append(installed, q.Package)
			}
			p.installs = control.Installing{Package: q.Package, Done: refuses == nil}
			return refuses
		}
		return nil
	}
	sound := true
	p.declares = func(r control.Request) (*control.Declared, error) {
		if r.Text.Dry {
			return &control.Declared{}, nil
		}
		sent = append(sent, *r.Text)
		p.set(func(r *control.Report) {
			r.Servers[0].State, r.Servers[0].Since = control.Running, r.Servers[0].Since.Add(time.Second)
		})
		return &control.Declared{Server: "notion", File: file, Done: sound}, nil
	}
	code, n := edit("", "upgrade", "notion", "2.0.0", "--yes")
	if code != exitOK || !strings.Contains(n.out.String(), "notion: "+next+", running") {
		t.Errorf("exit %d: %s%s", code, n.out, n.err)
	}
	if len(installed) != 1 || installed[0] != next || len(sent) != 1 || sent[0].Old != control.DigestOf([]byte(text)) ||
		string(sent[0].New) != strings.Replace(text, `"`+old, `"`+next, 1) {
		t.Errorf("installed %q, sent %+v", installed, sent)
	}
	sound = false
	if code, n := edit("", "upgrade", "notion", "3.0.0", "--yes"); code != exitFailed ||
		!strings.Contains(n.err.String(), "nothing was changed: it goes on with "+old) {
		t.Errorf("not sound: %d, %s", code, n.err)
	}
	refuses, sent = errors.New("404"), nil
	if code, n := edit("", "upgrade", "notion", "9.0.0", "--yes"); code != exitFailed || len(sent) > 0 ||
		!strings.Contains(n.err.String(), "nothing was changed: notion goes on with "+old) {
		t.Errorf("not there: %d, %s", code, n.err)
	}
	refuses, sound, installed = nil, true, nil
	for want, args := range map[string][]string{
		"or --back":            {"notion", "2.0.0", "--back"},
		"not an exact version": {"notion", "latest", "--yes"},
		"no other version":     {"notion", "--back", "--yes"},
		"no such server":       {"ntion", "2.0.0", "--yes"},
		"use --yes to confirm": {"notion", "2.0.0"},
	} {
		code, n := edit("", append([]string{"upgrade"}, args...)...)
		if code == exitOK || !strings.Contains(n.err.String(), want) {
			t.Errorf("%q: %d, %s, want %q", args, code, n.err, want)
		}
	}
	if len(installed) > 0 || len(sent) > 0 {
		t.Errorf("installed %q, sent %+v", installed, sent)
	}
	if code, n := edit("", "upgrade", "notion", "1.0.0"); code != exitOK || len(installed)+len(sent) > 0 ||
		!strings.HasPrefix(n.out.String(), "notion: "+old+", running") {
		t.Errorf("to the same: %d, %s%s, installed %q, sent %+v", code, n.out, n.err, installed, sent)
	}
	for _, version := range []string{"1.0.0", "0.9.0"} {
		dir := filepath.Join(b.dirs.Packages(), "npm/@a/mcp-x", version)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "record.json"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if code, n := edit("", "upgrade", "notion", "--back", "--yes"); code != exitOK ||
		!strings.Contains(string(sent[0].New), `"npm:@a/mcp-x@0.9.0"`) {
		t.Errorf("back: %d, %s, %+v", code, n.err, sent)
	}
	sent = nil
	if code, n := edit("", "upgrade", "notion", "--yes"); code != exitOK || len(sent) != 1 ||
		!strings.Contains(string(sent[0].New), `"npm:@a/mcp-x@7.0.0"`) {
		t.Errorf("newest: %d, %s, %+v", code, n.err, sent)
	}
	put(text + "# \"npm:y@1.0.0\"\n")
	if code, n := edit("", "upgrade", "notion", "2.0.0", "--yes"); code != exitFailed ||
		!strings.Contains(n.err.String(), "it names 2 packages") {
		t.Errorf("two packages: %d, %s", code, n.err)
	}
}
