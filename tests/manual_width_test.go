package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestManualsAt80Columns has man(1) show each page as it is installed. It warns of nothing, and breaks no line of a
// terminal: a line may be longer if it is one word, such as a path.
func TestManualsAt80Columns(t *testing.T) {
	const columns = 80
	pages, err := filepath.Glob("../packaging/man/*.[0-9]")
	if err != nil || len(pages) < 6 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		cmd := exec.CommandContext(t.Context(), "man", "--warnings", "--pager=expand", "--local-file", page)
		cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8")
		var warnings bytes.Buffer
		cmd.Stderr = &warnings
		text, err := cmd.Output()
		if err != nil || warnings.Len() > 0 {
			t.Errorf("%s: %v %s: is man-db installed?", page, err, &warnings)
		}
		if len(text) < 1000 {
			t.Errorf("%s: man shows %d bytes", page, len(text))
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimRight(line, " \n")
			if utf8.RuneCountInString(line) > columns && len(strings.Fields(line)) > 1 {
				t.Errorf("%s: %d columns: %s", page, utf8.RuneCountInString(line), line)
			}
		}
	}
}
