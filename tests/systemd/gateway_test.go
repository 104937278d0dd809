package systemd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/handover"
)

// launcherVariable makes this program a launcher inside a machine, of the server that it names the program of.
const launcherVariable = "PFAR_TEST_LAUNCHER"

// launcher hands a server over, writes what the gateway says of it, a line each, and ends when the gateway is gone.
func launcher(program string) error {
	server := exec.Command(program)
	stdin, err := server.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer server.Process.Kill()
	c, err := handover.Dial("/run/pfar/servers.sock", handover.Message{
		Expect: &handover.Server{Name: "echo", Pins: "trust-first"},
	})
	if err != nil {
		return err
	}
	if err := c.Send(handover.Message{Hello: &handover.Hello{Name: "echo"}}, stdin.(*os.File), stdout.(*os.File)); err != nil {
		return err
	}
	stdin.Close()
	stdout.Close()
	for {
		m, _, err := c.Receive()
		if err != nil {
			return err
		}
		line, err := json.Marshal(m)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", line)
	}
}

// client is a session with a machine's gateway.
type client struct {
	http    http.Client
	session string
	id      int
}

func newClient(m *bed.Machine) *client {
	socket := filepath.Join("/proc", fmt.Sprint(m.Leader()), "root/run/pfar/gateway.sock")
	return &client{http: http.Client{Timeout: soon, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}}
}

// request returns the answer as it comes.
func (c *client) request(method, params string) (string, error) {
	c.id++
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, c.id, method, params)
	r, err := http.NewRequest(http.MethodPost, "http://pfar/mcp/operator/default/echo", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
		c.session = s
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	return b.String(), err
}

// TestGatewayKeepsItsServers ends the installed gateway in every way that there is: systemd keeps what it needs of its
// servers and clients, and gives it to the next one.
func TestGatewayKeepsItsServers(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Shell(t, "pfar sessions")                                                                         // it has been told what calls are decided by
	m.Shell(t, "systemctl mask --runtime pfard.service; systemctl stop pfard.service 'pfard-*.socket'") // from now on it does without
	m.PutFile(t, "/root/launch", "/proc/self/exe", 0o755)
	run := m.Command(t.Context(), "env", launcherVariable+"="+programs+"/echo", "/root/launch")
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.Go(t, run)
	said := make(chan string, 64)
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said <- lines.Text()
		}
		_ = run.Wait() // it has said why
	}()
	ready := func(when string) {
		t.Helper()
		select {
		case line, ok := <-said:
			if !ok || !strings.Contains(line, `"ready":{`) {
				t.Fatalf("%s the launcher is told %q\n%s", when, line, m.Journal(t, "pfar-gateway.service"))
			}
		case <-time.After(soon):
			t.Fatalf("%s the launcher is told nothing\n%s", when, m.Journal(t, "pfar-gateway.service"))
		}
	}
	ready("at the start")
	c := newClient(m)
	if got, err := c.request("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`); err != nil || c.session == "" {
		t.Fatalf("initialize: %s, %v", got, err)
	}
	time.Sleep(500 * time.Millisecond) // a session that has just begun need not go on after a SIGKILL
	for n := range 12 {
		end := [][]string{{"systemctl", "kill", "-s", "KILL", "pfar-gateway.service"}, {"systemctl", "kill", "-s", "TERM", "pfar-gateway.service"}, {"systemctl", "restart", "pfar-gateway.service"}}[n%3]
		before := m.Run(t, "systemctl", "show", "-P", "MainPID", "pfar-gateway.service")
		m.Run(t, end[0], end[1:]...)
		bed.Eventually(t, soon, func() error {
			if now := m.Run(t, "systemctl", "show", "-P", "MainPID", "pfar-gateway.service"); now == before || now == "0\n" {
				return fmt.Errorf("the gateway's process is %s", now)
			}
			return nil
		})
		message := fmt.Sprintf("after end %d, %q", n, end)
		if got, err := c.request("tools/call", fmt.Sprintf(`{"name":"echo","arguments":{"message":%q}}`, message)); err != nil || !strings.Contains(got, fmt.Sprintf("end %d,", n)) || strings.Contains(got, `"error"`) {
			t.Fatalf("%s: %s, %v\n%s", message, got, err, m.Journal(t, "pfar-gateway.service"))
		}
		ready(message) // at once
		ready(message) // when the server was asked again
	}
	if got := m.Run(t, "systemctl", "show", "-P", "NFileDescriptorStore", "pfar-gateway.service"); got != "10\n" {
		t.Errorf("systemd keeps %s descriptors, want four of the server, two of the audit, the sessions, the secrets, the clients and the policy", got)
	}
	if r := m.Try("pfar", "audit", "verify"); r.Code != 0 {
		t.Errorf("the record is not whole: %s", r)
	}
	m.Run(t, "systemctl", "stop", "pfar-gateway.socket", "pfar-gateway.service")
	select {
	case line, ok := <-said:
		if ok {
			t.Errorf("at the end the launcher is told %q", line)
		}
	case <-time.After(soon):
		t.Error("the launcher does not hear that the gateway has been stopped")
	}
}

// TestAPortThatIsTaken costs clients of HTTP alone, is told, and is taken back when it is free.
func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Run(t, "systemctl", "stop", "pfar-gateway-http.socket")
	m.Run(t, "systemd-run", "--quiet", "--unit=taker", "python3", "-c", "import socket, time; s = socket.create_server(('127.0.0.1', 7417)); time.sleep(1000)")
	bed.Eventually(t, soon, func() error {
		if out := m.Shell(t, "ss -ltn"); !strings.Contains(out, "127.0.0.1:7417") {
			return fmt.Errorf("nobody has the port: %s", out)
		}
		return nil
	})
	m.Try("systemctl", "start", "pfar-gateway-http.socket")
	m.Run(t, "systemctl", "restart", "pfar-gateway.service")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("pfar", "status"); !strings.Contains(r.Stdout+r.Stderr, "another program has the port 127.0.0.1:7417") {
			return fmt.Errorf("pfar status: %s", r)
		}
		return nil
	})
	m.Run(t, "pfar", "sessions") // the gateway answers all the same
	m.Run(t, "systemctl", "stop", "taker")
	isActive(t, m, "pfar-gateway-http.socket", "active")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("pfar", "status", "--json"); !strings.Contains(r.Stdout, `"endpoint": "http://127.0.0.1:7417/mcp"`) {
			return fmt.Errorf("pfar status: %s", r)
		}
		return nil
	})
}
