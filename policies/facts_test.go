package policies

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

// TestShipped wants every file that is shipped to be sound, and each of facts to be about the service of its name.
// None calls all output of a server regulated: only an owner's declaration says that.
func TestShipped(t *testing.T) {
	s := Load(nil, "")
	if len(s.Diags) > 0 || s.Policy == nil {
		t.Fatal(s.Diags)
	}
	for _, name := range Services() {
		service, ok := s.Policy.Services[name]
		if !ok {
			t.Errorf("no facts of %s", name)
			continue
		}
		for _, w := range service.Words {
			if w.Tool == "" && w.Confidentiality >= gate.Regulated {
				t.Errorf("%s calls all its output regulated", name)
			}
		}
		if !strings.HasPrefix(service.At, "services/"+name+".hcl:") {
			t.Errorf("%s stands at %s", name, service.At)
		}
	}
	const known = "airtable apify asana azure-devops brave-search chrome-devtools circleci context7 datadog exa fetch figma " +
		"filesystem firecrawl git github gitlab gmail google-calendar google-drive hubspot jira linear memory " +
		"microsoft-365 monday mongodb n8n notion perplexity postgres sentry sequential-thinking slack stripe supabase " +
		"tavily time todoist"
	for name := range strings.FieldsSeq(known + " browser") {
		if _, ok := s.Policy.Services[name]; !ok {
			t.Errorf("there are no facts of %s", name)
		}
	}
	if got, want := len(s.Policy.Services), len(Services()); got != want {
		t.Errorf("%d services in %d files", got, want)
	}
	profiles := Shipped()[:len(Shipped())-len(Services())]
	for _, name := range profiles {
		if _, ok := s.Policy.Profiles[strings.TrimSuffix(name, ".hcl")]; !ok {
			t.Errorf("%s has no profile of its name, and no facts", name)
		}
	}
	if got, want := len(s.Policy.Profiles), len(profiles); got != want {
		t.Errorf("%d profiles in %d files", got, want)
	}
	if len(s.Policy.Relaxed) > 0 || len(s.Policy.Words) > 0 || len(s.Policy.Rules) > 0 || len(s.Policy.Flows) > 0 {
		t.Errorf("what is shipped relaxes itself: %+v", s.Policy)
	}
}

// TestNothingUnlistedIsHarmless asks for a tool that no file knows.
func TestNothingUnlistedIsHarmless(t *testing.T) {
	p := shippedPolicy(t)
	for _, name := range Services() {
		f := p.Resolve(gate.Offer{Server: gate.Declared{Server: name, Service: name}, Name: "zzz"})
		if f.Effect != gate.Irreversible && f.Forbidden == "" && !strings.HasPrefix(f.From.Effect, "service: ") {
			t.Errorf("%s: %+v", name, f)
		}
		for _, from := range []string{f.From.Confidentiality, f.From.Integrity, f.From.Audience} {
			if !strings.HasPrefix(from, "service: ") {
				t.Errorf("%s says nothing of the server as a whole: %+v", name, f.From)
			}
		}
	}
	unknown := p.Resolve(gate.Offer{Server: gate.Declared{Server: "zzz"}, Name: "get_issue"})
	if unknown != gate.Worst {
		t.Errorf("an unknown server: %+v", unknown)
	}
}

