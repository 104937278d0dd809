package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/tests/systemd/bed"
)

const soon = 10 * time.Second

// appliance is a machine on which pfar has been installed and enabled.
func appliance(t *testing.T) *bed.Machine {
	t.Helper()
	m := machines.Boot(t)
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	return m
}

// echo declares the small server of the tests.
func echo(extra string) string {
	return fmt.Sprintf("label = \"internal\"\nserver {\n  command = %q\n}\n%s", programs+"/echo", extra)
}

// server is what `pfar status` says of a server.
func server(m *bed.Machine, name string) (control.Server, error) {
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
func becomes(t *testing.T, m *bed.Machine, name string, state control.State) (s control.Server) {
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

// TestDropAFile is what the product is for.
func TestDropAFile(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	s := becomes(t, m, "hello", control.Running)
	if s.Tools == 0 || s.PID == 0 || s.UID < 61184 {
		t.Errorf("%+v", s)
	}
	status := m.Run(t, "systemctl", "status", "pfar-mcp@hello")
	for _, want := range []string{"active (running)", "running: ", "tools", "label internal"} {
		if !strings.Contains(status, want) {
			t.Errorf("systemctl status has no %q:\n%s", want, status)
		}
	}
	if r := m.Try("pfar", "call", "hello.echo", "--text", "there"); r.Code != 0 || !strings.Contains(r.Stdout, "there") {
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
