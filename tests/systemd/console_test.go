package systemd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/internet"
	"github.com/pfar/pfar/tests/systemd/bed"
)

// load prints what a page says, or with which status it is refused. With more arguments it sends a form.
const load = `
import ssl, sys, urllib.error, urllib.parse, urllib.request
context = ssl.create_default_context(cafile="/etc/pfar/console/authority.pem")
form = urllib.parse.urlencode(dict(each.split("=", 1) for each in sys.argv[2:])).encode() or None
origin = "/".join(sys.argv[1].split("/")[:3])
try:
    request = urllib.request.Request(sys.argv[1], form, {"Origin": origin})
    print(urllib.request.urlopen(request, context=context).read().decode())
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
`

func tells(text, want string) error {
	if !strings.Contains(text, want) {
		return fmt.Errorf("it does not say %q: %s", want, text)
	}
	return nil
}

// TestConsoleElsewhere: an administrator switches the console for other machines on. systemd starts it when somebody
// connects, as a user of its own; it shows its pages to whoever is invited, and to nobody under another name. That user
// reads what waits, and does nothing without a passkey's signature; nobody else gets at the socket.
func TestConsoleElsewhere(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	if r := m.Try("systemctl", "is-enabled", "pfar-console.socket"); r.Stdout != "disabled\n" {
		t.Errorf("before anybody enables it the socket is %s", r)
	}
	authority, pair, err := internet.Certificates("pfar.test")
	if err != nil {
		t.Fatal(err)
	}
	m.Put(t, "/etc/pfar/console/authority.pem", string(authority), 0o644)
	m.Put(t, "/etc/pfar/console/cert.pem", string(pair), 0o600)
	m.Put(t, "/etc/pfar/console/key.pem", string(pair), 0o600)
	m.Shell(t, "echo 127.0.0.1 pfar.test other.test >>/etc/hosts; systemctl enable --now pfar-console.socket")
	const at = "https://pfar.test:7443"
	page := func(path string, form ...string) string {
		t.Helper()
		r := m.Try("python3", append([]string{"-c", load, at + path}, form...)...)
		if r.Code != 0 {
			t.Fatal(r)
		}
		return r.Stdout
	}
	if text := page("/"); !strings.Contains(text, "421 ") {
		t.Errorf("before anybody is invited the console says %s", text)
	}
	var invited struct{ Link string }
	text := m.Run(t, "pfar", "operator", "invite", "alice", "--role", "approve", "--at", at, "--json")
	path, ok := "", false
	if err := json.Unmarshal([]byte(text), &invited); err == nil {
		path, ok = strings.CutPrefix(invited.Link, at)
	}
	if !ok {
		t.Fatalf("the invitation is %s", text)
	}
	bed.Eventually(t, soon, func() error { return tells(page(path), "You become the operator alice") })
	if text := page("/"); !strings.Contains(text, "Sign in with a passkey") {
		t.Errorf("the first page says %s", text)
	}
	if text := page(path, "act=go", "proof={}", "challenge=AAAA"); !strings.Contains(text, "Not done") {
		t.Errorf("a passkey that is none: %s", text)
	}
	if text := page("/enroll/" + strings.Repeat("A", 26)); !strings.HasPrefix(text, "404 ") {
		t.Errorf("another link: %s", text)
	}
	if who := m.Run(t, "ps", "-o", "user:20=", "-C", "pfar-console"); strings.TrimSpace(who) != "pfar-console" {
		t.Errorf("the console is a process of %s", who)
	}
	if list := m.Run(t, "pfar", "operator", "list"); !strings.Contains(list, "alice") {
		t.Errorf("the list says %s", list)
	}

	if mode := m.Run(t, "stat", "-c", "%a %U:%G", "/run/pfar/passkey.sock"); mode != "660 root:pfar-console\n" {
		t.Errorf("the socket is %s", mode)
	}
	const ask = `import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.send((sys.argv[2] + " HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").encode())
print(s.makefile().readline())`
	as := func(user, socket, request string) bed.Result {
		return m.Try("runuser", "-u", user, "--", "python3", "-c", ask, "/run/pfar/"+socket, request)
	}
	for request, want := range map[string]string{
		"GET /approvals": "200", "POST /approvals/x/approve": "401", "POST /sessions": "401",
		"POST /pins/x/accept": "401", "POST /approvals/x/deny": "401", "DELETE /approvals": "401",
	} {
		if r := as("pfar-console", "passkey.sock", request); !strings.Contains(r.Stdout, want) {
			t.Errorf("the console's user, %s: %s", request, r)
		}
	}
	for _, one := range [][2]string{
		{"user", "passkey.sock"}, {"pfar", "passkey.sock"}, {"pfar-console", "operator.sock"},
		{"pfar-console", "control.sock"},
	} {
		if r := as(one[0], one[1], "GET /approvals"); r.Code == 0 && strings.Contains(r.Stdout, "200") {
			t.Errorf("%s reads at %s: %s", one[0], one[1], r)
		}
	}

	// With pfard the console's process ends; the next one who connects has another.
	m.Run(t, "systemctl", "restart", "pfard")
	// The invitation is gone, and nobody has a passkey.
	bed.Eventually(t, soon, func() error { return tells(page("/"), "421 ") })
	m.Run(t, "pfar", "operator", "invite", "alice", "--role", "look", "--at", at)
	bed.Eventually(t, soon, func() error { return tells(page("/"), "Sign in with a passkey") })
}
