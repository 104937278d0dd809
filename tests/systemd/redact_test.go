package systemd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

// TestLeaksInTheJournal: what a unit says of its secret is in no entry of the journal, in no status line and in no
// answer, also after pfard and the gateway have been started again, and of a secret that is stored while it runs.
func TestLeaksInTheJournal(t *testing.T) {
	t.Parallel()
	const token, host, later = "ghp_5vU4wX3yZ2aB1cD0eF9gH8iJ7kL6mN5oP4qR", "7be2d84165b0a10f3c9a", "glpat-1aB2cD3eF4gH5iJ6kL7m"
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/leak.hcl", fmt.Sprintf("label = \"internal\"\npins = \"trust-first\"\nserver {\n  command = %q\n  args = [\"-leak\", \"TOKEN\"]\n}\nauth = { TOKEN = \"vault:token\", LEAK_HOST = \"vault:host\" }\n", programs+"/hostile"), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/other.hcl", echo(""), 0o644)
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
			if !strings.Contains(r.String(), "[redacted]") {
				t.Errorf("calling %s: %s", tool, r)
			}
			seen = append(seen, r.String())
		}
		m.Run(t, "systemctl", "restart", "pfard", "pfar-gateway")
		becomes(t, m, "leak", control.Running)
	}
	store("later", later)
	if r := m.Try("pfar", "call", "other.echo", "--message", "it is "+later); r.Code == 0 || !strings.Contains(r.Stderr, "the value of the secret later") {
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

// TestLeaksOfOthersInTheJournal: a server that has come by another's secret does not get it into the journal either, in
// whatever form. pfard knows it; while that hangs, and until it is back, lines wait, and the server does not.
func TestLeaksOfOthersInTheJournal(t *testing.T) {
	t.Parallel()
	const others = "ghp_5vU4wX3yZ2aB1cD0eF9gH8iJ7kL6mN5oP4qR"
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/loud.hcl", fmt.Sprintf("label = \"internal\"\npins = \"trust-first\"\nserver {\n  command = %q\n  args = [\"-leak\", \"LOUD\"]\n}\nauth = { LOUD = \"vault:loud\" }\n%s", programs+"/hostile", trust.Honest), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/other.hcl", echo("auth = { TOKEN = \"vault:others\" }\n"), 0o644)
	for key, value := range map[string]string{"loud": "7be2d84165b0a10f3c9a", "others": others} {
		if r := m.Feed(value+"\n", "pfar", "vault", "set", key); r.Code != 0 {
			t.Fatalf("storing the secret: %s", r)
		}
	}
	becomes(t, m, "loud", control.Running)
	becomes(t, m, "other", control.Running)
	tell := func(more ...string) {
		t.Helper()
		if r := m.Try("pfar", append([]string{"call", "loud.tell"}, more...)...); r.Code != 0 || !strings.Contains(r.Stdout, "told") {
			t.Errorf("the server has no answer: %s", r)
		}
	}
	log := func() string { return m.Shell(t, "journalctl --no-pager --all --output=export") }
	logged := func(times int) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			if n := strings.Count(log(), "[redacted: others]"); n < times {
				return fmt.Errorf("%d lines are logged, want %d:\n%s", n, times, m.Journal(t, "pfar-mcp@loud"))
			}
			return nil
		})
	}
	said := func(word string) int { return strings.Count(log(), "on stderr: "+word) }
	tell("--shifted", shifted(others))
	logged(11)
	before := said("")
	m.Run(t, "systemctl", "kill", "--signal=STOP", "pfard")
	tell("--shifted", shifted(others))
	if n := said(""); n != before {
		t.Errorf("%d lines are logged that nobody has searched", n-before)
	}
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
	logged(22)
	becomes(t, m, "loud", control.Running)

	m.Run(t, "systemctl", "kill", "--signal=STOP", "pfard")
	tell("--shifted", shifted(others), "--lines", "50000") // some six MB, of which a pipe takes 64 KiB
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
	logged(33)
	_ = m.Try("pfar", "call", "loud.crash")
	bed.Eventually(t, soon, func() error {
		if text := m.Journal(t, "pfar-mcp@loud"); !strings.Contains(text, " lines suppressed") {
			return fmt.Errorf("no line is suppressed:\n%s", text)
		}
		return nil
	})
	becomes(t, m, "loud", control.Running)
	journal := log()
	for where, text := range map[string]string{
		"the journal": journal, "a status": m.Shell(t, "systemctl --no-pager --full status pfar-mcp@loud pfar-mcp@other pfard || true"),
		"pfar status": m.Shell(t, "pfar status --json"), "the log": m.Shell(t, "pfar logs loud"),
	} {
		for _, form := range redact.Forms(others) {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("%q is in %s: %q", form, where, text[max(0, i-300):min(len(text), i+100)])
				break
			}
		}
	}
	for _, want := range []string{"PFAR_SECRET=others", "PFAR_PLACE=stderr", " [cut]"} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal has no %s", want)
		}
	}
}

// shifted is a secret as an argument may have it: each byte is the next one.
func shifted(secret string) string {
	b := []byte(secret)
	for i := range b {
		b[i]++
	}
	return string(b)
}
