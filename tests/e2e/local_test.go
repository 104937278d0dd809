package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

// everythingAt declares the reference server with its Streamable HTTP in its sandbox.
func everythingAt(t testing.TB, mark, listen, transport string) string {
	t.Helper()
	args := []string{npm(t, "@modelcontextprotocol/server-everything/dist/index.js"), "streamableHttp", mark}
	return declare("node", args, fmt.Sprintf("%s\nenv = { PORT = %q }\n", transport, listen))
}

// pipedEcho declares tests/echo behind a pair of FIFOs.
func pipedEcho(t testing.TB, mark, path string) string {
	t.Helper()
	script := fmt.Sprintf("exec %s -label %s <%s.in >%s.out", program(t, "echo"), mark, path, path)
	more := fmt.Sprintf("transport = \"pipe\"\npath = %q\nsandbox {\n  read_only = [%q]\n}\n", path, program(t, "echo"))
	return declare("sh", []string{"-c", script}, more)
}

// TestLocalTransports: a server that pfar starts is reached at its socket, its port and its pipe as on its stdio. A
// program of the host's at the same port is not asked. A server that is killed in a call fails that call, and is
// started again.
func TestLocalTransports(t *testing.T) {
	t.Parallel()
	const socket = "/run/socket/mcp.sock"
	const writes = "tool \"" + slowOperation + "\" {\n  semantics = \"write\"\n}\n" // or it is made again
	decoy := listenApart(t)
	asked := make(chan net.Conn, 1)
	go func() {
		if c, err := decoy.Accept(); err == nil {
			asked <- c
		}
	}()
	_, port, err := net.SplitHostPort(decoy.Addr().String())
	check(t, err)
	marks := map[string]string{"socket": marker(t), "port": marker(t), "piped": marker(t)}
	p := start(t, map[string]string{
		"socket.hcl": everythingAt(t, marks["socket"], socket, writes+fmt.Sprintf("transport = \"uds\"\npath = %q", socket)),
		"port.hcl": everythingAt(t, marks["port"], port,
			writes+fmt.Sprintf("transport = \"stream-http\"\nurl = \"http://127.0.0.1:%s/mcp\"", port)),
		"piped.hcl": pipedEcho(t, marks["piped"], "/run/piped/pipe"),
	})
	report := p.awaitRunning("socket", "port", "piped")
	for name, want := range map[string]string{"socket": "stream-http", "port": "stream-http", "piped": ""} {
		if got := server(report, name).Transport; got != want {
			t.Errorf("pfar says that it speaks with %s by %q", name, got)
		}
	}
	c := p.client("/mcp")
	for server, want := range map[string]string{"socket": "Echo: hello", "port": "Echo: hello", "piped": "hello"} {
		if got := c.must(server+"__echo", map[string]any{"message": "hello"}); got != want {
			t.Errorf("%s answered %q", server, got)
		}
	}
	select {
	case <-asked:
		t.Error("the host's program at that port was asked")
	default:
	}
	raw := p.agent(p.token())
	const unsure = "whether it had done what was asked is not known"
	for name, slow := range map[string]struct{ tool, arguments string }{
		"socket": {slowOperation, `{"duration":600,"steps":2}`},
		"port":   {slowOperation, `{"duration":600,"steps":2}`},
		"piped":  {"sleep", `{"milliseconds":600000}`},
	} {
		failed := make(chan ended, 1)
		go func() {
			params := fmt.Sprintf(`{"name":"%s__%s","arguments":%s}`, name, slow.tool, slow.arguments)
			a, err := raw.ask("tools/call", params, strconv.Quote(name), "", "")
			failed <- ended{a, err}
		}()
		until(t, "a call of "+name, func() bool {
			stdout, _, _ := p.command("audit", "--json", "--server", name)
			return strings.Contains(stdout, slow.tool)
		})
		mark := p.mark()
		for _, victim := range find(marks[name]) {
			if victim.name == "node" || victim.name == "echo" {
				check(t, syscall.Kill(victim.pid, syscall.SIGKILL))
			}
		}
		down := p.awaitFrom(mark, name+" crashed", soon, inState(name, control.BackOff))
		if got := server(down, name).Detail; !strings.Contains(got, "killed") && !strings.Contains(got, "137") {
			t.Errorf("%s crashed: %s", name, got)
		}
		if got := <-failed; got.class(t) != failure.Died || !strings.Contains(got.String(), unsure) {
			t.Errorf("the call of %s ended with %q: %s", name, got.class(t), got)
		}
		p.awaitFrom(mark, name+" runs again", soon, inState(name, control.Running))
	}
	for name := range marks {
		p.succeeds("stop", name)
		p.await(name+" stopped", soon, inState(name, control.Stopped))
		p.succeeds("start", name)
		if s := server(p.awaitRunning(name), name); s.PID == 0 {
			t.Errorf("%s runs, and has no process: %+v", name, s)
		}
	}
}

