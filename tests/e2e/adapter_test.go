package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// The adapter for remote servers, alone, with real servers at the other end.

// serving is a server that listens.
type serving struct {
	address string // host:port
	process *exec.Cmd
	log     *output
}

// serve starts a server that is told its port by a variable or an argument PORT, and waits until it says that it
// listens.
func serve(t *testing.T, port, says string, args ...string) *serving {
	t.Helper()
	s := &serving{address: net.JoinHostPort("127.0.0.1", port), log: &output{}}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "PORT", port)
	}
	s.process = exec.Command(args[0], args[1:]...)
	s.process.Env = environment("PORT=" + port)
	read, write := io.Pipe()
	s.process.Stdout, s.process.Stderr = write, write
	check(t, s.process.Start())
	t.Cleanup(func() {
		s.process.Process.Kill()
		s.process.Wait()
		write.Close()
		if t.Failed() {
			t.Logf("%q wrote: %.2000s", args, s.log)
		}
	})
	listens := make(chan struct{})
	go func() {
		said := false
		for lines := bufio.NewScanner(read); lines.Scan(); {
			fmt.Fprintln(s.log, lines.Text())
			if !said && strings.Contains(lines.Text(), says) {
				said = true
				close(listens)
			}
		}
	}()
	select {
	case <-listens:
	case <-time.After(soon):
		t.Fatalf("%q does not listen", args)
	}
	return s
}

// lastPort is the one that freePort has given last.
var lastPort atomic.Uint32

