package systemd

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestDeclarationsAreEdited: pfard's unit may write the folder of declarations, also where a package has installed one,
// and nobody but root can have it do so.
func TestDeclarationsAreEdited(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	const own, installed = "/etc/pfar/mcp.d/hello.hcl", "/usr/lib/pfar/mcp.d/hello.hcl"
	m.Put(t, own, echo(""), 0o640)
	becomes(t, m, "hello", control.Running)
	text := m.Run(t, "cat", own)
	if r := m.Try("sh", "-c", "EDITOR='sed -i s/command/comand/' pfar edit hello </dev/null"); r.Code != 1 ||
		!strings.Contains(r.Stderr, "error:") || m.Run(t, "cat", own) != text {
		t.Errorf("a mistake: %s", r)
	}
	m.Shell(t, "EDITOR='sed -i s/internal/public/' pfar edit hello </dev/null")
	if now := m.Run(t, "cat", own); now != strings.Replace(text, "internal", "public", 1) {
		t.Errorf("edited: %s", now)
	}
	if mode := m.Run(t, "stat", "-c%a %U", own); mode != "640 root\n" {
		t.Errorf("its mode is now %q", mode)
	}
	becomes(t, m, "hello", control.Running)
	if r := m.Try("runuser", "-u", "user", "--", "pfar", "remove", "hello", "--yes"); r.Code == 0 {
		t.Errorf("another user may remove it: %s", r)
	}
	m.Put(t, installed, echo(""), 0o644)
	m.Run(t, "pfar", "remove", "hello", "--yes", "--purge")
	if to := m.Run(t, "readlink", own); to != "/dev/null\n" {
		t.Errorf("what hides the package's is %q", to)
	}
	if _, err := server(m, "hello"); err == nil {
		t.Error("it is still there")
	}
	m.Run(t, "rm", own)
	becomes(t, m, "hello", control.Running)
	m.Shell(t, "EDITOR='sed -i s/internal/public/' pfar edit hello </dev/null")
	if now := m.Run(t, "cat", own); !strings.Contains(now, "public") || m.Run(t, "cat", installed) == now {
		t.Errorf("edited where a package installed it: %s", now)
	}
	m.Run(t, "rm", installed)
	m.Run(t, "pfar", "remove", "hello", "--yes")
	if r := m.Try("ls", own); r.Code == 0 {
		t.Errorf("removed: %s", r)
	}
}
