package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// TestVendorNeedsClient sets a service up whose vendor runs the only server, and registers no clients: the entry of
// Gmail, with the hosts of a real MCP server and a real authorization server in the place of Google's. The owner writes
// what the first login says, signs in with Chromium, and adds the service. No program of the service runs here, and
// none but the vault has the token.
func TestVendorNeedsClient(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	said, wrap := startVendor(t, 3600)
	p := prepare(t, nil)
	entry := string(mustRead(t, filepath.Join("..", "..", "policies", "services", "gmail.hcl")))
	_, entry, _ = strings.Cut(entry, "  setup {")
	for old, text := range map[string]string{
		"https://gmailmcp.googleapis.com/mcp/v1":         resourceURL,
		`"gmailmcp.googleapis.com"`:                      `"` + resourceHost + `"`,
		"https://accounts.google.com/o/oauth2/v2/auth?":  issuerURL + "/auth?",
		"https://oauth2.googleapis.com/token":            issuerURL + "/token",
		"https://www.googleapis.com/auth/gmail.readonly": "read",
		`"list_labels"`: `"whoami"`,
		"gmail_token":   "mail_token",
	} {
		if !strings.Contains(entry, old) {
			t.Fatalf("the entry has no %s", old)
		}
		entry = strings.ReplaceAll(entry, old, text)
	}
	for dir, text := range map[string]string{
		"services.d": "service \"mail\" {\n  setup {" + entry,
		"policies.d": "server \"mail\" {\n  relax = \"a test\"\n  reads = [\"whoami\"]\n}\n",
	} {
		check(t, os.MkdirAll(filepath.Join(p.home, dir), 0o755))
		put(t, filepath.Join(p.home, dir, "mail.hcl"), text)
	}
	p.up(wrap...)

	_, stderr, code := p.command("login", "mail")
	file := filepath.Join(p.home, "oauth.d", "mail.hcl")
	const written = "\n  provider \"mail\" {\n    client_id = \"...\"\n  }\n"
	for _, want := range []string{
		"Register one at https://console.cloud.google.com/auth/clients", "http://127.0.0.1/callback", file, written,
		`add secret = "vault:mail_client" and store it with pfar vault set mail_client`,
	} {
		if code == 0 || !strings.Contains(stderr, want) {
			t.Fatalf("without a client, %d; want %q in\n%s", code, want, stderr)
		}
	}
	p.keep("set", "mail_client", "CS-hunter2-of-the-client")
	p.configure("mail", "client_id = \"confidential\"\nsecret = \"vault:mail_client\"")
	var first *signingIn
	eventually(t, func() bool { // the file may not have been read yet
		first = p.login(t, "mail")
		shown := func() bool { return strings.Contains(first.stderr.String(), "and sign in:") }
		eventually(t, func() bool {
			select {
			case <-first.ended:
				return true
			default:
				return shown()
			}
		})
		return shown()
	})
	link := first.shows(`sign in:\n\n  (https://\S+)`)
	for _, want := range []string{
		"client_id=confidential", "scope=read&", "access_type=offline", "code_challenge_method=S256",
	} {
		if !strings.Contains(link+"&", want) {
			t.Errorf("the link has no %s: %s", want, link)
		}
	}
	p.consents(t, link)
	const stored = "stored in the vault as mail_token, granted read"
	if code := first.ends(); code != 0 || !strings.Contains(first.stdout.String(), stored) {
		t.Fatalf("%d, %s%s", code, &first.stdout, &first.stderr)
	}
	p.succeeds("add", "mail", "--yes")
	s := server(p.awaitRunning("mail"), "mail")
	if v := s.Verification; v.Result != units.Verified || v.Tool != "whoami" {
		t.Errorf("it is %+v", s)
	}
	if got := p.client("/mcp").must("mail__whoami", nil); !strings.Contains(got, "[read]") {
		t.Errorf("the server sees %q", got)
	}
	for len(said) > 0 {
		now := <-said
		if now.Registered != nil || now.Grant != "" && now.Resource != resourceURL {
			t.Errorf("the authorization server says %+v", now)
		}
		for _, token := range now.Issued {
			if len(token) > 8 {
				assertSecretNowhere(t, p, token)
			}
		}
	}
	refusesInvented(t, p)
}

// refusesInvented has the server refuse the token, and wants the command that obtains another one.
func refusesInvented(t *testing.T, p *pfar) {
	t.Helper()
	p.keep("rotate", "mail_token", "AT-invented-by-nobody")
	r := p.await("a token that nobody gave out", soon, func(r control.Report) bool {
		s := server(r, "mail")
		return strings.Contains(s.Remedy.Command+s.Verification.Remedy.Command, "pfar login mail")
	})
	if b, err := json.Marshal(server(r, "mail")); err != nil || strings.Contains(string(b), `"running"`) {
		t.Errorf("with it the server is %s", b)
	}
}
