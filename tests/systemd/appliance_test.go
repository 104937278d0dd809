package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

const soon = 6 * time.Minute

// appliance is a machine on which pfar has been installed and enabled.
func appliance(t testing.TB) *bed.Machine {
	t.Helper()
	m := machines.Boot(t)
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	return m
}

// echo declares the small server of the tests.
func echo(extra string) string {
	if !strings.Contains(extra, "trust {") {
		extra += trust.Honest
	}
	return fmt.Sprintf("label = \"internal\"\nserver {\n  command = %q\n}\n%s", programs+"/echo", extra)
}

// runner runs programs: as root of a machine, or as somebody else there.
type runner interface {
	Try(name string, args ...string) bed.Result
}

// server is what `pfar status` says of a server.
func server(m runner, name string) (control.Server, error) {
	r := m.Try("pfar", "status", "--json")
	if r.Code != 0 && r.Code != 1 {
		return control.Server{}, fmt.Errorf("pfar status: %s", r)
	}
	var report control.Report
	if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
		return control.Server{}, fmt.Errorf("pfar status: %w: %s", err, r)
	}
	for _, s := range report.Servers {
		if s.Name == name {
			return s, nil
		}
	}
	return control.Server{}, fmt.Errorf("pfar status has no %q: %s", name, r.Stdout)
}

// becomes waits until a server is in a state.
func becomes(t *testing.T, m runner, name string, state control.State) (s control.Server) {
	t.Helper()
	bed.Eventually(t, soon, func() (err error) {
		if s, err = server(m, name); err != nil {
			return err
		}
		if s.State != state {
			return fmt.Errorf("%s is %s (%s), want %s", name, s.State, s.Detail, state)
		}
		return nil
	})
	return s
}

// waitsItself waits until a server waits by the word of its own launcher. Before, pfard says so, and then for a moment
// that the launcher starts.
func waitsItself(t *testing.T, m runner, name string) {
	t.Helper()
	bed.Eventually(t, soon, func() error {
		s, err := server(m, name)
		if err == nil && (s.State != control.Waiting || s.PID == 0) {
			err = fmt.Errorf("%s is %s (%s), process %d", name, s.State, s.Detail, s.PID)
		}
		return err
	})
}

// TestDropAFile is what the product is for.
func TestDropAFile(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	if idle := m.Run(t, "pfar", "status"); strings.Contains(idle, "not running") {
		t.Errorf("with nothing to do: %s", idle)
	}
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	s := becomes(t, m, "hello", control.Running)
	if s.Tools == 0 || s.PID == 0 || s.UID < 60706 {
		t.Errorf("%+v", s)
	}
	status := m.Run(t, "systemctl", "status", "pfar-mcp@hello")
	for _, want := range []string{"active (running)", "running: ", "tools", "label internal"} {
		if !strings.Contains(status, want) {
			t.Errorf("systemctl status has no %q:\n%s", want, status)
		}
	}
	if r := m.Try("pfar", "call", "hello.echo", "--message", "there"); r.Code != 0 || !strings.Contains(r.Stdout, "there") {
		t.Errorf("pfar call: %s", r)
	}
	m.Run(t, "rm", "/etc/pfar/mcp.d/hello.hcl")
	bed.Eventually(t, soon, func() error {
		if _, err := server(m, "hello"); err == nil {
			return errors.New("pfar status still has it")
		}
		if r := m.Try("systemctl", "is-active", "pfar-mcp@hello"); r.Stdout != "inactive\n" {
			return fmt.Errorf("its unit: %s", r)
		}
		return nil
	})
}

// pid is the main process of a server's unit, 0 for none.
func pid(t *testing.T, m *bed.Machine, unit string) string {
	t.Helper()
	return strings.TrimSpace(m.Run(t, "systemctl", "show", "--property=MainPID", "--value", unit))
}

