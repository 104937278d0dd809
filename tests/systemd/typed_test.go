package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// shown returns a command, which a manual page has to show.
func shown(t *testing.T, page, command string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "packaging", "man", page))
	if err != nil {
		t.Fatal(err)
	}
	plain := strings.ReplaceAll(string(text), `\-`, "-")
	if !strings.Contains(plain, ".Dl "+command+"\n") && !strings.Contains(plain, ".Li "+command+" .\n") {
		t.Errorf("%s does not show %q any more", page, command)
	}
	return command
}

// TestManualCommands types the commands of the manuals that no other test does: for a user's port and notices, and for
// an audit that is to be removed by hand.
func TestManualCommands(t *testing.T) {
	t.Parallel()
	o := owned(t)
	for _, c := range []string{"systemctl --user enable pfar-gateway-http.socket", "systemctl --user restart pfar-gateway-http.socket"} {
		o.Run(t, "sh", "-euc", shown(t, "pfard.8", c))
	}
	bed.Eventually(t, soon, func() error {
		if r := o.Try("pfar", "status", "--json"); !strings.Contains(r.Stdout, `"endpoint": "http://127.0.0.1:7418/mcp"`) {
			return fmt.Errorf("a user's port: %s", r)
		}
		return nil
	})
	if pid := o.pid(t, "pfar-gateway"); pid != "0" { // the port is told of before anybody needed the gateway
		t.Errorf("the gateway runs, as process %s", pid)
	}
	o.declare(t, "hello.hcl", echo(""))
	becomes(t, o, "hello", control.Running)
	o.Run(t, "sh", "-euc", shown(t, "pfar.1", "systemctl --user enable --now pfar-notify.service"))
	o.isActive(t, "pfar-notify.service", "active")

	o.m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	o.m.Run(t, "pfar", "audit")
	if r := o.m.Try("sh", "-c", "rm /var/lib/pfar/audit/*"); r.Code == 0 {
		t.Error("the audit can be removed by root without chattr(1)")
	}
	o.m.Run(t, "systemctl", "stop", "pfar.target", "pfar-base.service")
	o.m.Run(t, "sh", "-euc", shown(t, "pfard.8", "chattr -a /var/lib/pfar/audit/*"))
	for _, c := range []string{
		"chattr -R -a /var/lib/pfar/audit",
		"rm -rf /var/lib/pfar /etc/pfar /var/lib/pfar-chat /var/lib/private/pfar-chat",
		"rm -f /etc/credstore.encrypted/pfar-vault-key",
	} {
		o.m.Run(t, "sh", "-euc", shown(t, "pfard.8", c))
	}
	if r := o.m.Try("ls", "-d", "/var/lib/pfar"); r.Code == 0 {
		t.Errorf("the state is there after its removal by hand: %s", r)
	}
}
