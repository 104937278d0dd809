package catalog

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestDeclaration compares the declarations of services, one of each kind, with those in testdata.
func TestDeclaration(t *testing.T) {
	known := Load(nil, "")
	for file, test := range map[string]struct {
		service string
		Choices
	}{
		"notion": {service: "notion"},
		"github-work": {"github", Choices{Server: "github-work", Package: "npm:@modelcontextprotocol/server-github@2025.4.9",
			Keys: map[string]string{"GITHUB_PERSONAL_ACCESS_TOKEN": "github_work_token"}}},
		"slack":      {"slack", Choices{Answers: map[string]string{"team": "T01234567"}}},
		"filesystem": {"filesystem", Choices{Answers: map[string]string{"folder": "/srv/notes"}}},
		"postgres": {"postgres", Choices{Answers: map[string]string{
			"host": "db.example.com:5432", "database": "postgresql://reader@db.example.com/${app}"}}},
		"n8n":      {"n8n", Choices{Answers: map[string]string{"host": "n8n.example.com:8443"}}},
		"browser":  {"browser", Choices{Answers: map[string]string{"site": "example.com"}}},
		"gmail":    {service: "gmail"},
		"tavily":   {service: "tavily"},
		"context7": {"context7", Choices{Omitted: []string{"CONTEXT7_API_KEY"}}},
		"airtable": {service: "airtable"},
		"memory":   {service: "memory"},
	} {
		s, ok := known.Find(test.service)
		if !ok {
			t.Fatal(test.service)
		}
		text, err := s.Declaration(test.Choices)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		path := filepath.Join("testdata", file+".hcl")
		if *update {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || string(want) != string(text) {
			t.Errorf("%v; want %s, have\n%s", err, path, text)
		}
	}
}

// TestOptional wants words without an answer to be left out, and no answer to be read as part of another.
func TestOptional(t *testing.T) {
	s := Service{
		Name: "x", Title: "X", Domains: []string{"{host}", "api.example.com"}, Label: "sensitive",
		Program: Program{Command: "/usr/bin/x", Args: []string{"--team={team}", "{name}"},
			Env: map[string]string{"T": "{team}"}},
		Parameters: []Parameter{
			{Name: "team", Optional: true, Env: "TEAM"}, {Name: "host", Optional: true}, {Name: "name", Question: "Which?"},
		},
	}
	text, err := s.Declaration(Choices{Answers: map[string]string{"name": "{team}"}, Origin: "by\x1b hand\nx = 1"})
	const want = "# by\\x1b hand\\nx = 1\nallowed_domains = [\"api.example.com\"]\n\n" +
		"server {\n  command = \"/usr/bin/x\"\n  args    = [\"{team}\"]\n}\n"
	if err != nil || string(text) != want {
		t.Errorf("%v; want\n%s\nhave\n%s", err, want, text)
	}
}

// TestChoices wants each wrong choice to be refused with what to choose instead, and no secret to be repeated.
func TestChoices(t *testing.T) {
	known := Load(nil, "")
	answer := func(name, value string) Choices { return Choices{Answers: map[string]string{name: value}} }
	for _, test := range []struct {
		service string
		Choices
		want string
	}{
		{"slack", Choices{}, `Which workspace? Its ID begins with T. Give an answer, for example "T01234567"`},
		{"slack", answer("taem", "T1"), "team is missing"},
		{"slack", Choices{Answers: map[string]string{"team": "T1", "taem": "T1"}}, `does not ask for "taem"; write team`},
		{"notion", answer("x", "y"), `Notion asks for nothing; leave "x" out`},
		{"slack", answer("team", "T1\n"), "cannot be seen"},
		{"slack", answer("team", "T1\u202e"), "cannot be seen"},
		{"slack", answer("team", strings.Repeat("x", maxAnswer+1)), "has 4097 bytes, and room for 4096"},
		{"filesystem", answer("folder", "notes"), `"notes", is not a full path`},
		{"filesystem", answer("folder", "/srv/../etc"), `is not a full path`},
		{"filesystem", answer("folder", "--help"), "would be read as an option"},
		{"filesystem", answer("folder", "/proc"), "/proc"},
		{"filesystem", answer("folder", "/"), "cannot be in writable"},
		{"fetch", answer("host", "*"), "gives no valid host"},
		{"fetch", answer("host", "a b"), "gives no valid host"},
		{"browser", answer("site", "*.example.com"), "gives no valid host"},
		{"n8n", answer("host", "*.example.com"), "A secret goes only to hosts with full names"},
		{"n8n", answer("host", "http://n8n.example.com/x"), "gives no valid host"},
		{"postgres", Choices{Answers: map[string]string{
			"host": "db.example.com", "database": "postgresql://reader:hunter2@db.example.com/app"}}, "looks like a secret"},
		{"notion", Choices{Server: "No"}, `"No" cannot be the name of a server: use 1 to 23 of a to z`},
		{"notion", Choices{Package: "npm:other@1.0.0"}, "write another version of npm:@notionhq"},
		{"notion", Choices{Package: "npm:@notionhq/notion-mcp-server"}, "has no version; write an exact one"},
		{"notion", Choices{Package: "pypi:notion==1"}, "is not the package of Notion"},
		{"notion", Choices{Omitted: []string{"NOTION_TOKEN"}}, "Notion does not run without NOTION_TOKEN"},
		{"notion", Choices{Omitted: []string{"X"}}, `no secret "X" to leave out`},
		{"notion", Choices{Keys: map[string]string{"NOTION_TOKEN": "A B"}}, "cannot be called"},
		{"notion", Choices{Keys: map[string]string{"X": "x"}}, `no secret in "X"`},
		{"linear", Choices{}, ""},
		{"azure-devops", Choices{}, "@azure-devops/mcp does not run without its install scripts"},
	} {
		s, ok := known.Find(test.service)
		if !ok {
			t.Fatal(test.service)
		}
		text, err := s.Declaration(test.Choices)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.service, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || text != nil):
			t.Errorf("%s %+v: %v, want %q", test.service, test.Choices, err, test.want)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: %v", test.service, err)
		}
	}
}
