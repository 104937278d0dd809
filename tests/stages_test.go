package tests

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestStagesNameWhatExists: a test that has another name now would leave a stage of make test without a word.
func TestStagesNameWhatExists(t *testing.T) {
	makefile := strings.ReplaceAll(read(t, "../Makefile"), "\\\n", " ")
	words := func(variable, separators string) []string {
		m := regexp.MustCompile(`(?m)^` + variable + ` +:= (.+)$`).FindStringSubmatch(makefile)
		if m == nil {
			t.Fatalf("the Makefile has no %s", variable)
		}
		return strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune(separators, r) })
	}
	var folders []string
	below := ""
	for _, name := range words("PARTLY", " \t,()") {
		folder, whole := strings.CutPrefix(name, "./")
		switch {
		case name == "$" || name == "addprefix":
		case strings.HasSuffix(name, "/"):
			below = folder
		case whole:
			folders = append(folders, folder)
		default:
			folders = append(folders, below+name)
		}
	}
	if len(folders) < 2 {
		t.Fatalf("PARTLY has %q: this looks for the wrong thing", folders)
	}
	meetings := words("MEETINGS", " \t")
	for _, s := range []struct{ names, folders []string }{
		{meetings, folders}, {words("DIFFER", "|"), []string{"tests/systemd"}},
	} {
		there := testNames(t, s.folders...)
		for _, name := range s.names {
			if !slices.Contains(there, name) {
				t.Errorf("the Makefile names Test%s, which none of %s has", name, strings.Join(s.folders, ", "))
			}
		}
	}
	for _, folder := range folders {
		there := testNames(t, folder)
		if !slices.ContainsFunc(meetings, func(name string) bool { return slices.Contains(there, name) }) {
			t.Errorf("no test of %s has the race detector in make test", folder)
		}
	}
}

// testNames returns the names of the tests of folders, without the Test before them.
func testNames(t *testing.T, folders ...string) (names []string) {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func Test(\w+)\(t \*testing\.T\)`)
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no tests: %v", folder, err)
		}
		for _, file := range files {
			for _, m := range declared.FindAllStringSubmatch(read(t, file), -1) {
				names = append(names, m[1])
			}
		}
	}
	return names
}
