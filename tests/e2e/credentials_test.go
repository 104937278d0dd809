package e2e

import (
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/control"
)

// TestCredentialAsAFile has the filesystem server from npm read a key of several lines, which it gets as a file.
func TestCredentialAsAFile(t *testing.T) {
	line := rand.Text() + rand.Text()
	key := "-----BEGIN PRIVATE KEY-----\n" + line + "\n" + rand.Text() + "\n-----END PRIVATE KEY-----"
	const path = "/run/secrets/SIGNING_KEY"
	p := start(t, map[string]string{"files.hcl": declare("node", []string{npm(t, "@modelcontextprotocol/server-filesystem/dist/index.js"), "/run/secrets"},
		`auth = { SIGNING_KEY = { secret = "vault:signing_key", deliver = "file" } }`)})
	p.await("files waiting for its key", soon, func(r control.Report) bool {
		s := server(r, "files")
		return s.State == control.Waiting && strings.Contains(s.Detail, "signing_key")
	})
	p.keep("set", "signing_key", key)
	p.awaitRunning("files")
	if os.Getuid() == 0 { // who else may read memory
		for _, name := range whoHolds(t, p, line) {
			if !slices.Contains([]string{"pfard", "bwrap"}, name) {
				t.Errorf("%s holds the key in memory before the server has read it", name)
			}
		}
	}
	c := p.client("/mcp")
	if got := c.must("files__read_text_file", map[string]any{"path": path}); !strings.Contains(got, key) {
		t.Errorf("the server reads %q", got)
	}
	if r, err := c.call("files__write_file", map[string]any{"path": path, "content": "x"}); err == nil && !r.isError {
		t.Errorf("the server writes to its key: %s", r.text)
	}
	for _, command := range [][]string{{"plan", "files"}, {"plan", "--json", "files"}, {"explain", "files"}, {"status"}, {"logs", "files"}, {"vault", "list"}} {
		stdout, stderr, code := p.command(command...)
		if code != 0 || strings.Contains(stdout+stderr, line) {
			t.Errorf("pfar %s: %d, and what it says may hold the key:\n%s%s", strings.Join(command, " "), code, stdout, stderr)
		}
		if command[0] == "explain" && !strings.Contains(stdout, path) {
			t.Errorf("pfar explain does not say where the key is: %s", stdout)
		}
	}
	assertSecretNowhere(t, p, line)
}
