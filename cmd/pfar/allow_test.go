package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/wants"
)

const allowing = `# ours
allowed_domains = ["api.example.com"] # of the service
blocked_domains = ["bad.example.com", "*.evil.example"]
server {
  command = "/bin/true"
}
`

// declareIn writes a file into the bench's folder of declarations, and returns its path.
func declareIn(t *testing.T, b *bench, name, text string) string {
	t.Helper()
	file := filepath.Join(b.pfar.dirs.Config, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAllow wants hosts to be added only by a yes, and nothing to be written that is not sound or that the owner has
// blocked.
func TestAllow(t *testing.T) {
	b := newBench(t, "")
	file := declareIn(t, b, "notion.hcl", allowing)
	declareIn(t, b, "broken.hcl", "server {")
	text := func() string {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"notion":                              {exitUsage, "missing NAME and HOST"},
		"nosuch cdn.example.com --yes":        {exitNoSuch, "nosuch"},
		"broken cdn.example.com --yes":        {exitFailed, "has mistakes"},
		"notion cdn.example.com":              {exitUsage, "--yes"}, // nobody can be asked
		"notion bad.example.com --yes":        {exitFailed, "blocked_domains names bad.example.com"},
		"notion a.evil.example --yes":         {exitFailed, "blocked_domains names *.evil.example"},
		"notion *.evil.example --yes":         {exitFailed, "blocked_domains names *.evil.example"},
		"notion *.com --yes":                  {exitFailed, "public suffix"},
		"notion *.github.io --yes":            {exitFailed, "public suffix"},
		"notion 169.254.169.254 --yes":        {exitFailed, "special address"},
		"notion 10.0.0.0/8 --yes":             {exitFailed, "special address"},
		"notion 93.184.216.0/24 --yes":        {exitFailed, "more than one address"},
		"notion https://cdn.example.com/x y":  {exitUsage, "cdn.example.com"},
		"notion cdn.example.com 10.1.2.3":     {exitFailed, "special address"}, // all or nothing
		"notion api.example.com":              {exitOK, "may reach this already"},
		"notion cdn.example.com:99999 --yes":  {exitUsage, "99999"},
		"notion cdn.example.com --no-such":    {exitUsage, "no-such"},
		"../notion cdn.example.com --yes":     {exitNoSuch, "notion"},
		"notion \x1b[2Jcdn.example.com --yes": {exitUsage, `\x1b`},
	} {
		n := b.again("y\n")
		code := n.run(t.Context(), append([]string{"allow"}, strings.Fields(line)...))
		if code != want.code || !strings.Contains(n.err.String(), want.says) || strings.Contains(n.err.String(), "\x1b[2J") {
			t.Errorf("%q: exit %d, %s", line, code, n.err)
		}
		if text() != allowing {
			t.Fatalf("%q has changed the file:\n%s", line, text())
		}
	}
	operator, program := terminalPair(t)
	n := b.again("")
	n.pfar.stdin = program
	if _, err := operator.WriteString("n\n"); err != nil {
		t.Fatal(err)
	}
	code := n.run(t.Context(), []string{"allow", "notion", "cdn.example.com"})
	if code != exitFailed || text() != allowing {
		t.Errorf("a no: exit %d, %s\n%s", code, n.err, text())
	}

	n = b.again("")
	code = n.run(t.Context(), []string{"allow", "notion", "cdn.example.com", "db.example.com:5432", "--yes"})
	if code != exitOK {
		t.Fatalf("exit %d, %s", code, n.err)
	}
	const after = `["api.example.com", "cdn.example.com", "db.example.com:5432"]`
	want := strings.Replace(allowing, `["api.example.com"]`, after, 1)
	if text() != want {
		t.Errorf("written:\n%s\nwant\n%s", text(), want)
	}
	const diff = `notion.hcl:2
  # ours
- allowed_domains = ["api.example.com"] # of the service
+ allowed_domains = ["api.example.com", "cdn.example.com", "db.example.com:5432"] # of the service
`
	if !strings.Contains(n.out.String(), diff) {
		t.Errorf("shown:\n%s", n.out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode: %v, %v", info, err)
	}
}

// TestAllowMeanwhile wants an edit not to be overwritten that was made while pfar asked.
func TestAllowMeanwhile(t *testing.T) {
	b := newBench(t, "")
	file := declareIn(t, b, "notion.hcl", allowing)
	e, err := allowVerb{b.pfar}.edited(t.Context(), "notion", []string{"cdn.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	declareIn(t, b, "notion.hcl", allowing+"# more\n")
	if err := e.write(); err == nil || !strings.Contains(err.Error(), "has changed meanwhile") {
		t.Errorf("written: %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != allowing+"# more\n" {
		t.Errorf("overwritten: %s", got)
	}
}

// TestWants wants what servers lack to be listed with the command that grants it, and nothing that no command would.
func TestWants(t *testing.T) {
	refusal := func(host, reason string) egress.Refusal { return egress.Refusal{Host: host, Reason: reason} }
	refused := []egress.Refusal{
		refusal("cdn.example.com:443", egress.NameNotDeclared),
		refusal("db.example.com:5432", egress.PortNotDeclared),
		refusal("now.example.com:443", egress.NameNotDeclared),
		refusal("169.254.169.254:80", egress.AddressLiteral),
		refusal("$(reboot).example:443", egress.NameNotDeclared),
		refusal("x;reboot", egress.NameNotDeclared),
		refusal("", egress.BadName),
		refusal("bad.example.com:443", "name-blocked"),
		refusal("-rf.example:443", egress.NameNotDeclared),
	}
	waits := units.Wait{For: units.WaitCredentials, Remedy: units.ToDo(units.StoreSecret, "crm_token")}
	report := control.Report{Servers: []control.Server{
		{
			Name: "notion", State: control.Running, Reach: control.Reach{Domains: []string{"now.example.com"}},
			Denial: control.Denial{Refusals: refused},
		},
		{Name: "crm", State: control.Waiting, Detail: "waiting for credentials: crm_token", Owed: control.Owed{Wait: waits}},
		{Name: "idle", State: control.Waiting, Owed: control.Owed{Wait: units.Wait{For: units.WaitCredentials}}},
	}}
	pins := []operator.ServerPins{
		{Server: "notion", Held: make([]operator.Held, 2)}, {Server: "crm"},
	}
	var got []string
	for _, w := range wants.Of(report, pins) {
		got = append(got, w.Server+", "+w.What+": "+w.Command)
	}
	const want = `crm, waiting for credentials: crm_token: pfar vault set crm_token
notion, to reach cdn.example.com:443: pfar allow notion cdn.example.com
notion, to reach db.example.com:5432: pfar allow notion db.example.com:5432
notion, 2 definitions to accept: pfar pins accept notion`
	if strings.Join(got, "\n") != want {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	b := newBench(t, "")
	b.pfard(t, report, func(*fakePfard, control.Request) error { return nil })
	for _, line := range []string{"status", "status notion", "status --json", "status notion --json"} {
		n, args := b.again(""), strings.Fields(line)
		code, out := n.run(t.Context(), args), n.out.String()
		const want = "pfar allow notion cdn.example.com"
		if code != exitOK || !strings.Contains(out, want) || strings.Contains(out, "notion now") {
			t.Errorf("%q: exit %d\n%s%s", args, code, out, n.err)
		}
	}
}

// TestFreshSessions wants a clean session to be offered for a client that came back after a long silence, and for no
// other.
func TestFreshSessions(t *testing.T) {
	b := newBench(t, "")
	b.pfard(t, control.Report{Servers: []control.Server{{Name: "notion", State: control.Running}}},
		func(*fakePfard, control.Request) error { return nil })
	b.serveOperator(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/sessions" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `[{"client":"laptop","handle":"default","silent":5400},{"client":"desk","handle":"default"},`+
			`{"client":"cold","handle":"default","silent":5400,"frozen":"it asked too much"},`+
			`{"client":"$(reboot)","handle":"default","silent":5400}]`)
	}))
	for line, want := range map[string]bool{"status": true, "status --json": true, "status notion": false} {
		n, args := b.again(""), strings.Fields(line)
		code, out := n.run(t.Context(), args), n.out.String()
		has := strings.Contains(out, "pfar sessions reset laptop/default")
		if code != exitOK || has != want || strings.Count(out, "sessions reset") > 1 {
			t.Errorf("%q: exit %d\n%s%s", args, code, out, n.err)
		}
	}
}

// TestDenial wants the last refusals of different hosts to be kept, as many as fit.
func TestDenial(t *testing.T) {
	var d control.Denial
	for i := range 40 {
		d.Add(egress.Refusal{Host: string(rune('a'+i%26)) + ".example:443", Reason: egress.NameNotDeclared}, fixedNow())
	}
	if len(d.Refusals) != 16 || d.Refusals[15].Host != "n.example:443" || d.Refused.Host != "n.example:443" {
		t.Errorf("%+v", d)
	}
}
