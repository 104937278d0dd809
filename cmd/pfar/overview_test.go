package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pfar/pfar/units/control"
)

// overviews are the situations that a person may be in, by the name of the golden file.
func overviews() map[string]situation {
	stopped := fmt.Errorf("%w: nothing answers", control.ErrNotRunning)
	denied := fmt.Errorf("%w: connecting", control.ErrDenied)
	busy := &control.Report{Directory: "/etc/pfar/mcp.d", Diagnostics: make([]control.Diagnostic, 2), Servers: []control.Server{
		{Name: "notion", State: control.Running, Tools: 24}, {Name: "sqlite", State: control.Sleeping},
		{Name: "github", State: control.Waiting, Detail: `for the secret "github_token": pfar vault set github_token, which is a long line`},
		{Name: "mail", State: control.Failed, Detail: "crashed three times"},
	}}
	for i := range 9 {
		busy.Servers = append(busy.Servers, control.Server{Name: fmt.Sprint("more", i), State: control.Failed})
	}
	calm := &control.Report{Directory: "/etc/pfar/mcp.d", Servers: []control.Server{{Name: "notion", State: control.Running, Tools: 24}}}
	const system, own = "/etc/pfar/mcp.d", "/home/a/.config/pfar/mcp.d"
	return map[string]situation{
		"nothing installed":           {err: stopped, directory: own},
		"own, declared":               {err: stopped, directory: own, declared: 2},
		"root, nothing installed":     {root: true, machine: true, err: stopped, directory: system},
		"root, installed and stopped": {root: true, machine: true, installed: true, err: stopped, directory: system},
		"root, declared and stopped":  {root: true, machine: true, installed: true, err: stopped, directory: system, declared: 3},
		"user, installed and stopped": {machine: true, installed: true, err: stopped, directory: system, declared: -1},
		"another user":                {machine: true, installed: true, err: denied, directory: system, declared: -1},
		"no answer":                   {machine: true, installed: true, err: errors.New("reading: EOF"), directory: system},
		"root, nothing declared":      {root: true, machine: true, installed: true, report: &control.Report{Directory: system}, directory: system},
		"of pfar-admin, calm":         {machine: true, installed: true, report: calm, directory: system},
		"root, much to do":            {root: true, machine: true, installed: true, report: busy, directory: system, waiting: 2, held: []string{"notion"}},
	}
}

// TestOverview: in each situation it says what there is and what is next, on one screen of 80 columns and 24 lines,
// without the line of the command itself and that of the next prompt.
func TestOverview(t *testing.T) {
	for name, s := range overviews() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "")
			overviewVerb{b.pfar}.printOverview(s)
			got := b.out.String()
			path := filepath.Join("testdata", "overview", strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-")+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(path); err != nil || !bytes.Equal(want, []byte(got)) {
				t.Errorf("%v, got:\n%s\nwant:\n%s", err, got, want)
			}
			if n := strings.Count(got, "\n"); n > 22 {
				t.Errorf("%d lines", n)
			}
			for line := range strings.Lines(got) {
				if utf8.RuneCountInString(line) > 81 {
					t.Errorf("%d columns: %s", len(line)-1, line)
				}
			}
		})
	}
}

// TestOverviewAsks: it finds out itself what waits.
func TestOverviewAsks(t *testing.T) {
	b := newBench(t, "")
	if code := b.run(t.Context(), []string{}); code != exitOK || !strings.HasPrefix(b.out.String(), "pfar does not run.\nNo server is declared in ") {
		t.Errorf("%d: %s%s", code, b.out, b.err)
	}
	if err := os.MkdirAll(b.dirs.Config, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.hcl", "b.toml", "c.hcl~"} {
		if err := os.WriteFile(filepath.Join(b.dirs.Config, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b = b.again("")
	if code := b.run(t.Context(), []string{}); code != exitOK || !strings.Contains(b.out.String(), "\n2 declarations in ") {
		t.Errorf("%d: %s%s", code, b.out, b.err)
	}
}
