package systemd

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
)

// What units may do and what not, each tried by a script in the place of the unit's own program. The same script has to
// succeed where nothing confines it.
var probes = []struct {
	unit    string
	allowed bool
	script  string
}{
	{"pfard.service", false, socket("AF_INET")},
	{"pfard.service", false, socket("AF_INET6")},
	{"pfard.service", false, socket("AF_PACKET")},
	{"pfard.service", false, "echo >/etc/probe"},
	{"pfard.service", false, "echo >/etc/pfar/probe"},
	{"pfard.service", true, "echo >/etc/pfar/mcp.d/.probe"},
	{"pfard.service", false, "echo >/usr/lib/probe"},
	{"pfard.service", false, "echo >/home/user/probe"},
	{"pfard.service", false, "setpriv --reuid=1000 --clear-groups true"},
	{"pfard.service", false, "unshare --mount true"},
	{"pfard.service", false, "touch /run/pfar/suid; chmod u+s /run/pfar/suid"},
	{"pfard.service", false, "echo 0 >/proc/sys/net/ipv4/ip_forward"},
	{"pfard.service", false, "mkdir /sys/fs/cgroup/probe; rmdir /sys/fs/cgroup/probe"},
	{"pfard.service", false, writeAndExecute},
	{"pfard.service", true, "mkdir -p /run/systemd/system/probe.service.d; echo >/run/systemd/system/probe.service.d/probe.conf"},
	{"pfard.service", true, "echo >/run/pfar/plan/probe; echo >/var/lib/pfar/vault/probe; chown pfar:pfar /var/lib/pfar/pins"},
	{"pfard.service", true, "busctl --system list; systemctl daemon-reload"},
	{"pfard.service", true, "nft add table inet probe; nft delete table inet probe"},
	{"pfard.service", true, `nsenter --net --target="$(systemctl show -P MainPID apart)" nft list tables`},
	{"pfard.service", true, "cat /home/user/.config/file"},

	{"pfar-gateway.service", false, "ls /var/lib/pfar/vault"},
	{"pfar-gateway.service", false, "cat /run/pfar/plan/notion.json"},
	{"pfar-gateway.service", false, "ls /home/user"},
	{"pfar-gateway.service", false, "echo >/var/lib/pfar/probe"},
	{"pfar-gateway.service", false, "test -e /proc/1/cmdline"},
	{"pfar-gateway.service", false, "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (\"192.0.2.1\", 9))'"},
	{"pfar-gateway.service", false, socket("AF_NETLINK")},
	{"pfar-gateway.service", false, socket("AF_PACKET")},
	{"pfar-gateway.service", false, "systemctl kill --signal=CONT apart.service"},
	{"pfar-gateway.service", false, "systemctl set-property --runtime apart.service TasksMax=99"},
	{"pfar-gateway.service", false, "unshare --user true"},
	{"pfar-gateway.service", false, writeAndExecute},
	{"pfar-gateway.service", true, "touch /var/lib/pfar/pins/probe-$(id -u) /var/lib/pfar/gateway/probe-$(id -u)"},
	{"pfar-gateway.service", true, connect},

	{"pfar-egress@notion.service", false, "ls /var/lib/pfar/vault || ls /var/lib/pfar/pins"},
	{"pfar-egress@notion.service", false, "cat /run/pfar/plan/notion.json"},
	{"pfar-egress@notion.service", false, "ls /home/user"},
	{"pfar-egress@notion.service", false, "echo >/var/lib/probe || echo >/run/probe"},
	{"pfar-egress@notion.service", false, "test -e /proc/1/cmdline"},
	{"pfar-egress@notion.service", false, socket("AF_PACKET")},
	{"pfar-egress@notion.service", false, "unshare --user true"},
	{"pfar-egress@notion.service", false, writeAndExecute},
	{"pfar-egress@notion.service", true, `echo >"${RUNTIME_DIRECTORY:-/run}/probe"`},
	{"pfar-egress@notion.service", true, connect},

	{"pfar-setup@abcdefgh.service", false, "ls /var/lib/pfar/vault || ls /var/lib/pfar/pins"},
	{"pfar-setup@abcdefgh.service", false, "cat /run/pfar/plan/notion.json"},
	{"pfar-setup@abcdefgh.service", false, "ls /home/user"},
	{"pfar-setup@abcdefgh.service", false, "echo >/var/lib/probe || echo >/run/probe"},
	{"pfar-setup@abcdefgh.service", false, "test -e /proc/1/cmdline"},
	{"pfar-setup@abcdefgh.service", false, socket("AF_PACKET")},
	{"pfar-setup@abcdefgh.service", false, socket("AF_NETLINK")},
	{"pfar-setup@abcdefgh.service", false, "unshare --user true"},
	{"pfar-setup@abcdefgh.service", false, writeAndExecute},
	{"pfar-setup@abcdefgh.service", true, `python3 -c 'import socket; socket.create_server(("127.0.0.1", 19300))'`},

	{"pfar-refresh@notion.service", false, "ls /var/lib/pfar/vault || ls /var/lib/pfar/pins"},
	{"pfar-refresh@notion.service", false, "cat /run/pfar/plan/notion.json"},
	{"pfar-refresh@notion.service", false, "ls /home/user"},
	{"pfar-refresh@notion.service", false, "echo >/var/lib/probe || echo >/run/probe"},
	{"pfar-refresh@notion.service", false, "test -e /proc/1/cmdline"},
	{"pfar-refresh@notion.service", false, socket("AF_PACKET")},
	{"pfar-refresh@notion.service", false, socket("AF_NETLINK")},
	{"pfar-refresh@notion.service", false, "unshare --user true"},
	{"pfar-refresh@notion.service", false, writeAndExecute},
	{"pfar-refresh@notion.service", true, connect},

	{"pfar-login@notion.service", false, "ls /var/lib/pfar/vault || ls /var/lib/pfar/pins"},
	{"pfar-login@notion.service", false, "cat /run/pfar/plan/notion.json"},
	{"pfar-login@notion.service", false, "ls /home/user"},
	{"pfar-login@notion.service", false, "echo >/var/lib/probe || echo >/run/probe"},
	{"pfar-login@notion.service", false, "test -e /proc/1/cmdline"},
	{"pfar-login@notion.service", false, socket("AF_PACKET")},
	{"pfar-login@notion.service", false, socket("AF_NETLINK")},
	{"pfar-login@notion.service", false, "unshare --user true"},
	{"pfar-login@notion.service", false, writeAndExecute},
	{"pfar-login@notion.service", true, connect},

	{"pfar-mcp@notion.service", false, connect},
	{"pfar-mcp@notion.service", false, "ls /var/lib/pfar/vault || ls /var/lib/pfar/pins"},
	{"pfar-mcp@notion.service", false, "cat /run/pfar/plan/notion.json"},
	{"pfar-mcp@notion.service", false, "echo >/etc/probe || echo >/run/probe || echo >/var/lib/probe"},
	{"pfar-mcp@notion.service", false, "unshare --net true"},
	{"pfar-mcp@notion.service", false, "nft list tables"},
	{"pfar-mcp@notion.service", false, "ip link set lo down; ip link set lo up"},
	{"pfar-mcp@notion.service", false, "systemctl kill --signal=CONT apart.service"},
	{"pfar-mcp@notion.service", false, "setpriv --reuid=1000 --clear-groups true"},
	{"pfar-mcp@notion.service", true, "bwrap --unshare-all --share-net --die-with-parent --new-session --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp node -e ''"},
	{"pfar-mcp@notion.service", true, "bwrap --unshare-all --share-net --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp python3 -c 'import json'"},

	{"pfar-inspect@look.service", false, connect},
	{"pfar-inspect@look.service", false, "ls /var/lib/pfar/vault || ls /var/lib/pfar/pins"},
	{"pfar-inspect@look.service", false, "cat /run/pfar/inspect/look.json"},
	{"pfar-inspect@look.service", false, "echo >/etc/probe || echo >/run/probe || echo >/var/lib/probe"},
	{"pfar-inspect@look.service", false, "unshare --net true"},
	{"pfar-inspect@look.service", false, "nft list tables"},
	{"pfar-inspect@look.service", false, socket("AF_PACKET")},
	{"pfar-inspect@look.service", false, "systemctl kill --signal=CONT apart.service"},
	{"pfar-inspect@look.service", false, "setpriv --reuid=1000 --clear-groups true"},
	{"pfar-inspect@look.service", true, "bwrap --unshare-all --share-net --die-with-parent --new-session --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp node -e ''"},

	{"pfar-model@llm.service", false, "ls /var/lib/pfar/vault || ls /var/lib/pfar/pins"},
	{"pfar-model@llm.service", false, "cat /run/pfar/inspect/llm.json"},
	{"pfar-model@llm.service", false, "ls /home/user"},
	{"pfar-model@llm.service", false, "echo >/var/lib/probe || echo >/run/probe"},
	{"pfar-model@llm.service", false, "test -e /proc/1/cmdline"},
	{"pfar-model@llm.service", false, socket("AF_PACKET")},
	{"pfar-model@llm.service", false, socket("AF_NETLINK")},
	{"pfar-model@llm.service", false, "unshare --user true"},
	{"pfar-model@llm.service", false, writeAndExecute},
	{"pfar-model@llm.service", true, connect},

	{"pfar-chat@home.service", false, connect},
	{"pfar-chat@home.service", false, socket("AF_INET")},
	{"pfar-chat@home.service", false, socket("AF_NETLINK")},
	{"pfar-chat@home.service", false, "ls /var/lib/pfar/vault || ls /var/lib/pfar/pins"},
	{"pfar-chat@home.service", false, "cat /run/pfar/inspect/home.json"},
	{"pfar-chat@home.service", false, "ls /home/user"},
	{"pfar-chat@home.service", false, "ls /var/lib/private/pfar-chat/work"},
	{"pfar-chat@home.service", false, "echo >/var/lib/probe || echo >/run/probe"},
	{"pfar-chat@home.service", false, "test -e /proc/1/cmdline"},
	{"pfar-chat@home.service", false, "unshare --user true"},
	{"pfar-chat@home.service", false, writeAndExecute},
	{"pfar-chat@home.service", true, `echo >"${STATE_DIRECTORY:-/tmp}/probe"`},

	{"pfar-failed@notion.service", false, "echo >/etc/probe"},
	{"pfar-failed@notion.service", false, "echo >/home/user/probe"},
	{"pfar-failed@notion.service", false, "unshare --mount true"},
	{"pfar-failed@notion.service", false, "nft list tables"},
	{"pfar-failed@notion.service", false, "echo 0 >/proc/sys/net/ipv4/ip_forward"},
	{"pfar-failed@notion.service", false, "touch /var/suid; chmod u+s /var/suid"},
	{"pfar-failed@notion.service", true, "echo >/var/lib/probe"},
	{"pfar-failed@notion.service", true, `test "$(runuser -u user -- id -u)" = 1000; runuser -u user -- cat /home/user/.config/file`},
	{"pfar-failed@notion.service", true, connect},
	{"pfar-failed@notion.service", true, "systemctl status apart.service"},
}

