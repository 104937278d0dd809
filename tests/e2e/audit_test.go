package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/audit"
)

// TestAudit: what is done without root and systemd is recorded as well, by both, through a gateway that is killed and
// another pfar; what a server is refused is among it, and what is changed is found.
func TestAudit(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"asks.hcl": echo(t, "-use-proxy"), "plain.hcl": echo(t)})
	p.awaitRunning("asks", "plain")
	p.keep("set", "some_token", "hunter2-hunter2")
	if _, errs, code := p.command("pins", "forget", "plain", "--yes"); code != 0 {
		t.Fatal(errs)
	}
	first := p.gateway()
	if err := syscall.Kill(first.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.gateway(first)
	p.audited("gateway: 4 records") // two beginnings, and of the pins who asked and what was forgotten
	if got, want := p.gatewayRecords(), "begin, pin forget-pins, pin forget, begin"; got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
	p.again()
	p.awaitRunning("asks", "plain")
	shown, _, code := p.command("audit")
	for _, want := range []string{"declaration  plain", "starting → running", "vault        store  some_token  uid", "pin          forget  plain", "refused      asks  refused "} {
		if code != 0 || !strings.Contains(shown, want) {
			t.Errorf("no %q in (%d)\n%s", want, code, shown)
		}
	}
	p.stop()
	files, err := filepath.Glob(filepath.Join(p.state(), "audit", "*.jsonl"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "hunter2") {
			t.Errorf("%s has a secret's value", path)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(b), `"kind":"begin"`, `"kind":"bogus"`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, _, code := p.command("audit", "verify")
	for _, path := range files {
		if code != 1 || !strings.Contains(out, path+":1: edited: ") {
			t.Errorf("%s is changed: %d, %s", path, code, out)
		}
	}
}

// gatewayRecords are the kinds and methods of what the gateway has recorded.
func (p *pfar) gatewayRecords() string {
	p.t.Helper()
	out, errs, code := p.command("audit", "--json")
	if code != 0 {
		p.t.Fatalf("pfar audit: %d: %s", code, errs)
	}
	var all []string
	for line := range strings.Lines(out) {
		r, err := audit.Parse([]byte(strings.TrimSpace(line)))
		if err != nil {
			p.t.Fatalf("%v: %s", err, line)
		}
		if r.Writer == "gateway" {
			all = append(all, strings.TrimSpace(string(r.Kind)+" "+r.Method))
		}
	}
	return strings.Join(all, ", ")
}

// audited waits until what was recorded is whole and says words.
func (p *pfar) audited(words string) {
	p.t.Helper()
	var out string
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(20 * time.Millisecond) { // nobody tells
		var code int
		if out, _, code = p.command("audit", "verify"); code == 0 && strings.Contains(out, words) {
			return
		}
	}
	p.t.Errorf("no %q in %s", words, out)
}
