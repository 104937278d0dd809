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
	seedStripe = `{
  "servers": {
    "stripe": {
      "transport": "sse",
      "url": "https://billing.example.com/sse",
      "token_env": "STRIPE_MCP_KEY"
    }
  }
}`
	seedEnterprise = `# MCP server configuration with auth
{
  "server_id": "github-enterprise",
  "transport": "sse",
  "url": "https://api.github.internal/mcp",
  "auth": {
    "token_env": "GITHUB_ENTERPRISE_TOKEN",  # Required env var
    "scopes": ["repo:read", "user:read"]     # Required OAuth scopes
  }
}`
	seedEntry = `{
  "node_id": "mcp-github-search-code",
  "type": "mcp_wrapper",
  "description": "Search code in GitHub repositories via MCP",
  "mcp_config": {
    "server_id": "github-server",
    "tool_name": "search_code",
    "transport": "stdio",
    "command": "mcp-github",
    "version": "1.2.0",
    "manifest_hash": "sha256:abc123..."
  },
  "interface": {
    "inputs": ["query", "language"],
    "outputs": ["search_results"],
    "params": {"max_results": 10},
  },
  "purity": "impure"  # Most MCP tools have side effects
}`
)

// importedFiles imports the files of servers, word for word. pfar installs no package without its version, takes no
// secret from a variable of its environment, and runs a program only where a sandbox has it: it says what to write.
func (s *seeds) importedFiles(t *testing.T) {
	imports := func(name, line string, exit int, says []string) {
		t.Helper()
		// Without pfard, which would look for the program python of this machine.
		out, complaint, code := s.shell("PFAR_RUN_DIR=$PWD/none " + line)
		for _, want := range says {
			if code != exit || !strings.Contains(out+complaint, want) {
				t.Errorf("%s: exit %d, want %d, no %q in %s%s", name, code, exit, want, out, complaint)
			}
		}
	}
	const noHash = "JSON has no comments with #; write // instead"
	enterprise := []string{"github-enterprise, line 3: becomes the server github-enterprise",
		`transport = "sse"`, `url       = "https://api.github.internal/mcp"`,
		`TOKEN = "vault:github_enterprise_token"`, "pfar vault set github_enterprise_token",
		"scopes are not translated: give them to the token where you make it"}
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
		"10.3": {seedStripe, 0, []string{"stripe, line 3: becomes the server stripe", `transport = "sse"`,
			`url       = "https://billing.example.com/sse"`, `TOKEN = "vault:stripe_token"`, "pfar vault set stripe_token",
			`the file does not have the value of "${STRIPE_MCP_KEY}"`}},
		"9.3":          {seedEnterprise, 1, []string{"line 1: " + noHash}},
		"9.3, with //": {strings.ReplaceAll(seedEnterprise, "#", "//"), 0, enterprise},
		"9.3, without its name": {strings.Replace(strings.ReplaceAll(seedEnterprise, "#", "//"),
			`  "server_id": "github-enterprise",
`, "", 1), 1, []string{`the file is one server without a name; write {"servers": {"NAME": ...}}`}},
		"4.1": {seedEntry, 1, []string{"line 18: " + noHash}},
		"4.1, with //": {strings.Replace(seedEntry, "#", "//", 1), 1, []string{
			"the file has no list of servers; pfar knows mcpServers, servers,"}},
	} {
		put(t, filepath.Join(s.home, "servers.json"), tt.text)
		imports(name, "pfar import servers.json --dry-run", tt.code, tt.says)
	}
	// Where no file's name says that it is JSON, a comment with # is one of YAML.
	put(t, filepath.Join(s.home, "servers.json"), seedEnterprise)
	imports("9.3, on standard input", "pfar import - --dry-run <servers.json", 0, enterprise)
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
