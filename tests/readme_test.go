package tests

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
)

// TestReadmeCounts compares the numbers of README.md with what they count.
func TestReadmeCounts(t *testing.T) {
	text := strings.Join(strings.Fields(read(t, "../README.md")), " ")
	services := 0
	for _, pattern := range []string{"../policies/*.hcl", "../policies/facts/*.hcl"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			services += len(regexp.MustCompile(`(?m)^service "`).FindAllString(read(t, f), -1))
		}
	}
	defaults := map[string]string{}
	for _, k := range declaration.Keys() {
		defaults[k.Section+"."+k.Name] = k.Default
	}
	memory := strings.Trim(defaults["sandbox.memory_limit"], `"`)
	if defaults["sandbox.cpu_quota"] != "" {
		t.Error("the README says that CPU time is unbounded without a word")
	}
	for _, want := range []string{
		fmt.Sprintf("ships facts about the tools of %d services", services),
		fmt.Sprintf("| %s MiB, %s, unbounded |", strings.TrimSuffix(memory, "m"), defaults["sandbox.tasks_max"]),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the README does not say %q", want)
		}
	}
}
