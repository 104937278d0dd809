package e2e

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

// clientFile is the declaration of a client.
func (p *pfar) clientFile(name string) string { return filepath.Join(p.home, "clients.d", name) }

// knock says how the endpoint on loopback answers a token at a path.
func (p *pfar) knock(token, path string) int {
	p.t.Helper()
	req, err := http.NewRequest(http.MethodPost, strings.TrimSuffix(p.last().Endpoint, "/mcp")+path, strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`))
	must(p.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	must(p.t, err)
	resp.Body.Close()
	return resp.StatusCode
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// awaitKnock waits until what was written is what counts.
func (p *pfar) awaitKnock(token, path string, want int) {
	p.t.Helper()
	got := 0
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = p.knock(token, path); got == want {
			return
		}
	}
	p.t.Fatalf("%s is answered with %d, want %d", path, got, want)
}

// addClient declares a client and returns its token.
func (p *pfar) addClient(args ...string) string {
	p.t.Helper()
	stdout, stderr, code := p.command(append([]string{"client", "add"}, args...)...)
	token, ok := strings.CutSuffix(stdout, "\n")
	if code != 0 || !ok || len(token) < 43 || strings.ContainsAny(token, " \n") || strings.Contains(stderr, token) {
		p.t.Fatalf("pfar client add: %d, %q, %q", code, stdout, stderr)
	}
	return token
}

// as connects to a path of the endpoint with a token.
func (p *pfar) as(token, path string) *client {
	p.t.Helper()
	return open(p.t, strings.TrimSuffix(p.last().Endpoint, "/mcp")+path, token, (&net.Dialer{}).DialContext)
}

// changes opens the stream of a session, and closes told with the first change of tools and ended with its end.
func (c *client) changes() (told, ended <-chan struct{}) {
	c.t.Helper()
	req, err := http.NewRequest(http.MethodGet, c.url, nil)
	must(c.t, err)
	c.headers(req)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.http.Do(req)
	must(c.t, err)
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("the stream: %s", resp.Status)
	}
	change, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(end)
		defer resp.Body.Close()
		first := true
		events(resp.Body, func(data []byte) bool {
			if first && bytes.Contains(data, []byte("tools/list_changed")) {
				first = false
				close(change)
			}
			return false
		})
	}()
	return change, end
}

func soonDone(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(soon):
		t.Fatalf("%s: nothing happens", what)
	}
}

// TestDeclaredClients has two clients side by side, and changes what they may while they are there.
func TestDeclaredClients(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"a.hcl": echo(t), "b.hcl": echo(t)})
	p.awaitRunning("a", "b")
	desk := p.addClient("desk", "--servers", "a", "--hide", "*.crash")
	labFile := filepath.Join(p.home, "lab-token")
	if stdout, stderr, code := p.command("client", "add", "lab", "--servers", "b", "--profile", "balanced", "--relax", "a test", "--token-file", labFile); code != 0 || stdout != "" {
		t.Fatalf("--token-file: %d, %q, %q", code, stdout, stderr)
	}
	b, err := os.ReadFile(labFile)
	check(t, err)
	lab := strings.TrimSpace(string(b))
	p.awaitKnock(desk, "/mcp", 200)
	p.awaitKnock(lab, "/mcp", 200)

	t.Run("what each finds", func(t *testing.T) {
		for _, tt := range []struct{ token, path, has, lacks string }{
			{desk, "/mcp", "a__echo", "a__crash b__echo b__crash"}, {desk, "/mcp/a", "echo", "crash"}, {desk, "/mcp/desk/default/a", "echo", "crash"},
			{lab, "/mcp", "b__echo b__crash", "a__echo"}, {lab, "/mcp/lab", "b__echo", "a__echo"}, {p.token(), "/mcp", "a__echo a__crash b__echo", ""},
		} {
			names := p.as(tt.token, tt.path).names()
			for _, want := range strings.Fields(tt.has) {
				if !slices.Contains(names, want) {
					t.Errorf("%s lacks %s: %q", tt.path, want, names)
				}
			}
			for _, none := range strings.Fields(tt.lacks) {
				if slices.Contains(names, none) {
					t.Errorf("%s has %s", tt.path, none)
				}
			}
		}
		for _, tt := range []struct{ token, path string }{
			{desk, "/mcp/b"}, {desk, "/mcp/lab"}, {desk, "/mcp/lab/default"}, {desk, "/mcp/desk/none"}, {desk, "/mcp/desk/default/b"}, {lab, "/mcp/desk/default"}, {p.token(), "/mcp/desk/default"},
		} {
			if got := p.knock(tt.token, tt.path); got != 404 {
				t.Errorf("%s: %d", tt.path, got)
			}
		}
		c := p.as(desk, "/mcp")
		if got := c.must("a__echo", map[string]any{"message": "mine"}); got != "mine" {
			t.Errorf("its own tool returns %q", got)
		}
		for _, name := range []string{"b__echo", "a__crash", "b__crash"} {
			if _, err := c.call(name, map[string]any{"message": "x"}); err == nil || !strings.Contains(err.Error(), "unknown tool") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("in a client's name", func(t *testing.T) {
		for _, tt := range []struct {
			args   []string
			code   int
			stdout string
		}{
			{[]string{"call", "--client", "desk", "b.echo", "--message", "x"}, 4, ""}, {[]string{"call", "--client", "desk", "a.crash"}, 4, ""},
			{[]string{"call", "--client", "nobody", "a.echo", "--message", "x"}, 4, ""}, {[]string{"call", "--client", "desk", "--session", "none", "a.echo", "--message", "x"}, 4, ""},
			{[]string{"call", "--session", "default", "a.echo", "--message", "x"}, 2, ""}, {[]string{"call", "--client", "../x", "a.echo"}, 2, ""},
			{[]string{"call", "--client", "desk", "a.echo", "--message", "as desk"}, 0, "as desk\n"}, {[]string{"call", "--client", "desk", "--session", "default", "a.echo", "--message", "m"}, 0, "m\n"},
			{[]string{"call", "b.echo", "--message", "as myself"}, 0, "as myself\n"},
		} {
			if stdout, stderr, code := p.command(tt.args...); code != tt.code || stdout != tt.stdout {
				t.Errorf("%q: %d, %q, %q", tt.args, code, stdout, stderr)
			}
		}
		cmd := exec.Command(program(t, "pfar"), "connect", "--client", "desk")
		cmd.Env = p.env
		cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n" +
			`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}` + "\n")
		out, err := cmd.Output()
		if err != nil || !bytes.Contains(out, []byte("a__echo")) || bytes.Contains(out, []byte("crash")) || bytes.Contains(out, []byte("b__echo")) {
			t.Errorf("pfar connect --client: %v, %s", err, out)
		}
	})
	t.Run("no token is kept", func(t *testing.T) {
		info, err := os.Stat(p.clientFile("desk.hcl"))
		check(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("the file's mode is %v", info.Mode())
		}
		for _, dir := range []string{p.home, p.run} {
			check(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() || path == labFile {
					return err
				}
				b, err := os.ReadFile(path)
				if bytes.Contains(b, []byte(desk)) || bytes.Contains(b, []byte(lab)) {
					t.Errorf("a token stands in %s", path)
				}
				return err
			}))
		}
		stdout, _, _ := p.command("client", "list", "--json")
		if strings.Contains(stdout, desk) || !strings.Contains(stdout, `"name": "operator"`) || !strings.Contains(stdout, `"profile": "balanced"`) {
			t.Errorf("client list: %s", stdout)
		}
	})
	t.Run("configuration", func(t *testing.T) {
		var config struct {
			MCPServers map[string]struct {
				URL     string
				Headers map[string]string
				Command string
				Args    []string
			}
		}
		stdout, _, _ := p.command("client", "config", "desk")
		check(t, json.Unmarshal([]byte(stdout), &config))
		one := config.MCPServers["pfar"]
		if got := p.as(desk, strings.TrimPrefix(one.URL, strings.TrimSuffix(p.last().Endpoint, "/mcp"))).names(); !slices.Contains(got, "a__echo") || one.Headers["Authorization"] == "" {
			t.Errorf("%+v leads to %q", one, got)
		}
		stdout, _, _ = p.command("client", "config", "desk", "--stdio")
		check(t, json.Unmarshal([]byte(stdout), &config))
		if one := config.MCPServers["pfar"]; !slices.Equal(one.Args, []string{"connect", "--client", "desk"}) {
			t.Errorf("--stdio: %+v", one)
		}
	})

	c, other := p.as(desk, "/mcp"), p.as(lab, "/mcp")
	told, ended := c.changes()
	_, otherEnded := other.changes()
	file := p.clientFile("desk.hcl")
	src, err := os.ReadFile(file)
	check(t, err)
	changed := bytes.Replace(src, []byte(`["a"]`), []byte(`["a", "b"]`), 1)
	check(t, os.WriteFile(file, changed, 0o600))
	soonDone(t, "a changed client", told)
	if names := c.names(); !slices.Contains(names, "b__echo") || slices.Contains(names, "b__crash") {
		t.Errorf("after the change: %q", names)
	}

	mark := p.mark()
	check(t, os.WriteFile(file, []byte("servers = [\n"), 0o600))
	p.awaitFrom(mark, "the mistake", soon, func(r control.Report) bool {
		return slices.ContainsFunc(r.Diagnostics, func(d control.Diagnostic) bool { return d.File == file && d.Severity == "error" })
	})
	if names := c.names(); !slices.Contains(names, "b__echo") {
		t.Errorf("the last good version does not stay: %q", names)
	}
	if stdout, stderr, code := p.command("check"); code != 1 || !strings.Contains(stderr, "desk.hcl:2:1: error") {
		t.Errorf("pfar check: %d, %q, %q", code, stdout, stderr)
	}
	for _, g := range descendants(p.cmd.Process.Pid) {
		if strings.HasPrefix(g.name, "pfar-gateway") {
			check(t, unix.Kill(g.pid, unix.SIGKILL))
		}
	}
	p.awaitKnock(desk, "/mcp/b", 200)
	if got := p.knock(lab, "/mcp/a"); got != 404 {
		t.Errorf("after the gateway was killed: %d", got)
	}
	check(t, os.WriteFile(file, changed, 0o600))

	// The gateway's sessions outlive it; their streams do not.
	soonDone(t, "a stream of the gateway that was killed", ended)
	soonDone(t, "a stream of the gateway that was killed", otherEnded)
	_, ended = p.as(desk, "/mcp").changes()
	_, otherEnded = p.as(lab, "/mcp").changes()
	kept, stderr, code := p.command("client", "rotate", "desk", "--keep")
	if code != 0 {
		t.Fatalf("rotate --keep: %d, %s", code, stderr)
	}
	kept = strings.TrimSpace(kept)
	p.awaitKnock(kept, "/mcp", 200)
	if got := p.knock(desk, "/mcp"); got != 200 {
		t.Errorf("the token that was kept: %d", got)
	}
	fresh, stderr, code := p.command("client", "rotate", "desk")
	if code != 0 {
		t.Fatalf("rotate: %d, %s", code, stderr)
	}
	fresh = strings.TrimSpace(fresh)
	soonDone(t, "the stream of a token that is no more", ended)
	p.awaitKnock(fresh, "/mcp", 200)
	if a, b := p.knock(desk, "/mcp"), p.knock(kept, "/mcp"); a != 401 || b != 401 {
		t.Errorf("the tokens before: %d, %d", a, b)
	}
	_, ended = p.as(fresh, "/mcp").changes()
	if _, stderr, code := p.command("client", "remove", "desk"); code != 0 {
		t.Errorf("remove: %d, %s", code, stderr)
	}
	soonDone(t, "the stream of a client that is gone", ended)
	if got := p.knock(fresh, "/mcp"); got != 401 {
		t.Errorf("a client that is gone: %d", got)
	}
	select {
	case <-otherEnded:
		t.Error("the other client's stream has ended")
	default:
	}
}

// TestBuiltInClients: a file says what the endpoint's token may; one with a mistake, of which there is no good version,
// lets nobody in rather than everybody do everything, and so does one that would declare the operator.
func TestBuiltInClients(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"a.hcl": echo(t), "b.hcl": echo(t)})
	p.awaitRunning("a", "b")
	check(t, os.Mkdir(p.clientFile(""), 0o700))
	write := func(name, text string) { check(t, os.WriteFile(p.clientFile(name), []byte(text), 0o600)) }
	write("default.toml", "servers = [\"a\"]\n")
	p.awaitKnock(p.token(), "/mcp/b", 404)
	if names := p.loopback().names(); !slices.Contains(names, "a__echo") || slices.Contains(names, "b__echo") {
		t.Errorf("the endpoint's token sees %q", names)
	}
	if stdout, stderr, code := p.command("call", "b.echo", "--message", "x"); code != 0 || stdout != "x\n" {
		t.Errorf("the operator: %d, %q, %q", code, stdout, stderr)
	}
	write("operator.hcl", "servers = [\"a\", \"b\"]\n")
	awaitCode := func(want int) {
		t.Helper()
		code := -1
		for deadline := time.Now().Add(soon); time.Now().Before(deadline) && code != want; {
			_, _, code = p.command("call", "a.echo", "--message", "x")
		}
		if code != want {
			t.Errorf("the operator's call ends with %d, want %d", code, want)
		}
	}
	awaitCode(4)
	if _, stderr, code := p.command("check"); code != 1 || !strings.Contains(stderr, "operator.hcl:1:1: error: Reserved name") {
		t.Errorf("pfar check: %d, %s", code, stderr)
	}
	check(t, os.Remove(p.clientFile("operator.hcl")))
	awaitCode(0)
	write("default.toml", "servers = [\n")
	p.again()
	p.awaitRunning("a", "b")
	p.awaitKnock(p.token(), "/mcp", 401)
	check(t, os.Remove(p.clientFile("default.toml")))
	p.awaitKnock(p.token(), "/mcp/b", 200)
}
