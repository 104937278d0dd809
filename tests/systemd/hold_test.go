package systemd

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// through asks a server's bridge from inside its namespace for a tunnel, and prints the status line of the answer.
const through = `pid=$(systemctl show -P MainPID pfar-mcp@hello); nsenter -t $pid -n bash -c '
exec 3<>/dev/tcp/127.0.0.1/9876; printf "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n" >&3; head -1 <&3'`

// connected opens a connection of a server through its bridge. It lasts until the bridge or the test ends.
func connected(t *testing.T, m *bed.Machine, server, to string) *exec.Cmd {
	t.Helper()
	stays := strings.NewReplacer("@hello", "@"+server, "head -1 <&3", "head -1 <&3; cat <&3").Replace(through)
	open := m.Command(t.Context(), "bash", "-c", fmt.Sprintf(stays, to))
	out, err := open.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.Go(t, open)
	line := make([]byte, 64)
	if n, err := out.Read(line); err != nil || !strings.Contains(string(line[:n]), "200") {
		t.Fatalf("the way out: %q, %v", line[:n], err)
	}
	return open
}

// beside connects from the cgroup of the server's bridge, as a bridge would that has been taken over.
const beside = `bash -c 'echo $$ > /sys/fs/cgroup/pfar.slice/pfar-egress.slice/pfar-egress@hello.service/cgroup.procs; exec 3<>/dev/tcp/127.0.0.1/%d'`

// TestTheBridgeIsHeld has the host's own firewall hold what the bridge would, over restarts of both sides.
func TestTheBridgeIsHeld(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Run(t, "systemd-run", "--quiet", "--unit=far", "systemd-socket-activate", "-l", "127.0.0.1:7777", "-a", "--inetd", "cat")
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo("allowed_domains = [\"127.0.0.1:7777\"]\n"), 0o644)
	becomes(t, m, "hello", control.Running)
	check := func(when string) {
		t.Helper()
		for target, status := range map[string]string{"127.0.0.1:7777": "200", "127.0.0.1:7417": "403"} {
			if r := m.Try("bash", "-c", fmt.Sprintf(through, target)); !strings.Contains(r.Stdout, status) {
				t.Errorf("%s, %s: want %s: %s\n%s", when, target, status, r, m.Run(t, "journalctl", "--no-pager", "-u", "pfar-egress@hello", "-u", "pfard"))
			}
		}
		if r := m.Try("bash", "-c", fmt.Sprintf(beside, 7417)); r.Code == 0 || !strings.Contains(r.Stderr, "refused") {
			t.Errorf("%s, a process beside the bridge: %s", when, r)
		}
		if r := m.Try("bash", "-c", fmt.Sprintf(beside, 7777)); r.Code != 0 {
			t.Errorf("%s, a process beside the bridge to what it is allowed: %s", when, r)
		}
		if r := m.Try("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7417"); r.Code != 0 {
			t.Errorf("%s, everybody else: %s", when, r)
		}
	}
	check("at first")
	// What the manual says prints the rules does.
	if rules := m.Shell(t, manualCommand(t, ".Nm nft Cm list table")); !strings.Contains(rules, "bridge-hello") || !strings.Contains(rules, "127.0.0.1 . 7777") {
		t.Errorf("the host's rules have no word of the server's host:\n%s", rules)
	}
	inside := shown(t, "pfard.8", "pid=$(systemctl show -P MainPID pfar-mcp@NAME)") + "; " +
		shown(t, "pfard.8", "nsenter --net --target $pid nft list ruleset")
	inside = strings.ReplaceAll(inside, "NAME", "hello")
	if rules := m.Shell(t, inside); !strings.Contains(rules, "127.0.0.1") || strings.Contains(rules, "bridge-hello") {
		t.Errorf("the rules of the server's network namespace:\n%s", rules)
	}
	m.Run(t, "systemctl", "kill", "-s", "KILL", "pfard")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("systemctl", "is-active", "pfard"); r.Stdout != "active\n" {
			return errors.New(r.Stdout)
		}
		return nil
	})
	check("after a start of pfard")
	m.Run(t, "systemctl", "restart", "pfar-egress@hello")
	check("after a start of the bridge")
	m.Run(t, "systemctl", "restart", "pfar-mcp@hello")
	becomes(t, m, "hello", control.Running)
	check("after a start of the server")
	m.Run(t, "nft", "flush", "ruleset")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("nft", "list", "chain", "inet", "pfar", "bridge-hello"); r.Code != 0 {
			return errors.New(r.String())
		}
		return nil
	})
	check("after a flush of all rules")
	m.Run(t, "rm", "/etc/pfar/mcp.d/hello.hcl")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("nft", "list", "table", "inet", "pfar"); strings.Contains(r.Stdout, "hello") {
			return errors.New(r.Stdout)
		}
		return nil
	})
}
