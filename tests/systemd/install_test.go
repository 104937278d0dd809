package systemd

import (
	"slices"
	"strings"
	"testing"
)

// TestInstalled holds what the package is to bring.
func TestInstalled(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Shell(t, `pfar version
test -d /etc/pfar/mcp.d
for program in pfard pfar-sandbox pfar-egress pfar-gateway pfar-setup pfar-console pfar-adapter; do
	test -x /usr/lib/pfar/$program
done
test -x `+programs+`/echo
node --check `+servers+`/node_modules/@modelcontextprotocol/server-everything/dist/index.js
bash -n /usr/share/bash-completion/completions/pfar
grep -q '^#compdef pfar' /usr/share/zsh/vendor-completions/_pfar
grep -q 'complete -c pfar' /usr/share/fish/vendor_completions.d/pfar.fish
test -s /usr/share/man/man1/pfar.1.gz
test -s /usr/share/pfar/servers/package-lock.json
test -s /usr/share/doc/pfar/examples/memory.toml`)
	if state := m.Run(t, "systemctl", "is-system-running"); state != "running\n" {
		t.Errorf("the system is %q with pfar installed: %s", state, m.Run(t, "systemctl", "--failed", "--no-legend"))
	}
}

// directories are what packaging/tmpfiles.conf makes: mode, owner, path.
var directories = []string{
	"711 root:root /var/lib/pfar",
	"750 root:pfar-admin /var/lib/pfar/audit",
	"700 pfar:pfar /var/lib/pfar/gateway",
	"711 root:root /var/lib/pfar/home",
	"700 pfar:pfar /var/lib/pfar/pins",
	"755 root:root /var/lib/pfar/servers",
	"711 root:root /var/lib/pfar/undo",
	"700 root:root /var/lib/pfar/users",
	"700 root:root /var/lib/pfar/vault",
	"755 root:root /run/pfar",
	"711 root:root /run/pfar/egress",
	"700 root:root /run/pfar/plan",
	"755 root:root /etc/pfar",
	"755 root:root /etc/pfar/clients.d",
	"755 root:root /etc/pfar/mcp.d",
	"755 root:root /etc/pfar/policies.d",
}

// TestUsersAndDirectories wants them as they are to be after a boot, and again after somebody has changed or removed
// them.
func TestUsersAndDirectories(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	want := slices.Sorted(slices.Values(directories))
	look := func() []string {
		return slices.Sorted(strings.Lines(m.Shell(t, "find /run/pfar /var/lib/pfar /etc/pfar -path /var/lib/pfar/servers/node_modules -prune -o -printf '%m %u:%g %p\\n'")))
	}
	for i, line := range want {
		want[i] = line + "\n"
	}
	if got := look(); !slices.Equal(got, want) {
		t.Errorf("after the boot there are %q, want %q", got, want)
	}
	if user := m.Run(t, "getent", "passwd", "pfar"); !strings.HasSuffix(user, ":/:/usr/sbin/nologin\n") {
		t.Errorf("the gateway's user is %s", user)
	}
	if group := m.Run(t, "getent", "group", "pfar-admin"); !strings.HasSuffix(group, ":\n") {
		t.Errorf("the group of those who approve is %s", group)
	}
	if group := m.Run(t, "getent", "group", "pfar-console"); !strings.HasSuffix(group, ":\n") {
		t.Errorf("the group of the remote console is %s", group)
	}
	if groups := m.Run(t, "id", "-Gn", "pfar"); groups != "pfar\n" {
		t.Errorf("the gateway's user is in the groups %s", groups)
	}
	if r := m.Try("runuser", "-u", "pfar", "--", "ls", "/var/lib/pfar"); r.Code == 0 {
		t.Errorf("the gateway's user lists /var/lib/pfar: %s", r)
	}
	m.Shell(t, "chmod 777 /var/lib/pfar/vault /run/pfar; chown pfar /run/pfar/plan; rmdir /run/pfar/egress")
	for range 2 {
		m.Run(t, "systemd-sysusers")
		m.Run(t, "systemd-tmpfiles", "--create", "pfar.conf")
		if got := look(); !slices.Equal(got, want) {
			t.Errorf("made again, there are %q, want %q", got, want)
		}
	}
}
