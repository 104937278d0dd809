package form

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/tests/flownodes"
)

var update = flag.Bool("update", false, "write the golden files anew")

// shown is a flow and its problems as golden files have them: a step or an edge a line, with its place.
func shown(f flow.Flow, problems []flow.Problem) string {
	var b strings.Builder
	line := func(at flow.At, kind string, v any) {
		text, _ := json.Marshal(v)
		fmt.Fprintf(&b, "%d:%d %s %s\n", at.Line, at.Column, kind, text)
	}
	head := f
	head.Steps, head.Edges = nil, nil
	line(flow.At{}, "flow", head)
	for _, s := range f.Steps {
		line(s.At, "step", s)
	}
	for _, e := range f.Edges {
		line(e.At, "edge", e)
	}
	for _, p := range problems {
		fmt.Fprintf(&b, "%d:%d problem %s", p.At.Line, p.At.Column, p.Text)
		if p.Step != "" {
			fmt.Fprintf(&b, " (%s)", p.Step)
		}
		fmt.Fprintf(&b, "\n    %s\n", p.Advice)
	}
	return b.String()
}

// TestGolden: each file of testdata is a flow in one form, with flags and standard input, and what is read of it.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var s Source
			var got, want string
			for _, f := range a.Files {
				switch text := string(f.Data); f.Name {
				case JSON, HCL, Line:
					s = Source{Name: "f", Form: f.Name, Text: strings.TrimSuffix(text, "\n")}
				case "flags":
					s.Flags = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
				case "input":
					s.Input = &text
				case "read":
					want = text
				}
			}
			got = shown(Read(s, flownodes.Catalogue()))
			if got == want {
				return
			}
			if !*update {
				t.Fatalf("got:\n%s\nwant:\n%s", got, want)
			}
			a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == "read" })
			a.Files = append(a.Files, txtar.File{Name: "read", Data: []byte(got)})
			if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}
