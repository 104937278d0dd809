package systemd

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestNoNetworkOfItsOwn: systemd ignores PrivateNetwork= where it cannot have it, with a line in its log. pfar does not
// run the server then.
func TestNoNetworkOfItsOwn(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/systemd/system/pfar-mcp@open.service.d/open.conf", "[Service]\nPrivateNetwork=no\n", 0o644)
	m.Run(t, "systemctl", "daemon-reload")
	m.Put(t, "/etc/pfar/mcp.d/open.hcl", echo(""), 0o644)
	if s := becomes(t, m, "open", control.Failed); !strings.Contains(s.Detail, "in the network of the machine") {
		t.Errorf("%q", s.Detail)
	}
	if found := m.Try("pgrep", "-f", programs+"/echo"); found.Stdout != "" {
		t.Errorf("a server runs in the network of the machine: %s", found)
	}
}
