package tests

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
)

// TestReadmeCounts compares the numbers of README.md and pfar(7) with what they count.
func TestReadmeCounts(t *testing.T) {
	text := strings.Join(strings.Fields(read(t, "../README.md")), " ")
	services := 0
	for _, pattern := range []string{"../policies/services/*.hcl"} {
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
		t.Error("pfar(7) says that CPU time is unbounded without a word")
	}
	if want := fmt.Sprintf("ships facts about the tools of %d services", services); !strings.Contains(text, want) {
		t.Errorf("the README does not say %q", want)
	}
	overview := read(t, "../packaging/man/pfar.7")
	for _, want := range []string{
		fmt.Sprintf("\n%s MiB, %s, unbounded.\n", strings.TrimSuffix(memory, "m"), defaults["sandbox.tasks_max"]),
		fmt.Sprintf("pfar ships facts for %d services.\n", services),
	} {
		if !strings.Contains(overview, want) {
			t.Errorf("pfar(7) does not say %q", want)
		}
	}
}
