package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestVersionOfACommit has version.sh name trees: of no commit, of one between two releases, of a release, and changed.
func TestVersionOfACommit(t *testing.T) {
	script, err := filepath.Abs(root + "/packaging/version.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
			"GIT_AUTHOR_DATE=2026-11-23T23:30:00-0500", "GIT_COMMITTER_DATE=2026-11-23T23:30:00-0500")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	for _, step := range []struct{ do, want string }{
		{":", `0\.1\.0~devel`},
		{"git init -q; : >file; git add file; git commit -qm first", `0\.1\.0~git20261124\.[0-9a-f]{7}`}, // the day in UTC
		{"git tag other", `0\.1\.0~git20261124\.[0-9a-f]{7}`},
		{"git tag v0.1.0", `0\.1\.0`},
		{"echo changed >file", `0\.1\.0~git20261124\.[0-9a-f]{7}\.dirty`},
	} {
		run("sh", "-euc", step.do)
		version := run(script, "0.1.0")
		if !regexp.MustCompile("^" + step.want + "$").MatchString(version) {
			t.Errorf("after %q the version is %q, want %q", step.do, version, step.want)
		}
		if version == "0.1.0" {
			continue
		}
		if _, err := exec.LookPath("dpkg"); err != nil {
			t.Logf("NOT RUN: %v", err)
		} else {
			run("dpkg", "--compare-versions", version, "lt", "0.1.0")
		}
	}
}

// TestDependenciesAreTold: README and pfard(8) name the versions that the packages want.
func TestDependenciesAreTold(t *testing.T) {
	readme, manual := read(t, root+"/README.md"), read(t, root+"/packaging/man/pfard.8")
	number := regexp.MustCompile(`(systemd|bubblewrap)[ (]*>= ?([^) ]+)`)
	seen := map[string]bool{}
	for _, list := range [][]string{debian.depends, fedora.depends, arch, alpine} {
		for _, m := range number.FindAllStringSubmatch(strings.Join(list, ", "), -1) {
			wanted := strings.TrimRight(m[2], ",")
			seen[m[1]+wanted] = true
			for name, text := range map[string]string{"README": readme, "pfard(8)": manual} {
				if !strings.Contains(text, wanted) {
					t.Errorf("%s has no version %s of %s", name, wanted, m[1])
				}
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("the packages want %v", seen)
	}
}
