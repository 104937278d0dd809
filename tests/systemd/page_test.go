package systemd

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

const (
	rightPing = "ping_right_0123456789"
	wrongPing = "ping_wrong_0123456789"
)

// wish asks pfar to connect the service ping for the client of a token.
const wish = `
import json, sys, urllib.request
headers = {
    "Authorization": "Bearer " + sys.argv[1], "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call", "Mcp-Name": "pfar__connect",
}
about = {"protocolVersion": "2026-07-28", "clientCapabilities": {}}
call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
    "name": "pfar__connect", "arguments": {"service": "ping"},
    "_meta": {"io.modelcontextprotocol/" + name: value for name, value in about.items()},
}}
request = urllib.request.Request("http://127.0.0.1:7417/mcp", json.dumps(call).encode(), headers)
print(json.load(urllib.request.urlopen(request))["result"]["content"][0]["text"])
`

// browse shows the page at a link or, with a value on standard input, enters that as a browser does.
const browse = `
import re, sys, urllib.parse, urllib.request
link, value = sys.argv[1], sys.stdin.read().strip()
text = urllib.request.urlopen(link).read().decode()
if value:
    form = {"turn": re.search('name="turn" value="([^"]+)"', text)[1], "act": "enter", "value": value}
    request = urllib.request.Request(link, urllib.parse.urlencode(form).encode(), {"Origin": link.rsplit("/", 1)[0]})
    text = urllib.request.urlopen(request).read().decode()
print(text)
`

