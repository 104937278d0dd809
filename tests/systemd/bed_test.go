package systemd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
)

func TestBoots(t *testing.T) {
	t.Parallel()
	start := time.Now()
	m := machines.Boot(t)
	t.Logf("booted in %s", time.Since(start).Round(time.Millisecond))
	if state := m.Run(t, "systemctl", "is-system-running"); state != "running\n" {
		t.Errorf("the system is %q, want running: %s", state, m.Run(t, "systemctl", "--failed", "--no-legend"))
	}
	if name := m.Run(t, "cat", "/proc/1/comm"); name != "systemd\n" {
		t.Errorf("PID 1 is %q", name)
	}
	if r := m.Try("sh", "-c", "echo out; echo err >&2; exit 3"); r != (bed.Result{Stdout: "out\n", Stderr: "err\n", Code: 3}) {
		t.Errorf("a program that fails: %s", r)
	}
	if r := m.Try("sh", "-c", "kill -9 $$"); r.Code >= 0 && r.Code != 137 {
		t.Errorf("a program that is killed: %s", r)
	}
	if group := m.Read(t, "/proc/self/cgroup"); !strings.HasSuffix(group, "0::/bed\n") {
		t.Errorf("a program's cgroup is %q", group)
	}
}

func TestFilesAndJournal(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Put(t, "/var/lib/some/dir/file", "with 'quotes'\n", 0o640)
	if got := m.Read(t, "/var/lib/some/dir/file"); got != "with 'quotes'\n" {
		t.Errorf("read %q", got)
	}
	if mode := m.Run(t, "stat", "-c", "%a", "/var/lib/some/dir/file"); mode != "640\n" {
		t.Errorf("the mode is %q", mode)
	}
	m.PutFile(t, "/root/program", "/proc/self/exe", 0o755)
	m.Shell(t, "cmp /root/program /proc/self/exe && exit 1; test -x /root/program")
	m.Unit(t, "talk.service", "[Service]\nType=oneshot\nDynamicUser=yes\nExecStart=/bin/sh -c 'echo as $$(id -u)'\n")
	m.Run(t, "systemctl", "start", "talk.service")
	var uid int
	for line := range strings.Lines(m.Journal(t, "talk.service")) {
		_, _ = fmt.Sscanf(line, "as %d", &uid)
	}
	if uid < 61184 || uid > 65519 {
		t.Errorf("the dynamic user is %d:\n%s", uid, m.Journal(t, "talk.service"))
	}
	if text := m.Journal(t, "nothing.service"); text != "" {
		t.Errorf("a unit that is not has the journal %q", text)
	}
}

// TestIPAddressDeny wants systemd's programs in the kernel to act: without eBPF they are silently left out.
func TestIPAddressDeny(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	const serve = `import socket
s = socket.create_server(("127.0.0.1", 7777))
while True: s.accept()[0].close()
`
	m.Put(t, "/root/serve.py", serve, 0o644)
	m.Run(t, "systemd-run", "--quiet", "--unit=serve", "python3", "/root/serve.py")
	connect := func(options ...string) bed.Result { // what is denied is dropped
		return m.Try("systemd-run", append(append([]string{"--quiet", "--wait", "--collect", "--pipe"}, options...),
			"python3", "-c", `import socket; socket.create_connection(("127.0.0.1", 7777), 5)`)...)
	}
	bed.Eventually(t, soon, func() error {
		if r := connect(); r.Code != 0 {
			return errors.New(r.String())
		}
		return nil
	})
	if r := connect("-pIPAddressDeny=any"); r.Code == 0 {
		t.Error("IPAddressDeny=any lets a connection through")
	}
	if r := connect("-pIPAddressDeny=any", "-pIPAddressAllow=localhost"); r.Code != 0 {
		t.Errorf("IPAddressAllow=localhost: %s", r)
	}
}

// TestSandbox wants bubblewrap to work as in pfar's units, with a /proc of its own, and node in it. (DynamicUser=
// implies a filter that bubblewrap of Debian 13 cannot run under.)
func TestSandbox(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	out := m.Run(t, "systemd-run", "--quiet", "--wait", "--collect", "--pipe", "-pUser=user", "-pProtectSystem=strict", "-pPrivateTmp=yes",
		"bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "node", "-p", "1 + process.pid")
	if out != "3\n" {
		t.Errorf("node in a sandbox wrote %q", out)
	}
}

func TestFirewall(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Run(t, "nft", "add table inet bed_proof; add chain inet bed_proof out { type filter hook output priority 0; policy drop; }")
	if r := m.Try("nft", "list", "table", "inet", "bed_proof"); r.Code != 0 {
		t.Error(r)
	}
	tables, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(tables), "bed_proof") {
		t.Errorf("the host has the machine's table: %s", tables)
	}
}

func TestReboot(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Put(t, "/etc/systemd/system/broken.service", "[Service]\nType=oneshot\nExecStart=false\n[Install]\nWantedBy=multi-user.target\n", 0o644)
	m.Shell(t, "systemctl enable broken; echo kept >/var/kept; echo gone >/run/gone; logger -t before hello")
	first := m.Read(t, "/proc/1/stat")
	m.Reboot(t)
	if m.Read(t, "/proc/1/stat") == first {
		t.Error("PID 1 is the same")
	}
	if !strings.Contains(m.Console(), "Failed to start broken.service") {
		t.Errorf("the console does not say what failed: %s", m.Console())
	}
	m.Shell(t, `test "$(cat /var/kept)" = kept; test ! -e /run/gone; journalctl -q -t before | grep -q hello; echo more >>/var/kept`)
	m.PowerCut(t)
	if r := m.Try("true"); r.Code != -1 {
		t.Errorf("a machine without power runs a program: %s", r)
	}
	if err := m.On(); err != nil {
		t.Fatal(err)
	}
	if got := m.Read(t, "/var/kept"); got != "kept\nmore\n" {
		t.Errorf("after the power was cut: %q", got)
	}
	if _, err := os.Stat("/var/kept"); err == nil {
		t.Error("the host has the machine's file")
	}
	if other := machines.Boot(t); other.Try("test", "-e", "/var/kept").Code != 1 {
		t.Error("another machine has the file")
	}
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.BreakBus(t)
	if r := m.Try("busctl", "--system", "list"); r.Code == 0 {
		t.Errorf("the bus is there: %s", r)
	}
	m.Run(t, "systemctl", "daemon-reload") // systemd's own socket is
	m.MendBus(t)
	m.Run(t, "busctl", "--system", "list")
	m.Run(t, "timeout", "900", "sh", "-euc", "for i in $(seq 40); do systemctl daemon-reexec; done")

	m.Put(t, "/var/lib/small/old", "old\n", 0o600)
	m.SmallDisk(t, "/var/lib/small", 256)
	m.FillDisk(t, "/var/lib/small")
	if r := m.Try("sh", "-c", "echo new >/var/lib/small/new"); r.Code == 0 {
		t.Error("a full disk takes more")
	}
	// A service with a mount namespace of its own has the same disk.
	full := m.Try("systemd-run", "--quiet", "--wait", "--collect", "--pipe", "-pPrivateTmp=yes", "sh", "-c", "echo new >/var/lib/small/new")
	if full.Code == 0 {
		t.Error("a full disk takes more of a service")
	}
	m.EmptyDisk(t, "/var/lib/small")
	m.Shell(t, "echo new >/var/lib/small/new; test $(cat /var/lib/small/old) = old")
}