// takes are the units that take another user, as pfar-sandbox does (cmd/pfar-sandbox/become.go).
var takes = map[string]string{"pfar-mcp": setpriv, "pfar-inspect": setpriv}

const setpriv = "setpriv --reuid=60706 --regid=60706 --clear-groups --inh-caps=-all --ambient-caps=-all "

func socket(family string) string {
	return `python3 -c 'import socket; socket.socket(socket.` + family + `, socket.SOCK_RAW if "` + family + `" in ("AF_PACKET", "AF_NETLINK") else socket.SOCK_STREAM)'`
}

const (
	writeAndExecute = `python3 -c 'import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)'`
	connect         = `python3 -c 'import socket; socket.create_connection(("127.0.0.1", 7777), 1)'`
	listen          = `import socket
s = socket.create_server(("127.0.0.1", 7777))
while True: s.accept()[0].close()`
)

func TestUnitsConfine(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Put(t, "/home/user/.config/file", "", 0o644)
	m.Shell(t, "chown -R user:user /home/user; chmod 755 /home/user")
	for _, plan := range []string{"plan/notion", "inspect/look", "inspect/llm", "inspect/home"} {
		m.Put(t, "/run/pfar/"+plan+".json", "{}", 0o600)
	}
	m.Run(t, "mkdir", "-p", "/var/lib/private/pfar-chat/work")
	m.Run(t, "ip", "address", "add", "192.0.2.1/32", "dev", "lo") // an address that is not loopback's
	m.Run(t, "systemd-run", "--quiet", "--unit=listen", "python3", "-c", listen)
	m.Run(t, "systemd-run", "--quiet", "--unit=apart", "-pPrivateNetwork=yes", "-pDynamicUser=yes", "sleep", "infinity")
	for i, p := range probes {
		m.Put(t, fmt.Sprintf("%s/%s/%d", probesDir, name(p.unit), i), p.script+"\n", 0o644)
	}
	m.Put(t, probesDir+"/all", `for f in `+probesDir+`/$1/*; do if sh -eu $f; then echo "works ${f##*/}"; else echo "fails ${f##*/}"; fi; done`, 0o644)
	for _, unit := range []string{"pfard.service", "pfar-gateway.service", "pfar-egress@notion.service", "pfar-mcp@notion.service", "pfar-refresh@notion.service",
		"pfar-login@notion.service", "pfar-inspect@look.service", "pfar-model@llm.service", "pfar-chat@home.service",
		"pfar-setup@abcdefgh.service", "pfar-failed@notion.service"} {
		free := m.Try("systemd-run", "--quiet", "--wait", "--collect", "--pipe", "sh", probesDir+"/all", name(unit))
		inPlace(t, m, unit, takes[name(unit)]+"sh "+probesDir+"/all "+name(unit))
		m.Run(t, "systemctl", "start", unit)
		journal := m.Journal(t, unit)
		for i, p := range probes {
			if p.unit != unit {
				continue
			}
			if !strings.Contains(free.Stdout, fmt.Sprintf("works %d\n", i)) {
				t.Errorf("where nothing confines it, this does not work: %s\n%s", p.script, free)
			}
			if want := map[bool]string{true: "works", false: "fails"}[p.allowed]; !strings.Contains(journal, fmt.Sprintf("\n%s %d\n", want, i)) {
				t.Errorf("in %s this is not so: %s %s\n%s", unit, p.script, want, journal)
			}
		}
	}
}

