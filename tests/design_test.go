package tests

import (
	"os"
	"regexp"
	"testing"
)

// TestDesignNamesFunctions wants each function that DESIGN.md names to be in the file that it names.
func TestDesignNamesFunctions(t *testing.T) {
	named := regexp.MustCompile("`([a-z/_-]+\\.go):([A-Za-z]+)`").FindAllStringSubmatch(read(t, "../DESIGN.md"), -1)
	for _, m := range named {
		path, name := m[1], m[2]
		code, err := os.ReadFile("../" + path)
		if err != nil {
			t.Errorf("DESIGN.md names %s:%s: %v", path, name, err)
			continue
		}
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `[\[(]`).Match(code) {
			t.Errorf("DESIGN.md names %s:%s, and the file has no such function", path, name)
		}
	}
	if len(named) < 40 {
		t.Errorf("only %d functions found: this looks for the wrong thing", len(named))
	}
}