// TestPageUnit: on a machine the page of pfar__connect is a unit with a user of its own. Whichever process dies, there
// is a new link, also on a port that somebody has chosen; and the value is in the vault alone.
func TestPageUnit(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/opt/ping/ping.sh", `case "$PING_TOKEN" in ping_right*) is=right ;; *) is=wrong ;; esac
exec `+programs+`/echo -label "$is"
`, 0o644)
	m.Put(t, "/etc/pfar/services.d/ping.hcl", `service "ping" {
  setup {
    title   = "Ping"
    summary = "Says what it is told"
    command = "/bin/sh"
    args    = ["/opt/ping/ping.sh"]
    secret "PING_TOKEN" {
      key     = "ping_token"
      deliver = "env"
      where   = "Invent one."
    }
    test "label" {
      arguments = {}
      answer    = "right"
    }
  }
}
`, 0o644)
	const facts = "server \"ping\" {\n  relax = \"a test\"\n  reads = [\"label\"]\n}\n"
	m.Put(t, "/etc/pfar/policies.d/ping.hcl", facts, 0o644)
	token := strings.TrimSpace(m.Run(t, "pfar", "client", "add", "desk", "--servers", "*", "--connect"))
	links := regexp.MustCompile(`http://127\.0\.0\.1:([0-9]+)/([A-Z2-7]{26,})`)
	another := func(before string) (link, port, nonce string) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			r := m.Try("python3", "-c", wish, token)
			found := links.FindStringSubmatch(r.Stdout)
			if found == nil || found[0] == before {
				return fmt.Errorf("after %q: %s", before, r)
			}
			link, port, nonce = found[0], found[1], found[2]
			return nil
		})
		return link, port, nonce
	}
	page := func(link, value string) string {
		t.Helper()
		r := m.Feed(value, "python3", "-c", browse, link)
		if r.Code != 0 {
			t.Fatal(r)
		}
		return r.Stdout
	}
	first, _, nonce := another("")
	if text := page(first, ""); !strings.Contains(text, "Connect Ping") || !strings.Contains(text, "desk") {
		t.Errorf("the page says %s", text)
	}
	unit := strings.Fields(m.Run(t, "systemctl", "list-units", "--no-legend", "--plain", "pfar-setup@*.service"))
	if len(unit) == 0 || strings.Contains(unit[0], strings.ToLower(nonce[:8])) {
		t.Fatalf("the units are %q", unit)
	}
	instance := strings.TrimSuffix(strings.TrimPrefix(unit[0], "pfar-setup@"), ".service")
	user := strings.TrimSpace(m.Run(t, "systemctl", "show", "--value", "--property=User", unit[0]))
	shown := m.Run(t, "ps", "-o", "uid=,args=", "-C", "pfar-setup")
	if user != "pfar-p-"+instance || strings.HasPrefix(strings.TrimSpace(shown), "0 ") || strings.Contains(shown, nonce) {
		t.Errorf("the process of %q is %s", user, shown)
	}
	m.Run(t, "systemctl", "kill", "--signal=KILL", unit[0])
	second, port, _ := another(first)

	// Whoever restarts pfard while the page waits finds another one. The chosen port passes from one page to the next.
	chosen := map[bool]string{true: "19301", false: "19300"}[port == "19300"] // that page shows for a while how it ended
	m.Put(t, "/etc/systemd/system/pfard.service.d/port.conf",
		"[Service]\nExecStart=\nExecStart=/usr/lib/pfar/pfard --page-port "+chosen+"\n", 0o644)
	m.Run(t, "systemctl", "daemon-reload")
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
	third, port, _ := another(second)
	if port != chosen {
		t.Errorf("the page is at %s", third)
	}
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
	fourth, port, _ := another(third)
	if r := m.Try("python3", "-c", browse, third); r.Code == 0 || port != chosen {
		t.Errorf("the page before is there, or the port is another one: %s, %s", fourth, r)
	}
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfar-gateway")
	if same, _, _ := another(third); same != fourth {
		t.Errorf("another gateway tells %s, not %s", same, fourth)
	}

	page(fourth, wrongPing)
	bed.Eventually(t, soon, func() error {
		if text := page(fourth, ""); !strings.Contains(text, "That did not work") {
			return fmt.Errorf("after a wrong value: %s", text)
		}
		return nil
	})
	page(fourth, rightPing)
	becomes(t, m, "ping", control.Running)
	bed.Eventually(t, soon, func() error {
		r := m.Try("python3", "-c", wish, token)
		if !strings.Contains(r.Stdout, "ping is connected as the server ping") {
			return fmt.Errorf("pfar__connect says %s", r)
		}
		return nil
	})
	bed.Eventually(t, soon, func() error {
		if left := m.Run(t, "systemctl", "list-units", "--no-legend", "--plain", "pfar-setup@*.service"); left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
	refusedToken(t, m)
	for what, text := range map[string]string{"the value": rightPing, "the wrong one": wrongPing, "the link": nonce} {
		m.Put(t, "/root/text", text+"\n", 0o600)
		for _, where := range []string{
			"grep -rlaF -f /root/text --devices=skip /run /var/lib/pfar /var/log /etc /tmp /var/tmp",
			"journalctl --no-pager --output=export | grep -aF -f /root/text",
			"grep -alF -f /root/text /proc/[0-9]*/cmdline",
			"systemctl show '*' | grep -aF -f /root/text",
		} {
			r := m.Try("sh", "-c", where)
			if r.Stdout != "" {
				t.Errorf("%s is found by %s: %s", what, where, r.Stdout)
			}
		}
	}
}

// refusedToken gives ping another wrong token. All who ask about the server read that its tool refuses the token, in
// the tool's own words, and where another one comes from.
func refusedToken(t *testing.T, m *bed.Machine) {
	t.Helper()
	if r := m.Feed(wrongPing, "pfar", "vault", "rotate", "ping_token"); r.Code != 0 {
		t.Fatal(r)
	}
	s := becomes(t, m, "ping", control.CredentialInvalid)
	v := s.Verification
	if v.Result != units.Invalid || v.Tool != "label" || v.Words != "wrong" ||
		v.Remedy.Command != "pfar vault set ping_token" || v.Where != "Invent one." {
		t.Errorf("pfar status --json says %+v", v)
	}
	const words = "credential-invalid: label refuses them: wrong"
	for command, wants := range map[string][]string{
		"systemctl status --full pfar-mcp@ping":               {words, "pfar vault set ping_token", "Invent one."},
		"systemctl show --property=StatusText pfar-mcp@ping":  {"StatusText=" + words},
		"systemctl show --property=ActiveState pfar-mcp@ping": {"ActiveState=active"},
		"pfar status":      {"credential-invalid", "pfar vault set ping_token"},
		"pfar status ping": {"credential-invalid", "wrong", "pfar vault set ping_token", "Invent one."},
	} {
		bed.Eventually(t, soon, func() error {
			r := m.Try("sh", "-c", command)
			for _, want := range wants {
				if !strings.Contains(r.Stdout, want) {
					return fmt.Errorf("%s does not say %q: %s", command, want, r)
				}
			}
			return nil
		})
	}
	if r := m.Feed(rightPing, "pfar", "vault", "rotate", "ping_token"); r.Code != 0 {
		t.Fatal(r)
	}
	becomes(t, m, "ping", control.Running)
	r := m.Try("systemctl", "status", "--full", "pfar-mcp@ping")
	if strings.Contains(r.Stdout, "invalid") {
		t.Errorf("with a right token it is %s", r)
	}
}
