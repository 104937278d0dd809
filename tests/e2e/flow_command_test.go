package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/flows"
)

// flowServers are the names of servers that flows of others name, and whose tools package flownodes has.
func flowServers() []string {
	return []string{"github", "slack", "weather", "finance", "filesystem", "stripe"}
}

// TestFlowCommand runs command lines and files that others have written for other programs, by pfar flow, against
// servers of the names that stand in them.
func TestFlowCommand(t *testing.T) {
	t.Parallel()
	declarations := map[string]string{}
	for _, name := range flowServers() {
		declarations[name+".hcl"] = declare(program(t, "standin"), []string{"-like", name}, `
pins  = "trust-first"
label = "public"
trust {
  public_source    = false
  secret_data      = false
  public_sink      = false
  dangerous_writes = false
}`)
	}
	p := prepare(t, declarations)
	clients := filepath.Join(p.home, "clients.d")
	check(t, os.Mkdir(clients, 0o755))
	const client = "servers = [\"*\"]\nprofile = \"everyday\"\nrelax = \"a test\"\n"
	check(t, os.WriteFile(filepath.Join(clients, "default.hcl"), []byte(client), 0o644))
	flowsDir := filepath.Join(p.home, "flows.d")
	check(t, os.Mkdir(flowsDir, 0o755))
	p.up()
	p.awaitRunning(flowServers()...)

	run := func(want int, args ...string) string {
		t.Helper()
		out, errs, code := p.command(append([]string{"flow"}, args...)...)
		if code != want {
			t.Errorf("pfar flow %q: %d, want %d: %s%s", args, code, want, out, errs)
		}
		return out + errs
	}
	// The eight names, each to the tool that it stands for.
	for line, says := range map[string]string{
		"mcp-weather-get --location Bern":                                    `get_weather {\"location\":\"Bern\"}`,
		"mcp-github-search-repos --query x":                                  `search_repositories {\"query\":\"x\"}`,
		"mcp-slack-send-message --message hello --channel dev-team":          `send_slack_message {\"channel\":\"dev-team\",`,
		"mcp-filesystem-list-files --path /":                                 `list_files {"path":"/"}`,
		"mcp-finance-get-stock --symbol ACME":                                `{"price":1.5}`,
		"mcp-github-search-code --query authentication --language python":    `search_code {\"language\":\"python\",`,
		"mcp-github-search-code --query=x --max-results=20":                  `\"max_results\":20`,
		"mcp_github.search_code --query TODO":                                `search_code {\"query\":\"TODO\"}`,
		"mcp-github-get-repo --owner a --repo b":                             `get_repo {\"owner\":\"a\",`,
		"mcp-github-create-issue --title x":                                  `create_issue {\"title\":\"x\"}`,
		"mcp-weather-get --location Bern + mcp-finance-get-stock --symbol A": `{"price":1.5}`,
	} {
		out := run(0, append([]string{"run"}, strings.Fields(line)...)...)
		if !strings.Contains(out, says) {
			t.Errorf("%s prints %s, want %s", line, out, says)
		}
	}
	// A pipe gives what a step needs.
	quoted := run(0, "run", `mcp-weather-get --location "New York" >> template --template "{{weather_data}}" >> `+
		`mcp-slack-send-message --channel '#weather'`)
	if !strings.Contains(quoted, `New York`) || !strings.Contains(quoted, `#weather`) {
		t.Errorf("%s", quoted)
	}
	// Without a model, a line with one is checked, and the one mistake is that.
	for _, line := range []string{
		`mcp-github-search-code --query "authentication" --language "python" >> summarize-text`,
		`mcp-github-search-code --language=python --query "TODO comments" >> summarize-text >> ` +
			`mcp-slack-send-message --channel=dev-team`,
		`mcp_github.search_code --query "TODO" >> summarize >> mcp_stripe.create_customer`,
	} {
		out := run(1, "check", line)
		if strings.Count(out, "flow:1:") != 1 || !strings.Contains(out, "summarize-text is held: ") {
			t.Errorf("%s: %s", line, out)
		}
	}
	// A file of flows.d, with its flags; the run is listed and shown.
	check(t, os.WriteFile(filepath.Join(flowsDir, "notify.json"), []byte(`{
  "nodes": [
    {"id": "mcp-github-search-code", "version": "1.0.0", "type": "mcp_wrapper", "params": {"max_results": 15},
     "mcp_metadata": {"server_id": "github-server", "tool_name": "search_code", "version": "1.2.0"}},
    {"id": "pick", "params": {"jq": ".[0]"}},
    {"id": "mcp-slack-send-message", "version": "1.0.0", "type": "mcp_wrapper", "params": {},
     "mcp_metadata": {"server_id": "slack-server", "tool_name": "send_message", "version": "2.1.0"}}],
  "edges": [{"from": "mcp-github-search-code", "to": "pick"}, {"from": "pick", "to": "mcp-slack-send-message"}],
  "mappings": {"mcp-slack-send-message": {"input_mappings": {"message": "picked", "channel": "dev-team-alerts"}}}
}`), 0o644))
	args := []string{"notify", "--query", "authentication vulnerabilities", "--language", "python", "--dev-team-alerts",
		"#security-alerts"}
	if out := run(0, append([]string{"check"}, args...)...); out != "no mistakes\n" {
		t.Errorf("%s", out)
	}
	if out := run(0, append([]string{"plan"}, args...)...); !strings.Contains(out, "slack.send_slack_message") {
		t.Errorf("%s", out)
	}
	out := run(0, append([]string{"run"}, args...)...)
	if !strings.Contains(out, "#security-alerts") || !strings.Contains(out, "authentication vulnerabilities") {
		t.Errorf("%s", out)
	}
	var list []flows.Status
	check(t, json.Unmarshal([]byte(run(0, "list", "--json")), &list))
	var id string
	for _, r := range list {
		if r.Flow == "notify" {
			id = r.ID
		}
	}
	shown := run(0, "show", id)
	for _, part := range []string{"flow      notify\n", "state     done\n", "github.search_code",
		"slack.send_slack_message", "default"} {
		if !strings.Contains(shown, part) {
			t.Errorf("%q is not in %s", part, shown)
		}
	}
	if out := run(4, "show", "no-such-run"); !strings.Contains(out, "pfar:") {
		t.Errorf("%s", out)
	}
	describe, errs, code := p.command("describe", "mcp-github-search-code")
	for _, part := range []string{`Reads: shared["query"]`, `Writes: shared["search_results"]`,
		"Params: max_results (default 10)",
		"MCP Source: github/search_code v1.2.0"} {
		if code != 0 || !strings.Contains(describe, part) {
			t.Errorf("%d: %q is not in %s%s", code, part, describe, errs)
		}
	}
}
