package systemd

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// verbs are lines as an administrator types them, of each verb one at least.
var verbs = []string{
	"status", "status hello", "tools", "tools hello", "describe hello.echo", "call hello.echo --message x",
	"refresh hello", "test hello", "connect hello", "pins", "pins show hello", "approvals",
	"approvals list", "approvals history", "grants", "grants list", "sessions", "sessions show default", "sessions stains", "audit", "audit verify",
	"client list", "client config default", "check", "services", "plan", "plan hello", "explain hello",
	"undo hello", "allow hello api.example.com --yes", "egress", "egress hello", "top --once",
	"logs hello", "vault list", "vault has hello_token", "start hello", "restart hello", "disable hello", "enable hello", "stop hello",
	"learn hello --for 1s", "clean hello", "doctor", "install hello", "upgrade hello 2.0.0 --yes",
	"edit hello", "import /srv/mcp.json --dry-run", "login nobody", "add memory --dry-run", "remove hello",
	"console", "console logout", "message", "operator list", "operator remove nobody",
	"operator invite alice --role look --at https://pfar.example.com:7443",
	"operator role nobody look",
	"flow list", "models", "ask hello --plan-only", "chat",
}

// elsewhere are verbs that are about no pfar that runs.
var elsewhere = []string{"up", "demo", "version", "completion", "help", "environment", "exit-codes"}

// members is what pfar(1) says that a member of pfar-admin may do without sudo.
var members = []string{"status", "top", "egress", "vault list", "audit", "approvals", "pins", "sessions", "console"}

// startsIt reports whether a text tells to start a pfar of one's own.
func startsIt(text string) bool {
	return strings.Contains(strings.ReplaceAll(text, "pfar upgrade", ""), "pfar up")
}

// TestEveryVerbFindsTheMachine: on an installed machine each verb is about its pfar, for root, for a member of
// pfar-admin and for an ordinary user. Who may not do something is told who may.
func TestEveryVerbFindsTheMachine(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	hello := echo("auth = { TOKEN = \"vault:hello_token\" }\nsandbox { state = true }")
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", hello, 0o644)
	m.Shell(t, "printf secret | pfar vault set hello_token")
	m.Put(t, "/srv/mcp.json", `{"mcpServers": {"other": {"command": "/usr/bin/true"}}}`, 0o644)
	becomes(t, m, "hello", control.Running)
	for line := range strings.Lines(m.Run(t, "pfar", "__complete", "")) {
		verb, _, ok := strings.Cut(line, "\t")
		has := func(line string) bool { return line == verb || strings.HasPrefix(line, verb+" ") }
		if ok && !slices.ContainsFunc(verbs, has) && !slices.Contains(elsewhere, verb) {
			t.Errorf("nobody tries the verb %q", verb)
		}
	}
	m.Run(t, "useradd", "--groups", "pfar-admin", "member")
	as := func(user, line string) bed.Result {
		return m.Try("runuser", append([]string{"-u", user, "--", "env", "EDITOR=true", "pfar"}, strings.Fields(line)...)...)
	}
	for _, line := range verbs {
		may := slices.ContainsFunc(members, func(verb string) bool { return line == verb || strings.HasPrefix(line, verb+" ") })
		if r := as("root", line); strings.Contains(r.Stderr, "not running") || startsIt(r.Stderr) {
			t.Errorf("root, pfar %s: %s", line, r)
		}
		for _, user := range []string{"user", "member"} {
			r := as(user, line)
			told := strings.Contains(r.Stderr, "hint: ") && strings.Contains(r.Stderr, "sudo ") ||
				strings.Contains(r.Stderr, "pfar-admin") && user != "member"
			if r.Code != 0 && (!told || may && user == "member") || startsIt(r.Stderr) {
				t.Errorf("%s, pfar %s: %s", user, line, r)
			}
		}
	}
	m.Run(t, "systemctl", "stop", "pfar.target", "pfar-base.service")
	for _, line := range verbs {
		for user, hint := range map[string]string{"root": "systemctl start pfar.target", "user": "sudo systemctl start pfar.target"} {
			if r := as(user, line); r.Code != 0 && strings.Contains(r.Stderr, "not running") && !strings.Contains(r.Stderr, hint) {
				t.Errorf("stopped, %s, pfar %s: %s", user, line, r)
			}
		}
	}
}

// TestDoctorAndDemo: on a machine that is just installed nothing is wrong, and pfar can show what it does, also to an
// ordinary user.
func TestDoctorAndDemo(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	o := settle(t, m, "user", 1000)
	for name, as := range map[string]runner{"root": m, "user": o} {
		if r := as.Try("pfar", "doctor"); r.Code != 0 || strings.Contains(r.Stdout, "fail") {
			t.Errorf("%s, pfar doctor: %s", name, r)
		}
		if r := as.Try("pfar", "demo", "--yes"); r.Code != 0 {
			t.Errorf("%s, pfar demo: %s", name, r)
		}
	}
}

// TestMakeInstall: what make install writes, and the steps that it says are left, make a machine of pfar's as the
// package does; what make uninstall does takes them away, but for the data.
func TestMakeInstall(t *testing.T) {
	t.Parallel()
	m := bare(t)
	before := trace(t, m)
	m.PutFile(t, "/root/next.sh", filepath.Join(root, "packaging", "next.sh"), 0o755)
	m.Shell(t, "cp -a "+made+"/. /; sh /root/next.sh | sed -n 's/^next: \\([^,]*\\).*/\\1/p' | sh -eu")
	m.Run(t, "systemctl", "is-active", "pfar.target", "pfard.service", "pfar-gateway-http.socket")
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	becomes(t, m, "hello", control.Running)
	if left := m.Shell(t, "sh /root/next.sh"); strings.Contains(left, "missing") || strings.Contains(left, "users") || strings.Contains(left, "directories") {
		t.Errorf("after its steps it says\n%s", left)
	}
	for _, script := range []string{"preun", "postun"} {
		m.PutFile(t, "/root/packaging/rpm/"+script, filepath.Join(root, "packaging/rpm", script), 0o755)
	}
	out, err := exec.Command("make", "--no-print-directory", "-n", "-C", root, "uninstall").Output() // there is no make
	if err != nil {
		t.Fatal(err)
	}
	m.Shell(t, "cd /root\n"+string(out)+"rm -r /root/next.sh /root/packaging")
	list := slices.DeleteFunc(remains(t, "uninstalled", before, trace(t, m)), func(line string) bool {
		return stays.MatchString(line) && !strings.Contains(line, "not-found")
	})
	if len(list) != 0 {
		t.Errorf("make uninstall leaves\n%s", strings.Join(list, "\n"))
	}
}
