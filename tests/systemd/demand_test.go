package systemd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// TestOnDemand: no process runs for a server that nobody calls, and its tools are there all the same.
func TestOnDemand(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/lazy.hcl", "autostart = false\nidle_timeout = \"2s\"\n"+echo(""), 0o644)
	listed := func() {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			if r := m.Try("pfar", "tools", "lazy"); r.Code != 0 || !strings.Contains(r.Stdout, "echo") {
				return fmt.Errorf("pfar tools: %s", r)
			}
			return nil
		})
	}
	asleep := func() {
		t.Helper()
		becomes(t, m, "lazy", control.Sleeping)
		isActive(t, m, "pfar-mcp@lazy", "inactive")
		if found := m.Try("pgrep", "-f", programs+"/echo"); found.Stdout != "" {
			t.Errorf("a process of what sleeps: %s", found)
		}
		listed()
	}
	listed() // it has been started once for that
	asleep()
	if r := m.Try("pfar", "call", "lazy.echo", "--message", "good morning"); r.Code != 0 || !strings.Contains(r.Stdout, "good morning") {
		t.Errorf("the first call: %s", r)
	}
	asleep()
	for _, unit := range []string{"pfard", "pfar-gateway"} {
		m.Run(t, "systemctl", "restart", unit)
		asleep()
	}
	if r := m.Try("pfar", "call", "lazy.echo", "--message", "again"); r.Code != 0 || !strings.Contains(r.Stdout, "again") {
		t.Errorf("a call after both were restarted: %s", r)
	}

	m.Run(t, "pfar", "stop", "lazy")
	becomes(t, m, "lazy", control.Stopped)
	if r := m.Try("pfar", "call", "lazy.echo", "--message", "x"); r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, "pfar start lazy") {
		t.Errorf("a call of what was stopped: %s", r)
	}
	m.Run(t, "systemctl", "start", "pfar-mcp@lazy") // returns when it is ready
	asleep()
}
