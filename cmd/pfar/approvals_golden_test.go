package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
)

// TestShownCalls renders calls as a person is to decide about them, most of them hostile. In the archives, call.json is
// what the gateway tells, with the arguments of arguments.json, and shown is all that is printed.
func TestShownCalls(t *testing.T) {
	files, _ := filepath.Glob("testdata/approvals/*.txtar")
	if len(files) < 6 {
		t.Fatalf("only %d archives", len(files))
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parts := map[string][]byte{}
		for _, f := range a.Files {
			parts[f.Name] = f.Data
		}
		var w waitingCall
		if err := json.Unmarshal(parts["call.json"], &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		w.Arguments = bytes.TrimSpace(parts["arguments.json"])
		shown := w.render(columnsOf(nil))
		for i := range len(shown) {
			if c := shown[i]; c < 0x20 && c != '\n' || c == 0x7f {
				t.Errorf("%s: prints %q", file, c)
			}
		}
		for line := range strings.Lines(shown) {
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("%s: %d columns: %q", file, n, line)
			}
			if strings.HasPrefix(line, "pfar:") || strings.HasPrefix(line, "Let ") || strings.TrimSpace(line) == "" {
				t.Errorf("%s: draws %q", file, line)
			}
		}
		if *update {
			a.Files = append(a.Files[:2:2], txtar.File{Name: "shown", Data: []byte(shown)})
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if shown != string(parts["shown"]) {
			t.Errorf("%s: shown as\n%s\nwant\n%s", file, shown, parts["shown"])
		}
	}
}
