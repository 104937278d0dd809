package systemd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// TestUsers gives each server a user of its own, whose its files stay.
func TestUsers(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	seen := map[int]string{}
	declare := func(name string) {
		m.Put(t, "/etc/pfar/mcp.d/"+name+".hcl", fmt.Sprintf("label = \"public\"\nserver {\n  command = %q\n}\nsandbox {\n  state = true\n}\n", programs+"/clients"), 0o644)
	}
	runs := func(name string) int {
		t.Helper()
		s := becomes(t, m, name, control.Running)
		if other, ok := seen[s.UID]; s.UID < 60706 || ok && other != name {
			t.Errorf("%s runs as user %d, as does %q", name, s.UID, other)
		}
		seen[s.UID] = name
		return s.UID
	}
	same := func(when, name string, uid int) {
		t.Helper()
		if now := runs(name); now != uid {
			t.Errorf("%s: %s runs as user %d, and as %d before", when, name, now, uid)
		}
		if owner := m.Run(t, "stat", "-c", "%u", "/var/lib/pfar/home/"+name); owner != fmt.Sprintf("%d\n", uid) {
			t.Errorf("%s: the home of %s is of %s", when, name, owner)
		}
	}
	declare("a")
	declare("b")
	a, b := runs("a"), runs("b")
	unprivileged(t, m, "a", a)

	m.Run(t, "systemctl", "restart", "pfar-mcp@a")
	same("started again", "a", a)
	m.Run(t, "systemctl", "restart", "pfard")
	m.Run(t, "systemctl", "restart", "pfar-mcp@b")
	same("with another pfard", "b", b)

	m.Run(t, "rm", "/etc/pfar/mcp.d/a.hcl")
	declare("c")
	c := runs("c")
	declare("a")
	same("declared again", "a", a)
	m.Reboot(t)
	same("after a boot", "a", a)
	same("after a boot", "b", b)
	same("after a boot", "c", c)
}

// unprivileged wants all processes of a server to be its user's, with no way to become another one, and none of them a
// file of set-user-ID.
func unprivileged(t *testing.T, m *bed.Machine, name string, uid int) {
	t.Helper()
	pid := pid(t, m, "pfar-mcp@"+name)
	status := m.Read(t, "/proc/"+pid+"/status")
	for _, want := range []string{fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", uid), fmt.Sprintf("Gid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", uid), "Groups:\t \n",
		"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("the launcher is not as it is to be, %q:\n%s", want, status)
		}
	}
	for command, want := range map[string]string{
		"touch /home/mcp/x; chmod u+s /home/mcp/x || echo refused":              "refused",
		"grep -c '^Cap.*0000000000000000$' /proc/self/status":                   "5",
		"ls /run/credentials /var/lib/pfar 2>/dev/null || echo nothing of pfar": "nothing of pfar",
	} {
		if r := m.Try("pfar", "call", name+".run", "--json", fmt.Sprintf(`{"argv":["/bin/sh","-c",%q]}`, command)); !strings.Contains(r.Stdout, want) {
			t.Errorf("%s: %s, want %q", command, r, want)
		}
	}
}

// TestDoctorStartsAUnit: pfar doctor fails where units cannot start sandboxes, though everything else can.
func TestDoctorStartsAUnit(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	doctor := func(want string) {
		t.Helper()
		if r := m.Try("pfar", "doctor"); !strings.Contains(r.Stdout, want) {
			t.Errorf("no %q in %s\n%s", want, r, m.Journal(t, "pfar-probe.service"))
		}
		if left := m.Shell(t, "systemctl list-units --plain --no-legend pfar-probe.service"); left != "" {
			t.Errorf("doctor leaves %s", left)
		}
	}
	doctor("with the settings of servers' units (pfar-probe.service)")
	m.Shell(t, "mkdir /etc/systemd/system/pfar-probe.service.d")
	m.Put(t, "/etc/systemd/system/pfar-probe.service.d/no.conf", "[Service]\nRestrictNamespaces=yes\n", 0o644)
	m.Run(t, "systemctl", "daemon-reload")
	doctor("as a unit (pfar-probe.service): ")

	o := settle(t, m, "user", 1000)
	asked := func(want string) {
		t.Helper()
		if r := o.Try("pfar", "doctor"); !strings.Contains(r.Stdout, want) {
			t.Errorf("for a user, no %q in %s", want, r)
		}
	}
	asked("with the settings of your servers' units (pfar-probe.service)")
	o.Run(t, "sh", "-euc", `mkdir -p ~/.config/systemd/user/pfar-probe.service.d
printf '[Service]\nRestrictNamespaces=yes\n' >~/.config/systemd/user/pfar-probe.service.d/no.conf
systemctl --user daemon-reload`)
	asked("in a unit of yours (pfar-probe.service) no sandbox starts: ")
	if left := o.Run(t, "systemctl", "--user", "list-units", "--plain", "--no-legend", "pfar-probe.service"); left != "" {
		t.Errorf("doctor leaves %s", left)
	}
}
