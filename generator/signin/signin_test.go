package signin

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/policies/oauth"
)

func load(files map[string]string) Set {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return Load(fsys, "oauth.d", func() catalog.Set { return catalog.Load(nil, "") })
}

const device = ` device { url = "https://a.test/d", token = "https://a.test/t" } `

func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing known": {`provider "acme" { client_id = "x" }`,
			"x.hcl:1,10-16: Missing key: pfar does not know the vault key of the token. " +
				"Write key = \"acme_token\"."},
		"no client": {`provider "github" {}`,
			"1,10-18: Missing client_id: The provider gives you a client id when you register a client. " +
				"Write client_id = \"...\" with it."},
		"no endpoints":        {`provider "acme" { client_id = "x", key = "k" }`, "Missing endpoints"},
		"what the page shows": {`provider "github" { client_id = "..." }`, "Placeholder"},
		"another placeholder": {`provider "github" { client_id = "<your client id>" }`, "Placeholder"},
		"a secret": {`provider "github" { client_id = "x", secret = "CS-hunter2" }`,
			"3,10-22: Secret in a file: secret names a key of the vault. " +
				"Store the secret with `pfar vault set github_client` and write secret = \"vault:github_client\"."},
		"a variable":         {`provider "github" { client_id = "x", secret = "$TOKEN" }`, "Secret in a file"},
		"a number":           {`provider "github" { client_id = 7 }`, "Wrong type"},
		"an unknown key":     {`provider "github" { client = "x" }`, "Unknown key"},
		"no name":            {`provider { client_id = "x" }`, "Wrong labels"},
		"an odd name":        {`provider "Git Hub" { client_id = "x" }`, "Invalid name"},
		"an unknown service": {`provider "x" { client_id = "x", service = "nowhere" }`, "Unknown service"},
		"a style":            {`provider "github" { client_id = "x", auth_style = "query" }`, "Unknown auth_style"},
		"header, no secret": {`provider "github" { client_id = "x", auth_style = "header" }`,
			"Provider not possible: auth_style is \"header\", and client_secret is missing"},
		"half a device": {`provider "x" { client_id = "x", key = "k", device { url = "https://a.test/" } }`,
			"Missing endpoint"},
		"a plain endpoint": {`provider "x" { client_id = "x", key = "k", device { url = "http://a.test/", ` +
			`token = "https://a.test/" } }`, "Invalid url"},
		"a port that is none": {`provider "x" { client_id = "x", key = "k", device { url = "https://a.test:99999/", ` +
			`token = "https://a.test/" } }`, "Provider not possible"},
		"a relative file": {`provider "github" { client_id = "x", ca = "ca.pem" }`, "Invalid path"},
		"a way up":        {`provider "github" { client_id = "x", ca = "/etc/../ca.pem" }`, "Invalid path"},
		"a resource": {`provider "github" { client_id = "x", resource = "api" }`,
			"3,12-17: Provider not possible: resource is not a URL"},
		"an issuer": {`provider "github" { client_id = "x", issuer = "x" }`,
			"Provider not possible: issuer is not a URL"},
		"a key": {`provider "github" { client_id = "x", key = "A B" }`, "Invalid vault key"},
		"a private prefix": {`provider "github" { client_id = "x", allow_private = ["x"] }`,
			"Provider not possible: allow_private"},
		"two of one name": {"provider \"github\" { client_id = \"x\" }\nprovider \"github\" { client_id = \"y\" }",
			"x.hcl:4,10-18: Duplicate provider"},
		"two of one key": {"provider \"github\" { client_id = \"x\" }\n" +
			"provider \"work\" {\n client_id = \"y\"\n service = \"github\"\n}",
			"Duplicate provider: \"key github_token\" stands in x.hcl:1"},
		"no HCL": {`provider "github" {`, "x.hcl"},
	} {
		s := load(map[string]string{"x.hcl": written(c.text)})
		var told []string
		for _, d := range s.Diags {
			told = append(told, fmt.Sprintf("%s: %s: %s", d.Subject, d.Summary, d.Detail))
		}
		if text := strings.Join(told, "\n"); !strings.Contains(text, c.want) || strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", name, text)
		}
		if want := strings.Count(name, "two of one"); len(s.Providers) != want {
			t.Errorf("%s: %+v", name, s.Providers)
		}
	}
}

