package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/tests/trust"
)

const (
	wayHost   = "every.vendor.example"
	waySocket = "/run/socket/mcp.sock"
	wayPipe   = "/run/piped/pipe"
	wayPort   = "127.0.0.1:3000" // of the sandbox
	wayLarge  = 4 << 20          // bytes: more than any buffer on the way
)

// serveWay is a server of the official library at the place that the arguments name: its standard input, a socket, a
// port, or as a vendor's remote server.
func serveWay(certificate string) error {
	one, other := wayServer(), wayServer() // each loses a tool once
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return one }, nil))
	mux.Handle("/sse", mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return other }, nil))
	var l net.Listener
	var err error
	switch way := os.Args[1]; way {
	case "stdio":
		return one.Run(context.Background(), &mcp.StdioTransport{})
	case "vendor":
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(certificate, certificate); err != nil {
			return err
		}
		if l, err = tls.Listen("tcp", ":443", &tls.Config{Certificates: []tls.Certificate{pair}}); err == nil {
			fmt.Println("ready")
		}
	default:
		l, err = net.Listen(way, os.Args[2])
	}
	if err != nil {
		return err
	}
	return http.Serve(l, mux)
}

// wayServer has a tool for each thing that a transport has to carry.
func wayServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "way", Version: "1"}, nil)
	ended := make(chan struct{}, 8) // calls of wait that were given up
	text := func(t string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: t}}}
	}
	progress := func(ctx context.Context, r *mcp.CallToolRequest, n int) error {
		return r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: r.Params.GetProgressToken(), Progress: float64(n), Total: 3,
		})
	}
	add := func(name string, do mcp.ToolHandler) {
		t := &mcp.Tool{Name: name, Description: "does it", InputSchema: map[string]any{"type": "object"}}
		if name == "misfit" {
			t.OutputSchema = map[string]any{"type": "object", "required": []string{"n"}}
		}
		s.AddTool(t, do)
	}
	add("echo", func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var a struct{ Message string }
		err := json.Unmarshal(r.Params.Arguments, &a)
		return text("Echo: " + a.Message), err
	})
	add("steps", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("done"), errors.Join(progress(ctx, r, 1), progress(ctx, r, 2), progress(ctx, r, 3))
	})
	add("wait", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := progress(ctx, r, 1); err != nil {
			return nil, err
		}
		<-ctx.Done()
		ended <- struct{}{}
		return text("given up"), nil
	})
	add("cancelled", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		select {
		case <-ended:
			return text("heard"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	add("fail", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "broken on purpose"}
	})
	add("misfit", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: map[string]any{"m": 1}}, nil
	})
	add("large", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text(strings.Repeat("large ", wayLarge/6)), nil
	})
	add("extra", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("extra"), nil })
	add("forget", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.RemoveTools("extra")
		return text("forgotten"), nil
	})
	return s
}

var wayTools = []string{"cancelled", "echo", "extra", "fail", "forget", "large", "misfit", "steps", "wait"}

