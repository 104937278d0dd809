package systemd

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// owner is an ordinary user of a machine, who has a systemd of their own as long as the machine runs.
type owner struct {
	m    *bed.Machine
	name string
	uid  int
}

// Try runs a program as the user.
func (o owner) Try(name string, args ...string) bed.Result {
	return o.m.Try("setpriv", o.as(name, args)...)
}

// as are the arguments of setpriv for a program that runs as the user.
func (o owner) as(name string, args []string) []string {
	as := []string{"--reuid", o.name, "--regid", o.name, "--init-groups", "env", "-C", o.home(), "HOME=" + o.home(), "USER=" + o.name, "LOGNAME=" + o.name,
		fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", o.uid), name}
	return append(as, args...)
}

// Command prepares a program that runs as the user.
func (o owner) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return o.m.Command(ctx, "setpriv", o.as(name, args)...)
}

// Go starts a command of Command.
func (o owner) Go(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	o.m.Go(t, cmd)
}

// Run runs a program as the user, which has to succeed, and returns its stdout.
func (o owner) Run(t *testing.T, name string, args ...string) string {
	t.Helper()
	r := o.Try(name, args...)
	if r.Code != 0 {
		t.Fatalf("as %s, %s %q: %s", o.name, name, args, r)
	}
	return r.Stdout
}

func (o owner) home() string { return "/home/" + o.name }

// cgroup is where the user's systemd has what pfar runs.
func (o owner) cgroup() string {
	return fmt.Sprintf("/sys/fs/cgroup/user.slice/user-%[1]d.slice/user@%[1]d.service/pfar.slice", o.uid)
}

// declare drops a file into the user's folder, as the user does.
func (o owner) declare(t *testing.T, name, text string) {
	t.Helper()
	o.Run(t, "sh", "-euc", `mkdir -p ~/.config/pfar/mcp.d; printf %s "$2" >~/.config/pfar/mcp.d/"$1"`, "sh", name, text)
}

// isActive wants a unit to become what systemctl is-active says of it.
func (o owner) isActive(t *testing.T, unit, want string) {
	t.Helper()
	bed.Eventually(t, soon, func() error {
		if r := o.Try("systemctl", "--user", "is-active", unit); strings.TrimSpace(r.Stdout) != want {
			return fmt.Errorf("%s is to be %s: %s", unit, want, r)
		}
		return nil
	})
}

// pid is the main process of a unit, "0" for none.
func (o owner) pid(t *testing.T, unit string) string {
	t.Helper()
	return strings.TrimSpace(o.Run(t, "systemctl", "--user", "show", "--property=MainPID", "--value", unit))
}

// owned is a machine on which pfar runs for an ordinary user, and not for the machine.
func owned(t *testing.T) owner {
	t.Helper()
	m := machines.Boot(t)
	o := settle(t, m, "user", 1000)
	o.Run(t, "systemctl", "--user", "enable", "--now", "--quiet", "pfar.target")
	return o
}

// settle gives a user of a machine a home and a systemd of their own.
func settle(t *testing.T, m *bed.Machine, name string, uid int) owner {
	t.Helper()
	o := owner{m, name, uid}
	unlock(t, m)
	m.Run(t, "install", "-d", "-o", name, "-g", name, o.home())
	m.Run(t, "loginctl", "enable-linger", name)
	bed.Eventually(t, soon, func() error {
		if r := o.Try("systemctl", "--user", "is-system-running"); r.Stdout != "running\n" {
			return fmt.Errorf("%s's systemd: %s", name, r)
		}
		return nil
	})
	return o
}

// unlock lets user namespaces in the machine limit their own, as everywhere else: systemd-nspawn has /proc/sys
// read-only, for units of the machine something of theirs mounts another one.
func unlock(t *testing.T, m *bed.Machine) {
	t.Helper()
	m.Shell(t, `test -w /proc/sys/user && exit
mkdir /run/fresh-proc; mount -t proc proc /run/fresh-proc; mount --bind /run/fresh-proc/sys/user /proc/sys/user
umount /run/fresh-proc; rmdir /run/fresh-proc`)
}

