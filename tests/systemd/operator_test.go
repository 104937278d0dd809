package systemd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// TestOperatorSocket is for root and the members of pfar-admin, on the machine's pfar; the gateway's own user and
// anybody else cannot even connect. What sessions have seen outlives the gateway, and nothing is answered without it.
func TestOperatorSocket(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	if mode := m.Run(t, "stat", "-c", "%a %U:%G", "/run/pfar/operator.sock"); mode != "660 root:pfar-admin\n" {
		t.Errorf("the socket is %s", mode)
	}
	if mode := m.Run(t, "stat", "-c", "%a %U:%G", "/run/pfar/passkey.sock"); mode != "660 root:pfar-console\n" {
		t.Errorf("the passkey socket is %s", mode)
	}
	for _, verb := range []string{"approvals", "sessions", "pins"} {
		if r := m.Try("pfar", verb, "--json"); r.Code != 0 || verb != "sessions" && r.Stdout != "[]\n" {
			t.Errorf("root, %s: %s", verb, r)
		}
		for _, user := range []string{"user", "pfar"} {
			r := m.Try("runuser", "-u", user, "--", "env", "PFAR_RUN_DIR=/run/pfar", "pfar", verb)
			if r.Code != 6 || !strings.Contains(r.Stderr, "pfar-admin") {
				t.Errorf("%s, %s: %s", user, verb, r)
			}
		}
	}
	const ask = `import socket; s = socket.socket(socket.AF_UNIX); s.connect("/run/pfar/gateway.sock"); s.send(b"GET /pins HTTP/1.0\r\nHost: localhost\r\n\r\n"); print(s.makefile().read())`
	if r := m.Try("python3", "-c", ask); !strings.Contains(r.Stdout, "there is nothing here") {
		t.Errorf("on the clients' socket: %s", r)
	}
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo("auth = { TOKEN = \"vault:hello_token\" }"), 0o644)
	m.Shell(t, "echo -n hunter2-secret | pfar vault set hello_token")
	becomes(t, m, "hello", control.Running)
	looks := map[string]string{"status": "hello", "top --once": "hello", "egress": "", "vault list": "hello_token"}
	as := func(user, line string) bed.Result {
		return m.Try("runuser", append([]string{"-u", user, "--", "env", "PFAR_RUN_DIR=/run/pfar", "pfar"}, strings.Fields(line)...)...)
	}
	for line := range looks {
		if r := as("user", line); r.Code != 6 || !strings.Contains(r.Stderr, "pfar-admin") {
			t.Errorf("user, %s: %s", line, r)
		}
	}
	m.Run(t, "gpasswd", "-a", "user", "pfar-admin")
	for line, want := range looks {
		if r := as("user", line); r.Code != 0 || !strings.Contains(r.Stdout, want) || strings.Contains(r.String(), "hunter2") {
			t.Errorf("a member, %s: %s", line, r)
		}
	}
	for _, line := range []string{"stop hello", "vault remove hello_token", "disable hello"} {
		if r := as("user", line); r.Code != 6 {
			t.Errorf("a member orders %s: %s", line, r)
		}
	}
	becomes(t, m, "hello", control.Running)
	if r := m.Try("runuser", "-u", "user", "--", "pfar", "approvals", "--json"); r.Code != 0 || r.Stdout != "[]\n" {
		t.Errorf("a member, who has no pfar of his own: %s", r)
	}
	if files := m.Shell(t, "stat -c '%a %U %n' /var/lib/pfar/gateway/*"); !strings.HasPrefix(files, "600 pfar /var/lib/pfar/gateway/gateway.db\n") {
		t.Errorf("the state is in\n%s", files)
	}
	m.Shell(t, "systemctl kill --signal=KILL pfar-gateway.service; pfar approvals; systemctl restart pfar-gateway.service; pfar approvals; systemctl restart pfar-operator.socket; pfar approvals")
	m.Shell(t, "systemctl stop pfar-gateway.service pfar-gateway.socket pfar-operator.socket; : >/var/lib/pfar/gateway/gateway.db; systemctl start pfar-gateway.socket pfar-operator.socket; systemctl start pfar-gateway.service || :")
	log := m.Shell(t, "journalctl --sync; journalctl -u pfar-gateway.service --no-pager -o cat")
	if !strings.Contains(log, "put a backup in its place") {
		t.Errorf("with an empty file the gateway says\n%s", log)
	}
}

// waiting is a call that `pfar approvals` shows.
type waiting struct {
	ID, Client, Server, Name, State string
	Arguments                       map[string]string
}

