package systemd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// TestCallsOutliveARestart: calls wait while pfar restart, systemctl restart or an edit restarts their server.
func TestCallsOutliveARestart(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	becomes(t, m, "hello", control.Running)
	clients := talk(t, m)
	before := pid(t, m, "pfar-mcp@hello")
	m.Run(t, "pfar", "restart", "hello")
	clients.more(t)
	m.Run(t, "systemctl", "restart", "pfar-mcp@hello")
	clients.more(t)
	again := pid(t, m, "pfar-mcp@hello")
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo("env = { OTHER = \"1\" }"), 0o644)
	bed.Eventually(t, soon, func() error {
		if now := pid(t, m, "pfar-mcp@hello"); before == again || again == now || now == "0" {
			return fmt.Errorf("the launcher was %s, then %s, and is %s", before, again, now)
		}
		return nil
	})
	clients.more(t)
	clients.hold(t, "restarts")
}

// TestClientConfigOfAUser: what pfar client config prints for a client of a user's id lets that user call.
func TestClientConfigOfAUser(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	becomes(t, m, "hello", control.Running)
	m.Run(t, "pfar", "client", "add", "desk", "--servers", "hello", "--uid", "1000")
	var printed struct {
		Servers map[string]struct {
			Command string            `json:"command"`
			Args    []string          `json:"args"`
			Env     map[string]string `json:"env"`
		} `json:"mcpServers"`
	}
	text := m.Run(t, "pfar", "client", "config", "desk", "--stdio")
	if err := json.Unmarshal([]byte(text), &printed); err != nil || len(printed.Servers) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"desk","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}` + "\n"
	for _, c := range printed.Servers {
		line := []string{"-u", "user", "--", "env", "-i", "PATH=/usr/bin"}
		for name, value := range c.Env {
			line = append(line, name+"="+value)
		}
		r := m.Feed(hello, "runuser", append(append(line, c.Command), c.Args...)...)
		if !strings.Contains(r.Stdout, "hello__echo") {
			t.Errorf("%s\nas the user: %s", text, r)
		}
	}
}
