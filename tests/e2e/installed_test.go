package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestInstalledPackage declares packages that are missing, has npm and pip install them, and wants pfar to start the
// one of npm as soon as it is in place, each to be certain by its record, and another one's record to be refused.
func TestInstalledPackage(t *testing.T) {
	t.Parallel()
	const echoed, git = "npm:@example/mcp-echo@1.0.0", "pypi:mcp-server-git==1.0"
	p := start(t, map[string]string{
		"echoed.hcl": fmt.Sprintf("package = %q\n", echoed), "git.hcl": fmt.Sprintf("package = %q\n", git),
	})
	missing := func(pkg string) func(control.Report) bool {
		return func(r control.Report) bool {
			return slices.ContainsFunc(r.Diagnostics, func(d control.Diagnostic) bool {
				return d.Summary == "Package not installed" && strings.Contains(d.Detail, pkg)
			})
		}
	}
	p.await("the package missing", soon, missing(echoed))
	p.await("the other one missing", soon, missing(git))

	dir := directory(t, "/var/tmp")
	run := atHome(t, dir)
	binary, err := os.ReadFile(program(t, "echo"))
	check(t, err)
	packed := filepath.Join(dir, "example-mcp-echo-1.0.0.tgz")
	write(t, packed, string(tarball(t, map[string][]byte{
		"package/package.json": []byte(`{"name": "@example/mcp-echo", "version": "1.0.0", "bin": "echo"}`),
		"package/echo":         binary,
	})))
	stage := filepath.Join(p.home, "stage")
	check(t, os.MkdirAll(filepath.Join(stage, "tree"), 0o755))
	run(filepath.Join(stage, "tree"), nil, "npm", "install", "--silent", "--offline", "--ignore-scripts", packed)

	place := filepath.Join(p.state(), "packages/npm/@example/mcp-echo/1.0.0")
	put(t, filepath.Join(stage, "record.json"), `{"package": "npm:@example/other@1.0.0"}`)
	check(t, os.MkdirAll(filepath.Dir(place), 0o755))
	check(t, os.Rename(stage, place))
	p.await("another one's record", soon, func(r control.Report) bool {
		return slices.ContainsFunc(r.Diagnostics, func(d control.Diagnostic) bool {
			return d.Summary == "Package not usable" && strings.Contains(d.Detail, "is not the record of this package")
		})
	})
	check(t, os.Rename(place, stage))
	p.await("it is missing again", soon, missing(echoed))
	put(t, filepath.Join(stage, "record.json"), fmt.Sprintf(`{"package": %q}`, echoed))
	check(t, os.Rename(stage, place))
	p.awaitRunning("echoed")

	place = filepath.Join(p.state(), "packages/pypi/mcp-server-git/1.0")
	check(t, os.MkdirAll(place, 0o755))
	run(dir, nil, "/usr/bin/python3", "-m", "venv", filepath.Join(place, "tree"))
	wheel(t, dir, "mcp_server_git")
	run(dir, nil, filepath.Join(place, "tree/bin/pip"), "install", "--quiet", "--no-index", "--find-links", dir,
		"mcp-server-git==1.0")
	put(t, filepath.Join(place, "record.json"), fmt.Sprintf(`{"package": %q}`, git))
	for name, want := range map[string]string{"echoed": "@example/mcp-echo", "git": "pypi:mcp-server-git"} {
		p.isOf(name, want)
	}
}
