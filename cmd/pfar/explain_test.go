package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator"
)

// TestExplained has explain tell all of servers of which nothing, little and much is known. In the archives, the
// declarations are those of the running pfar, a line of the comment names a server and its tools, and explain is all
// that is printed. The facts are those that the shipped policy and the sandboxes give.
func TestExplained(t *testing.T) {
	files, _ := filepath.Glob("testdata/explain/*.txtar")
	if len(files) < 4 {
		t.Fatalf("only %d archives", len(files))
	}
	line := regexp.MustCompile(`\.hcl:\d+`) // others edit the services
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, named, _ := strings.Cut(strings.TrimSpace(string(a.Comment)), "\n")
		name, tools, _ := strings.Cut(named, ": ")
		from := sources{dir: t.TempDir(), servers: t.TempDir()}
		want, declarations := "", &txtar.Archive{Comment: a.Comment}
		for _, f := range a.Files {
			if f.Name == "explain" {
				want = string(f.Data)
				continue
			}
			declarations.Files = append(declarations.Files, f)
			if err := os.WriteFile(filepath.Join(from.dir, f.Name), f.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(from.servers, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		b := newBench(t, "")
		b.pfard(t, control.Report{Directory: from.dir, Programs: from.servers}, nil)
		known := resolvedFacts(t, b, from, name, strings.Split(tools, ", "))
		mux := http.NewServeMux()
		mux.HandleFunc("GET /facts", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(known) })
		b.serveOperator(t, mux)
		if code := b.run(t.Context(), []string{"explain", name}); code != 0 {
			t.Fatalf("%s: %d, %s", file, code, b.err)
		}
		got := strings.NewReplacer(from.dir, "/etc/pfar/mcp.d", from.servers, "/srv/programs",
			b.getenv("PFAR_STATE_DIR"), "/var/lib/pfar").Replace(b.out.String())
		got = line.ReplaceAllString(got, ".hcl:N")
		if *update {
			declarations.Files = append(declarations.Files, txtar.File{Name: "explain", Data: []byte(got)})
			if err := os.WriteFile(file, txtar.Format(declarations), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if got != want {
			t.Errorf("%s: run with -update and look at the difference\n--- got\n%s--- want\n%s", file, got, want)
		}
	}
}

// resolvedFacts are the facts of a server's tools, as the gateway has them.
func resolvedFacts(t *testing.T, b *bench, from sources, name string, tools []string) (known []operator.ToolFacts) {
	t.Helper()
	set, err := declaredVerb{b.pfar}.compile(from)
	if err != nil || set.diags.HasErrors() {
		t.Fatal(err, set.diags)
	}
	policy := policies.Load(nil, "").Policy
	for _, p := range set.plans {
		d, _ := p.Declared()
		if p.Name != name {
			continue
		}
		told := []gate.Sandbox{{Server: name, Declared: p.Gateway.Declared}}
		for _, tool := range tools {
			o := gate.Offer{Server: d, Name: tool, Confined: gate.NewSandboxes(told).Of(d)}
			known = append(known, operator.ToolFacts{Server: name, Tool: tool, Facts: policy.Resolve(o)})
		}
	}
	return known
}