// TestSystemctl: what an administrator does by systemctl counts as much as what the owner does by pfar.
func TestSystemctl(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	const unit = "pfar-mcp@hello"
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	becomes(t, m, "hello", control.Running)

	m.Run(t, "systemctl", "stop", unit)
	becomes(t, m, "hello", control.Stopped)
	m.Run(t, "systemctl", "reload", "pfard")
	m.Run(t, "systemctl", "restart", "pfard")
	time.Sleep(time.Second)
	if s := becomes(t, m, "hello", control.Stopped); s.PID != 0 {
		t.Errorf("stopped, and %+v", s)
	}
	m.Run(t, "pfar", "start", "hello")
	becomes(t, m, "hello", control.Running)

	m.Run(t, "pfar", "stop", "hello")
	if r := m.Try("systemctl", "is-active", unit); r.Stdout != "inactive\n" {
		t.Errorf("after pfar stop: %s", r)
	}
	m.Run(t, "systemctl", "start", unit)
	becomes(t, m, "hello", control.Running)

	m.Put(t, "/etc/systemd/system/pfar-mcp@hello.service.d/limits.conf", "[Service]\nMemoryMax=64M\nCPUWeight=20\nEnvironment=TOKEN=hidden\n", 0o644)
	m.Run(t, "systemctl", "daemon-reload")
	inScope := func(when string) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			r := m.Try("systemctl", "show", "--property=MemoryMax,CPUWeight", "pfar-mcp-hello.scope")
			if s, err := server(m, "hello"); err != nil || !strings.Contains(s.Detail, "Environment= of") || !strings.Contains(s.Limits, "MemoryMax= by") ||
				!strings.Contains(r.Stdout, "MemoryMax=67108864\n") || !strings.Contains(r.Stdout, "CPUWeight=20\n") {
				return fmt.Errorf("%s: %s; %+v, %w", when, r, s, err)
			}
			return nil
		})
	}
	inScope("for what runs")

	before := pid(t, m, unit)
	m.Run(t, "systemctl", "restart", unit)
	becomes(t, m, "hello", control.Running)
	inScope("after a restart")
	if after := pid(t, m, unit); after == before || after == "0" {
		t.Errorf("after systemctl restart the launcher is %s, and was %s", after, before)
	}

	m.Run(t, "journalctl", "--sync")
	if r := m.Try("journalctl", "--unit=pfard", "--grep=do(es)? not reach"); strings.Contains(r.Stdout, "hidden") || strings.Count(r.Stdout, "Environment=") != 1 {
		t.Errorf("the journal of pfard: %s", r)
	}
	m.Run(t, "systemctl", "stop", unit)
	becomes(t, m, "hello", control.Stopped)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo("description = \"changed\""), 0o644)
	becomes(t, m, "hello", control.Running)

	if r := m.Try("systemctl", "start", "pfar-mcp@nobody"); r.Code == 0 {
		t.Errorf("what is not declared was started: %s", r)
	}
	tree := m.Run(t, "systemd-cgls", "--no-pager", "/pfar.slice")
	for _, want := range []string{"pfar-mcp@hello.service", "pfar-mcp-hello.scope", "pfard.service", "pfar-gateway.service", "echo"} {
		if !strings.Contains(tree, want) {
			t.Errorf("systemd-cgls has no %q:\n%s", want, tree)
		}
	}

	m.Run(t, "systemctl", "start", "pfar-egress@hello.service") // and with it what systemd makes for its user
	m.Run(t, "rm", "/etc/pfar/mcp.d/hello.hcl")
	bed.Eventually(t, soon, func() error {
		if left := m.Run(t, "find", "/run", "-name", "*hello*", "-not", "-path", "/run/udev/*"); left != "" {
			return fmt.Errorf("left of what was removed: %s", left)
		}
		return nil
	})
}