func TestTools(t *testing.T) {
	p := shippedPolicy(t)
	for _, c := range []struct{ server, tool, want string }{
		{"github", "get_issue", "internal raw, to internal, none"},
		{"github", "add_issue_comment", "internal raw, to public, irreversible"},
		{"github", "update_issue", "internal raw, to public, irreversible"},
		{"gmail", "send_email", "sensitive raw, to public, irreversible"},
		{"gmail", "search_emails", "sensitive raw, to sensitive, none"},
		{"notion", "API-post-search", "internal raw, to internal, none"},
		{"notion", "API-retrieve-a-comment", "internal raw, to internal, none"},
		{"notion", "API-post-page", "internal raw, to internal, irreversible"},
		{"notion", "API-create-a-comment", "internal raw, to internal, irreversible"},
		{"notion", "API-move-page", "internal raw, to internal, irreversible"},
		{"notion", "API-delete-a-block", "internal raw, to internal, reversible"},
		{"notion", "API-anything", "internal raw, to internal, irreversible"},
		{"slack", "conversations_add_message", "sensitive raw, to public, irreversible"},
		{"filesystem", "read_text_file", "sensitive clean, to sensitive, none"},
		{"fetch", "fetch", "public raw, to public, none"},
		{"postgres", "query", "sensitive raw, to sensitive, irreversible"},
		{"linear", "linear_createIssue", "internal raw, to internal, irreversible"},
		{"linear", "linear_archiveIssue", "internal raw, to internal, reversible"},
		{"linear", "linear_createWebhook", "internal raw, to internal, irreversible"},
		{"browser", "browser_navigate", "public raw, to public, none"},
		{"browser", "browser_cookie_list", "secret raw, to public, none, in browser/storage"},
		{"browser", "browser_mouse_click_xy", "public raw, to public, reversible, in browser/vision"},
		{"browser", "browser_evaluate", "public raw, to public, irreversible, in browser/devtools"},
		{"browser", "browser_new_in_next_version", "public raw, to public, irreversible, forbidden"},
		{"cloudflare-docs", "search_cloudflare_documentation", "public raw, to public, none"},
		{"cloudflare-radar", "get_bgp_hijacks", "public raw, to public, none"},
		{"cloudflare-radar", "get_url_scan_har", "internal raw, to public, none"},
		{"cloudflare-radar", "create_url_scan", "public raw, to public, irreversible"},
		{"cloudflare-containers", "container_exec", "sensitive raw, to public, irreversible"},
		{"cloudflare-dns", "zone_details", "internal raw, to internal, none"},
		{"cloudflare-dex", "dex_create_remote_pcap", "sensitive raw, to sensitive, irreversible"},
	} {
		f := p.Resolve(gate.Offer{Server: gate.Declared{Server: c.server, Service: c.server, Kept: true}, Name: c.tool})
		if got := facts(f); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.server, c.tool, got, c.want)
		}
	}
	// By package instead of name, and by a name that the owner gives.
	for _, d := range []gate.Declared{
		{Server: "gh", Packages: []string{"@modelcontextprotocol/server-github"}}, {Server: "gh", Service: "github"},
		{Server: "notion", Service: "github"}, {Server: "notion", Packages: []string{"@modelcontextprotocol/server-github"}},
	} {
		if got, certain := p.Service(d); got != "github" || !certain {
			t.Errorf("%+v is of %q, %t", d, got, certain)
		}
	}
	if got, _ := p.Service(gate.Declared{Server: "github", Service: "gihub"}); got != "" {
		t.Errorf("an unknown service became %q", got)
	}
}

// TestForwards has reads whose service opens an address among the arguments, from a host of its own. The sandbox
// reaches that host alone, but its owner is not the only one who gets the address: the audience stays public. That of
// the service's other reads is what the sandbox says.
func TestForwards(t *testing.T) {
	p := shippedPolicy(t)
	for _, c := range []struct{ service, tool, want string }{
		{"cloudflare-browser", "get_url_markdown", "public raw, to public, none"},
		{"cloudflare-browser", "scrape_url_elements", "public raw, to public, none"},
		{"cloudflare-browser", "start_crawl", "public raw, to public, irreversible"},
		{"cloudflare-browser", "get_crawl_result", "internal raw, to sensitive, none"},
		{"cloudflare-containers", "container_file_read", "sensitive raw, to public, none"},
		{"cloudflare-containers", "container_files_list", "sensitive raw, to sensitive, none"},
		{"firecrawl", "firecrawl_scrape", "public raw, to public, none"},
		{"firecrawl", "firecrawl_crawl", "public raw, to public, none"},
		{"firecrawl", "firecrawl_extract", "public raw, to public, none"},
		{"firecrawl", "firecrawl_search", "public raw, to public, none"},
		{"firecrawl", "firecrawl_crawl_in_next_version", "public raw, to public, irreversible"},
		{"tavily", "tavily-extract", "public raw, to public, none"},
		{"tavily", "tavily_crawl", "public raw, to public, none"},
		{"tavily", "tavily_search", "public raw, to sensitive, none"},
		{"exa", "crawling_exa", "public raw, to public, none"},
		{"exa", "web_fetch_exa", "public raw, to public, none"},
		{"exa", "web_search_exa", "public raw, to sensitive, none"},
		{"perplexity", "perplexity_ask", "public raw, to public, none"},
		{"perplexity", "perplexity_research", "public raw, to public, none"},
		{"perplexity", "perplexity_search", "public raw, to sensitive, none"},
		{"tavily", "tavily_opens_in_next_version", "public raw, to public, irreversible"},
		{"gitlab", "validate_ci_lint", "internal raw, to public, none"},
		{"apify", "get-html-skeleton", "public raw, to public, none"},
		{"apify", "fetch-apify-docs", "public raw, to public, none"},
	} {
		f := p.Resolve(gate.Offer{
			Server: gate.Declared{Server: c.service, Service: c.service, Kept: true}, Name: c.tool,
			Confined: gate.Confinement{Bound: gate.NamedHosts, Hosts: []string{"api.example.com"}},
		})
		if got := facts(f); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.service, c.tool, got, c.want)
		}
	}
}

