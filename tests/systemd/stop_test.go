package systemd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// left prints what there is of pfar on a machine: processes, sockets, files in /run, units that are up, and its table.
const left = `find /sys/fs/cgroup/pfar.slice -name cgroup.procs -exec cat {} + 2>/dev/null; pgrep -a '^pfar' | grep -v defunct; grep /run/pfar /proc/net/unix
ls -A /run/pfar 2>/dev/null; systemctl list-units --plain --no-legend --state=active,activating,deactivating,failed 'pfar*' | grep -v '^pfar[a-z-]*\.slice'
systemctl list-jobs --no-legend 'pfar*'; nft list tables | grep pfar`

// TestTheApplianceStops: a stop of pfar.target ends all of pfar for good, and a start has it back as after a boot.
func TestTheApplianceStops(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	far := []string{"--quiet", "--unit=far", "systemd-socket-activate", "-l", "127.0.0.1:7777", "-a", "--inetd", "cat"}
	m.Run(t, "systemd-run", far...)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo("allowed_domains = [\"127.0.0.1:7777\"]\n"), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/off.hcl", echo(""), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/sleeper.hcl", echo("autostart = false"), 0o644)
	becomes(t, m, "off", control.Running)
	m.Run(t, "pfar", "disable", "off")
	runs := func(when string) {
		t.Helper()
		becomes(t, m, "hello", control.Running)
		becomes(t, m, "off", control.Stopped)
		becomes(t, m, "sleeper", control.Sleeping)
		if r := m.Try("bash", "-c", fmt.Sprintf(through, "127.0.0.1:7777")); !strings.Contains(r.Stdout, "200") {
			t.Errorf("%s, the way out: %s", when, r)
		}
		if r := m.Try("pfar", "call", "hello.echo", "--message", "there"); r.Code != 0 || !strings.Contains(r.Stdout, "there") {
			t.Errorf("%s, a call: %s", when, r)
		}
		m.Run(t, "nft", "list", "chain", "inet", "pfar", "bridge-hello")
	}
	settled := func() {
		t.Helper()
		bed.Eventually(t, 2*soon, func() error {
			if jobs := m.Shell(t, "systemctl list-jobs --no-legend 'pfar*'"); jobs != "" {
				return errors.New(jobs)
			}
			return nil
		})
	}
	stops := func(when string) {
		t.Helper()
		m.Run(t, "systemctl", "stop", "pfar.target")
		settled()
		for range 3 { // nobody brings it back
			if found := m.Try("bash", "-c", left).Stdout; found != "" {
				t.Fatalf("%s this is left:\n%s", when, found)
			}
			time.Sleep(time.Second)
		}
	}
	runs("at first")
	m.Run(t, "systemctl", "restart", "pfard") // after which the table and what runs are still there
	runs("after a restart of pfard")
	stops("after a stop")
	m.Run(t, "systemctl", "start", "pfar.target")
	runs("after a start")
	m.Run(t, "systemctl", "restart", "pfar.target")
	settled()
	runs("after a restart")
	stops("after another stop")
	m.Reboot(t)
	m.Run(t, "systemd-run", far...)
	runs("after a boot")
}

// TestAUsersApplianceStops: as the machine's.
func TestAUsersApplianceStops(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.declare(t, "hello.hcl", echo(""))
	becomes(t, o, "hello", control.Running)
	for range 2 {
		o.Run(t, "systemctl", "--user", "stop", "pfar.target")
		bed.Eventually(t, 2*soon, func() error {
			if r := o.Try("systemctl", "--user", "list-jobs", "--no-legend", "pfar*"); r.Stdout != "" || r.Code != 0 {
				return errors.New(r.String())
			}
			return nil
		})
		for range 3 {
			found := o.m.Try("bash", "-c", "pgrep -a '^pfar' | grep -v defunct; grep /run/user/1000/pfar /proc/net/unix; ls -A /run/user/1000/pfar 2>/dev/null").Stdout
			if found != "" {
				t.Fatalf("this is left:\n%s", found)
			}
			time.Sleep(time.Second)
		}
		o.Run(t, "systemctl", "--user", "start", "pfar.target")
		becomes(t, o, "hello", control.Running)
		if r := o.Try("pfar", "call", "hello.echo", "--message", "there"); r.Code != 0 || !strings.Contains(r.Stdout, "there") {
			t.Errorf("a call: %s", r)
		}
	}
}
