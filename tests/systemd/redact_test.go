package systemd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/policies/redact"
)

// TestLeaksInTheJournal: what a unit says of its secret is in no entry of the journal, in no status line and in no answer,
// also after pfard and the gateway have been started again, and of a secret that is stored while it runs.
func TestLeaksInTheJournal(t *testing.T) {
	t.Parallel()
	const token, host, later = "ghp_5vU4wX3yZ2aB1cD0eF9gH8iJ7kL6mN5oP4qR", "7be2d84165b0a10f3c9a", "glpat-1aB2cD3eF4gH5iJ6kL7m"
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/leak.hcl", fmt.Sprintf("label = \"internal\"\npins = \"trust-first\"\nserver {\n  command = %q\n  args = [\"-leak\", \"TOKEN\"]\n}\nauth = { TOKEN = \"vault:token\", LEAK_HOST = \"vault:host\" }\n", programs+"/hostile"), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/other.hcl", fmt.Sprintf("label = \"internal\"\nserver {\n  command = %q\n}\n", programs+"/echo"), 0o644)
	becomes(t, m, "leak", control.Waiting)
	becomes(t, m, "other", control.Running)
	store := func(key, value string) {
		t.Helper()
		if r := m.Feed(value+"\n", "pfar", "vault", "set", key); r.Code != 0 {
			t.Fatalf("storing the secret: %s", r)
		}
	}
	store("host", host)
	store("token", token)
	becomes(t, m, "leak", control.Running)
	var seen []string
	for range 2 {
		for _, tool := range []string{"leak", "fail"} {
			r := m.Try("pfar", "call", "leak."+tool)
			if !strings.Contains(r.String(), "[redacted: token]") {
				t.Errorf("calling %s: %s", tool, r)
			}
			seen = append(seen, r.String())
		}
		m.Run(t, "systemctl", "restart", "pfard", "pfar-gateway")
		becomes(t, m, "leak", control.Running)
	}
	store("later", later)
	if r := m.Try("pfar", "call", "other.echo", "--message", "it is "+later); r.Code != 0 || !strings.Contains(r.Stdout, "it is [redacted: later]") {
		t.Errorf("a secret that was stored while the server runs: %s", r)
	}
	_ = m.Try("pfar", "call", "leak.crash")
	becomes(t, m, "leak", control.Running)
	journal := m.Shell(t, "journalctl --no-pager --all --output=export")
	seen = append(seen, journal, m.Shell(t, "systemctl --no-pager --full status pfar-mcp@leak pfar-egress@leak pfar-gateway pfard || true"),
		m.Shell(t, "pfar status --json"), m.Shell(t, "pfar logs leak"), m.Shell(t, "systemctl show 'pfar*'"))
	for _, text := range seen {
		for _, form := range append(redact.Forms(token), host, later) {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("%q is in %q", form, text[max(0, i-300):min(len(text), i+100)])
				break
			}
		}
	}
	for _, want := range []string{"PFAR_SECRET=token", "PFAR_PLACE=stderr", "PFAR_PLACE=message", "[redacted: host].leak.test"} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal has no %s", want)
		}
	}
}