// freePort is a port of loopback's that nobody listens on. The kernel gives none of those to connections
// (net.ipv4.ip_local_port_range), and no other test gets it.
func freePort(t *testing.T) string {
	t.Helper()
	const first, count = 20000, 10000
	for range count {
		n := lastPort.Add(1)
		port := strconv.Itoa(first + (os.Getpid()+int(n))%count)
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// listenApart listens on a port that no other test has had: a client whose server has gone may call at its port again.
func listenApart(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:"+freePort(t))
	check(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// sameThrough asks a server directly and through the adapter.
func sameThrough(t *testing.T, direct, adapter speaker, list []asked) {
	t.Helper()
	o := &original{name: "remote"}
	for i, a := range list {
		if a.legacy && adapter.modern() {
			continue
		}
		difference := ""
		var reported, passedOn []byte // the longest progress of all tries: some lose what comes behind the answer
		for try := range 20 {         // and some say what time it is
			id := fmt.Sprintf(`"%d"`, 20*i+try)
			before, err := o.asked(direct, a, "", id)
			check(t, err)
			through, err := o.asked(adapter, a, "", id)
			check(t, err)
			reported = longer(reported, before.progress)
			passedOn = longer(passedOn, through.progress)
			alike := before.member == through.member && bytes.Equal(before.value, through.value)
			difference = ""
			if !alike || !bytes.Equal(reported, passedOn) {
				difference = fmt.Sprintf("directly %s %.300s %q, through the adapter %s %.300s %q",
					before.member, before.value, reported, through.member, through.value, passedOn)
			}
			if difference == "" || try >= 4 && !alike {
				break
			}
		}
		if difference != "" {
			t.Errorf("%s %s: %s", a.method, a.params, difference)
		}
	}
}

var progressToken = regexp.MustCompile(`"progressToken":\s*[0-9]+`)

// longer returns the longer of some progress and that of another try, without its token.
func longer(a []byte, b [][]byte) []byte {
	if b := progressToken.ReplaceAll(bytes.Join(b, nil), nil); len(b) > len(a) {
		return b
	}
	return a
}

// TestAdapterEverything has MCP's own TypeScript server answer over stdio, and over both HTTP transports through the
// adapter: byte for byte the same.
func TestAdapterEverything(t *testing.T) {
	t.Parallel()
	script := npm(t, "@modelcontextprotocol/server-everything/dist/index.js")
	for _, test := range []struct{ transport, path, says string }{
		{"streamableHttp", "/mcp", "listening on port"}, {"sse", "/sse", "is running on port"},
	} {
		t.Run(test.transport, func(t *testing.T) {
			t.Parallel()
			s := serve(t, freePort(t), test.says, "node", script, test.transport)
			direct := speak(t, false, environment(), "node", script)
			adapter := speak(t, false, environment(), program(t, "pfar-adapter"), "remote", "--insecure",
				"http://"+s.address+test.path)
			list := append(everythingAsked(), asked{method: "tools/list", params: `{}`},
				asked{method: "prompts/list", params: `{}`}, asked{method: "resources/templates/list", params: `{}`},
				asked{method: "none/such", params: `{}`})
			sameThrough(t, direct, adapter, list)
		})
	}
}

// built builds a program of a package.
func built(t *testing.T, pkg string) string {
	t.Helper()
	path := filepath.Join(directory(t, ""), "program")
	c := exec.Command("go", "build", "-trimpath", "-o", path, pkg)
	c.Dir, c.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	return path
}

// TestAdapterReference does the same with MCP's own Go server, in both generations. `make test-conformance` has it too.
func TestAdapterReference(t *testing.T) {
	t.Parallel()
	path := built(t, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	list := []asked{
		{method: "tools/list", params: `{"cursor":""}`}, {method: "prompts/list", params: `{"cursor":""}`},
		tool("test_simple_text", `{}`), tool("test_image_content", `{}`), tool("test_multiple_content_types", `{}`),
		tool("test_error_handling", `{}`), tool("none", `{}`),
		{method: "tools/call", params: `{"name":"NAMEtest_tool_with_progress","arguments":{}}`, token: true},
		prompt("test_simple_prompt", `{}`), resource("test://static-text"), resource("test://none"),
	}
	for _, test := range []struct {
		name      string
		young     bool
		stateless string
	}{
		{"sessions", false, "false"}, {"no sessions", false, "true"}, {"2026-07-28", true, "true"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, freePort(t), "listening", path, "-http", "127.0.0.1:PORT", "-stateless="+test.stateless)
			direct := speak(t, test.young, environment(), path)
			adapter := speak(t, test.young, environment(), program(t, "pfar-adapter"), "remote",
				"--insecure", "http://"+s.address)
			sameThrough(t, direct, adapter, list)
		})
	}
}

// TestAdapterMCPGo does the same with the reference server of mcp-go, which listens at one port only and so has a
// network of its own. It does not speak HTTP+SSE, so another example of mcp-go answers by that.
func TestAdapterMCPGo(t *testing.T) {
	t.Parallel()
	t.Run("Streamable HTTP", func(t *testing.T) {
		if os.Getuid() != 0 {
			return // another network takes root, and the test has run as root
		}
		t.Parallel()
		path := built(t, "github.com/mark3labs/mcp-go/examples/everything")
		s := serve(t, "8080", "listening on", "unshare", "--net", "sh", "-c", `ip link set lo up && exec "$0" -t http`, path)
		in := []string{"--target", strconv.Itoa(s.process.Process.Pid), "--net"}
		until(t, "it listens", func() bool {
			return exec.Command("nsenter", append(in, "bash", "-c", "</dev/tcp/127.0.0.1/8080")...).Run() == nil
		})
		direct := speak(t, false, environment(), path)
		adapter := speak(t, false, environment(), "nsenter", append(in, program(t, "pfar-adapter"), "remote", "--insecure",
			"http://127.0.0.1:8080/mcp")...)
		sameThrough(t, direct, adapter, []asked{
			{method: "tools/list", params: `{}`}, {method: "prompts/list", params: `{}`},
			{method: "resources/templates/list", params: `{}`},
			tool("echo", `{"message":"h\u00e9<&>"}`), tool("add", `{"a":1,"b":2}`), tool("getTinyImage", `{}`),
			tool("echo", `{}`), tool("none", `{}`), prompt("simple_prompt", `{}`), resource("test://static/resource"),
			resource("test://none"),
			{method: "tools/call", params: `{"name":"NAMElongRunningOperation","arguments":{"duration":0.2,"steps":2}}`,
				token: true},
		})
	})
	t.Run("HTTP+SSE", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		s := serve(t, port, "listening on", built(t, "github.com/mark3labs/mcp-go/examples/dynamic_path"), "-addr=:PORT")
		until(t, "it listens", func() bool {
			c, err := net.Dial("tcp", s.address)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
		adapter := speak(t, false, environment(), program(t, "pfar-adapter"), "remote", "--sse", "--insecure",
			"http://localhost:"+port+"/api/acme/sse")
		a, err := (&original{name: "remote"}).asked(adapter, tool("echo", `{"message":"hello"}`), "", `"1"`)
		if err != nil || a.member != "result" || !strings.Contains(string(a.value), "Echo: hello") {
			t.Errorf("%v, %s %s", err, a.member, a.value)
		}
	})
}

// talk is the adapter as a process, line by line.
type talk struct {
	t      *testing.T
	in     io.WriteCloser
	lines  chan string
	stderr *output
	ended  chan error
	pid    int
}

func adapt(t *testing.T, env []string, args ...string) *talk {
	t.Helper()
	c := exec.Command(program(t, "pfar-adapter"), append([]string{"remote"}, args...)...)
	a := &talk{t: t, lines: make(chan string, 256), stderr: &output{}, ended: make(chan error, 1)}
	c.Env, c.Stderr = env, a.stderr
	in, err := c.StdinPipe()
	check(t, err)
	out, err := c.StdoutPipe()
	check(t, err)
	check(t, c.Start())
	a.in, a.pid = in, c.Process.Pid
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			a.lines <- lines.Text()
		}
		a.ended <- c.Wait()
	}()
	t.Cleanup(func() {
		in.Close()
		select {
		case err := <-a.ended:
			if err != nil {
				t.Errorf("the adapter ended with %v", err)
			}
		case <-time.After(soon):
			t.Error("the adapter does not end")
			c.Process.Kill()
		}
		if t.Failed() {
			t.Logf("the adapter wrote: %.2000s", a.stderr)
		}
	})
	return a
}

func (a *talk) say(line string) { fmt.Fprintln(a.in, line) }

// hear returns the next line with a text in it.
func (a *talk) hear(part string) string {
	a.t.Helper()
	for late := time.After(soon); ; {
		select {
		case line := <-a.lines:
			if strings.Contains(line, part) {
				return line
			}
		case <-late:
			a.t.Fatalf("no line has %q", part)
		}
	}
}

// hello greets as a client that can be asked.
func (a *talk) hello(version string) {
	a.t.Helper()
	a.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `",` +
		`"capabilities":{"sampling":{}},"clientInfo":{"name":"raw","version":"1"}}}`)
	a.hear(`"id":1`)
	a.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// TestAdapterOverTLS talks to servers of mcp-go whose certificate the environment makes trusted, as a sandbox does. One
// asks the client something in the course of a call.
func TestAdapterOverTLS(t *testing.T) {
	t.Parallel()
	s := mcpserver.NewMCPServer("tls", "1")
	s.EnableSampling()
	s.AddTool(mcp.NewTool("ask"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		//lint:ignore SA1019 servers before 2026-07-28 ask so
		reply, err := s.RequestSampling(ctx, mcp.CreateMessageRequest{})
		if err != nil {
			return nil, err
		}
		return mcp.NewToolResultText("the model is " + reply.Model), nil
	})
	const token = "placeholder-0123456789"
	for name, test := range map[string]struct {
		path    string
		handler http.Handler
		asks    bool
	}{
		"Streamable HTTP": {"/mcp", mcpserver.NewStreamableHTTPServer(s), true},
		"HTTP+SSE":        {"/sse", mcpserver.NewSSEServer(s), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			remote := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer "+token {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				test.handler.ServeHTTP(w, r)
			}))
			remote.Config.ErrorLog = log.New(io.Discard, "", 0) // it is refused below
			remote.StartTLS()
			t.Cleanup(remote.Close)
			t.Cleanup(remote.CloseClientConnections)
			file := filepath.Join(directory(t, ""), "ca.pem")
			put(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: remote.Certificate().Raw})))
			a := adapt(t, environment("SSL_CERT_FILE="+file, "T="+token), "--token-env", "T", remote.URL+test.path)
			a.hello("2024-11-05")
			a.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask","arguments":{}}}`)
			if test.asks {
				line := a.hear(`"sampling/createMessage"`)
				a.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"model":"m7","role":"assistant",`+
					`"content":{"type":"text","text":"x"}}}`, member([]byte(line), "id")))
				if got := a.hear(`"id":2`); !strings.Contains(got, "the model is m7") {
					t.Errorf("the answer is %s", got)
				}
			} else {
				a.hear(`"id":2`)
			}
			for id := range 200 {
				a.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{}}`, 100+id))
				a.hear(fmt.Sprintf(`"id":%d`, 100+id))
			}
			t.Logf("the adapter has %.1f MiB to itself", float64(pss(t, a.pid))/(1<<20)) // BenchmarkRemote has the limit
			stranger := adapt(t, environment("T="+token), "--token-env", "T", remote.URL+test.path)
			stranger.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
			if got := stranger.hear(`"id":1`); !strings.Contains(got, `"class":"tls"`) || strings.Contains(got, token) {
				t.Errorf("without the certificate the answer is %s", got)
			}
			unknown := adapt(t, environment("SSL_CERT_FILE="+file), remote.URL+test.path)
			unknown.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
			if got := unknown.hear(`"id":1`); !strings.Contains(got, `"class":"unauthorized"`) {
				t.Errorf("without the token the answer is %s", got)
			}
		})
	}
}