// TestFolderForwards: the folder can name more tools whose arguments are handed on, and takes none back.
func TestFolderForwards(t *testing.T) {
	for text, want := range map[string]string{
		`service "tavily" { forwards = ["tavily_search"] }`: "public raw, to public, none",
		`server "web" { forwards = ["tavily_*"] }`:          "public raw, to public, none",
		`server "other" { forwards = ["*"] }`:               "public raw, to sensitive, none",
		`service "tavily" { reads = ["tavily_extract"] }`:   "public raw, to sensitive, none",
	} {
		p := sound(t, text)
		o := gate.Offer{
			Server: gate.Declared{Server: "web", Service: "tavily"}, Name: "tavily_search",
			Confined: gate.Confinement{Bound: gate.NamedHosts, Hosts: []string{"api.tavily.com"}},
		}
		if got := facts(p.Resolve(o)); got != want || len(p.Relaxed) > 0 {
			t.Errorf("%s: %s, want %s; relaxed: %+v", text, got, want, p.Relaxed)
		}
		o.Name = "tavily_extract"
		if got := facts(p.Resolve(o)); got != "public raw, to public, none" {
			t.Errorf("%s takes a shipped one back: %s", text, got)
		}
	}
}

// TestNameIsNoService has a server of every service's name that runs something else, or nobody knows what: no fact of
// its tools is laxer than of an unknown server's, whatever a person has accepted of its hints; and where nobody knows
// what it is, none is laxer than the service's.
func TestNameIsNoService(t *testing.T) {
	p := shippedPolicy(t)
	yes, no := true, false
	below := func(f, g gate.Facts) bool { // g is at least as strict
		return f.Output.Below(g.Output) && g.Audience <= f.Audience && g.Effect >= f.Effect && (f.Forbidden == "" || g.Forbidden != "") && (f.Tier == "" || g.Tier != "" || g.Forbidden != "")
	}
	harmless := 0
	for _, service := range Services() {
		tools := []string{"zzz"}
		for _, w := range p.Services[service].Words {
			tools = append(tools, strings.ReplaceAll(string(w.Tool), "*", "x"))
		}
		for _, name := range tools {
			for _, hints := range []*gate.Hints{nil, {ReadOnly: &yes, OpenWorld: &no}} {
				facts := func(d gate.Declared) gate.Facts {
					d.Kept = true
					return p.Resolve(gate.Offer{Server: d, Name: name, Hints: hints})
				}
				certain := gate.Declared{Server: service, Service: service}
				if packages := p.Services[service].Packages; len(packages) > 0 { // else its vendor runs it
					certain = gate.Declared{Server: service, Packages: packages[:1]}
				}
				unknown, known := facts(gate.Declared{Server: "unknown"}), facts(certain)
				if !below(unknown, known) {
					harmless++
				}
				for _, d := range []gate.Declared{{Server: service, Packages: []string{"other-mcp"}}, {Server: "own-" + service, Of: service, Packages: []string{"other-mcp"}}} {
					if got := facts(d); got != unknown {
						t.Errorf("%s of another package, %s: %+v", service, name, got)
					}
				}
				for _, d := range []gate.Declared{{Server: service}, {Server: "own-" + service, Of: service}} {
					if got := facts(d); !below(unknown, got) || !below(known, got) {
						t.Errorf("%s, %s: %+v, of an unknown server %+v, of that service %+v", service, name, got, unknown, known)
					}
				}
				noWrites := facts(gate.Declared{Server: service, Words: []gate.Word{{Trust: gate.Trust{PublicSink: gate.Forbidden}}}})
				if noWrites.Effect != gate.None && noWrites.Forbidden == "" {
					t.Errorf("%s, %s writes, and writes are forbidden: %+v", service, name, noWrites)
				}
				if got := facts(gate.Declared{Server: "x", Service: service}); got != known {
					t.Errorf("declared to be %s, %s: %+v", service, name, got)
				}
			}
		}
	}
	if harmless < 200 {
		t.Errorf("only of %d tools the shipped facts say what is laxer", harmless)
	}
}
