package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

var loginCommand = regexp.MustCompile(`pfar (login \S+)`)

// TestAddRemote goes the whole way from the address of a remote server to a call of its tool: pfar add asks the server
// only after the person has said yes, prints a command, and that command signs in with consent in Chromium. From a
// server that wants no token, pfar add wants none.
func TestAddRemote(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	said, wrap := startVendor(t, 3600)
	p := prepare(t, nil)
	p.reads("vendor", "whoami")
	check(t, os.Mkdir(filepath.Join(p.home, "services.d"), 0o755))
	put(t, filepath.Join(p.home, "services.d/crm.hcl"), "service \"crm\" {\n  setup {\n    title   = \"CRM\"\n"+
		"    summary = \"Customers\"\n    remote {\n      url     = \""+otherURL+"\"\n      sign_in = \"oauth\"\n"+
		"      scopes  = [\"read\"]\n    }\n  }\n}\n")
	p.up(wrap...)
	file := filepath.Join(p.declarations, "vendor.hcl")
	p.succeeds("add", resourceURL, "--dry-run")
	no := p.atTerminal("add", resourceURL)
	no.reply(1, `Set up "vendor"? [y/N]`, "n")
	if code := no.ended(); code == 0 || len(said) > 0 {
		t.Errorf("after a no it ends with %d, and the server has heard %d requests", code, len(said))
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("after a no it is declared")
	}

	add := p.atTerminal("add", resourceURL)
	add.reply(1, `Set up "vendor"? [y/N]`, "y")
	if code := add.ended(); code != 0 {
		t.Fatalf("%d, %s", code, add.text())
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `auth = { token = "vault:vendor_token" }`) {
		t.Errorf("%v, %s", err, text)
	}
	printed := loginCommand.FindStringSubmatch(add.text())
	if printed == nil {
		t.Fatalf("no command in %s", add.text())
	}
	again := p.succeeds("add", resourceURL, "--yes")
	if !strings.Contains(again, printed[0]) {
		t.Errorf("added once more it says %s", again)
	}
	login := p.atTerminal(strings.Fields(printed[1])...)
	login.reply(1, "Sign in there? [y/N]", "y")
	p.consents(t, login.link(1))
	if code := login.ended(); code != 0 {
		t.Fatalf("%d, %s", code, login.text())
	}
	p.awaitRunning("vendor")
	if got := p.client("/mcp").must("vendor__whoami", nil); !strings.Contains(got, "\n[read]\n") {
		t.Errorf("the server sees %q", got)
	}

	catalogued := p.succeeds("add", "crm", "--yes", "--json")
	text, err = os.ReadFile(filepath.Join(p.declarations, "crm.hcl"))
	if err != nil || !strings.Contains(string(text), `"vault:crm_token"`) || !strings.Contains(string(text), `["read"]`) ||
		!strings.Contains(catalogued, "pfar login crm") || !strings.Contains(catalogued, `"awaiting-credential"`) {
		t.Errorf("%v, of a service of the catalogue: %s\n%s", err, text, catalogued)
	}

	out := p.succeeds("add", "https://"+resourceHost+"/open/mcp", "--name", "open", "--yes")
	text, err = os.ReadFile(filepath.Join(p.declarations, "open.hcl"))
	if err != nil || strings.Contains(string(text), "auth") || strings.Contains(out, "pfar login") {
		t.Errorf("%v, of a server that wants no token: %s\n%s", err, text, out)
	}
	p.await("it runs", soon, func(r control.Report) bool { return server(r, "open").State == control.Running })
	meetsThreeKinds(p)
}

// meetsThreeKinds adds addresses whose words do not say what is there: a server of each transport, and a page at a
// path that is called mcp. The declaration of a server has the transport that was found. For the page there is none
// unless a person wants its host opened.
func meetsThreeKinds(p *pfar) {
	p.t.Helper()
	for path, transport := range map[string]string{"assistant": "stream-http", "events": "sse"} {
		p.succeeds("add", "https://"+resourceHost+"/open/"+path, "--name", path, "--yes")
		text, err := os.ReadFile(p.path(path + ".hcl"))
		if err != nil || !regexp.MustCompile(`transport = "`+transport+`"`).Match(text) {
			p.t.Errorf("%s: %v, %s", path, err, text)
		}
		r := p.awaitRunning(path)
		if s := server(r, path); s.Transport != transport || s.Tools != 2 {
			p.t.Errorf("%s has %d tools by %s", path, s.Tools, s.Transport)
		}
	}
	const page = "https://" + resourceHost + "/pages/mcp"
	s := p.atTerminal("add", page, "--name", "pages")
	s.reply(1, `Set up "pages"? [y/N]`, "y")
	s.reply(2, `Set up "pages"? [y/N]`, "n")
	said := ""
	if code := s.ended(); code != 0 {
		said = strings.Join(strings.Fields(s.text()), " ")
	}
	for _, words := range []string{
		"no MCP server is at " + page + ": ", "text/html", "reaches " + resourceHost + ", and nothing else",
	} {
		if !strings.Contains(said, words) {
			p.t.Errorf("of a page it does not say %q: %s", words, said)
		}
	}
	if _, err := os.Stat(p.path("pages.hcl")); err == nil {
		p.t.Error("a page is declared that nobody wants opened")
	}
	// --yes was said of an MCP server, not of a program that opens pages.
	if out, stderr, code := p.command("add", page, "--name", "pages", "--yes"); code == 0 ||
		!strings.Contains(stderr, "no MCP server is at "+page) || !strings.Contains(stderr, "without --yes") {
		p.t.Errorf("of a page with --yes: %d %s%s", code, out, stderr)
	}
	if _, err := os.Stat(p.path("pages.hcl")); err == nil {
		p.t.Error("with --yes a page is declared")
	}
	token := filepath.Join(p.home, "token")
	put(p.t, token, "tok-4d0b7a63c1f85e29-of-the-meeting")
	out, stderr, code := p.command("add", page, "--name", "pages", "--yes", "--secret", "TOKEN",
		"--secret-file", "pages_token="+token)
	if code == 0 || !strings.Contains(stderr, "no MCP server is at "+page) {
		p.t.Errorf("of a page that has a token: %d %s%s", code, out, stderr)
	}
	p.succeeds("add", "https://"+resourceHost+"/open/events", "--name", "keyed", "--yes", "--secret", "TOKEN",
		"--secret-file", "keyed_token="+token)
	if s := server(p.awaitRunning("keyed"), "keyed"); s.Transport != "sse" || s.Tools != 2 {
		p.t.Errorf("with a token it has %d tools by %s", s.Tools, s.Transport)
	}
}
