package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/units/control"
)

// TestPropose is what each form of words comes to, and what to write instead of those that name nothing.
func TestPropose(t *testing.T) {
	known := catalog.Load(nil, "")
	for _, test := range []struct {
		words   string // those of a command line begin with "-- "
		want    string // the declaration, in one line without comment
		failure string
		hint    string
	}{
		{words: "npm:@notionhq/notion-mcp-server", want: `server { package = "npm:@notionhq/notion-mcp-server@2.5.2" }`},
		{words: "npm:@notionhq/notion-mcp-server@2.5.3",
			want: `server { package = "npm:@notionhq/notion-mcp-server@2.5.3" }`},
		{words: "-- npx -y @notionhq/notion-mcp-server", want: `api.notion.com`},
		{words: "-- npx -y @modelcontextprotocol/server-filesystem /srv/notes",
			want: `sandbox { writable = ["/srv/notes"] }`},
		{words: "-- npx -y @modelcontextprotocol/server-filesystem /srv/a /srv/b", failure: "with these arguments",
			hint: "pfar add filesystem asks for what it needs"},
		{words: "-- npx -y @modelcontextprotocol/server-filesystem --help", failure: "would be read as an option"},
		{words: "npm:left-pad@1.0.0", want: `server { package = "npm:left-pad@1.0.0" }`},
		{words: "pypi:Acme_MCP==1.0", want: `server { package = "pypi:acme-mcp==1.0" }`},
		{words: "-- uvx --from acme==1.0 acme-server --quiet",
			want: `server { package = "pypi:acme==1.0" command = "acme-server" args = ["--quiet"] }`},
		{words: "-- /opt/x/server --port 1", want: `server { command = "/opt/x/server" args = ["--port", "1"] }`},
		{words: "-- node /opt/x/server.js", want: `server { command = "node" args = ["/opt/x/server.js"] }`},
		{words: "https://www.example.com/docs",
			want: `server { transport = "stream-http" url = "https://www.example.com/docs" }`},
		{words: "https://mcp.notion.com/mcp",
			want: `url = "https://mcp.notion.com/mcp" } auth = { token = "vault:notion_remote_token" }`},
		{words: "https://mcp.deepwiki.com/mcp", want: `url = "https://mcp.deepwiki.com/mcp" }`},
		{words: "paypal",
			want: `server { transport = "sse" url = "https://mcp.paypal.com/sse" } auth = { token = "vault:paypal_token" }`},
		{words: "https://api.githubcopilot.com/mcp/",
			want: `auth = { GITHUB_PERSONAL_ACCESS_TOKEN = "vault:github_token" }`},
		{words: "https://mcp.exa.ai/mcp",
			want: `auth = { EXA_API_KEY = { secret = "vault:exa_api_key", in = ["header:x-api-key"] } }`},
		{words: "https://mcp.context7.com/mcp", want: `url = "https://mcp.context7.com/mcp" }`},
		{words: "https://mcp.dev.azure.com/acme",
			want: `service = "azure-devops" server { transport = "stream-http" url = "https://mcp.dev.azure.com/acme" } ` +
				`auth = { token = "vault:azure_devops_token" }`},
		{words: "azure-devops", want: `url = "https://mcp.dev.azure.com/"`},
		{words: "gmail",
			want: `url = "https://gmailmcp.googleapis.com/mcp/v1" } auth = { token = "vault:gmail_token" }`},
		{words: "https://mcp.acme.example/v1",
			want: `server { transport = "stream-http" url = "https://mcp.acme.example/v1" }`},
		{words: "https://acme.example/sse",
			want: `server { transport = "stream-http" url = "https://acme.example/sse" }`},
		{words: "https://mcp.paypal.com/mcp",
			want: `server { transport = "stream-http" url = "https://mcp.paypal.com/mcp" } auth`},
		{words: "https://acme.example/docs?page=hunter2", failure: "may have a secret in it"},

		{words: "notoin", failure: `no known service is called "notoin"`, hint: `did you mean "notion"?`},
		{words: "repositories", failure: "no known service", hint: "pfar services repositories"},
		{words: "@acme/x", failure: "no known service", hint: "for a package: pfar add npm:@acme/x@VERSION"},
		{words: "npm:acme", failure: "has no version"}, // pfard has not said which is the newest
		{words: "npm:acme@latest", failure: `"latest" is not an exact version`},
		{words: "npm:../x@1.0.0", failure: "is not the name of a package of npm"},
		{words: "-- npx -y acme", failure: "has no version"},
		{words: "-- npx --registry=https://evil.example acme@1.0.0", failure: "options that pfar does not know"},
		{words: "-- docker run -i x", failure: "docker would run the server outside of pfar's sandbox",
			hint: "pfar add npm:"},
		{words: "-- docker run -i --rm ghcr.io/github/github-mcp-server:latest",
			want: `auth = { GITHUB_PERSONAL_ACCESS_TOKEN`},
		{words: "-- docker run -i --rm -e NOTION_TOKEN mcp/notion", want: `notion-mcp-server@`},
		{words: "-- docker run -i -v /srv/git:/git -v git:/srv/git --mount type=bind,src=/srv/git,dst=/x acme/x",
			failure: "docker would run the server outside of pfar's sandbox", hint: "pfar add npm:"},
		{words: "-- /usr/bin/podman run -i x", failure: "podman would run"},
		{words: "-- TOKEN=hunter2 npx acme@1.0.0", failure: "begins with a program, not with a variable"},
		{words: "-- /opt/x ghp_hunter2hunter2hunter2hunter2hunter2hunt", failure: "an argument looks like a secret"},
		{words: "-- sh -c x", want: ""},
		{words: "http://example.com", failure: `"http://example.com" is not encrypted`, hint: "insecure = \"REASON\""},
		{words: "https://u:hunter2@example.com/", failure: "a password in it"},
		{words: "https://", failure: "this is not an address"},
		{words: "ftp://example.com", failure: "is not encrypted"},
		{words: "https://acme.example/mcp?key=hunter2", failure: "may have a secret in it"},
		{words: "https://acme.example/mcp/ghp_hunter2hunter2hunter2hunter2hunter2hunt",
			failure: "may have a secret in it"},
	} {
		words, command := strings.CutPrefix(test.words, "-- ")
		p, err := propose(known, strings.Fields(words), command)
		var text []byte
		if err == nil {
			if p.choices.Server == "" {
				p.choices.Server = p.service.Name
			}
			text, err = p.service.Declaration(p.choices)
		}
		var f *failure
		_ = errors.As(err, &f)
		got := strings.Join(strings.Fields(string(text)), " ")
		switch {
		case test.failure == "" && (err != nil || !strings.Contains(got, test.want)):
			t.Errorf("%s: %v, %s", test.words, err, got)
		case test.failure == "":
		case err == nil || !strings.Contains(err.Error(), test.failure):
			t.Errorf("%s: %v, want %q", test.words, err, test.failure)
		case test.hint != "" && (f == nil || !strings.Contains(f.hint, test.hint)):
			t.Errorf("%s: hint %+v, want %q", test.words, f, test.hint)
		case strings.Contains(fmt.Sprint(err, f), "hunter2"):
			t.Errorf("%s: %v repeats a secret", test.words, err)
		}
	}
}

