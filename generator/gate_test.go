package generator

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/gate"
)

func TestRunners(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"npx -y @modelcontextprotocol/server-github", "@modelcontextprotocol/server-github"},
		{"npx -y @modelcontextprotocol/server-github@2025.4.8 --flag x", "@modelcontextprotocol/server-github"},
		{"npx -y -- @modelcontextprotocol/server-github@^2025", "@modelcontextprotocol/server-github"},
		{"/usr/bin/npx tavily-mcp@latest", "tavily-mcp"}, {"npm exec -y tavily-mcp", "tavily-mcp"},
		{"pnpm dlx figma-developer-mcp", "figma-developer-mcp"}, {"bunx --bun exa-mcp-server", "exa-mcp-server"},
		{"uvx mcp-server-fetch==2025.1.1", "pypi:mcp-server-fetch"},
		{"uvx --python=3.12 mcp_server.fetch@latest", "pypi:mcp-server-fetch"},
		{"uv tool run mcp-server-git", "pypi:mcp-server-git"}, {"pipx run mcp-server-git", "pypi:mcp-server-git"},
		{"uvx mcp-server-time[extra]", "pypi:mcp-server-time"},
		{"uvx mcp-server-time[extra]>=1,<2", "pypi:mcp-server-time"},
		{"npx evil @notionhq/notion-mcp-server", "evil"}, // known, and another's

		// Another package by that name, or nobody knows which.
		{"npx @notionhq/notion-mcp-server@npm:evil", ""}, {"npx @notionhq/notion-mcp-server@https://evil.test/x.tgz", ""},
		{"npx @notionhq/notion-mcp-server@evil/repository", ""},
		{"npx --registry https://evil.test @notionhq/notion-mcp-server", ""},
		{"npx --registry=https://evil.test @notionhq/notion-mcp-server", ""},
		{"npx -p @notionhq/notion-mcp-server evil", ""}, {"npx --package=evil tavily-mcp", ""},
		{"npx -c evil tavily-mcp", ""}, {"npx evil/tavily-mcp", ""},
		{"pnpm exec tavily-mcp", ""}, {"npm run tavily-mcp", ""}, {"npm install tavily-mcp", ""}, {"yarn tavily-mcp", ""},
		{"uvx --from evil mcp-server-git", ""}, {"uvx --with mcp-server-git evil", ""},
		{"uvx --index-url https://evil.test mcp-server-git", ""}, {"uvx mcp-server-git@git+https://evil.test/x", ""},
		{"pipx run --spec evil mcp-server-git", ""}, {"uv run mcp-server-git", ""},
		{"npx ./local", ""}, {"npx", ""}, {"node server.js", ""}, {"python -m x", ""}, {"npx -y", ""}, {"node", ""},
		{"mcp-server-git", ""},
	} {
		got := originAs(t, fetchers(), c.line, "net")
		if strings.HasPrefix(got, "?") {
			got = ""
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}

// factsOf resolves a tool of a declaration by what is shipped.
func factsOf(t *testing.T, p *gate.Policy, file, text, tool string, hints *gate.Hints) gate.Facts {
	t.Helper()
	s, diags := declaration.Parse(file, []byte(text), declaration.Options{})
	if s == nil {
		t.Fatal(diags)
	}
	b, err := json.Marshal(declared(*s))
	if err != nil {
		t.Fatal(err)
	}
	var d gate.Declared
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return p.Resolve(gate.Offer{Server: d, Name: tool, Hints: hints})
}

// TestSpellings wants the flags, the labels and the facts to be ways to say the same, in both syntaxes.
func TestSpellings(t *testing.T) {
	p := policies.Load(nil, "").Policy
	yes, no := true, false
	reads := &gate.Hints{ReadOnly: &yes}
	for _, c := range []struct {
		name, hcl, toml, tool string
		hints                 *gate.Hints
		want                  string
	}{
		{"nothing", "", "", "x", nil, "sensitive raw, to public, irreversible; unknown unknown unknown unknown"},
		{"label", `label = "internal"`, `label = "internal"`, "x", nil, "internal raw, to public, irreversible; owner unknown unknown unknown"},
		{"default label", "", "", "x", reads, "sensitive raw, to public, none; unknown unknown unknown hint"},
		{"both hints", "", "", "x", &gate.Hints{ReadOnly: &yes, Destructive: &yes}, "sensitive raw, to public, irreversible; unknown unknown unknown unknown"},
		{"closed world", "", "", "x", &gate.Hints{OpenWorld: &no}, "sensitive raw, to sensitive, irreversible; unknown unknown hint unknown"},
		{"read", "tool \"x\" {\n semantics = \"read\"\n}", "[tool.x]\nsemantics = \"read\"", "x", nil, "sensitive raw, to public, none; unknown unknown unknown owner"},
		{"write, against the hint", "tool \"x\" {\n semantics = \"write\"\n}", "[tool.x]\nsemantics = \"write\"", "x", reads, "sensitive raw, to public, irreversible; unknown unknown unknown owner"},
		{"flags", "trust { public_source = false, secret_data = true, public_sink = false, dangerous_writes = false }", "[trust]\npublic_source = false\nsecret_data = true\npublic_sink = false\ndangerous_writes = false", "x", nil, "sensitive clean, to sensitive, reversible; owner owner owner owner"},
		{"flags, a read", "trust { public_source = true, secret_data = false, public_sink = true, dangerous_writes = true }", "[trust]\npublic_source = true\nsecret_data = false\npublic_sink = true\ndangerous_writes = true", "x", reads, "internal raw, to public, none; owner owner owner owner"},
		{"label under secret_data", "label = \"internal\"\ntrust {\n secret_data = true\n}", "label = \"internal\"\n[trust]\nsecret_data = true", "x", nil, "sensitive raw, to public, irreversible; owner unknown unknown unknown"},
		{"label over secret_data", "label = \"regulated\"\ntrust {\n secret_data = true\n}", "label = \"regulated\"\n[trust]\nsecret_data = true", "x", nil, "regulated raw, to public, irreversible; owner unknown unknown unknown"},
		{"glob", `tool "send_*" { effect = "irreversible", audience = "internal", output = "public clean" }`, "[tool]\n\"send_*\" = { effect = \"irreversible\", audience = \"internal\", output = \"public clean\" }", "send_x", nil, "public clean, to internal, irreversible; owner owner owner owner"},
		{"glob of others", `tool "send_*" { effect = "none", audience = "internal" }`, "[tool]\n\"send_*\" = { effect = \"none\" }", "resend_x", nil, "sensitive raw, to public, irreversible; unknown unknown unknown unknown"},
		{"a name before a glob", "tool \"send_*\" {\n effect = \"none\"\n}\ntool \"send_all\" {\n effect = \"irreversible\"\n}", "tool.\"send_*\".effect = \"none\"\ntool.send_all.effect = \"irreversible\"", "send_all", nil, "sensitive raw, to public, irreversible; unknown unknown unknown owner"},
		{"owner over shipped", "service = \"github\"\ntool \"get_issue\" {\n effect = \"reversible\"\n}", "service = \"github\"\ntool.get_issue.effect = \"reversible\"", "get_issue", nil, "internal raw, to internal, reversible; service service service owner"},
		{"shipped over hints", `service = "github"`, `service = "github"`, "delete_file", reads, "internal raw, to public, irreversible; service service service service"},
		{"flag over shipped", "service = \"github\"\ntrust {\n public_source = false\n}", "service = \"github\"\n[trust]\npublic_source = false", "get_issue", nil, "internal clean, to internal, none; service owner service service"},
		{"dangerous_writes leaves reads alone", "service = \"github\"\ntrust {\n dangerous_writes = true\n}", "service = \"github\"\n[trust]\ndangerous_writes = true", "get_issue", nil, "internal raw, to internal, none; service service service owner"},
		{"forbidden source", "trust {\n public_source = \"forbidden\"\n}", "[trust]\npublic_source = \"forbidden\"", "x", reads, "sensitive raw, to public, none; unknown owner unknown hint; forbidden"},
		{"forbidden writes", "trust {\n dangerous_writes = \"forbidden\"\n}", "[trust]\ndangerous_writes = \"forbidden\"", "x", nil, "sensitive raw, to public, irreversible; unknown unknown unknown owner; forbidden"},
		{"forbidden writes, a read", "trust {\n dangerous_writes = \"forbidden\"\n}", "[trust]\ndangerous_writes = \"forbidden\"", "x", reads, "sensitive raw, to public, none; unknown unknown unknown owner"},
	} {
		for file, text := range map[string]string{"s.hcl": c.hcl + "\ncommand = \"node\"\n", "s.toml": "command = \"node\"\n" + c.toml + "\n"} {
			f := factsOf(t, p, file, text, c.tool, c.hints)
			var froms []string
			for _, from := range []string{f.From.Confidentiality, f.From.Integrity, f.From.Audience, f.From.Effect} {
				who, _, _ := strings.Cut(from, ":")
				froms = append(froms, who)
			}
			got := f.Output.String() + ", to " + f.Audience.String() + ", " + f.Effect.String() + "; " + strings.Join(froms, " ")
			if f.Forbidden != "" {
				got += "; forbidden"
			}
			if got != c.want {
				t.Errorf("%s, %s: %s, want %s", c.name, file, got, c.want)
			}
		}
	}
}

// TestDeclaredTravels wants what is said to be in what the gateway is told. Of a server that writes to no folder
// nothing has to be kept, unless its processes are many.
func TestDeclaredTravels(t *testing.T) {
	s, _ := declaration.Parse("notion.hcl", []byte("label = \"internal\"\ncommand = \"node\"\ntool \"send_*\" {\n  effect = \"none\"\n}\n"), declaration.Options{})
	c := facts{server: *s}
	g := c.gateway(nil, new(findings))
	var d gate.Declared
	if err := json.Unmarshal(g.Declared, &d); err != nil || d.Server != "notion" || len(d.Words) != 2 || d.Words[0].From != "owner: notion.hcl" || g.Tools["send_*"].Semantics != "read" {
		t.Errorf("%v: %s", err, g.Declared)
	}
	s, _ = declaration.Parse("notion.hcl", []byte("command = \"node\"\n"), declaration.Options{})
	c = facts{server: *s}
	if g := c.gateway(nil, new(findings)); string(g.Declared) != `{"server":"notion","kept":true}` {
		t.Errorf("of nothing said: %s", g.Declared)
	}
	for text, want := range map[string]string{
		"": `"kept":true,"keeps":true}`, "undo = false": `"writes":true}]}`,
	} {
		s, _ := declaration.Parse("notion.hcl", []byte("command = \"node\"\nsandbox {\n"+text+"\n}\n"), declaration.Options{})
		c := facts{server: *s}
		g := c.gateway([]bind{{real: "/srv/out", writable: true}}, new(findings))
		if got := string(g.Declared); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		c.server.Sessions.Own = true
		g = c.gateway([]bind{{real: "/srv/out", writable: true}}, new(findings))
		if got := string(g.Declared); strings.Contains(got, "kept") || undo(c, nil) != nil {
			t.Errorf("with processes of single sessions: %s", got)
		}
	}
	if !slices.Contains(policies.Services(), "browser") {
		t.Error("no service browser")
	}
}
