package importer

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/policies"
)

var update = flag.Bool("update", false, "write the goldens anew")

// options are those of the goldens.
func options() Options {
	return Options{
		Origin: "Imported by pfar from FILE", Services: catalog.Load(nil, ""), Facts: policies.Load(nil, "").Policy.Services,
		Taken:  map[string]string{"declared": "/etc/pfar/mcp.d/declared.hcl"},
		Exists: func(path string) bool { return !strings.Contains(path, "absent") },
	}
}

// told writes what becomes of the servers of a file.
func told(list []Proposal) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "== %q, line %d, as %s\n", p.Name, p.Line, p.Server)
		for _, n := range p.Notes {
			fmt.Fprintf(&b, "%d: %s\n", n.Line, n.Text)
		}
		for _, s := range p.Secrets {
			fmt.Fprintf(&b, "secret %s = %s, line %d", s.Variable, s.Key, s.Line)
			b.WriteString(map[bool]string{true: ", waits"}[s.Waits] +
				map[bool]string{true: " for a sign-in"}[s.Login] + "\n")
		}
		if p.Text != "" {
			fmt.Fprintf(&b, "--\n%s", p.Text)
		}
	}
	return b.String()
}

// TestFiles compares what becomes of a file of each program with a golden. Every secret in them has FAKE in it, and
// none may come out but as a value for the vault.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 11 {
		t.Fatal(err, files)
	}
	o := options()
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source := Source{Name: a.Files[0].Name, Text: a.Files[0].Data, Home: "/home/ann"}
			if strings.Contains(string(a.Comment), "project") {
				source.Folder = "/home/ann/app"
			}
			entries, err := Read(source)
			got := fmt.Sprintln("error:", err)
			var list []Proposal
			if err == nil {
				list = Propose(entries, o)
				got = told(list)
			}
			if *update {
				a.Files = append(a.Files[:1], txtar.File{Name: "want", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if len(a.Files) < 2 || got != string(a.Files[1].Data) {
				t.Errorf("got\n%s", got)
			}
			if strings.Contains(got, "FAKE") || strings.Contains(fmt.Sprintf("%v %+v %#v", list, list, list), "FAKE") {
				t.Error("a secret came out")
			}
			for _, word := range strings.Fields(string(a.Comment)) {
				key, value, ok := strings.Cut(word, "=")
				if ok && !slices.ContainsFunc(list, func(p Proposal) bool {
					return slices.ContainsFunc(p.Secrets, func(s Secret) bool { return s.Key == key && string(s.Value) == value })
				}) {
					t.Errorf("%s has not the value of the file", key)
				}
			}
		})
	}
}