// TestNameOfPackage names servers after packages.
func TestNameOfPackage(t *testing.T) {
	known := catalog.Load(nil, "")
	for pkg, want := range map[string]string{
		"npm:exa-mcp@1.0.0": "exa", "npm:@acme/mcp@1.0.0": "acme", "npm:@acme/mcp-server-crm@1.0.0": "crm",
		"npm:mcp@1.0.0":               "mcp",
		"pypi:mcp-server-Big_Time==1": "big-time", "npm:9lives@1.0.0": "lives",
	} {
		p, err := propose(known, []string{pkg}, false)
		if err != nil || p.service.Name != want {
			t.Errorf("%s: %q, %v, want %q", pkg, p.service.Name, err, want)
		}
	}
}

// TestNeed is how an unknown server gets the secrets that a person names: never in its environment where a host is
// known.
func TestNeed(t *testing.T) {
	known := catalog.Load(nil, "")
	const own = `server { package = "npm:acme@1.0.0" }`
	brokered := func(host, variable, key string) string {
		const text = `allowed_domains = [%q] %s auth = ` +
			`{ %s = { secret = "vault:%s" deliver = "broker" hosts = [%[1]q] } }`
		return fmt.Sprintf(text, host, own, variable, key)
	}
	for variables, want := range map[string]string{
		"TOKEN":                   own + ` auth = { TOKEN = "vault:acme_token" }`,
		"ACME_TOKEN":              own + ` auth = { ACME_TOKEN = "vault:acme_token" }`,
		"TOKEN@api.acme.com":      brokered("api.acme.com", "TOKEN", "acme_token"),
		"NOTION_TOKEN":            brokered("api.notion.com", "NOTION_TOKEN", "acme_notion_token"),
		"A@a.example B@a.example": `{ A = { secret = "vault:acme_a", deliver = "broker", hosts = ["a.example"] } B = {`,

		"TOKEN TOKEN":   "!TOKEN is there twice",
		"TOKEN=hunter2": "!it is not a valid variable name", "LD_PRELOAD": "!--secret",
		"TOKEN@": "!--secret TOKEN@HOST", "TOKEN@*": "!--secret TOKEN@HOST",
		"ghp_hunter2hunter2hunter2hunter2hunter2hunt": "!looks like a secret",
	} {
		p, err := propose(known, []string{"npm:acme@1.0.0"}, false)
		if err != nil {
			t.Fatal(err)
		}
		p.choices.Server = p.service.Name
		var text []byte
		if err = p.need(known, strings.Fields(variables)); err == nil {
			text, err = p.service.Declaration(p.choices)
		}
		words, fails := strings.CutPrefix(want, "!")
		got := strings.Join(strings.Fields(string(text)), " ")
		switch {
		case fails && (err == nil || !strings.Contains(err.Error(), words)):
			t.Errorf("%s: %v, %s", variables, err, got)
		case !fails && (err != nil || !strings.Contains(got, words)):
			t.Errorf("%s: %v, %s", variables, err, got)
		case strings.Contains(fmt.Sprint(err), "hunter2"):
			t.Errorf("%s: it repeats %v", variables, err)
		}
	}
	p, err := propose(known, []string{"notion"}, false)
	if err == nil {
		err = p.need(known, []string{"TOKEN"})
	}
	if err == nil || !strings.Contains(err.Error(), "knows which secrets") {
		t.Errorf("a known service: %v", err)
	}
}

