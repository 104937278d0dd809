package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/internet"
	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
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

// TestConsoleElsewhere: an administrator switches the remote console on. systemd starts it when somebody
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

// surfs shows pages of the console of a link as a browser does: those whose path an expression finds in the one before.
const surfs = `
import re, sys, urllib.request
from http.cookiejar import CookieJar
browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
headers = {"Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}
at = sys.argv[1]
for step in [""] + sys.argv[2:]:
    if step:
        at = "/".join(at.split("/")[:3]) + re.search('href="(/c/[^"]*' + step + ')"', text)[1]
    text = browser.open(urllib.request.Request(at, headers=headers)).read().decode()
print(text)
`

// member is a runner: a user of the machine, without a systemd of their own.
type member struct{ m *bed.Machine }

func (u member) Try(name string, args ...string) bed.Result {
	return u.m.Try("runuser", append([]string{"-u", "user", "--", name}, args...)...)
}

// surfed returns a page of somebody's console once the pages on the way there have its links: the gateway may not know
// yet that a server runs.
func surfed(t *testing.T, as runner, steps ...string) string {
	t.Helper()
	var r bed.Result
	bed.Eventually(t, soon, func() error {
		var opened struct{ Link string }
		r = as.Try("pfar", "console", "--json")
		if err := json.Unmarshal([]byte(r.Stdout), &opened); err != nil {
			return fmt.Errorf("%s: %w", r, err)
		}
		if r = as.Try("python3", append([]string{"-c", surfs, opened.Link}, steps...)...); r.Code != 0 {
			return errors.New(r.String())
		}
		return nil
	})
	return r.Stdout
}

// sameChecks wants the page of the checks to show what pfar doctor finds for the user who runs pfard.
func sameChecks(t *testing.T, console, runs runner) {
	t.Helper()
	var page string
	bed.Eventually(t, soon, func() error {
		page = surfed(t, console, "/health", "/checks")
		return tells(page, "Checked ")
	})
	words := map[string]string{"pass": "pass", "warn": "warning", "n/a": "n/a", "fail": "failed"}
	var found []struct{ Check, Outcome string }
	r := runs.Try("pfar", "doctor", "--json")
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil || r.Code != 0 || len(found) < 10 {
		t.Fatalf("%s: %v", r, err)
	}
	for _, f := range found {
		_, rest, ok := strings.Cut(page, ">"+f.Check+"<")
		if outcome, _, _ := strings.Cut(rest, "</p>"); !ok || !strings.HasSuffix(outcome, ">"+words[f.Outcome]) {
			t.Errorf("%+v in a terminal, and at the console %s", f, outcome)
		}
	}
}

// sameVerdict has the audit verified at somebody's console and in a terminal: each chain holds.
func sameVerdict(t *testing.T, console, runs runner) {
	t.Helper()
	page := surfed(t, console, "/audit", "/verify")
	r := runs.Try("pfar", "audit", "verify")
	whole := strings.Count(r.Stdout, "whole ")
	if r.Code != 0 || whole == 0 || strings.Count(page, ">whole<") != whole || strings.Contains(page, "BROKEN") {
		t.Errorf("%s in a terminal, and at the console %s", r, page)
	}
}

// logs is a server that writes a line.
const logs = "server {\n  command = \"bash\"\n" +
	"  args = [\"-ec\", \"echo to-the-journal >&2; exec " + programs + "/echo\"]\n}\n"

// TestConsoleViews: a member of pfar-admin sees at the console what the journal has of a server, what that can reach,
// in words, and the checks of the machine. These find what they find in a terminal.
func TestConsoleViews(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	unlock(t, m)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", logs, 0o644)
	m.Run(t, "gpasswd", "-a", "user", "pfar-admin")
	becomes(t, m, "hello", control.Running)
	user := member{m}
	bed.Eventually(t, soon, func() error { // journald may still write
		return tells(surfed(t, user, "/servers", "/server/hello", "/log/hello"), "Z | to-the-journal<")
	})
	if err := tells(surfed(t, user, "/servers", "/server/hello", "/explain/hello"), "hello runs "); err != nil {
		t.Error(err)
	}
	sameChecks(t, user, m)
	sameVerdict(t, user, m)
	if mode := m.Run(t, "stat", "-c", "%a %U", "/run/pfar/checks.json"); mode != "600 root\n" {
		t.Errorf("what the checks found is %s", mode)
	}
	for _, unit := range []string{"pfar-doctor.service", "pfar-verify.service"} {
		if r := m.Try("systemctl", "is-failed", unit); r.Stdout != "inactive\n" {
			t.Errorf("after its work %s is %s", unit, r)
		}
	}
}

// TestUserConsoleViews: likewise a user at the console of their own pfar.
func TestUserConsoleViews(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.declare(t, "hello.hcl", logs)
	becomes(t, o, "hello", control.Running)
	bed.Eventually(t, soon, func() error {
		return tells(surfed(t, o, "/servers", "/server/hello", "/log/hello"), "Z | to-the-journal<")
	})
	sameChecks(t, o, o)
	sameVerdict(t, o, o)
}
