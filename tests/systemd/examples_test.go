package systemd

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// named finds a key of the vault, but not one in a comment.
var named = regexp.MustCompile(`(?m)^[^#\n]*vault:`)

// TestExamples drops every example into the folder, as README has it.
func TestExamples(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	files, err := filepath.Glob(filepath.Join(root, "examples", "*.*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("the examples are %q, %v", files, err)
	}
	for _, f := range files {
		m.PutFile(t, "/etc/pfar/mcp.d/"+filepath.Base(f), f, 0o644)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name, state := strings.TrimSuffix(filepath.Base(f), filepath.Ext(f)), control.Running
		if name == "pipe" {
			state = control.Failed // the servers are in a directory of pfar's, which read_only does not take
			becomes(t, m, name, state)
			continue
		}
		if named.Match(text) {
			state = control.Waiting // for what is not in the vault
		}
		if bytes.Contains(text, []byte("= \"https://")) {
			state = control.NeedsLogin // at a remote server
		}
		if bytes.Contains(text, []byte("\nautostart       = false\n")) {
			if version := m.Shell(t, "node --version"); strings.HasPrefix(version, "v18.") {
				t.Logf("NOT RUN: %s, as Debian's Node.js is %s", name, version)
				continue
			}
			becomes(t, m, name, control.Sleeping) // once it is known what it offers
			continue
		}
		becomes(t, m, name, state)
		if status := m.Try("systemctl", "status", "pfar-mcp@"+name); !strings.Contains(status.Stdout, "active (running)") || !strings.Contains(status.Stdout, `Status: "`+string(state)+": ") {
			t.Errorf("%s: %s", name, status)
		}
	}
}