// TestAddUnknown installs, declares without a host, learns, and then sets up. What goes wrong changes nothing after it.
func TestAddUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		fail control.Verb
		code int
		want []control.Verb
	}{
		"all":           {want: []control.Verb{control.Install, control.Declare, control.Learn, control.Begin}},
		"not installed": {control.Install, exitFailed, []control.Verb{control.Install}},
		"not declared":  {control.Declare, exitFailed, []control.Verb{control.Install, control.Declare}},
		"not learned":   {control.Learn, 0, []control.Verb{control.Install, control.Declare, control.Learn, control.Begin}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetUp()
			b := newAdd(t, s)
			b.pfard.answer = func(p *fakePfard, r control.Request) error {
				if r.Verb == test.fail || r.Verb == control.Learn {
					return errors.New("no luck")
				}
				return nil
			}
			b.pfard.installs = control.Installing{Package: "npm:acme@1.0.0", Done: true}
			var text string
			b.pfard.declares = func(r control.Request) (*control.Declared, error) {
				text = string(r.Text.New)
				b.pfard.set(func(r *control.Report) {
					r.Servers = []control.Server{
						{Name: "acme", State: control.Running, Tools: 3, File: "/etc/pfar/mcp.d/acme.hcl"},
					}
				})
				return &control.Declared{Server: "acme", File: "/etc/pfar/mcp.d/acme.hcl", Done: true}, nil
			}
			s.done = nil
			n := b.again("")
			if code := n.run(t.Context(), []string{"add", "npm:acme@1.0.0", "--yes"}); code != test.code {
				t.Errorf("exit %d, want %d: %s", code, test.code, n.err)
			}
			var got []control.Verb
			for _, r := range b.pfard.requests {
				if r.Verb != control.Status && !(r.Verb == control.Begin && r.SetUp == nil) {
					got = append(got, r.Verb)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("asked for %q, want %q", got, test.want)
			}
			if text != "" && text != "# From pfar add: npm:acme@1.0.0\n\nserver { package = \"npm:acme@1.0.0\" }\n" {
				t.Errorf("declared %q", text)
			}
		})
	}
}