// serveSocket listens at the socket that the first argument names, with the mode 0666, and speaks MCP there as the
// official Go library does, or the older convention of servers at sockets.
func serveSocket(string) error {
	path, speaks := os.Args[1], os.Args[2]
	server := mcp.NewServer(&mcp.Implementation{Name: "socketed", Version: "1.0.0"}, nil)
	type message struct {
		Message      string `json:"message,omitempty"`
		Milliseconds int    `json:"milliseconds,omitempty"`
	}
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "returns the message"},
		func(_ context.Context, _ *mcp.CallToolRequest, m message) (*mcp.CallToolResult, any, error) {
			return text(m.Message + " from " + os.Args[3]), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "sleep", Description: "answers late"},
		func(ctx context.Context, _ *mcp.CallToolRequest, m message) (*mcp.CallToolResult, any, error) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(m.Milliseconds) * time.Millisecond):
			}
			return text("awake"), nil, nil
		})
	var handler http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	if speaks == "seed" {
		handler = seedServer()
	}
	uid, err := strconv.Atoi(os.Args[4])
	if err == nil && uid != 0 {
		err = syscall.Setuid(uid)
	}
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return http.Serve(l, handler)
}

// seedServer answers as the older convention has it, and nothing else.
func seedServer() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /server/info", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"name":"socketed","version":"1.0.0","scopes":[]}`)
	})
	mux.HandleFunc("POST /tools/list", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"tools":[{"tool":"echo","description":"returns the message","inputSchema":{"type":"object"}}]}`)
	})
	mux.HandleFunc("POST /tools/call", func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Params struct {
				Name      string
				Arguments struct{ Message string }
			}
		}
		if json.NewDecoder(r.Body).Decode(&m) != nil || m.Params.Name != "echo" {
			http.Error(w, "no such tool", http.StatusNotFound)
			return
		}
		b, _ := json.Marshal(m.Params.Arguments.Message + " from " + os.Args[3])
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, m.ID, b)
	})
	return mux
}

// listenAt runs serveSocket, as another user if uid is not 0, and returns when it listens.
func listenAt(t testing.TB, path, speaks, label string, uid int) *os.Process {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	c := exec.Command(self, path, speaks, label, strconv.Itoa(uid))
	c.Env, c.Stderr = append(os.Environ(), roleVariable+"=socket"), os.Stderr
	stdout, err := c.StdoutPipe()
	check(t, err)
	startTied(t, c)
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the server at %q says %q, %v", path, line, err)
	}
	return c.Process
}

// startTied starts a process that is killed when this one ends. The kernel sends the signal when the thread ends that
// has started the process (PR_SET_PDEATHSIG, prctl(2)), so that thread stays until the test is over.
func startTied(t testing.TB, c *exec.Cmd) {
	t.Helper()
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, over := make(chan error), make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		started <- c.Start()
		<-over
	}()
	check(t, <-started)
}

// attachedTo declares a server that runs at a socket without pfar.
func attachedTo(path, more string) string {
	return fmt.Sprintf("transport = \"uds\"\npath = %q\n%s\n%s", path, more, trust.Honest)
}

// offline is a state in which a server is not reached, and says why.
func offline(name, why string) func(control.Report) bool {
	return func(r control.Report) bool {
		s := server(r, name)
		return s.State == control.Offline && strings.Contains(s.Detail, why)
	}
}

// TestAttached: a server that runs at a socket without pfar is spoken to until it ends. Then pfar waits for the next.
func TestAttached(t *testing.T) {
	t.Parallel()
	dir := directory(t, "")
	path, old := filepath.Join(dir, "mcp.sock"), filepath.Join(dir, "old.sock")
	first := listenAt(t, path, "mcp", "the first", 0)
	listenAt(t, old, "seed", "the old one", 0)
	p := start(t, map[string]string{"socket.hcl": attachedTo(path, ""), "old.hcl": attachedTo(old, "version = \"1.0.0\"")})
	p.awaitRunning("socket", "old")
	c := p.client("/mcp")
	echo := func(server, want string) {
		t.Helper()
		if got := c.must(server+"__echo", map[string]any{"message": "hello"}); got != "hello from "+want {
			t.Errorf("%s answered %q, want %q", server, got, want)
		}
	}
	echo("socket", "the first")
	echo("old", "the old one")
	shown := regexp.MustCompile(`(?m)^attached to +` + regexp.QuoteMeta(path) + "$")
	if out := p.succeeds("status", "socket"); !shown.MatchString(out) {
		t.Errorf("pfar status does not show the socket:\n%s", out)
	}

	// It is killed in a call, which fails and says so.
	failed := make(chan string, 1)
	go func() {
		r, err := c.call("socket__sleep", map[string]any{"milliseconds": 600_000})
		failed <- fmt.Sprintf("%v %v", r, err)
	}()
	p.underWay("sleep")
	mark := p.mark()
	check(t, first.Kill())
	got := <-failed
	if !slices.ContainsFunc([]string{ // it is killed before it has the call, or later
		"nobody listens where the server should be", "the server closed the connection before it had answered",
		"the server has gone",
	}, func(words string) bool { return strings.HasSuffix(got, "server: network_error: "+words) }) {
		t.Errorf("the call ended with %s", got)
	}
	p.awaitFrom(mark, "socket waits", soon, offline("socket", "nobody listens at"))
	if names := strings.Join(c.names(), " "); strings.Contains(names, "socket__") {
		t.Errorf("tools of a server that is gone: %s", names)
	}

	// The next one makes a socket of its own.
	check(t, os.Remove(path))
	mark = p.mark()
	second := listenAt(t, path, "mcp", "the second", 0)
	p.awaitFrom(mark, "socket is back", soon, inState("socket", control.Running))
	echo("socket", "the second")

	// Another one takes its place while it runs: pfar goes on with the one it knows, and then with the other.
	beside := filepath.Join(dir, "beside.sock")
	listenAt(t, beside, "mcp", "the third", 0)
	check(t, os.Rename(beside, path))
	echo("socket", "the second")
	mark = p.mark()
	check(t, second.Kill())
	p.awaitFrom(mark, "socket is another", soon, inState("socket", control.Offline))
	p.await("socket runs", soon, inState("socket", control.Running))
	echo("socket", "the third")

	// A link in its place is refused, wherever it leads.
	mark = p.mark()
	check(t, os.Remove(path))
	check(t, os.Symlink(old, path))
	p.command("restart", "socket") // which says that it is offline
	p.awaitFrom(mark, "socket refuses the link", soon, offline("socket", "symbolic link"))
}

// TestAttachedPipe: a server that runs behind FIFOs without pfar is spoken to until it ends, and then the next.
func TestAttachedPipe(t *testing.T) {
	t.Parallel()
	dir := directory(t, "")
	path := filepath.Join(dir, "pipe")
	for _, end := range []string{".in", ".out"} {
		check(t, syscall.Mkfifo(path+end, 0o666))
		check(t, os.Chmod(path+end, 0o666))
	}
	serve := func() *exec.Cmd {
		c := exec.Command("sh", "-c", fmt.Sprintf("exec %s <%s.in >%s.out", program(t, "echo"), path, path))
		startTied(t, c)
		t.Cleanup(func() { c.Process.Kill() })
		return c
	}
	first := serve()
	p := start(t, map[string]string{"piped.hcl": fmt.Sprintf("transport = \"pipe\"\npath = %q\n%s", path, trust.Honest)})
	p.awaitRunning("piped")
	c := p.client("/mcp")
	if got := c.must("piped__echo", map[string]any{"message": "hello"}); got != "hello" {
		t.Errorf("it answered %q", got)
	}
	mark := p.mark()
	check(t, first.Process.Kill())
	_ = first.Wait()
	p.awaitFrom(mark, "its pipe is closed", soon, func(r control.Report) bool {
		s := server(r, "piped")
		return s.State == control.Offline && strings.Contains(s.Detail, "has closed its pipe")
	})
	mark = p.mark()
	serve()
	p.awaitFrom(mark, "the next one runs", soon, inState("piped", control.Running))
	if got := c.must("piped__echo", map[string]any{"message": "again"}); got != "again" {
		t.Errorf("it answered %q", got)
	}
}

// TestAttachedOwner: a socket of any user but the declared one is somebody else's.
func TestAttachedOwner(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root makes another user's socket")
	}
	const stranger = 4242
	dir := directory(t, "")
	check(t, os.Chmod(dir, 0o777))
	path := filepath.Join(dir, "mcp.sock")
	listenAt(t, path, "mcp", "a stranger", stranger)
	p := start(t, map[string]string{"socket.hcl": attachedTo(path, "")})
	p.await("the owner is refused", soon, offline("socket", "belongs to user 4242"))
	p.write("socket.hcl", attachedTo(path, "owner = \"4242\"\n"))
	p.awaitRunning("socket")
	if got := p.client("/mcp").must("socket__echo", map[string]any{"message": "hello"}); got != "hello from a stranger" {
		t.Errorf("it answered %q", got)
	}
	// Who owns the socket, and who listens at it, are two questions.
	check(t, os.Chown(path, 0, 0))
	mark := p.mark()
	p.command("restart", "socket") // which says that it is offline
	p.awaitFrom(mark, "another owner is refused", soon, offline("socket", "belongs to user 0"))
	mark = p.mark()
	p.write("socket.hcl", attachedTo(path, ""))
	p.awaitFrom(mark, "another listener is refused", soon, offline("socket", "user 4242 listens at"))
}
