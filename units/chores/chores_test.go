package chores

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestThere lists the programs that have a file in a home, and none of another one's.
func TestThere(t *testing.T) {
	home := t.TempDir()
	if got := There(home); got != nil {
		t.Errorf("an empty home has %q", got)
	}
	for _, name := range []string{".config/opencode/opencode.jsonc", ".cursor/mcp.json", ".cursor/other.json"} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := There(home); !slices.Equal(got, []string{"cursor", "opencode"}) {
		t.Errorf("the home has %q", got)
	}
	t.Chdir(home)
	for _, home := range []string{"", "."} {
		if got := There(home); got != nil {
			t.Errorf("the home %q has %q", home, got)
		}
	}
}

// TestWanted leaves out the servers that cannot be imported.
func TestWanted(t *testing.T) {
	i := Import{Files: []File{
		{Servers: []Server{{Server: "a"}, {Server: "b", Refused: "no"}}}, {Servers: []Server{{Server: "c"}}},
	}}
	var names []string
	for _, s := range i.Wanted() {
		names = append(names, s.Server)
	}
	if !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("wanted are %q", names)
	}
}
