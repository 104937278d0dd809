package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestAllow has a server refused, runs the command that pfar status names, and wants the next attempt to pass without
// another process of the server's.
func TestAllow(t *testing.T) {
	t.Parallel()
	c, _ := startClients(t)
	to := c.p.client("/mcp")
	const host = "api.allowed.example:7777"
	b, err := os.ReadFile(c.p.path("clients.hcl"))
	check(t, err)
	mark := c.p.mark()
	c.p.write("clients.hcl", "# kept\n"+strings.Replace(string(b), `"`+host+`", `, "", 1))
	c.p.awaitFrom(mark, "the edit", soon, func(r control.Report) bool {
		return !slices.Contains(server(r, "clients").Domains, host)
	})
	before := server(c.p.last(), "clients")
	if got := c.run(to, true, "node", "fetch", "http://"+host+"/"); strings.Contains(got.Wrote, "echo") {
		t.Fatalf("before: %q", got.Wrote)
	}
	c.run(to, false, "go", "tcp", host)
	c.p.awaitFrom(mark, "the refusal", soon, func(r control.Report) bool {
		return len(server(r, "clients").Refusals) > 0
	})
	stdout, stderr, code := c.p.command("status", "--json")
	var status struct {
		Wants []struct{ Server, Command string }
	}
	if code != 0 || json.Unmarshal([]byte(stdout), &status) != nil || len(status.Wants) == 0 {
		t.Fatalf("status: %d\n%s%s", code, stdout, stderr)
	}
	command := status.Wants[0].Command
	if command != "pfar allow clients "+host {
		t.Errorf("the command is %q", command)
	}
	stdout, stderr, code = c.p.command(append(strings.Fields(command)[1:], "--yes")...)
	if code != 0 || !strings.Contains(stdout, "+ ") {
		t.Fatalf("%s: %d\n%s%s", command, code, stdout, stderr)
	}
	if got := c.run(to, false, "go", "tcp", host); !strings.Contains(got.Wrote, "echo of hello") {
		t.Errorf("after: %q", got.Wrote)
	}
	if after := server(c.p.last(), "clients"); after.PID != before.PID || after.Since != before.Since {
		t.Errorf("the server was restarted: %+v, before %+v", after, before)
	}
	if b, err = os.ReadFile(c.p.path("clients.hcl")); err != nil || !strings.HasPrefix(string(b), "# kept\n") {
		t.Errorf("%v: %s", err, b)
	}
	if stdout, _, _ = c.p.command("status"); strings.Contains(stdout, command) {
		t.Errorf("it is wanted still: %s", stdout)
	}
}