// TestKillPfard: what runs does not notice.
func TestKillPfard(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	becomes(t, m, "hello", control.Running)
	before := pid(t, m, "pfar-mcp@hello")
	for range 5 {
		m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
		s := becomes(t, m, "hello", control.Running)
		if s.Tools == 0 || s.Limits == "" || s.Crashes != 0 {
			t.Errorf("pfard does not know it again: %+v", s)
		}
	}
	if after := pid(t, m, "pfar-mcp@hello"); after != before {
		t.Errorf("the launcher is %s, and was %s", after, before)
	}
	m.Run(t, "systemctl", "stop", "pfard")
	m.Run(t, "rm", "/etc/pfar/mcp.d/hello.hcl")
	m.Run(t, "systemctl", "start", "pfard")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("systemctl", "is-active", "pfar-mcp@hello"); r.Stdout != "inactive\n" {
			return fmt.Errorf("what was removed while pfard was away: %s", r)
		}
		return nil
	})
}

// TestCrashes: back-off, then disabled, and said once.
func TestCrashes(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/bad.hcl", fmt.Sprintf("label = \"public\"\nserver {\n  command = %q\n  args = [\"-crash\"]\n}\n", programs+"/echo"), 0o644)
	becomes(t, m, "bad", control.Failed)
	bed.Eventually(t, soon, func() error { // its back-off was over too soon for status to show it for sure
		m.Run(t, "journalctl", "--sync")
		for _, want := range []string{"back-off 1s after crash 1 of 3", "back-off 5s after crash 2 of 3"} {
			if r := m.Try("pfar", "logs", "bad"); !strings.Contains(r.Stdout, want) {
				return fmt.Errorf("pfar logs has no %q: %s", want, r)
			}
		}
		return nil
	})
	bed.Eventually(t, soon, func() error { // systemd learns of it when the launcher has ended, which tells pfard before
		if r := m.Try("systemctl", "is-failed", "pfar-mcp@bad"); r.Stdout != "failed\n" {
			return fmt.Errorf("its unit: %s", r)
		}
		return nil
	})
	m.Run(t, "systemctl", "restart", "pfard") // which does not start it again
	if s := becomes(t, m, "bad", control.Failed); !strings.Contains(s.Detail, "disabled after 3 crashes in a row: exit status 3: echo: crashing as told") {
		t.Errorf("after pfard was restarted: %+v", s)
	}
	m.Put(t, "/etc/pfar/mcp.d/bad.hcl", echo(""), 0o644)
	becomes(t, m, "bad", control.Running)
}

// TestMissingCredential waits, visibly, and never crashes.
func TestMissingCredential(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/keyed.hcl", echo("auth = { TOKEN = \"vault:some_token\" }"), 0o644)
	s := becomes(t, m, "keyed", control.Waiting)
	if !strings.Contains(s.Detail, "pfar vault set some_token") {
		t.Errorf("%q names no remedy", s.Detail)
	}
	bed.Eventually(t, soon, func() error {
		status := m.Try("systemctl", "status", "pfar-mcp@keyed").Stdout
		if !strings.Contains(status, "waiting: for credentials: TOKEN: pfar vault set some_token") || !strings.Contains(status, "active (running)") {
			return errors.New(status)
		}
		return nil
	})
	m.Shell(t, "echo -n hunter2-secret | pfar vault set some_token")
	becomes(t, m, "keyed", control.Running)
	wantToken(t, m, "keyed", "hunter2-secret")
	shown := m.Shell(t, "systemctl show pfar-mcp@keyed; systemctl cat pfar-mcp@keyed; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; cat /run/pfar/plan/*")
	if strings.Contains(shown, "hunter2-secret") {
		t.Error("the secret is shown where it must not be")
	}
}

// TestMetricsSocket is for whoever enables it, also while the gateway runs and has servers.
func TestMetricsSocket(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	becomes(t, m, "hello", control.Running)
	const scrape = `import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:9464/metrics").read().decode())`
	if r := m.Try("python3", "-c", scrape); r.Code == 0 {
		t.Errorf("before anybody has asked for it: %s", r)
	}
	m.Shell(t, "systemctl enable --quiet pfar-gateway-metrics.socket; systemctl restart pfar-gateway.socket")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("python3", "-c", scrape); !strings.Contains(r.Stdout, `server="hello"`) {
			return errors.New(r.String())
		}
		return nil
	})
	becomes(t, m, "hello", control.Running)
}
