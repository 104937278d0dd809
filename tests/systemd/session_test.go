package systemd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// stdioClient is a program that speaks MCP to pfar connect, as desktop clients do.
type stdioClient struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
	end func() error
	id  int
}

// starter starts programs that talk, as runner runs those that end.
type starter interface {
	Command(ctx context.Context, name string, args ...string) *exec.Cmd
	Go(t testing.TB, cmd *exec.Cmd)
}

// connectTo begins a client session with one server.
func connectTo(t *testing.T, m starter, name string) *stdioClient {
	t.Helper()
	cmd := m.Command(t.Context(), "pfar", "connect", name)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.Go(t, cmd)
	c := &stdioClient{t: t, in: in, out: bufio.NewReader(out), end: cmd.Wait}
	c.request("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"}})
	c.write(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	return c
}

func (c *stdioClient) write(message map[string]any) {
	c.t.Helper()
	line, err := json.Marshal(message)
	if err == nil {
		_, err = c.in.Write(append(line, '\n'))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// request returns the answer, result or error, as it came.
func (c *stdioClient) request(method string, params any) string {
	c.t.Helper()
	c.id++
	c.write(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%s: %v: %s", method, err, line)
		}
		if strings.Contains(line, fmt.Sprintf(`"id":%d`, c.id)) {
			return line
		}
	}
}

// echo calls the tool of that name.
func (c *stdioClient) echo(message string) string {
	c.t.Helper()
	return c.request("tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"message": message}})
}

// leave ends the session as a client that ends does.
func (c *stdioClient) leave() {
	c.t.Helper()
	if err := c.in.Close(); err != nil {
		c.t.Error(err)
	}
	if err := c.end(); err != nil {
		c.t.Errorf("pfar connect: %v", err)
	}
}

// sessions are the instance units of a server's sessions that systemd knows in whatever state, with that.
func sessions(t *testing.T, m *bed.Machine, name string) (list []string) {
	t.Helper()
	for line := range strings.Lines(m.Run(t, "systemctl", "list-units", "--all", "--plain", "--no-legend", "pfar-*"+name+"_*")) {
		if f := strings.Fields(line); f[2] != "inactive" {
			list = append(list, f[2]+" "+f[0])
		}
	}
	return list
}

// of counts the launchers among units that are active.
func launchers(units []string) (list []string) {
	for _, u := range units {
		if name, ok := strings.CutPrefix(u, "active pfar-mcp@"); ok {
			list = append(list, "pfar-mcp@"+name)
		}
	}
	return list
}

// TestOwnSessions: a client session's own process is a unit that comes and goes with it, and with nothing else.
func TestOwnSessions(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/pfar/mcp.d/own.hcl", "sessions = \"own\"\nsessions_max = 2\n"+echo(""), 0o644)
	becomes(t, m, "own", control.Running)
	if list := sessions(t, m, "own"); len(list) != 0 {
		t.Errorf("before the first client there are %q", list)
	}
	become := func(n int) (list []string) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			all := sessions(t, m, "own")
			if list = launchers(all); len(list) != n || n == 0 && len(all) > 0 {
				return fmt.Errorf("there are the units %q, want %d sessions", all, n)
			}
			return nil
		})
		return list
	}
	one, two := connectTo(t, m, "own"), connectTo(t, m, "own")
	for _, c := range []*stdioClient{one, two} {
		if got := c.echo("there"); !strings.Contains(got, "there") {
			t.Error(got)
		}
	}
	list := become(2)
	before := pid(t, m, list[0]) + " " + pid(t, m, list[1])
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
	becomes(t, m, "own", control.Running)
	m.Run(t, "systemctl", "restart", "pfard")
	becomes(t, m, "own", control.Running)
	for _, c := range []*stdioClient{one, two} {
		if got := c.echo("still there"); !strings.Contains(got, "still there") {
			t.Errorf("after pfard was restarted: %s", got)
		}
	}
	if now := pid(t, m, list[0]) + " " + pid(t, m, list[1]); now != before {
		t.Errorf("the launchers are %s, and were %s", now, before)
	}
	if s, err := server(m, "own"); err != nil || len(s.Sessions) != 2 {
		t.Errorf("pfar status has %+v, %v", s.Sessions, err)
	}
	one.leave()
	list = become(1)

	// One that ends by itself is not started again, for what the client had in it is gone. Its next call has another one.
	for _, victim := range []string{"launcher", "server"} {
		unit := list[0]
		if victim == "server" {
			unit = strings.Replace(strings.Replace(unit, "pfar-mcp@", "pfar-mcp-", 1), ".service", ".scope", 1)
		}
		m.Run(t, "systemctl", "kill", "--signal=KILL", unit)
		become(0)
		if got := two.echo("again"); !strings.Contains(got, "again") {
			t.Errorf("after its %s was killed: %s", victim, got)
		}
		old := list[0]
		if list = become(1); list[0] == old {
			t.Errorf("after its %s was killed the session has %s again", victim, old)
		}
	}
	m.Run(t, "systemctl", "stop", list[0])
	become(0)
	two.echo("again")
	become(1)
	// systemd is not to start one again while nobody is there who would stop it.
	launcher := become(1)[0]
	m.Run(t, "systemctl", "kill", "--signal=STOP", "pfar-gateway")
	m.Run(t, "systemctl", "kill", "--signal=KILL", launcher)
	become(0)
	m.Run(t, "systemctl", "kill", "--signal=CONT", "pfar-gateway")
	m.Run(t, "rm", "/etc/pfar/mcp.d/own.hcl")
	become(0)
	left := "find /run/pfar/plan /run/pfar/applied /run/pfar/intent /run/private/pfar-mcp /run/private/pfar-egress -mindepth 1"
	bed.Eventually(t, soon, func() error {
		if r := m.Try("sh", "-c", left); r.Stdout != "" {
			return fmt.Errorf("left are %s", r.Stdout)
		}
		return nil
	})
	two.leave()
}

