package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPromises wants each test that promises.md names to exist in the package that it names.
func TestPromises(t *testing.T) {
	b, err := os.ReadFile("promises.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, code := 0, map[string]string{} // by package
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 3 || strings.TrimSpace(cells[0]) == "promise" {
			continue
		}
		rows++
		for of := range strings.SplitSeq(cells[2], ";") {
			dir, names, ok := strings.Cut(of, ":")
			if !ok {
				t.Errorf("want PACKAGE: TEST, ...: %s", line)
			}
			if dir = strings.TrimSpace(dir); code[dir] == "" {
				code[dir] = testsOf(t, dir)
			}
			for name := range strings.SplitSeq(names, ",") {
				if name = strings.TrimSpace(name); !strings.Contains(code[dir], "\nfunc "+name+"(") {
					t.Errorf("%s has no test %s, which holds: %s", dir, name, cells[0])
				}
			}
		}
	}
	if rows < 250 {
		t.Errorf("promises.md has %d rows: this reads it in the wrong way", rows)
	}
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
