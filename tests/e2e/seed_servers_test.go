package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// These are files of servers in pflow's documents.
const (
	seedNode = `{
  "servers": {
    "gh": {
      "transport": "stdio",
      "command": "npx",
      "args": ["-y", "mcp-github"],
      "env": {"GITHUB_TOKEN": "$GITHUB_TOKEN"},
      "autostart": true
    }
  }
}`
	seedPython = `{
  "servers": {
    "mem": {
      "transport": "stdio",
      "command": "python",
      "args": ["mcp_mem.py"],
      "autostart": true
    }
  }
}`
	seedEnterprise = `{
  "server_id": "github-enterprise",
  "transport": "sse",
  "url": "https://api.github.internal/mcp",
  "auth": {
    "token_env": "GITHUB_ENTERPRISE_TOKEN",
    "scopes": ["repo:read", "user:read"]
  }
}`
)

// importedFiles imports the files of servers, word for word. pfar installs no package without its version, takes no
// secret from a variable of its environment, and runs a program only where a sandbox has it: it says what to write.
func (s *seeds) importedFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		code int
		says []string
	}{
		"10.1": {seedNode, 1, []string{"gh, line 3: not imported",
			"the file names no version of npm:mcp-github; write one, such as mcp-github@1.2.3"}},
		"10.1, with a version": {strings.Replace(seedNode, "mcp-github", "mcp-github@1.2.3", 1), 0, []string{
			`package = "npm:mcp-github@1.2.3"`, `GITHUB_TOKEN = "vault:gh_github_token"`, "pfar vault set gh_github_token"}},
		"10.2": {seedPython, 0, []string{"mem, line 3: becomes the server mem", `command = "python"`,
			`args    = ["mcp_mem.py"]`, "pfar learn mem --write"}},
		"9.3": {seedEnterprise, 0, []string{"github-enterprise, line 2: becomes the server github-enterprise",
			`transport = "sse"`, `url       = "https://api.github.internal/mcp"`,
			`TOKEN = "vault:github_enterprise_token"`, "pfar vault set github_enterprise_token",
			"scopes are not translated: give them to the token where you make it"}},
		"9.3, without its name": {strings.Replace(seedEnterprise, `  "server_id": "github-enterprise",
`, "", 1), 1, []string{`the file is one server without a name; write {"servers": {"NAME": ...}}`}},
	} {
		put(t, filepath.Join(s.home, "servers.json"), tt.text)
		// Without pfard, which would look for the program python of this machine.
		out, complaint, code := s.shell("PFAR_RUN_DIR=$PWD/none pfar import servers.json --dry-run")
		for _, want := range tt.says {
			if code != tt.code || !strings.Contains(out+complaint, want) {
				t.Errorf("%s: exit %d, want %d, no %q in %s%s", name, code, tt.code, want, out, complaint)
			}
		}
	}
	// The program of 10.2 is the stand-in: the declaration that import writes runs it, with the arguments of the file.
	python := strings.Replace(seedPython, `"python"`, quote(program(t, "standin")), 1)
	python = strings.Replace(python, `"mcp_mem.py"`, `"-like", "github", "mcp_mem.py"`, 1)
	put(t, filepath.Join(s.home, "servers.json"), python)
	if out, complaint, code := s.shell("pfar import servers.json --yes"); code != 0 {
		t.Fatalf("10.2: exit %d, %s%s", code, out, complaint)
	}
	s.awaitRunning("mem")
	out, complaint, code := s.shell("pfar tools mem")
	if code != 0 || !strings.Contains(out, "search_code") {
		t.Errorf("10.2: exit %d, %s%s", code, out, complaint)
	}
}