// TestUserDropsAFile: the same as for the machine, and nothing of it is the machine's.
func TestUserDropsAFile(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.declare(t, "hello.hcl", echo(""))
	s := becomes(t, o, "hello", control.Running)
	if s.Tools == 0 || s.PID == 0 || s.UID != o.uid || s.Limits == "" {
		t.Errorf("%+v", s)
	}
	status := o.Run(t, "systemctl", "--user", "status", "pfar-mcp@hello")
	for _, want := range []string{"active (running)", "running: ", "tools", "label internal"} {
		if !strings.Contains(status, want) {
			t.Errorf("systemctl status has no %q:\n%s", want, status)
		}
	}
	if r := o.Try("pfar", "call", "hello.echo", "--message", "there"); r.Code != 0 || !strings.Contains(r.Stdout, "there") {
		t.Errorf("pfar call: %s", r)
	}
	if status := o.Run(t, "pfar", "status"); !strings.Contains(status, "the machine's firewall does not hold") {
		t.Errorf("pfar status does not say what holds no bridge:\n%s", status)
	}
	if list := o.m.Run(t, "systemctl", "list-units", "--state=active,activating,failed", "--plain", "--no-legend", "pfar*", "-t", "service"); list != "" {
		t.Errorf("the machine's systemd has %s", list)
	}
	if open := o.m.Run(t, "ss", "--no-header", "-tuln"); open != "" {
		t.Errorf("in the machine's namespace listen %s", open)
	}
	if list := o.Run(t, "systemctl", "--user", "list-dependencies", "--plain", "pfar.target"); !strings.Contains(list, "pfard.service") {
		t.Errorf("pfar.target wants %s", list)
	}
	o.Run(t, "sh", "-c", "rm ~/.config/pfar/mcp.d/hello.hcl")
	o.isActive(t, "pfar-mcp@hello", "inactive")
	bed.Eventually(t, soon, func() error {
		if _, err := server(o, "hello"); err == nil {
			return errors.New("pfar status still has it")
		}
		return nil
	})
}

// TestUserFiles: a server has what is declared of the user's files, in directories that are the user's alone.
func TestUserFiles(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.Run(t, "sh", "-euc", "chmod 700 ~; mkdir ~/notes ~/out; echo noted >~/notes/file; echo secret >~/other")
	const script = "cat ~user/notes/file >~user/out/file; echo kept >>/home/mcp/file; ! cat ~user/other; ! touch ~user/notes/new; exec " + programs + "/echo"
	o.declare(t, "files.hcl", "server {\n  command = \"bash\"\n  args = [\"-ec\", \""+strings.ReplaceAll(script, "~user", "/home/user")+"\"]\n}\n"+
		"sandbox {\n  read_only = [\"/home/user/notes\"]\n  writable = [\"/home/user/out\"]\n  state = true\n}\n")
	becomes(t, o, "files", control.Running)
	if r := o.Try("cat", "out/file", ".local/state/pfar/home/files/file"); r.Stdout != "noted\nkept\n" {
		t.Errorf("the server wrote %s", r)
	}
	if r := o.Try("test", "-e", "notes/new"); r.Code == 0 {
		t.Error("the server writes what it may read")
	}
}

// TestUserSystemctl: what the user does by systemctl counts as much as what they do by pfar.
func TestUserSystemctl(t *testing.T) {
	t.Parallel()
	o := owned(t)
	const unit = "pfar-mcp@hello"
	o.declare(t, "hello.hcl", echo(""))
	becomes(t, o, "hello", control.Running)
	o.Run(t, "systemctl", "--user", "stop", unit)
	becomes(t, o, "hello", control.Stopped)
	o.Run(t, "systemctl", "--user", "restart", "pfard")
	time.Sleep(time.Second)
	if s := becomes(t, o, "hello", control.Stopped); s.PID != 0 {
		t.Errorf("stopped, and %+v", s)
	}
	o.Run(t, "pfar", "start", "hello")
	becomes(t, o, "hello", control.Running)
	o.Run(t, "pfar", "stop", "hello")
	o.isActive(t, unit, "inactive")
	o.Run(t, "systemctl", "--user", "start", unit)
	becomes(t, o, "hello", control.Running)
	before := o.pid(t, unit)
	o.Run(t, "systemctl", "--user", "restart", unit)
	becomes(t, o, "hello", control.Running)
	if after := o.pid(t, unit); after == before || after == "0" {
		t.Errorf("after systemctl restart the launcher is %s, and was %s", after, before)
	}
	if r := o.Try("systemctl", "--user", "start", "pfar-mcp@nobody"); r.Code == 0 {
		t.Errorf("what is not declared was started: %s", r)
	}
	o.m.Run(t, "test", "-e", o.cgroup()+"/pfar-mcp-hello.scope/cgroup.procs")
}

