package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units/control"
)

// TestPinned: a host that the system trusts gets nothing if it has none of the keys in tls_pins, and everybody
// concerned is told which it has; with that of its authority, its requests go out.
func TestPinned(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	requests, wrap := startAPIs(t)
	pinned := func(pin string) string {
		return fmt.Sprintf("allowed_domains = [\"api.github.com\"]\ntls_pins = { \"api.github.com\" = [%q] }\n", pin) +
			declare(program(t, "hostile"), nil, `auth = { TOKEN = { secret = "vault:github_token", deliver = "broker" } }`)
	}
	p := prepare(t, map[string]string{"thief.hcl": pinned(broker.Pin{}.String())})
	p.up(wrap...)
	p.await("it waiting", soon, inState("thief", control.Waiting))
	p.keep("set", "github_token", githubToken)
	p.awaitRunning("thief")
	fetch := func() string {
		t.Helper()
		r, err := p.client("/mcp/thief").call("fetch", map[string]any{"method": "GET", "url": "https://api.github.com/echo", "headers": map[string]any{"Authorization": "Bearer $TOKEN"}})
		check(t, err)
		return r.text
	}
	told := fetch()
	keys := regexp.MustCompile(`sha256/[A-Za-z0-9+/]{43}=`).FindAllString(told, -1)
	if !strings.Contains(told, "403 Forbidden") || !strings.Contains(told, "tls-pin") || !strings.Contains(told, "tls_pins in thief.hcl") || len(keys) != 2 {
		t.Fatalf("the server is told %s", told)
	}
	words := "api.github.com:443 (tls-pin): its certificates have the keys " + keys[0] + ", " + keys[1]
	p.await("the refusal in the status", soon, func(r control.Report) bool { return server(r, "thief").LastRefusal == "refused "+words })
	if out, _, _ := p.command("egress", "thief"); !strings.Contains(out, "tls-pin: its certificates have the keys "+keys[0]) {
		t.Errorf("pfar egress says %s", out)
	}
	if out, _, _ := p.command("audit"); !strings.Contains(out, words) {
		t.Errorf("pfar audit says %s", out)
	}
	if out, _, _ := p.command("logs", "thief"); !strings.Contains(out, keys[1]) {
		t.Errorf("the log says %s", out)
	}
	select {
	case r := <-requests:
		t.Errorf("the host was asked %+v", r)
	default:
	}
	seen := p.mark()
	p.write("thief.hcl", pinned(keys[1]))
	p.awaitFrom(seen, "another key not being taken by itself", soon, func(r control.Report) bool { return len(r.Diagnostics) == 1 })
	runs := server(p.last(), "thief").PID
	if out, stderr, code := p.command("vault", "give", "thief", "--yes"); code != 0 || !strings.Contains(out, "its bridge also takes") {
		t.Fatalf("pfar vault give: %d, %s%s", code, out, stderr)
	}
	until(t, "the authority's key is taken", func() bool { return strings.Contains(fetch(), "200 OK") })
	if now := server(p.last(), "thief").PID; now != runs {
		t.Errorf("the server, which was process %d, has been started again", runs)
	}
	wantAsked(t, requests, apiCall{"api.github.com", "/echo", "Bearer " + githubToken, ""})
}
