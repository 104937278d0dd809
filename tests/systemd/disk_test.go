package systemd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// serves wants a server to answer, and its launcher to be the one of before.
func serves(t *testing.T, m *bed.Machine, name, launcher, when string) {
	t.Helper()
	if r := m.Try("pfar", "call", name+".echo", "--json", `{"message":"there"}`); r.Code != 0 || !strings.Contains(r.Stdout, "there") {
		t.Errorf("%s, %s does not answer: %s", when, name, r)
	}
	if now := pid(t, m, "pfar-mcp@"+name); now != launcher {
		t.Errorf("%s, the launcher of %s is %s, and was %s", when, name, now, launcher)
	}
}

// says waits until pfar status has words of a server.
func says(t *testing.T, m *bed.Machine, name string, words ...string) {
	t.Helper()
	bed.Eventually(t, soon, func() error {
		s, err := server(m, name)
		for _, w := range words {
			if err == nil && !strings.Contains(s.Detail, w) {
				err = fmt.Errorf("%s is %s: %q does not say %q", name, s.State, s.Detail, w)
			}
		}
		return err
	})
}

const noSpace = "no space left on device"

// TestFullDeclarations: what a full disk has made of a file changes nothing that runs.
func TestFullDeclarations(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.SmallDisk(t, "/etc/pfar/mcp.d", 128)
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo("# "+strings.Repeat("x", 20<<10)+"\n"), 0o644)
	becomes(t, m, "hello", control.Running)
	before := pid(t, m, "pfar-mcp@hello")
	m.Put(t, "/root/new.hcl", "# "+strings.Repeat("x", 60<<10)+"\n"+echo("env = { VARIANT = \"new\" }\n"), 0o644)
	m.FillDisk(t, "/etc/pfar/mcp.d")
	for _, file := range []string{"hello", "other"} {
		if r := m.Try("cp", "/root/new.hcl", "/etc/pfar/mcp.d/"+file+".hcl"); !strings.Contains(r.Stderr, "No space") {
			t.Fatalf("the disk is not full: %s", r)
		}
	}
	bed.Eventually(t, soon, func() error {
		if s, err := server(m, "hello"); err != nil || !s.Stale || s.State != control.Running {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	})
	m.Run(t, "systemctl", "restart", "pfard")
	becomes(t, m, "hello", control.Running)
	serves(t, m, "hello", before, "with half a file")
	m.EmptyDisk(t, "/etc/pfar/mcp.d")
	m.Run(t, "cp", "/root/new.hcl", "/etc/pfar/mcp.d/hello.hcl")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("pfar", "call", "hello.environment"); !strings.Contains(r.Stdout, "VARIANT=new") {
			return errors.New(r.String())
		}
		return nil
	})
}

// TestFullRun: pfard's own notes do not fit any more.
func TestFullRun(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.SmallDisk(t, "/run/pfar", 256)
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	for _, name := range []string{"hello", "other", "third"} {
		m.Put(t, "/etc/pfar/mcp.d/"+name+".hcl", echo(""), 0o644)
	}
	for _, name := range []string{"hello", "other", "third"} {
		becomes(t, m, name, control.Running)
	}
	hello, other := pid(t, m, "pfar-mcp@hello"), pid(t, m, "pfar-mcp@other")
	m.FillDisk(t, "/run/pfar")
	m.Put(t, "/etc/pfar/mcp.d/late.hcl", echo(""), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo("env = { VARIANT = \"new\" }\n"), 0o644)
	becomes(t, m, "late", control.Failed)
	says(t, m, "late", noSpace)
	says(t, m, "hello", "not yet as its file says", noSpace)
	serves(t, m, "hello", hello, "with no space for its next plan")
	serves(t, m, "other", other, "with no space in /run")
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfar-mcp@other")
	becomes(t, m, "hello", control.Running)
	serves(t, m, "hello", hello, "after pfard was killed with no space")
	becomes(t, m, "other", control.Running) // systemd has started it again
	m.Run(t, "pfar", "stop", "third")
	becomes(t, m, "third", control.Stopped)
	m.EmptyDisk(t, "/run/pfar")
	becomes(t, m, "late", control.Running)
	bed.Eventually(t, soon, func() error {
		if r := m.Try("pfar", "call", "hello.environment"); !strings.Contains(r.Stdout, "VARIANT=new") {
			return errors.New(r.String())
		}
		return nil
	})
	if s, err := server(m, "hello"); err != nil || strings.Contains(s.Detail, noSpace) {
		t.Errorf("with space again: %+v, %v", s, err)
	}
	becomes(t, m, "third", control.Stopped)
}

// TestFullState: secrets, pins and records do not fit any more. What runs goes on; what needs a record waits until
// there is room.
func TestFullState(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.SmallDisk(t, "/var/lib/pfar", 512<<10) // there are servers from npm
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	m.Shell(t, "echo -n the-old-one | pfar vault set some_token")
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo("auth = { TOKEN = \"vault:some_token\" }"), 0o644)
	becomes(t, m, "hello", control.Running)
	before := pid(t, m, "pfar-mcp@hello")
	m.FillDisk(t, "/var/lib/pfar")
	if r := m.Try("sh", "-c", "head -c 60000 /dev/zero | tr '\\0' x | pfar vault set some_token"); r.Code == 0 || !strings.Contains(r.Stderr, noSpace) {
		t.Errorf("pfar vault set: %s", r)
	}
	if r := m.Try("pfar", "call", "hello.echo", "--message", "there"); r.Code == 0 || !strings.Contains(r.Stderr, "disk is full") && !strings.Contains(r.Stderr, noSpace) {
		t.Errorf("with no space for its record, a call is made: %s", r)
	}
	if now := pid(t, m, "pfar-mcp@hello"); now != before {
		t.Errorf("with no space for secrets, the launcher of hello is %s, and was %s", now, before)
	}
	m.Put(t, "/etc/pfar/mcp.d/late.hcl", echo(""), 0o644)
	becomes(t, m, "late", control.Running)
	m.Run(t, "systemctl", "restart", "pfard", "pfar-gateway")
	becomes(t, m, "hello", control.Running)
	becomes(t, m, "late", control.Running)
	// The audit has room of its own, which thousands of records would take. A file that is cut to its size has none but
	// the rest of its last page.
	m.Shell(t, `cd /var/lib/pfar/audit; for f in *; do chattr -a "$f" 2>/dev/null || :; truncate -s +0 "$f"; done`)
	m.FillDisk(t, "/var/lib/pfar")
	const unrecorded = "no secret is stored, exported or handed to a process"
	bed.Eventually(t, soon, func() error {
		if r := m.Try("pfar", "status"); !strings.Contains(r.Stdout+r.Stderr, unrecorded) {
			m.Run(t, "systemctl", "restart", "pfar-mcp@late") // which is recorded
			return errors.New("pfard still writes records")
		}
		return nil
	})
	m.Run(t, "systemctl", "restart", "pfar-mcp@hello") // nobody could say later that it was given its secret
	becomes(t, m, "hello", control.Waiting)
	says(t, m, "hello", "writing the audit", noSpace)
	if r := m.Try("pfar", "status"); !strings.Contains(r.Stdout+r.Stderr, unrecorded) {
		t.Errorf("pfar status: %s", r)
	}
	becomes(t, m, "late", control.Running)
	m.EmptyDisk(t, "/var/lib/pfar")
	becomes(t, m, "hello", control.Running)
	wantToken(t, m, "hello", "the-old-one")
	m.Shell(t, "echo -n the-new-one | pfar vault set some_token")
	wantToken(t, m, "hello", "the-new-one")
}