// TestNamespaces wants the sockets of pfar-egress@.socket in the network namespace of pfar-mcp@.service, where nothing
// else is, and two servers not to share that.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Put(t, "/etc/systemd/system/pfard.service.d/bed.conf", "[Service]\nType=exec\nExecStart=\nExecStart=sleep infinity\n", 0o644)
	m.Put(t, "/etc/systemd/system/pfar-mcp@.service.d/bed.conf",
		"[Unit]\nAssertPathExists=\n[Service]\nType=exec\nLoadCredential=\nExecStart=\nExecStart=sleep infinity\n", 0o644)
	m.Run(t, "systemctl", "daemon-reload")
	longest := strings.Repeat("n", 23)
	all := []string{"start", "pfar-mcp@notion.service", "pfar-mcp@" + longest + ".service"}
	for i := range 20 { // so many at once that each has to wait for the kernel
		all = append(all, fmt.Sprintf("pfar-mcp@many%d.service", i))
	}
	for _, unit := range all[1:] {
		instance := strings.TrimSuffix(strings.TrimPrefix(unit, "pfar-mcp@"), ".service")
		m.Run(t, "touch", "/run/pfar/plan/"+instance+".json") // what is not declared has no sockets
	}
	m.Run(t, "systemctl", all...)
	want := []string{"tcp 127.0.0.1:53", "tcp 127.0.0.1:9876", "tcp 127.0.0.1:9877", "tcp [::1]:9877", "udp 127.0.0.1:53"}
	seen := map[string]bool{m.Run(t, "readlink", "/proc/1/ns/net"): true}
	for _, server := range []string{"notion", longest} {
		pid := strings.TrimSpace(m.Run(t, "systemctl", "show", "-P", "MainPID", "pfar-mcp@"+server))
		inside := func(command string) string {
			return m.Shell(t, "nsenter --net --target="+pid+" "+command)
		}
		if got := listening(inside("ss --no-header -tuln")); !slices.Equal(got, want) {
			t.Errorf("%s: in the server's namespace listen %q, want %q", server, got, want)
		}
		if links := inside("ip -brief link"); strings.Count(links, "\n") != 1 || !strings.HasPrefix(links, "lo ") {
			t.Errorf("%s: in the server's namespace are the links %s", server, links)
		}
		one := m.Run(t, "readlink", "/proc/"+pid+"/ns/net")
		if seen[one] {
			t.Errorf("%s: its namespace is another's, too: %s", server, one)
		}
		seen[one] = true
	}
	if host := m.Run(t, "ss", "--no-header", "-tuln"); strings.Contains(host, ":9876") || strings.Contains(host, ":53 ") {
		t.Errorf("in the machine's namespace listen: %s", host)
	}
	m.Run(t, "systemctl", "stop", "pfar-mcp@notion.service")
	for _, unit := range []string{"pfar-egress@notion.socket", "pfar-egress-monitor@notion.socket", "pfar-egress@notion.service"} {
		bed.Eventually(t, soon, func() error { // systemctl stop does not wait for PartOf=
			if r := m.Try("systemctl", "is-active", unit); r.Stdout != "inactive\n" {
				return fmt.Errorf("after the server has stopped, %s is %s", unit, r)
			}
			return nil
		})
	}
}

// listening lists the sockets that ss -tuln shows.
func listening(ss string) []string {
	var list []string
	for line := range strings.Lines(ss) {
		if f := strings.Fields(line); len(f) >= 5 {
			list = append(list, f[0]+" "+f[4])
		}
	}
	slices.Sort(list)
	return list
}

const probesDir = "/usr/local/lib/pfar-probes"

// name is a unit's name without what makes it an instance, and of what kind.
func name(unit string) string {
	unit, _, _ = strings.Cut(strings.TrimSuffix(unit, ".service"), "@")
	return unit
}

// inPlaceOf is a service without what is its own program's.
const inPlaceOf = `[Unit]
AssertPathExists=
[Service]
Type=oneshot
Restart=no
LoadCredential=
ExecStart=
`

// inPlace has a service run a command instead of its own program, once, with all else as it is installed.
func inPlace(t *testing.T, m *bed.Machine, unit, command string) {
	t.Helper()
	m.Put(t, "/etc/systemd/system/"+unit+".d/bed.conf", inPlaceOf+"ExecStart="+command+"\n", 0o644)
	m.Run(t, "systemctl", "daemon-reload")
}