// pss is a process's own share of memory, in bytes.
func pss(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	check(t, err)
	for line := range strings.Lines(string(text)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("the kernel does not say how large the process is")
	return 0
}

// switchboard passes connections on to one server or another.
type switchboard struct {
	net.Listener
	to atomic.Pointer[serving]
}

func switchTo(t *testing.T, s *serving) *switchboard {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { l.Close() })
	r := &switchboard{Listener: l}
	r.to.Store(s)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				to, err := net.Dial("tcp", r.to.Load().address)
				if err != nil {
					return
				}
				defer to.Close()
				go func() { defer to.Close(); io.Copy(to, c) }()
				io.Copy(c, to)
			}()
		}
	}()
	return r
}

// TestAdapterKilled kills a server in the middle of a call, whose error has a name. Another one takes its place, where
// the next request begins a session by itself.
func TestAdapterKilled(t *testing.T) {
	t.Parallel()
	script := npm(t, "@modelcontextprotocol/server-everything/dist/index.js")
	for _, test := range []struct{ transport, path, says string }{
		{"streamableHttp", "/mcp", "listening on port"}, {"sse", "/sse", "is running on port"},
	} {
		t.Run(test.transport, func(t *testing.T) {
			t.Parallel()
			first := serve(t, freePort(t), test.says, "node", script, test.transport)
			second := serve(t, freePort(t), test.says, "node", script, test.transport)
			r := switchTo(t, first)
			a := adapt(t, environment(), "--insecure", "http://"+r.Addr().String()+test.path)
			a.hello("2025-11-25")
			a.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"trigger-long-running-operation",` +
				`"arguments":{"duration":600,"steps":60000},"_meta":{"progressToken":5}}}`)
			a.hear("notifications/progress")
			r.to.Store(second)
			check(t, first.process.Process.Kill())
			if got := a.hear(`"id":2`); !strings.Contains(got, `"class":"network_error"`) || strings.Contains(got, `"result"`) {
				t.Errorf("the call ended with %s", got)
			}
			a.say(`{"jsonrpc":"2.0","id":4,"method":"resources/list","params":{}}`) // it may come again in a new session
			if got := a.hear(`"id":4`); strings.Contains(got, `"error"`) {
				t.Errorf("after that a list is %s", got)
			}
			a.say(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"message":"x"}}}`)
			if got := a.hear(`"id":5`); !strings.Contains(got, `Echo: x`) {
				t.Errorf("after that a call ended with %s", got)
			}
		})
	}
}
