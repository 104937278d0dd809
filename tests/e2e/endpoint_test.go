package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// TestLoopbackEndpoint knocks at the door that any program and any web page of this host can reach.
func TestLoopbackEndpoint(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"a.hcl": echo(t)})
	r := p.awaitRunning("a")
	u, err := url.Parse(r.Endpoint)
	check(t, err)
	if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
		t.Errorf("the endpoint is %s", r.Endpoint)
	}
	if st, err := os.Stat(r.TokenFile); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", st.Mode(), err)
	}
	token := p.token()
	tests := []struct {
		name    string
		change  func(*http.Request)
		refused bool
	}{
		{"honest", func(*http.Request) {}, false},
		{"honest, as localhost", func(r *http.Request) { r.Host = "localhost:" + u.Port() }, false},
		{"no token", func(r *http.Request) { r.Header.Del("Authorization") }, true},
		{"wrong token", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+strings.Repeat("0", len(token))) }, true},
		{"token cut short", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token[:len(token)-1]) }, true},
		{"token as password", func(r *http.Request) { r.SetBasicAuth("pfar", token) }, true},
		{"token in the query", func(r *http.Request) {
			r.Header.Del("Authorization")
			r.URL.RawQuery = "token=" + token + "&access_token=" + token
		}, true},
		{"empty bearer", func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, true},
		{"foreign host", func(r *http.Request) { r.Host = "evil.test" }, true},
		{"rebinding name", func(r *http.Request) { r.Host = "127.0.0.1.nip.io:" + u.Port() }, true},
		{"host with the same origin", func(r *http.Request) {
			r.Host = "evil.test:" + u.Port()
			r.Header.Set("Origin", "http://evil.test:"+u.Port())
		}, true},
		{"foreign origin", func(r *http.Request) { r.Header.Set("Origin", "https://evil.test") }, true},
		{"null origin", func(r *http.Request) { r.Header.Set("Origin", "null") }, true},
		{"form", func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, true},
		{"plain text", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, true},
		{"preflight", func(r *http.Request) {
			r.Method = http.MethodOptions
			r.Header.Set("Origin", "https://evil.test")
			r.Header.Set("Access-Control-Request-Method", "POST")
		}, true},
		{"other method", func(r *http.Request) { r.Method = http.MethodPut }, true},
		{"other path", func(r *http.Request) { r.URL.Path = "/debug/pprof/" }, true},
	}
	honest := p.loopback()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequest(http.MethodPost, r.Endpoint, strings.NewReader(ping))
			check(t, err)
			honest.headers(req)
			tt.change(req)
			resp, err := http.DefaultClient.Do(req)
			check(t, err)
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			if refused := resp.StatusCode >= 400; refused != tt.refused {
				t.Errorf("%s: %s", resp.Status, b)
			}
			for name := range resp.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: %s", name, resp.Header.Get(name))
				}
			}
			if bytes.Contains(b, []byte(token)) {
				t.Error("the answer holds the token")
			}
		})
	}
}

// TestParallelCalls wants each answer to be that of its own call.
func TestParallelCalls(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"a.hcl": echo(t), "b.hcl": echo(t)})
	p.awaitRunning("a", "b")
	c := p.client("/mcp")
	var calls sync.WaitGroup
	for i := range 60 {
		calls.Go(func() {
			message := fmt.Sprint("number ", i)
			r, err := c.call([]string{"a__echo", "b__echo"}[i%2], map[string]any{"message": message})
			if err != nil || r.text != message {
				t.Errorf("call %d: %+v, %v", i, r, err)
			}
		})
	}
	calls.Wait()
}

// TestSlowServerHoldsUpNobody has one server asleep in a call while another one answers.
func TestSlowServerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"slow.hcl": echo(t), "quick.hcl": echo(t)})
	p.awaitRunning("slow", "quick")
	c := p.client("/mcp")
	slept := make(chan error, 1)
	go func() {
		_, err := c.call("slow__sleep", map[string]any{"milliseconds": 3_600_000})
		slept <- err
	}()
	p.underWay("sleep")
	for range 20 {
		c.must("quick__echo", map[string]any{"message": "x"})
	}
	select {
	case err := <-slept:
		t.Errorf("the slow one has answered first: %v", err)
	default:
	}
	p.stop()
	<-slept
}

