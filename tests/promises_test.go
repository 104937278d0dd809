package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPromises wants each test that promises.md names to exist in the package that it names.
func TestPromises(t *testing.T) {
	rows, code := promises(t, "promises.md", 3), map[string]string{} // by package
	for _, row := range rows {
		for _, h := range row.held {
			if code[h.dir] == "" {
				code[h.dir] = testsOf(t, h.dir)
			}
			if !strings.Contains(code[h.dir], "\nfunc "+h.test+"(") {
				t.Errorf("%s has no test %s, which holds: %s", h.dir, h.test, row.text)
			}
		}
	}
	if len(rows) < 250 {
		t.Errorf("promises.md has %d rows: this reads it in the wrong way", len(rows))
	}
}

// TestThreatModel wants promises.md to have each test that SECURITY.md names.
func TestThreatModel(t *testing.T) {
	known := map[holder]bool{}
	for _, row := range promises(t, "promises.md", 3) {
		for _, h := range row.held {
			known[h] = true
		}
	}
	rows := promises(t, "../SECURITY.md", 2)
	for _, row := range rows {
		for _, h := range row.held {
			if !known[h] {
				t.Errorf("promises.md has no %s: %s, which holds: %s", h.dir, h.test, row.text)
			}
		}
	}
	if len(rows) < 25 {
		t.Errorf("SECURITY.md has %d promises: this reads it in the wrong way", len(rows))
	}
}

// promise is a row of a table: the text, and the tests that hold it.
type promise struct {
	text string
	held []holder
}

// holder is a test and the directory of its package.
type holder struct{ dir, test string }

// promises reads the rows of a document's tables that have so many cells. The last cell names tests.
func promises(t *testing.T, path string, cells int) (rows []promise) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(row) != cells || strings.TrimSpace(row[0]) == "promise" {
			continue
		}
		p := promise{text: strings.TrimSpace(row[0])}
		for of := range strings.SplitSeq(row[cells-1], ";") {
			dir, names, ok := strings.Cut(of, ":")
			if !ok {
				t.Errorf("%s: want PACKAGE: TEST, ...: %s", path, line)
			}
			for name := range strings.SplitSeq(names, ",") {
				p.held = append(p.held, holder{strings.TrimSpace(dir), strings.TrimSpace(name)})
			}
		}
		rows = append(rows, p)
	}
	return rows
}

// testsOf returns the text of the test files in a directory of the repository.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %q: %v", dir, err)
	}
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}