// TestUserCrashes: back-off, then disabled, and the owner is told.
func TestUserCrashes(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.Run(t, "sh", "-euc", `mkdir -p ~/.config/pfar; printf '#!/bin/sh\necho "$PFAR_SERVER: $PFAR_REASON" >>~/told\n' >~/.config/pfar/on-failure; chmod 700 ~/.config/pfar/on-failure`)
	o.declare(t, "bad.hcl", declared("", "-crash"))
	becomes(t, o, "bad", control.Failed)
	o.isActive(t, "pfar-mcp@bad", "failed")
	bed.Eventually(t, soon, func() error {
		if r := o.Try("cat", "told"); r.Stdout != "bad: disabled after 3 crashes in a row: exit status 3: echo: crashing as told; pfar starts it again 10 min after that\n" {
			return fmt.Errorf("the owner's program is told %s", r)
		}
		o.m.Run(t, "journalctl", "--sync")
		// The back-off itself is over too soon for status to show it for sure.
		for _, want := range []string{"back-off 1s after crash 1 of 3", "back-off 5s after crash 2 of 3", "an MCP server is disabled",
			"disabled after 3 crashes in a row", "echo: crashing as told", "Failed with result"} {
			if r := o.Try("pfar", "logs", "bad"); !strings.Contains(r.Stdout, want) {
				return fmt.Errorf("pfar logs has no %q: %s", want, r)
			}
		}
		return nil
	})
	o.Run(t, "systemctl", "--user", "restart", "pfard") // which does not start it again
	if s := becomes(t, o, "bad", control.Failed); !strings.Contains(s.Detail, "disabled after 3 crashes in a row: exit status 3") {
		t.Errorf("after pfard was restarted: %+v", s)
	}
	o.declare(t, "bad.hcl", echo(""))
	becomes(t, o, "bad", control.Running)
}

