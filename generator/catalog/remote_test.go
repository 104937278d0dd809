package catalog

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
)

// TestRemotes has the remote servers that vendors are known to run, and how people sign in to each. The declaration of
// each has a place for the token exactly if the server wants one, which pfar login finds.
func TestRemotes(t *testing.T) {
	known := Load(nil, "")
	for name, want := range map[string]struct{ url, signIn, key string }{
		"notion":          {"https://mcp.notion.com/mcp", ByOAuth, "notion_remote_token"},
		"github":          {"https://api.githubcopilot.com/mcp/", ByToken, "github_token"},
		"linear":          {"https://mcp.linear.app/mcp", ByOAuth, "linear_remote_token"},
		"jira":            {"https://mcp.atlassian.com/v1/mcp", ByOAuth, "jira_token"},
		"sentry":          {"https://mcp.sentry.dev/mcp", ByOAuth, "sentry_remote_token"},
		"stripe":          {"https://mcp.stripe.com", ByOAuth, "stripe_token"},
		"asana":           {"https://mcp.asana.com/v2/mcp", ByOAuth, "asana_remote_token"},
		"monday":          {"https://mcp.monday.com/mcp", ByOAuth, "monday_remote_token"},
		"paypal":          {"https://mcp.paypal.com/sse", ByOAuth, "paypal_token"},
		"todoist":         {"https://ai.todoist.net/mcp", ByOAuth, "todoist_remote_token"},
		"context7":        {"https://mcp.context7.com/mcp", ByToken, "context7_api_key"},
		"hugging-face":    {"https://huggingface.co/mcp", ByOAuth, "hugging_face_token"},
		"perplexity":      {"https://api.perplexity.ai/mcp", ByToken, "perplexity_api_key"},
		"apify":           {"https://mcp.apify.com", ByToken, "apify_token"},
		"microsoft-learn": {"https://learn.microsoft.com/api/mcp", ByNothing, ""},
		"deepwiki":        {"https://mcp.deepwiki.com/mcp", ByNothing, ""},
		"cloudflare":      {"https://bindings.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_token"},

		"cloudflare-docs":       {"https://docs.mcp.cloudflare.com/mcp", ByNothing, ""},
		"cloudflare-builds":     {"https://builds.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_builds_token"},
		"cloudflare-observe":    {"https://observability.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_observe_token"},
		"cloudflare-radar":      {"https://radar.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_radar_token"},
		"cloudflare-containers": {"https://containers.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_containers_token"},
		"cloudflare-browser":    {"https://browser.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_browser_token"},
		"cloudflare-logs":       {"https://logs.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_logs_token"},
		"cloudflare-ai-gateway": {"https://ai-gateway.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_ai_gateway_token"},
		"cloudflare-autorag":    {"https://autorag.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_autorag_token"},
		"cloudflare-auditlogs":  {"https://auditlogs.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_auditlogs_token"},
		"cloudflare-dns":        {"https://dns-analytics.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_dns_token"},
		"cloudflare-dex":        {"https://dex.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_dex_token"},
		"cloudflare-casb":       {"https://casb.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_casb_token"},
		"cloudflare-graphql":    {"https://graphql.mcp.cloudflare.com/mcp", ByOAuth, "cloudflare_graphql_token"},
	} {
		s, _ := known.Find(name)
		if s.Remote.URL != want.url || s.Remote.SignIn != want.signIn {
			t.Errorf("%s is at %s, sign-in %q", name, s.Remote.URL, s.Remote.SignIn)
		}
		text, err := s.Elsewhere().Declaration(Choices{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		d, diags := declaration.Parse(name+".hcl", text, declaration.Options{})
		key := ""
		if d != nil && len(d.Credentials) == 1 {
			key = d.Credentials[0].Key
		}
		if d == nil || key != want.key || d.URL != want.url || d.Service != name {
			t.Errorf("%s: %v\n%s", name, diags, text)
		}
		if want.signIn == ByOAuth && len(d.Credentials[0].Places) > 0 &&
			d.Credentials[0].Places[0] != broker.Standard()[0] {
			t.Errorf("the token of %s goes into %v", name, d.Credentials[0].Places)
		}
	}
}

// TestSearchVendor: a search for a vendor finds all its servers.
func TestSearchVendor(t *testing.T) {
	if found := Load(nil, "").Search("cloudflare"); len(found) != 15 {
		t.Errorf("found %d servers of Cloudflare", len(found))
	}
}

// TestRemoteScopes: scopes of an entry are in the declaration, where pfar login reads them.
func TestRemoteScopes(t *testing.T) {
	entry := "service \"wiki\" {\n  setup {\n    title   = \"Wiki\"\n    summary = \"Pages\"\n    remote {\n" +
		"      url    = \"https://wiki.example.com/mcp\"\n      scopes = [\"read\", \"pages:write\"]\n    }\n  }\n}\n"
	known := Load(fstest.MapFS{"wiki.hcl": {Data: []byte(entry)}}, "services.d")
	s, ok := known.Find("wiki")
	text, err := s.Elsewhere().Declaration(Choices{})
	if !ok || err != nil || len(known.Diags) > 0 {
		t.Fatal(err, known.Diags)
	}
	d, diags := declaration.Parse("wiki.hcl", text, declaration.Options{})
	if d == nil || strings.Join(d.Scopes, " ") != "read pages:write" || d.Credentials[0].Key != "wiki_token" {
		t.Errorf("%v\n%s", diags, text)
	}
}