// everyWay declares that server by each transport. make test has one alone, and those elsewhere take root.
func everyWay(t *testing.T) map[string]string {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	program := filepath.Join(directory(t, ""), "way.test") // strangersFind knows that the tests' programs have secrets
	if out, err := exec.Command("install", "-m", "755", self, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	local := func(transport, script string) string {
		script = fmt.Sprintf("%s=way exec %s %s", roleVariable, program, script)
		more := fmt.Sprintf("%s\nsandbox {\n  read_only = [%q]\n}\n", transport, program)
		return declare("sh", []string{"-c", script}, more)
	}
	remote := func(transport, path string) string {
		return fmt.Sprintf("server {\n  transport = %q\n  url = %q\n}\n%s", transport, "https://"+wayHost+path, trust.Honest)
	}
	uds := local(fmt.Sprintf("transport = \"uds\"\npath = %q", waySocket), "unix "+waySocket)
	if testing.Short() {
		return map[string]string{"uds": uds}
	}
	all := map[string]string{
		"stdio": local("", "stdio"),
		"uds":   uds,
		"port":  local("transport = \"stream-http\"\nurl = \"http://"+wayPort+"/mcp\"", "tcp "+wayPort),
		"pipe":  local(fmt.Sprintf("transport = \"pipe\"\npath = %q", wayPipe), "stdio <"+wayPipe+".in >"+wayPipe+".out"),
	}
	if os.Getuid() == 0 {
		all["stream-http"], all["sse"] = remote("stream-http", "/mcp"), remote("sse", "/sse")
	}
	return all
}

// TestEveryTransport: a client finds the same server behind each transport: its tools, results, large ones as well,
// progress, what it hears of a call that is given up, the class of its errors, and that its tools have changed.
func TestEveryTransport(t *testing.T) {
	t.Parallel()
	declared := everyWay(t)
	files, names := map[string]string{}, []string{}
	for name, text := range declared {
		files[name+".hcl"], names = text, append(names, name)
	}
	p := prepare(t, files)
	var wrap []string
	if declared["sse"] != "" {
		_, wrap = startStandIn[struct{}](t, "way", []string{wayHost}, "vendor")
	}
	p.up(wrap...)
	p.awaitRunning(names...)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			p.usesWay(ctx, t, name)
		})
	}
}

// usesWay does with a server all that a client can.
func (p *pfar) usesWay(ctx context.Context, t *testing.T, name string) {
	h, socket := newHeard(), p.last().Socket
	via := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer via.CloseIdleConnections()
	lib, err := p.connectOfficial(ctx, &run{
		URL: "http://pfar/mcp/" + name, Headers: map[string]string{"Authorization": "Bearer " + p.token()}, Via: via,
	}, h)
	check(t, err)
	defer lib.close()
	listed := func(want []string) {
		t.Helper()
		got, err := lib.list(ctx, "tools")
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("its tools are %q, %v", got, err)
		}
	}
	says := func(tool string, arguments object, token, want string) {
		t.Helper()
		result, err := lib.call(ctx, tool, arguments, token)
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		content := result.(*mcp.CallToolResult).Content
		text, ok := content[0].(*mcp.TextContent)
		if len(content) != 1 || !ok || text.Text != want {
			t.Errorf("%s: %.200v", tool, content)
		}
	}
	listed(wayTools)
	says("echo", object{"message": "h\u00e9llo"}, "", "Echo: h\u00e9llo")
	says("large", object{}, "", strings.Repeat("large ", wayLarge/6))

	says("steps", object{}, "steps", "done")
	for n := range 3 {
		select {
		case got := <-h.of("steps"):
			if got[0] != float64(n+1) || got[1] != 3.0 {
				t.Errorf("step %d is %v", n+1, got)
			}
		case <-ctx.Done():
			t.Fatalf("there is no step %d", n+1)
		}
	}

	call, giveUp := context.WithCancel(ctx)
	defer giveUp()
	ended := make(chan error, 1)
	go func() {
		_, err := lib.call(call, "wait", object{}, "wait")
		ended <- err
	}()
	select {
	case <-h.of("wait"):
	case <-ctx.Done():
		t.Fatal("the call did not begin")
	}
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call that was given up ended with %v", err)
	}
	says("cancelled", object{}, "", "heard")

	for tool, want := range map[string]failure.Class{"fail": failure.ServerError, "misfit": failure.Schema,
		"none": failure.NotFound} {
		result, err := lib.call(ctx, tool, object{}, "")
		e, ok := errors.AsType[*jsonrpc.Error](err)
		if !ok {
			t.Errorf("%s: %v, %v", tool, result, err)
			continue
		}
		var told map[string]failure.Told
		_ = json.Unmarshal(e.Data, &told) // without data there is no class
		if got := told[failure.Key].Class; got != want {
			t.Errorf("%s is of class %q, want %q: %v", tool, got, want, err)
		}
	}

	says("forget", object{}, "", "forgotten")
	select {
	case <-h.changed:
	case <-ctx.Done():
		t.Fatal("nobody says that the tools have changed")
	}
	listed(slices.DeleteFunc(slices.Clone(wayTools), func(tool string) bool { return tool == "extra" }))
}