// TestUserCredential is waited for, visibly, and then delivered to the server alone.
func TestUserCredential(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.declare(t, "keyed.hcl", echo("auth = { TOKEN = \"vault:some_token\" }"))
	if s := becomes(t, o, "keyed", control.Waiting); !strings.Contains(s.Detail, "pfar vault set some_token") {
		t.Errorf("%q names no remedy", s.Detail)
	}
	o.isActive(t, "pfar-mcp@keyed", "active")
	o.Run(t, "sh", "-euc", "echo -n hunter2-secret | pfar vault set some_token")
	becomes(t, o, "keyed", control.Running)
	wantToken(t, o.m, "keyed", "hunter2-secret")
	shown := o.Run(t, "sh", "-c", "systemctl --user show pfar-mcp@keyed; systemctl --user cat pfar-mcp@keyed; cat $XDG_RUNTIME_DIR/pfar/plan/*") +
		o.m.Shell(t, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
	if strings.Contains(shown, "hunter2-secret") {
		t.Error("the secret is shown where it must not be")
	}
	const ask = `import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind("\0%s/unit/pfar-mcp@keyed.service/secrets" % sys.argv[1])
s.connect("/run/user/1000/pfar/credentials.sock")
print(s.recv(1000))`
	secret := base64.StdEncoding.EncodeToString([]byte("hunter2-secret"))
	const within = `echo $$ >/sys/fs/cgroup"$1"/cgroup.procs; exec setpriv --reuid 1000 --regid 1000 --clear-groups python3 -c "$2" 1`
	unit := strings.TrimSpace(o.Run(t, "systemctl", "--user", "show", "--property=ControlGroup", "--value", "pfar-mcp@keyed"))
	if r := o.m.Try("sh", "-euc", within, "sh", unit, ask); !strings.Contains(r.Stdout, secret) {
		t.Errorf("the user's process in the unit does not get to the credentials, so that nobody is kept off: %s", r)
	}
	if r := o.Try("python3", "-c", ask, "3"); r.Code != 0 || strings.Contains(r.Stdout, secret) {
		t.Errorf("the user's process that is not in the unit: %s", r)
	}
	o.m.Run(t, "useradd", "--create-home", "--uid", "1001", "other")
	other := owner{o.m, "other", 1001}
	if r := other.Try("python3", "-c", ask, "2"); r.Code == 0 || !strings.Contains(r.Stderr, "PermissionError") {
		t.Errorf("another user gets to the credentials: %s", r)
	}
}

// TestUserKillsPfard: what runs does not notice.
func TestUserKillsPfard(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.declare(t, "hello.hcl", echo(""))
	becomes(t, o, "hello", control.Running)
	before := o.pid(t, "pfar-mcp@hello")
	for range 3 {
		o.Run(t, "systemctl", "--user", "kill", "--signal=KILL", "pfard")
		if s := becomes(t, o, "hello", control.Running); s.Tools == 0 || s.Limits == "" || s.Crashes != 0 {
			t.Errorf("pfard does not know it again: %+v", s)
		}
	}
	if after := o.pid(t, "pfar-mcp@hello"); after != before {
		t.Errorf("the launcher is %s, and was %s", after, before)
	}
	o.Run(t, "systemctl", "--user", "stop", "pfard")
	o.Run(t, "sh", "-c", "rm ~/.config/pfar/mcp.d/hello.hcl")
	o.Run(t, "systemctl", "--user", "start", "pfard")
	o.isActive(t, "pfar-mcp@hello", "inactive")
}

// TestUserEgress: the server gets out through its bridge and nowhere else, over ends and starts of all who have a part
// in it.
func TestUserEgress(t *testing.T) {
	t.Parallel()
	o := owned(t)
	for _, port := range []string{"7777", "7778", "7779"} {
		o.m.Run(t, "systemd-run", "--quiet", "--unit=far-"+port, "systemd-socket-activate", "-l", "127.0.0.1:"+port, "-a", "--inetd", "cat")
	}
	o.declare(t, "hello.hcl", echo("allowed_domains = [\"127.0.0.1:7777\", \"127.0.0.1:7779\"]\n"))
	becomes(t, o, "hello", control.Running)
	inside := func(script string) bed.Result {
		return o.m.Try("bash", "-c", `pid=$(head -1 "$0"/pfar-mcp-hello.scope/cgroup.procs); nsenter -t $pid -n bash -c "$1"`, o.cgroup(), script)
	}
	check := func(when string, more ...string) {
		t.Helper()
		expected := map[string]string{"127.0.0.1:7777": "200", "127.0.0.1:7418": "403"}
		for _, target := range more {
			expected[target] = "200"
		}
		for target, status := range expected {
			r := inside(`exec 3<>/dev/tcp/127.0.0.1/9876; printf "CONNECT ` + target + ` HTTP/1.1\r\nHost: ` + target + `\r\n\r\n" >&3; head -1 <&3`)
			if !strings.Contains(r.Stdout, status) {
				t.Errorf("%s, %s: want %s: %s\n%s", when, target, status, r, o.m.Run(t, "journalctl", "--no-pager", "--user-unit=pfar-egress@hello", "--user-unit=pfard"))
			}
		}
	}
	check("at first")
	for _, where := range []string{"127.0.0.1/7778", "192.0.2.1/443"} { // what is declared leads to the bridge
		if r := inside("exec 3<>/dev/tcp/" + where); r.Code == 0 {
			t.Errorf("the server gets to %s", where)
		}
	}
	if r := o.m.Try("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/7778"); r.Code != 0 {
		t.Errorf("everybody else: %s", r)
	}
	if out := o.Run(t, "pfar", "egress", "hello"); !strings.Contains(out, "127.0.0.1:7777") || !strings.Contains(out, "port-not-declared") {
		t.Errorf("pfar egress: %s", out)
	}
	bed.Eventually(t, soon, func() error {
		if status := o.Run(t, "systemctl", "--user", "status", "pfar-mcp@hello"); !strings.Contains(status, "refused 192.0.2.1:443") {
			return errors.New(status)
		}
		return nil
	})
	bridge := o.pid(t, "pfar-egress@hello")
	o.Run(t, "systemctl", "--user", "kill", "--signal=KILL", "pfard")
	check("after the end of pfard")
	o.Run(t, "systemctl", "--user", "restart", "pfard-attach.socket")
	check("after pfard's socket was made anew", "127.0.0.1:7779") // which pfard has not allowed yet
	if now := o.pid(t, "pfar-egress@hello"); now != bridge {
		t.Errorf("the bridge is %s, and was %s", now, bridge)
	}
	o.Run(t, "systemctl", "--user", "stop", "pfar-egress@hello")
	check("after an end of the bridge")
	o.Run(t, "systemctl", "--user", "stop", "pfard", "pfar-egress@hello")
	o.Run(t, "systemctl", "--user", "start", "pfard")
	check("after the end of both")
	o.Run(t, "systemctl", "--user", "kill", "--signal=KILL", "pfar-egress@hello")
	check("after the bridge was killed")
	o.Run(t, "systemctl", "--user", "restart", "pfar-mcp@hello")
	becomes(t, o, "hello", control.Running)
	check("after a start of the server")
	o.Try("pfar", "call", "hello.crash")
	bed.Eventually(t, soon, func() error {
		if s, err := server(o, "hello"); err != nil || s.State != control.Running || s.Crashes != 1 {
			return fmt.Errorf("after a crash: %+v, %w", s, err)
		}
		return nil
	})
	check("after a crash of the server")
	o.Run(t, "pfar", "stop", "hello")
	o.isActive(t, "pfar-egress@hello", "inactive")
	o.isActive(t, "pfar-egress-monitor@hello.socket", "inactive")
}

// TestUserSession has a process of its own, with a way out of its own, which ends with the session.
func TestUserSession(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.declare(t, "own.hcl", echo("sessions = \"own\"\nallowed_domains = [\"127.0.0.1:7777\"]\n"))
	becomes(t, o, "own", control.Running)
	c := connectTo(t, o, "own")
	if said := c.request("tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"message": "mine"}}); !strings.Contains(said, "mine") {
		t.Errorf("the session's server says %s", said)
	}
	s, err := server(o, "own")
	if err != nil || len(s.Sessions) != 1 {
		t.Fatalf("%+v, %v, want one session", s, err)
	}
	instance := "own_" + s.Sessions[0].Handle
	o.isActive(t, "pfar-mcp@"+instance, "active")
	r := o.m.Try("bash", "-c", `nsenter -t $(head -1 "$0"/pfar-mcp-`+instance+`.scope/cgroup.procs) -n bash -c 'exec 3<>/dev/tcp/127.0.0.1/9876; printf "CONNECT x.test:443 HTTP/1.1\r\nHost: x.test:443\r\n\r\n" >&3; head -1 <&3'`, o.cgroup())
	if !strings.Contains(r.Stdout, "403") {
		t.Errorf("its bridge says %s", r)
	}
	o.isActive(t, "pfar-egress@"+instance, "active")
	o.isActive(t, "pfar-egress@own", "inactive")
	c.in.Close()
	if err := c.end(); err != nil {
		t.Errorf("pfar connect: %v", err)
	}
	o.isActive(t, "pfar-mcp@"+instance, "inactive")
	o.isActive(t, "pfar-egress@"+instance, "inactive")
}

// TestUserGatewayRestarts, and the servers stay.
func TestUserGatewayRestarts(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.declare(t, "hello.hcl", echo(""))
	o.declare(t, "later.hcl", echo("autostart = false"))
	becomes(t, o, "hello", control.Running)
	becomes(t, o, "later", control.Sleeping) // it was started once, to learn what it offers
	before := o.pid(t, "pfar-mcp@hello")
	for _, how := range [][]string{{"restart"}, {"kill", "--signal=KILL"}} {
		o.Run(t, "systemctl", append(append([]string{"--user"}, how...), "pfar-gateway")...)
		bed.Eventually(t, soon, func() error {
			if r := o.Try("pfar", "call", "hello.echo", "--message", "there"); !strings.Contains(r.Stdout, "there") {
				return errors.New(r.String())
			}
			return nil
		})
	}
	if after := o.pid(t, "pfar-mcp@hello"); after != before {
		t.Errorf("the launcher is %s, and was %s", after, before)
	}
	if r := o.Try("pfar", "call", "later.echo", "--message", "awake"); !strings.Contains(r.Stdout, "awake") {
		t.Errorf("the first call of a server on demand: %s", r)
	}
}

// TestUserSystemdRestarts: with the user's systemd, and with the machine, what is declared starts.
func TestUserSystemdRestarts(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.declare(t, "hello.hcl", echo(""))
	o.declare(t, "later.hcl", echo("autostart = false"))
	becomes(t, o, "hello", control.Running)
	before := o.pid(t, "pfar-mcp@hello")
	o.m.Run(t, "systemctl", "restart", fmt.Sprintf("user@%d.service", o.uid))
	becomes(t, o, "hello", control.Running)
	if after := o.pid(t, "pfar-mcp@hello"); after == before {
		t.Errorf("the launcher is %s still", after)
	}
	bed.Eventually(t, soon, func() error {
		if list := o.Run(t, "systemctl", "--user", "list-dependencies", "--plain", "pfar.target"); !strings.Contains(list, "pfar-mcp@hello.service") || strings.Contains(list, "pfar-mcp@later.service") {
			return fmt.Errorf("pfar.target wants %s", list)
		}
		return nil
	})
	o.m.Reboot(t)
	unlock(t, o.m)
	o.Run(t, "sh", "-c", "pfar start hello || true") // it may have been started before unlock
	becomes(t, o, "hello", control.Running)
	if s := becomes(t, o, "later", control.Sleeping); s.PID != 0 {
		t.Errorf("%+v", s)
	}
}

// TestUsersOfOneMachine are not in each other's way, nor in the machine's.
func TestUsersOfOneMachine(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", declared("", "-label", "the machine's"), 0o644)
	m.Run(t, "useradd", "--create-home", "--uid", "1001", "other")
	owners := []owner{settle(t, m, "user", 1000), settle(t, m, "other", 1001)}
	for _, o := range owners {
		o.Run(t, "systemctl", "--user", "enable", "--now", "--quiet", "pfar.target")
		o.declare(t, "hello.hcl", declared("", "-label", o.name+"'s"))
	}
	says := func(o runner, want string) {
		t.Helper()
		becomes(t, o, "hello", control.Running)
		if r := o.Try("pfar", "call", "hello.label"); !strings.Contains(r.Stdout, want) {
			t.Errorf("want %q: %s", want, r)
		}
	}
	says(m, "the machine's")
	says(owners[0], "user's")
	says(owners[1], "other's")
	for _, path := range []string{"/run/user/1000/pfar", "/home/user/.local/state/pfar/vault", "/home/user/.local/state/pfar/token"} {
		if r := owners[1].Try("ls", path); r.Code == 0 {
			t.Errorf("another user sees %s: %s", path, r)
		}
	}

	// A port is the user's wish, and the first one's.
	const restart = "systemctl --user enable --quiet pfar-gateway-http.socket; systemctl --user restart pfar-gateway.socket"
	owners[0].Run(t, "sh", "-euc", restart)
	bed.Eventually(t, soon, func() error {
		const with = `import json, os, sys, urllib.request
r = urllib.request.Request("http://127.0.0.1:7418/mcp", headers={"Authorization": "Bearer " + open(os.environ["HOME"] + "/.local/state/pfar/token").read(),
  "Content-Type": "application/json", "Accept": "application/json, text/event-stream"},
  data=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}).encode())
print(urllib.request.urlopen(r).read())`
		if r := owners[0].Try("python3", "-c", with); r.Code != 0 || !strings.Contains(r.Stdout, "protocolVersion") {
			return errors.New(r.String())
		}
		if r := owners[1].Try("python3", "-c", with); r.Code == 0 || !strings.Contains(r.Stderr, "401") {
			return fmt.Errorf("with another user's token: %s", r)
		}
		if r := owners[0].Try("pfar", "status", "--json"); !strings.Contains(r.Stdout, `"endpoint": "http://127.0.0.1:7418/mcp"`) {
			return fmt.Errorf("pfar status: %s", r)
		}
		return nil
	})
	owners[1].Run(t, "sh", "-euc", restart)
	owners[1].isActive(t, "pfar-gateway-http.socket", "failed")
	says(owners[1], "other's") // all the same
}

// TestUserDoctor says what a user's pfar does not have.
func TestUserDoctor(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	o := settle(t, m, "user", 1000)
	out := o.Try("pfar", "doctor").Stdout
	for _, want := range []string{"warn  users of their own", "warn  host firewall", "IPAddressDeny= has no effect", "pass  lingering", "systemctl enable --now pfar.target"} {
		if !strings.Contains(out, want) {
			t.Errorf("pfar doctor has no %q:\n%s", want, out)
		}
	}
	m.Run(t, "loginctl", "disable-linger", "user")
	out = o.Try("env", "XDG_RUNTIME_DIR=", "pfar", "doctor").Stdout
	for _, want := range []string{"warn  lingering", "loginctl enable-linger"} {
		if !strings.Contains(out, want) {
			t.Errorf("without lingering pfar doctor has no %q:\n%s", want, out)
		}
	}
}
