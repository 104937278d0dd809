package packaged

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersionBefore: the newest release below HEAD, else the commit of the file, else what to fetch.
func TestVersionBefore(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		who := []string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}
		out, err := exec.Command("git", append(who, args...)...).Output()
		if err != nil {
			t.Fatalf("git %q: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	commit := func() string {
		git("commit", "-q", "--allow-empty", "-m", "another")
		return git("rev-parse", "HEAD")
	}
	file := filepath.Join(t.TempDir(), "before.txt")
	named := func(commit string) {
		if err := os.WriteFile(file, []byte(commit+"\n\nwhy\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when, want, words string) {
		t.Helper()
		version, err := VersionBefore(t.Context(), dir, file)
		if version != want || (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %q, %v; want %q, %q", when, version, err, want, words)
		}
	}
	named(strings.Repeat("1", 40))
	check("no repository", "", "git fetch --unshallow --tags")
	git("init", "-q")
	first := commit()
	check("a commit that the clone lacks", "", "git fetch --unshallow --tags")
	named(first)
	commit()
	check("no tag", first, "")
	git("tag", "v0.1.0")
	check("a tag of HEAD alone", first, "")
	git("tag", "other")
	commit()
	check("a release below HEAD", "v0.1.0", "")
	git("tag", "v0.2.0")
	check("HEAD is a release", "v0.1.0", "")
	commit()
	check("a newer release below HEAD", "v0.2.0", "")
}
