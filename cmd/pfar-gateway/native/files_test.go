package native

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersions: however often flows write a file, what they write over stays, first of all the owner's. While a file is
// written there is always one of its name, whole, in case the machine stops there.
func TestVersions(t *testing.T) {
	n, _, _ := newNodes(t)
	folder := filepath.Join(n.Files.Dir, "laptop")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a": "the owner's", "a~2~": "also the owner's"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	before, renamed := "the owner's", 0
	n.Files.renamed = func() {
		renamed++
		if got, now := read("a"), fmt.Sprint("text ", renamed/2); got != before && got != now {
			t.Errorf("in the midst of it the file has %q, want %q or %q", got, before, now)
		}
	}
	for i := 1; i <= 3; i++ {
		text := fmt.Sprint("text ", i)
		call(t, n, "write-file", `{"path":"a","content":"`+text+`"}`, clean, `"a"`)
		before = text
	}
	for name, want := range map[string]string{
		"a": "text 3", "a~": "the owner's", "a~2~": "also the owner's", "a~3~": "text 1", "a~4~": "text 2",
	} {
		if got := read(name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if renamed != 6 {
		t.Errorf("%d renamings of three writings", renamed)
	}
}

// TestVersionsBound: the versions count as files. When there are as many as there may be, nothing is written.
func TestVersionsBound(t *testing.T) {
	n, _, _ := newNodes(t)
	n.Files.Limits = FileLimits{Files: 8, Bytes: 1000, Depth: 2}
	for i := range 6 {
		call(t, n, "write-file", fmt.Sprintf(`{"path":"a","content":"text %d"}`, i), clean, `"a"`)
	}
	call(t, n, "write-file", `{"path":"a","content":"more"}`, clean, "!its owner can take versions away")
	list, err := os.ReadDir(filepath.Join(n.Files.Dir, "laptop"))
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); err != nil || got != "a a~ a~2~ a~3~ a~4~ a~5~" {
		t.Errorf("%q, %v", got, err)
	}
}