// TestAddDryRun shows the declaration and changes nothing, also where pfar does not run.
func TestAddDryRun(t *testing.T) {
	for _, up := range []bool{true, false} {
		b := &addBench{bench: newBench(t, "")}
		if up {
			b = newAdd(t, newSetUp(notionToken(t)))
			b.pfard.answer = func(*fakePfard, control.Request) error { return nil }
			b.pfard.declares = func(r control.Request) (*control.Declared, error) {
				if !r.Text.Dry {
					t.Error("it was to be a dry run")
				}
				return &control.Declared{Server: "github-work", File: "/etc/pfar/mcp.d/github-work.hcl"}, nil
			}
		}
		n := b.again("")
		args := []string{"add", "github", "--name", "github-work", "--dry-run"}
		if code := n.run(t.Context(), args); code != exitOK ||
			!strings.HasSuffix(n.out.String(), "Nothing was changed.\n") {
			t.Errorf("exit %d: %s%s", code, n.out, n.err)
		}
		for _, want := range []string{`service         = "github"`, `"vault:github_work_token"`,
			"ask for  github_work_token"} {
			if !strings.Contains(n.out.String(), want) {
				t.Errorf("%s lacks %q", n.out, want)
			}
		}
		n = b.again("")
		var got struct {
			Declaration string
			Steps       []string
		}
		code := n.run(t.Context(), append(args, "--json"))
		if err := json.Unmarshal(n.out.Bytes(), &got); code != exitOK || err != nil || len(got.Steps) != 4 ||
			!strings.Contains(got.Declaration, "github_work_token") {
			t.Errorf("exit %d, %v: %s%s", code, err, n.out, n.err)
		}
	}
}

// TestNotChecked: a service whose secret no call verifies says so.
func TestNotChecked(t *testing.T) {
	known := catalog.Load(nil, "")
	for name, key := range map[string]string{"postgres": "postgres_password", "figma": "figma_token"} {
		s, found := known.Find(name)
		text := strings.Join(strings.Fields(serviceText(s, 80)), " ")
		if want := "test none: pfar cannot check whether " + key + " is right"; !found || !strings.Contains(text, want) {
			t.Errorf("%s does not say %q: %s", name, want, text)
		}
		var out strings.Builder
		c := newPfar(strings.NewReader(""), &out, io.Discard, func(string) string { return "" }, 0)
		a := &adding{pfar: c, proposal: proposal{service: s, known: true}}
		a.printAdded(added{Server: name}, nil, nil)
		if want := "No call has shown whether " + key + " is right"; !strings.Contains(out.String(), want) {
			t.Errorf("%s does not say %q: %s", name, want, out.String())
		}
	}
	if s, _ := known.Find("notion"); strings.Contains(serviceText(s, 80), "cannot check") {
		t.Error("notion's token is checked, and it says otherwise")
	}
}

// TestOfPages proposes a server that opens pages of one host. Its screen names the host, and asks nothing.
func TestOfPages(t *testing.T) {
	p, err := ofPages(catalog.Load(nil, ""), "www.example.com:8443")
	if err != nil {
		t.Fatal(err)
	}
	shown := serviceText(p.service.Answered(p.choices.Answers), 80)
	if !strings.Contains(shown, "reaches www.example.com:8443, and nothing else\n") || strings.Contains(shown, "asks") {
		t.Error(shown)
	}
	if text, err := p.service.Declaration(p.choices); err != nil ||
		!strings.Contains(string(text), `allowed_domains = ["www.example.com:8443"]`) {
		t.Errorf("%v, %s", err, text)
	}
}
