package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestClientSetKnowsServers: a name that no server has is refused, and the file stays.
func TestClientSetKnowsServers(t *testing.T) {
	b := newBench(t, "")
	dir := b.dirs.Clients()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir, 0o755))
	file, src := filepath.Join(dir, "desk.hcl"), "# mine\nuid = [7]\nservers = [\"mail\"] # for now\n"
	must(os.WriteFile(file, []byte(src), 0o644))
	b.pfard(t, control.Report{Clients: dir, Servers: []control.Server{{Name: "notion"}}}, nil)
	n := b.again("")
	if code := n.run(t.Context(), []string{"client", "set", "desk", "--servers", "notoin"}); code != exitNoSuch || !strings.Contains(n.err.String(), `did you mean "notion"?`) {
		t.Errorf("exit %d, %s", code, n.err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != src {
		t.Errorf("%v\n%s", err, got)
	}
	n = b.again("")
	if code := n.run(t.Context(), []string{"client", "set", "desk", "--servers", "notion"}); code != exitOK {
		t.Errorf("exit %d, %s", code, n.err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != strings.Replace(src, "mail", "notion", 1) {
		t.Errorf("%v\n%s", err, got)
	}
}
