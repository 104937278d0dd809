package importer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/visible"
)

// TestReadRefuses wants errors with their place, and without the file's texts.
func TestReadRefuses(t *testing.T) {
	many := strings.Repeat("\n\"%\": {\"command\": \"x\"},", maxEntries+1)
	for i := range maxEntries + 1 {
		many = strings.Replace(many, "%", fmt.Sprint("s", i), 1)
	}
	for _, tt := range []struct{ name, file, in, want string }{
		{"empty", "x.json", "", "line 1"},
		{"no servers", "x.json", `{"theme": "FAKE"}`, "no list of servers"},
		{"a declaration", "x.toml", "name = \"FAKE\"\n[server]\ncommand = \"x\"\n", "copy it to the directory"},
		{"a list", "x.json", "{\n\"mcpServers\": [\"FAKE\"]}", "line 2"},
		{"twice", "x.json", "{\"mcpServers\": {\n\"a\": {},\n\"a\": {}}}", "line 3"},
		{"twice in env", "x.json", "{\"mcpServers\": {\"a\": {\"env\": {\n\"FAKE\": \"1\", \"FAKE\": \"2\"}}}}", "line 2"},
		{"deep", "x.json", `{"mcpServers":` + strings.Repeat(`{"a":`, 300), "line 1"},
		{"broken", "x.toml", "[mcp_servers.a]\ncommand = FAKE\n", "line 2"},
		{"two documents", "x.yaml", "extensions: {}\n---\nextensions: {}\n", "two documents"},
		{"many", "x.json", `{"mcpServers": {` + many + `}}`, "256 servers"},
		{"not text", "x.json", "{\"mcpServers\": {\"\xff\": {}}}", "UTF-8"},
	} {
		list, err := Read(Source{Name: tt.file, Text: []byte(tt.in)})
		if err == nil || list != nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "FAKE") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestRefused wants each server that is not what it should be to be refused with its line, and no secret to come out.
func TestRefused(t *testing.T) {
	o := options()
	for _, tt := range []struct{ name, in, want string }{
		{"a text", `"a": "FAKE"`, "1: it is a text, and not a server"},
		{"nothing", `"a": {}`, "1: it has no command"},
		{"args is a text", "\"a\": {\"command\": \"x\",\n\"args\": \"FAKE\"}", `2: "args" is a text, but must be a list`},
		{"an argument is an object", `"a": {"command": "x", "args": [{"FAKE": 1}]}`, `is an object, but must be a text`},
		{"env is a list", `"a": {"command": "x", "env": ["FAKE=1"]}`, `"env" is a list, but must be an object`},
		{"a control character", `"a": {"command": "x\u001b[31m"}`, `"command" has an invisible character`},
		{"a text that turns around", `"a": {"command": "x", "args": ["\u202eFAKE"]}`, `has an invisible character`},
		{"NUL", `"a": {"command": "x", "env": {"A_TOKEN": "a\u0000b"}}`, `has an invisible character`},
		{"long", `"a": {"command": "x", "args": ["` + strings.Repeat("a", maxWord+1) + `"]}`, "has more than 65536 bytes"},
		{"a token", `"a": {"command": "x", "args": ["ghp_FAKEfake0123456789FAKEfake0123456789"]}`, "looks like a secret"},
		{"a header", `"a": {"command": "x", "args": ["Authorization: Bearer FAKE12"]}`, "looks like a secret"},
		{"an option", `"a": {"command": "x", "args": ["--password", "FAKE"]}`, `"--password" has a secret`},
		{"an option of a service", `"a": {"command": "npx", "args": ["figma-developer-mcp", "--proxy-password", "FAKE"]}`,
			`"--proxy-password" has a secret`},
		{"an option in one word", `"a": {"command": "x", "args": ["--api-key=FAKE"]}`, `"--api-key" has a secret`},
		{"a password in an address", `"a": {"command": "x", "args": ["redis://u:FAKE@h/0"]}`, "address with a password"},
		{"a version that is a range", `"a": {"command": "npx", "args": ["x@>1"]}`, "is not an exact version of x"},
		{"no package", `"a": {"command": "npx", "args": ["-y", "../../evil"]}`, "not a package of a registry"},
		{"a token for a name", `"a": {"command": "npx", "args": ["x--key=ghp_FAKEfake0123456789FAKEfake0123456789"]}`,
			"a word in it looks like a secret"},
		{"an address", `"a": {"command": "npx", "args": ["https://example.com/x.tgz"]}`, "not a package of a registry"},
		{"options", `"a": {"command": "npx", "args": ["--registry", "http://evil", "x@1.0.0"]}`, "options that pfar does"},
		{"an option as command", `"a": {"command": "--version"}`, "would be wrong"},
	} {
		list, err := Read(Source{Name: "x.json", Text: []byte(`{"mcpServers": {` + tt.in + `}}`), Home: "/home/ann"})
		if err != nil || len(list) != 1 {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		p := Propose(list, o)[0]
		all := told([]Proposal{p})
		if p.Refused == "" || p.Text != "" || p.Secrets != nil || !strings.Contains(all, tt.want) ||
			strings.Contains(all, "FAKE") {
			t.Errorf("%s: %s\nwant %q", tt.name, all, tt.want)
		}
	}
}

// TestNames wants every name to become one that a server may have, and no two alike.
func TestNames(t *testing.T) {
	o := options()
	for in, want := range map[string]string{
		"../../etc/passwd": "etc-passwd", "": "my-server", "__": "my-server", "A_b": "a-b",
		"1st": "st", "пример": "my-server",
		"declared2": "declared2", strings.Repeat("x", 99): strings.Repeat("x", 23), "a\x1b[31mb": "a-31mb",
	} {
		list := Propose([]Entry{{Name: in, Line: 1, command: Word{Text: "x"}},
			{Name: in, Line: 2, command: Word{Text: "y"}}}, o)
		if list[0].Server != want || list[1].Server == want || list[0].Refused+list[1].Refused != "" {
			t.Errorf("%q: %s", in, told(list))
		}
	}
}

// FuzzImport wants declarations that are sound, names that are apart, and no secret but in values.
func FuzzImport(f *testing.F) {
	for name, in := range map[string]string{
		"x.json": `{"mcpServers": {"a": {"command": "npx", "args": ["-y", "tavily-mcp@0.2.4", "/a/b"],
			"env": {"TAVILY_API_KEY": "FAKE"}}}}`,
		"x.toml": "[mcp_servers.a]\ncommand = \"x\"\nargs = [\"--token\", \"FAKE\"]\nenv = { A_KEY = \"FAKE\" }\n",
		"x.yaml": "extensions:\n  a:\n    cmd: uvx\n    args: [mcp-server-git, --repository, ~/x]\n" +
			"    envs: {A_SECRET: FAKE}\n",
		"-": `{"inputs": [{"id": "i", "password": true}],
			"servers": {"b": {"command": "${userHome}/x", "env": {"B": "${input:i}"}}}}`,
	} {
		f.Add(name, in)
	}
	o := options()
	f.Fuzz(func(t *testing.T, name, in string) {
		if len(in) > 1<<14 {
			return
		}
		entries, err := Read(Source{Name: name, Text: []byte(in), Home: "/home/ann", Folder: "/srv/app"})
		if err != nil {
			return
		}
		names := map[string]bool{}
		for _, p := range Propose(entries, o) {
			if p.Refused != "" {
				if p.Text != "" || p.Secrets != nil || len(p.Notes) == 0 {
					t.Fatalf("refused and proposed: %+v", p)
				}
				continue
			}
			if names[p.Server] {
				t.Fatalf("two servers %s", p.Server)
			}
			names[p.Server] = true
			s, _ := declaration.Parse(p.Server+".hcl", []byte(p.Text), declaration.Options{})
			if s == nil || !declaration.ValidName(p.Server) {
				t.Fatalf("unsound: %q\n%s", p.Server, p.Text)
			}
			for _, secret := range p.Secrets {
				v := string(secret.Value)
				if len(v) > 8 && strings.Count(in, v) == 1 && strings.Contains(p.Text, v) {
					t.Fatalf("the secret of %s came out: %s", secret.Variable, p.Text)
				}
				if !declaration.IsVaultKey(secret.Key) {
					t.Fatalf("key %q", secret.Key)
				}
			}
			if strings.ContainsFunc(p.Text, func(r rune) bool { return r != '\n' && visible.Deceptive(r) }) {
				t.Fatalf("%q", p.Text)
			}
		}
	})
}