// TestApprovals: a call on the machine's pfar waits until a member of pfar-admin, who need not be root, has said that
// it may run. It runs once then; not if another member denies it, not because somebody says so who is none, and not
// after a restart of the gateway.
func TestApprovals(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Shell(t, "gpasswd -a user pfar-admin; useradd -G pfar-admin second; useradd stranger")
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(`
trust {
  public_source    = false
  secret_data      = false
  public_sink      = true
  dangerous_writes = true
}
`), 0o644)
	m.Run(t, "pfar", "client", "add", "job", "--servers", "hello", "--uid", "1500", "--no-token")
	becomes(t, m, "hello", control.Running)
	calls := 0
	// asks has the client call, and returns what waits for that, and where its answer will be.
	asks := func(message string) (w waiting, answer string) {
		t.Helper()
		calls++
		unit := fmt.Sprintf("call-%d", calls)
		answer = "/root/" + unit
		m.Run(t, "systemd-run", "--quiet", "--unit="+unit, "-pType=exec", "-pStandardOutput=truncate:"+answer, "-pStandardError=truncate:"+answer+".err",
			"setpriv", "--reuid", "1500", "--regid", "1500", "--clear-groups", "env", "PFAR_RUN_DIR=/run/pfar", "sh", "-c", `pfar call hello.echo --message "$1"; echo "ended with $?" >&2`, "sh", message)
		bed.Eventually(t, soon, func() error {
			r := m.Try("runuser", "-u", "user", "--", "pfar", "approvals", "--json")
			var list []waiting
			if err := json.Unmarshal([]byte(r.Stdout), &list); err != nil || len(list) != 1 || list[0].State != "pending" {
				return fmt.Errorf("%s wait, and the client has heard %s", r, m.Shell(t, "cat "+answer+" "+answer+".err"))
			}
			w = list[0]
			return nil
		})
		if w.Client != "job" || w.Server != "hello" || w.Name != "echo" || w.Arguments["message"] != message {
			t.Errorf("a member is shown %+v", w)
		}
		return w, answer
	}
	hears := func(answer, want, end string) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			got, said := m.Shell(t, "cat "+answer), m.Shell(t, "cat "+answer+".err")
			if got != want || !strings.Contains(said, end) || !strings.Contains(said, "ended with ") {
				return fmt.Errorf("the client has heard %q, and %s; want %q, and %q", got, said, want, end)
			}
			return nil
		})
	}
	as := func(user string, args ...string) bed.Result {
		return m.Try("runuser", append([]string{"-u", user, "--", "env", "PFAR_RUN_DIR=/run/pfar", "pfar", "approvals"}, args...)...)
	}

	w, answer := asks("first")
	for _, user := range []string{"stranger", "pfar"} {
		for _, args := range [][]string{{"approve", w.ID, "--yes"}, {"deny", w.ID}, {"list"}, {"history"}} {
			if r := as(user, args...); r.Code != 6 || !strings.Contains(r.Stderr, "pfar-admin") {
				t.Errorf("%s, %q: %s", user, args, r)
			}
		}
	}
	if got := m.Shell(t, "cat "+answer); got != "" {
		t.Errorf("before anybody has said so it ran: %s", got)
	}
	if r := as("user", "approve", w.ID, "--yes"); r.Code != 0 {
		t.Errorf("a member approves: %s", r)
	}
	hears(answer, "first\n", "ended with 0")
	if r := as("second", "approve", w.ID, "--yes"); r.Code == 0 {
		t.Errorf("approved twice: %s", r)
	}

	again, answer := asks("first") // the same arguments, and nothing is left of what was said
	if again.ID == w.ID {
		t.Errorf("it is asked about once more as %s", w.ID)
	}
	if r := as("second", "deny", again.ID, "--reason", "not on a Saturday"); r.Code != 0 {
		t.Errorf("another member denies: %s", r)
	}
	hears(answer, "", "not on a Saturday")

	pending, answer := asks("third")
	m.Run(t, "systemctl", "restart", "pfar-gateway.service")
	hears(answer, "", "ended with ")
	if r := as("user", "approve", pending.ID, "--yes"); r.Code == 0 {
		t.Errorf("what waited before a restart is approved after it: %s", r)
	}
	history := m.Run(t, "pfar", "approvals", "history")
	for _, words := range []string{"pfar was started again", "not on a Saturday"} {
		if strings.Count(history, words) != 1 {
			t.Errorf("the history does not say %q:\n%s", words, history)
		}
	}
	if n := strings.Count(history, "used"); n != 1 {
		t.Errorf("%d calls ran, by the history\n%s", n, history)
	}
	if r := as("user", "list", "--json"); r.Stdout != "[]\n" {
		t.Errorf("something waits: %s", r)
	}
	audit := m.Run(t, "pfar", "audit", "--json")
	for _, who := range []string{`"approver":"user"`, `"approver":"second"`} {
		if !strings.Contains(audit, who) {
			t.Errorf("the audit does not name %s", who)
		}
	}
}