// written puts each key on a line of its own, as HCL wants it.
func written(text string) string {
	return strings.NewReplacer(", ", "\n", "{ ", "{\n", " }", "\n}").Replace(text)
}

func TestProviders(t *testing.T) {
	s := load(map[string]string{
		"github.hcl": "provider \"github\" {\n client_id = \"x\"\n}\n",
		"work.hcl": "provider \"work\" {\n client_id = \"y\"\n service = \"github\"\n" +
			" key = \"github_work\"\n scopes = []\n secret = \"vault:work_client\"\n}\n",
		"acme.hcl": "provider \"acme\" {\n client_id = \"z\"\n key = \"acme_token\"\n" + written(device) + "\n}\n",
		"note.txt": "what",
	})
	if len(s.Diags) > 0 || len(s.Providers) != 3 {
		t.Fatalf("%v, %v", s.Diags, s.Providers)
	}
	for _, c := range []struct {
		name string
		keys []string
		want string
	}{
		{"github", nil, "github"}, {"work", nil, "work"}, {"acme", nil, "acme"},
		{"server", []string{"other", "github_work"}, "work"},
		{"server", []string{"acme_token"}, "acme"},
		{"acme", []string{"github_token"}, "acme"},
		{"server", []string{"acme_token", "github_token"}, `"server" has several providers: name one of acme, github`},
		{"github_work", nil, "work"}, {"server", nil, "no provider is configured"}, {"notion", []string{"notion_token"},
			"no provider is configured"},
	} {
		p, err := s.Choose(c.name, c.keys)
		got := p.Name
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s with %q: %s, want %s", c.name, c.keys, got, c.want)
		}
	}
	if _, err := (Set{}).Choose("", nil); !errors.Is(err, ErrNone) {
		t.Errorf("nothing configured: %v", err)
	}
	github, _ := s.OfKey("github_token")
	if github.Name != "github" || !slices.Equal(github.Ways(), []oauth.Way{oauth.ByDevice, oauth.ByCode}) {
		t.Errorf("%+v", github)
	}
	task, err := github.Task(oauth.ByDevice)
	if err != nil || task.Endpoint != "https://github.com/login/device/code" || task.ClientID != "x" ||
		!slices.Contains(task.Scopes, "repo") {
		t.Errorf("%+v, %v", task, err)
	}
	work, _ := s.Choose("work", nil)
	if task, err = work.Task(oauth.ByCode); err != nil || len(task.Scopes) != 0 || work.Secret != "work_client" ||
		!slices.Equal(work.Ways(), []oauth.Way{oauth.ByCode, oauth.ByDevice}) {
		t.Errorf("%+v, %v", task, err)
	}
	acme, _ := s.Choose("acme", nil)
	if _, err := acme.Task(oauth.ByCode); err == nil || !strings.Contains(err.Error(), "no sign-in with a browser") {
		t.Errorf("a way that it does not have: %v", err)
	}
	if _, ok := s.OfKey("notion_token"); ok {
		t.Error("somebody gives notion_token")
	}
}

// TestManual compares the manual's keys with the reader's.
func TestManual(t *testing.T) {
	source, err := os.ReadFile("read.go")
	page, err2 := os.ReadFile("../../packaging/man/pfar-oauth.5")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	all := func(text []byte, expression string) (list []string) {
		for _, m := range regexp.MustCompile(expression).FindAllSubmatch(text, -1) {
			list = append(list, string(m[1]))
		}
		slices.Sort(list)
		return list
	}
	keys, _, _ := strings.Cut(string(page), ".Ss device and code")
	have, want := all([]byte(keys), `(?m)^\.It Cm ([a-z_]+)$`), all(source, `\{Name: "([a-z_]+)", Example: [^e]`)
	if !slices.Equal(have, want) || len(want) < 10 {
		t.Errorf("the manual has\n%q, the reader\n%q", have, want)
	}
}