// TestLimits: limits of memory and CPU change while a server runs; how many tasks it may have takes a start. Whatever
// it does, the gateway and pfard come first.
func TestLimits(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	const file, scope = "/etc/pfar/mcp.d/hello.hcl", "pfar-mcp-hello.scope"
	declare := func(limits string) { m.Put(t, file, echo("sandbox {\n"+limits+"\n}\n"), 0o644) }
	has := func(property, want string) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			if got := strings.TrimSpace(m.Run(t, "systemctl", "show", "-P", property, scope)); got != want {
				return fmt.Errorf("%s is %q, want %q", property, got, want)
			}
			return nil
		})
	}
	declare(`memory_limit = "128m"`)
	becomes(t, m, "hello", control.Running)
	before := pid(t, m, "pfar-mcp@hello")
	has("MemoryMax", "134217728")
	has("MemorySwapMax", "0")
	has("CPUQuotaPerSecUSec", "infinity")
	for unit, want := range map[string]string{
		"pfard.service": "1000 1000", "pfar-gateway.service": "1000 1000", "pfar-egress.slice": "500 [not set]", scope: "[not set] [not set]", "pfar-mcp@hello.service": "[not set] [not set]",
	} {
		shown := m.Run(t, "systemctl", "show", "-P", "CPUWeight", "-P", "IOWeight", unit)
		if got := strings.Join(strings.Split(strings.TrimSpace(shown), "\n"), " "); got != want {
			t.Errorf("of processors and disks %s has the weights %s, want %s", unit, got, want)
		}
	}
	declare("memory_limit = \"192m\"\ncpu_quota = \"50%\"")
	has("MemoryMax", "201326592")
	has("CPUQuotaPerSecUSec", "500ms")
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
	declare(`memory_limit = "256m"`)
	has("MemoryMax", "268435456")
	has("CPUQuotaPerSecUSec", "infinity")
	m.Run(t, "systemctl", "daemon-reload")
	has("MemoryMax", "268435456")
	for mebibytes := range 5 { // systemd hangs up as it is told of each
		declare(fmt.Sprintf("memory_limit = \"%dm\"", 300+mebibytes))
		m.Run(t, "systemctl", "daemon-reexec")
	}
	has("MemoryMax", fmt.Sprint(304<<20))
	serves(t, m, "hello", before, "after its limits have changed")
	declare("memory_limit = \"256m\"\ntasks_max = 77")
	has("TasksMax", "77")
	becomes(t, m, "hello", control.Running)
	if now := pid(t, m, "pfar-mcp@hello"); now == before {
		t.Error("a limit of tasks that the kernel was told at the start has changed without one")
	}
	// What systemd starts again by itself gets the limits of now.
	declare("memory_limit = \"320m\"\ntasks_max = 77")
	has("MemoryMax", "335544320")
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfar-mcp@hello")
	bed.Eventually(t, soon, func() error {
		if now := pid(t, m, "pfar-mcp@hello"); now == "0" || now == before {
			return fmt.Errorf("the launcher is %s", now)
		}
		return nil
	})
	becomes(t, m, "hello", control.Running)
	has("MemoryMax", "335544320")
}