// TestListChangedReachesClients keeps the stream of a client open that is told of new tools.
func TestListChangedReachesClients(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"a.hcl": echo(t)})
	p.awaitRunning("a")
	c := p.loopback()
	req, err := http.NewRequest(http.MethodGet, p.last().Endpoint, nil)
	check(t, err)
	c.headers(req)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.http.Do(req)
	check(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the stream: %s", resp.Status)
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		events(resp.Body, func(data []byte) bool { return bytes.Contains(data, []byte("notifications/tools/list_changed")) })
	}()
	p.write("b.hcl", echo(t))
	p.awaitRunning("b")
	select {
	case <-told:
	case <-time.After(soon):
		t.Error("the client was told nothing")
	}
}

// stdio is a client over pfar connect.
type stdio struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

func (s *stdio) request(method string, params any) json.RawMessage {
	s.t.Helper()
	s.id++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": s.id, "method": method, "params": params})
	check(s.t, err)
	if _, err := s.in.Write(append(b, '\n')); err != nil {
		s.t.Fatal(err)
	}
	for {
		line, err := s.out.ReadBytes('\n')
		if err != nil {
			s.t.Fatalf("%s: %v", method, err)
		}
		var a answer
		check(s.t, json.Unmarshal(line, &a))
		if string(a.ID) == fmt.Sprint(s.id) && a.Method == "" {
			if a.Error != nil {
				s.t.Fatalf("%s: %+v", method, a.Error)
			}
			return a.Result
		}
	}
}

func TestConnect(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"a.hcl": echo(t), "b.hcl": echo(t)})
	p.awaitRunning("a", "b")
	for _, tt := range []struct {
		args []string
		tool string
	}{{[]string{"connect"}, "b__echo"}, {[]string{"connect", "b"}, "echo"}} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			cmd := exec.Command(program(t, "pfar"), tt.args...)
			cmd.Env = p.env
			in, err := cmd.StdinPipe()
			check(t, err)
			out, err := cmd.StdoutPipe()
			check(t, err)
			check(t, cmd.Start())
			defer cmd.Process.Kill()
			s := &stdio{t: t, in: in, out: bufio.NewReader(out)}
			s.request("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "desktop", "version": "1"}})
			io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
			if list := s.request("tools/list", map[string]any{}); !bytes.Contains(list, []byte(`"`+tt.tool+`"`)) {
				t.Errorf("tools: %s", list)
			}
			if got := s.request("tools/call", map[string]any{"name": tt.tool, "arguments": map[string]any{"message": "through the bridge"}}); !bytes.Contains(got, []byte("through the bridge")) {
				t.Errorf("result: %s", got)
			}
			check(t, in.Close())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("after the end of stdin: %v", err)
				}
			case <-time.After(soon):
				t.Error("goes on after the end of stdin")
			}
		})
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"a.hcl": echo(t), "off.hcl": "enabled = false\n" + echo(t)})
	p.awaitRunning("a")
	tests := []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"call", "a.echo", "--message", "by flag"}, 0, "by flag\n", ""},
		{[]string{"call", "a.echo", "--json", `{"message":"by json"}`}, 0, "by json\n", ""},
		{[]string{"call", "a.echo"}, 2, "", "message"},
		{[]string{"call", "a.ecko"}, 4, "", "echo"},
		{[]string{"call", "b.echo"}, 4, "", "b"},
		{[]string{"tools", "a", "--json"}, 0, `"echo"`, ""},
		{[]string{"status", "--json"}, 0, `"state": "running"`, ""},
		{[]string{"status", "nobody"}, 4, "", "nobody"},
		{[]string{"frobnicate"}, 2, "", "frobnicate"},
		{[]string{"version"}, 0, "pfar", ""},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			stdout, stderr, code := p.command(tt.args...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("exit code %d\nstdout: %s\nstderr: %s\nwant %d, %q, %q", code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
			}
		})
	}
	if got := server(p.last(), "off").State; got != control.Stopped {
		t.Errorf("a server that is not enabled is %s", got)
	}
	p.stdin = `{"message":"by stdin"}`
	if stdout, stderr, code := p.command("call", "a.echo", "-"); code != 0 || stdout != "by stdin\n" {
		t.Errorf("call -: %d, %q, %q", code, stdout, stderr)
	}
	before := server(p.last(), "a")
	for _, verb := range []string{"stop", "start", "restart"} {
		want := control.Running
		if verb == "stop" {
			want = control.Stopped
		}
		mark := p.mark()
		if _, stderr, code := p.command(verb, "a"); code != 0 {
			t.Errorf("pfar %s: %d, %s", verb, code, stderr)
		}
		p.awaitFrom(mark, verb, soon, func(r control.Report) bool {
			s := server(r, "a")
			return s.State == want && s.PID != before.PID
		})
		before = server(p.last(), "a")
	}
	if names := p.client("/mcp").names(); slices.Contains(names, "off__echo") {
		t.Errorf("tools of a server that is not enabled: %q", names)
	}
}
