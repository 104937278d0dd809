package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// TestVerified: the real Notion server with a wrong token shows clients nothing, and pfar says in Notion's own words
// why, and how to get another one. Once that is stored the server runs on, and its tools appear.
func TestVerified(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	_, wrap := startStandIn[seen](t, "notion", []string{notionHost})
	p := prepare(t, map[string]string{
		"notion.hcl": fmt.Sprintf("allowed_domains = [%q]\n", notionHost) + declare("node",
			[]string{npm(t, "@notionhq/notion-mcp-server/bin/cli.mjs")},
			`auth = { NOTION_TOKEN = { secret = "vault:notion_token", deliver = "broker" } }`),
	})
	p.up(wrap...)
	p.await("notion waiting for its token", soon, func(r control.Report) bool {
		return server(r, "notion").State == control.Waiting
	})
	p.keep("set", "notion_token", wrongNotionToken)
	r := p.await("notion with a wrong token", soon, func(r control.Report) bool {
		return server(r, "notion").State == control.CredentialInvalid
	})
	wrong := server(r, "notion")
	v := wrong.Verification
	if v.Result != units.Invalid || !strings.Contains(v.Words, "API token is invalid.") ||
		v.Remedy.Command != "pfar vault set notion_token" ||
		!strings.Contains(v.Where, "https://www.notion.so/profile/integrations") || wrong.Tools != 0 {
		t.Errorf("with a wrong token it is %+v", wrong)
	}
	for _, asked := range [][]string{{"status"}, {"status", "notion"}, {"status", "--json"}} {
		out, _, _ := p.command(asked...)
		if !strings.Contains(out, "credential-invalid") || !strings.Contains(out, "pfar vault set notion_token") {
			t.Errorf("pfar %s: %s", strings.Join(asked, " "), out)
		}
	}
	if out, stderr, code := p.command("test", "notion"); code != 1 || !strings.Contains(out, "invalid") ||
		!strings.Contains(stderr, "pfar status notion") {
		t.Errorf("pfar test notion: %d\n%s%s", code, out, stderr)
	}
	c := p.client("/mcp")
	if _, err := c.call("notion__API-post-search", map[string]any{"query": "roadmap"}); err == nil ||
		!strings.Contains(err.Error(), "pfar vault set notion_token") || strings.Contains(err.Error(), "API token") {
		t.Errorf("a client is told %v", err)
	}

	p.keep("rotate", "notion_token", notionToken)
	r = p.await("notion with the right token", soon, func(r control.Report) bool {
		s := server(r, "notion")
		return s.State == control.Running && s.Verification.Result == units.Verified && s.Tools > 0
	})
	if after := server(r, "notion"); after.PID != wrong.PID || after.Tools < 15 {
		t.Errorf("it was started again, or has %d tools", after.Tools)
	}
	if got := c.must("notion__API-post-search", map[string]any{"query": "roadmap"}); !strings.Contains(got,
		"the pfar roadmap") {
		t.Errorf("the search found %s", got)
	}
	if out, stderr, code := p.command("test"); code != 0 || !strings.Contains(out, "verified") {
		t.Errorf("pfar test: %d\n%s%s", code, out, stderr)
	}
	if out, stderr, code := p.command("refresh", "notion"); code != 0 || out != "" || !strings.Contains(stderr,
		"notion: no changes") {
		t.Errorf("pfar refresh: %d\n%s%s", code, out, stderr)
	}
	out, _, code := p.command("audit", "--json")
	if code != 0 || !strings.Contains(out, `"client":"(pfar)"`) {
		t.Errorf("the audit: %d, %s", code, out)
	}
	for _, token := range []string{notionToken, wrongNotionToken} {
		assertSecretNowhere(t, p, token)
	}
}
