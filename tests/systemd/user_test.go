package systemd

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/tests/systemd/bed"
)

// owner is an ordinary user of a machine, who has a systemd of their own as long as the machine runs.
type owner struct {
	m   *bed.Machine
	env []string
}

// Try runs a program as the user.
func (o owner) Try(name string, args ...string) bed.Result {
	return o.m.Try("runuser", append(append([]string{"-u", "user", "--", "env", "-C", "/home/user"}, o.env...), append([]string{name}, args...)...)...)
}

// Run runs a program as the user, which has to succeed, and returns its stdout.
func (o owner) Run(t *testing.T, name string, args ...string) string {
	t.Helper()
	r := o.Try(name, args...)
	if r.Code != 0 {
		t.Fatalf("as the user, %s %q: %s", name, args, r)
	}
	return r.Stdout
}

// declare drops a file into the user's folder, as the user does.
func (o owner) declare(t *testing.T, name, text string) {
	t.Helper()
	o.m.Put(t, "/tmp/"+name, text, 0o644)
	o.Run(t, "sh", "-euc", `mkdir -p ~/.config/pfar/mcp.d; cp "$1" ~/.config/pfar/mcp.d/`, "sh", "/tmp/"+name)
}

// ownAppliance is a machine on whose user's systemd pfar is enabled, and nowhere else.
func ownAppliance(t *testing.T) owner {
	t.Helper()
	m := machines.Boot(t)
	m.Shell(t, "install -d -o user -g user /home/user; loginctl enable-linger user")
	o := owner{m, []string{"HOME=/home/user", "USER=user", "LOGNAME=user", "XDG_RUNTIME_DIR=/run/user/1000"}}
	bed.Eventually(t, soon, func() error {
		if r := o.Try("systemctl", "--user", "is-system-running"); r.Stdout != "running\n" {
			return errorOf(r)
		}
		return nil
	})
	o.Run(t, "systemctl", "--user", "enable", "--now", "--quiet", "pfar.target")
	return o
}

func TestExplore(t *testing.T) {
	o := ownAppliance(t)
	o.declare(t, "hello.hcl", echo(""))
	defer func() {
		t.Log(o.m.Try("journalctl", "--no-pager", "-b", "-n", "100").Stdout)
		t.Log(o.Try("systemctl", "--user", "--no-pager", "status"))
		t.Log(o.Try("pfar", "status"))
	}()
	if p := os.Getenv("EXPLORE"); p != "" {
		os.WriteFile(p, []byte(fmt.Sprint(o.m.Leader())), 0o644)
		for {
			if _, err := os.Stat(p); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}
}

func errorOf(r bed.Result) error { return fmt.Errorf("%s", r) }

var _ = control.Running
