package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemo does what "make run ONCE=1" does once all is built: each call of the demonstration has to end as it is to
// end.
func TestDemo(t *testing.T) {
	if os.Getuid() == ordinary {
		return // it has run as root, who can read the clone
	}
	t.Parallel()
	servers, err := npmServers()
	check(t, err)
	build, err := os.MkdirTemp(scratch(), "demo-") // which every user may enter
	check(t, err)
	check(t, os.Chmod(build, 0o755))
	t.Cleanup(func() { os.RemoveAll(build) })
	bin := filepath.Join(build, "bin")
	check(t, exec.Command("cp", "-R", filepath.Dir(program(t, "pfar")), bin).Run())
	c := exec.CommandContext(t.Context(), "tests/demo.sh", bin, servers)
	c.Dir = filepath.Join("..", "..")
	c.Env = append(os.Environ(), "ONCE=1", "LISTEN=127.0.0.1:0")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "hello from a sandbox") || strings.Contains(string(out), "demo: ") {
		t.Errorf("%v\n%s", err, out)
	}
}
