package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestInstallDigest: the index names the SHA-256 of each file that pip installs, in HTML or in JSON, and the file has
// it. Otherwise pfar names the file, says what to do, and leaves nothing.
func TestInstallDigest(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can have names of its own, and the test has run as root")
	}
	t.Parallel()
	r := newRegistries(t)
	page := func(name, digest string, more ...string) {
		module := strings.ReplaceAll(name, "-", "_")
		file := filepath.Base(wheelOf(t, filepath.Join(r.dir, "files"), module, "1.0", "def main(): pass\n", more...))
		digest = strings.ReplaceAll(digest, "SUM", r.sum(t, file))
		if strings.HasPrefix(digest, "{") {
			r.page(name, fmt.Sprintf(`{"meta": {"api-version": "1.0"}, "name": %q, "files": [{"filename": %q, `+
				`"url": "/files/%s", "hashes": %s}]}`, name, file, file, digest))
			return
		}
		r.page(name, fmt.Sprintf("<html><body><a href=\"/files/%s%s\">%s</a></body></html>", file, digest, file))
	}
	const unnamed = "the index names no SHA-256 of %s-1.0-py3-none-any.whl, so nobody can tell whether the file is " +
		"the published one; use an index that does, or install the package by hand"
	page("needed", "#sha256=SUM")
	page("unnamed", "")
	cases := []struct{ name, digest, more, fault string }{
		{"of-html", "#sha256=SUM", "Requires-Dist: needed\n", ""},
		{"of-json", `{"sha256": "SUM"}`, "", ""},
		{"no-digest", "", "", fmt.Sprintf(unnamed, "no_digest")},
		{"empty-json", "{}", "", fmt.Sprintf(unnamed, "empty_json")},
		{"needs-unnamed", "#sha256=SUM", "Requires-Dist: unnamed\n", fmt.Sprintf(unnamed, "unnamed")},
		{"another-file", "#sha256=" + strings.Repeat("0", 64), "", "a file is not the one that the index names"},
	}
	for _, c := range cases {
		page(c.name, c.digest, c.more)
	}
	p := prepare(t, nil)
	p.env = append(p.env, "PIP_INDEX_URL="+r.url("/simple/"), "PIP_CERT="+r.roots, "PIP_FIND_LINKS=")
	p.up(inHosts(r)...)
	for _, c := range cases {
		name, fault := c.name, c.fault
		_, stderr, code := p.command("install", "pypi:"+name+"==1.0")
		place := filepath.Join(p.state(), "packages/pypi", name)
		switch {
		case fault == "" && (code != 0 || !exists(filepath.Join(place, "1.0/tree/bin", name))):
			t.Errorf("%s: %d %s", name, code, stderr)
		case fault != "" && (code != 1 || !strings.Contains(strings.ToLower(stderr), strings.ToLower(fault))):
			t.Errorf("%s: %d %s, want %q", name, code, stderr, fault)
		case fault != "" && exists(filepath.Join(place, "1.0")):
			t.Errorf("%s is there", name)
		}
	}
	lock, err := os.ReadFile(filepath.Join(p.state(), "packages/pypi/of-html/1.0/lock.json"))
	for _, file := range []string{"of_html-1.0-py3-none-any.whl", "needed-1.0-py3-none-any.whl"} {
		if err != nil || !strings.Contains(string(lock), r.sum(t, file)) {
			t.Errorf("the lock has not %s: %s, %v", file, lock, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(p.state(), "packages/.staged")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestInstalledChanged: root changes a file of an installed package under the same version. The server does not start
// before its owner has accepted that, and the status says what to do.
func TestInstalledChanged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can have names of its own, and the test has run as root")
	}
	t.Parallel()
	r := newRegistries(t)
	const name = "@example/mcp-echo"
	r.npm(t, name, "1.0.0", "")
	p := prepare(t, map[string]string{"echoed.hcl": `package = "npm:` + name + `@1.0.0"` + "\n"})
	p.env = append(p.env, "npm_config_registry="+r.url("/npm/"), "npm_config_cafile="+r.roots, "NPM_CONFIG_REGISTRY=")
	p.up(inHosts(r)...)
	p.awaitRunning("echoed")
	at := filepath.Join(p.state(), "packages/npm", name, "1.0.0/tree/node_modules", name, "echo")
	text, err := os.ReadFile(at)
	check(t, err)
	check(t, os.Remove(at)) // it runs, so nobody can write to it
	check(t, os.WriteFile(at, append(text, '\n'), 0o555))
	check(t, os.Chmod(at, 0o555))
	before := p.mark()
	p.command("restart", "echoed") // which may say that it waits
	report := p.awaitFrom(before, "it waits", soon, inState("echoed", control.Waiting))
	detail := server(report, "echoed").Detail
	if !strings.Contains(detail, "program") || !strings.HasSuffix(detail, ": pfar pins accept echoed") {
		t.Errorf("it waits %q", detail)
	}
	if out, _, _ := p.command("status", "echoed"); !strings.Contains(out, "pfar pins accept echoed") {
		t.Errorf("pfar status: %s", out)
	}
	_, stderr, code := p.command("call", "echoed.echo", "text=x")
	if code == 0 || !strings.Contains(stderr, "pfar pins accept echoed") {
		t.Errorf("a call: %d %s", code, stderr)
	}
	p.succeeds("pins", "accept", "echoed", "--yes")
	p.awaitRunning("echoed")
}
