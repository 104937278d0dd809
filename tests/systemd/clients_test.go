package systemd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// knock prints how the endpoint answers a token, and what tools there are for it.
const knock = `
import json, sys, urllib.request, urllib.error
request = urllib.request.Request("http://127.0.0.1:7417" + sys.argv[2], method="POST", headers={
    "Authorization": "Bearer " + sys.argv[1], "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}, data=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}).encode())
try:
    tools = json.load(urllib.request.urlopen(request))["result"]["tools"]
    print(200, *sorted({t["_meta"]["pfar/server"] for t in tools}))
except urllib.error.HTTPError as e:
    print(e.code)
`

// TestDeclaredClients: the gateway, which may read nothing of /etc/pfar, lets in whom the files there name, and does so
// before and after it, or pfard, is killed.
func TestDeclaredClients(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	for _, name := range []string{"hello", "other"} {
		m.Put(t, "/etc/pfar/mcp.d/"+name+".hcl", echo(""), 0o644)
	}
	becomes(t, m, "hello", control.Running)
	becomes(t, m, "other", control.Running)
	answers := func(token, path, want string) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			if r := m.Try("python3", "-c", knock, token, path); strings.TrimSpace(r.Stdout) != want {
				return fmt.Errorf("%s: %s, want %s", path, r, want)
			}
			return nil
		})
	}
	own := strings.TrimSpace(m.Shell(t, "cat /var/lib/pfar/token"))
	answers(own, "/mcp", "200 hello other")
	desk := strings.TrimSpace(m.Run(t, "pfar", "client", "add", "desk", "--servers", "hello"))
	answers(desk, "/mcp", "200 hello")
	answers(desk, "/mcp/other", "404")
	if mode := strings.TrimSpace(m.Shell(t, "stat -c '%a %U' /etc/pfar/clients.d/desk.hcl")); mode != "600 root" {
		t.Errorf("the file is %s", mode)
	}
	m.Put(t, "/etc/pfar/clients.d/default.hcl", "servers = [\"other\"]\n", 0o644)
	answers(own, "/mcp", "200 other")

	// A user who is a client finds the way to the socket, and no other.
	call := func(uid, tool string) bed.Result {
		return m.Try("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "env", "PFAR_RUN_DIR=/run/pfar", "pfar", "call", tool, "--message", "x")
	}
	m.Run(t, "pfar", "client", "add", "job", "--servers", "hello", "--uid", "1500", "--no-token")
	reaches := func() {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			if r := call("1500", "hello.echo"); r.Code != 0 || r.Stdout != "x\n" {
				return fmt.Errorf("uid 1500: %s", r)
			}
			return nil
		})
		for uid, tool := range map[string]string{"1500": "other.echo", "1501": "hello.echo"} {
			if r := call(uid, tool); r.Code == 0 {
				t.Errorf("uid %s calls %s: %s", uid, tool, r)
			}
		}
	}
	reaches()
	m.Shell(t, "systemctl restart pfar-gateway.socket pfar-gateway.service") // another socket
	reaches()
	if r := m.Try("setpriv", "--reuid", "1500", "--regid", "1500", "--clear-groups", "env", "PFAR_RUN_DIR=/run/pfar", "pfar", "pins"); r.Code == 0 {
		t.Errorf("a client sees the pins: %s", r)
	}
	m.Run(t, "pfar", "client", "remove", "job")
	bed.Eventually(t, soon, func() error {
		if mode := strings.TrimSpace(m.Shell(t, "stat -c %a /run/pfar/gateway.sock")); mode != "600" {
			return fmt.Errorf("the socket's mode is %s", mode)
		}
		return nil
	})

	// A gateway that begins without pfard goes on with what the one before it was told.
	m.Shell(t, "systemctl kill --signal=STOP pfard; systemctl kill --signal=KILL pfar-gateway")
	answers(own, "/mcp/hello", "404")
	answers(desk, "/mcp", "200 hello")
	m.Shell(t, "systemctl kill --signal=CONT pfard; systemctl restart pfard")
	answers(desk, "/mcp/other", "404")
	m.Run(t, "pfar", "client", "remove", "desk")
	answers(desk, "/mcp", "401")
	m.Run(t, "pfar", "client", "remove", "default")
	answers(own, "/mcp", "200 hello other")
}
