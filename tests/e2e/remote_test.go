package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

const (
	remoteHost  = "mcp.vendor.example"  // Streamable HTTP, with a token
	eventsHost  = "sse.vendor.example"  // HTTP+SSE, without
	closedHost  = "down.vendor.example" // answers 503, until a call of the evil one says "open"
	leavingHost = "away.vendor.example" // shuts its port, and opens it again, when a call of the evil one says so
	ownHost     = "own.vendor.example"  // as the first, with a remote session for each of a client's
	envHost     = "env.vendor.example"  // wants the token of a variable

	leavingPort = ":8443"
)

// libraryServers are servers of the two libraries for Go, by name, which is that of their host as well.
var libraryServers = map[string]struct {
	transport, path string
	long            bool // make test-all has it alone
	handler         func() http.Handler
}{
	"mcp-go": {"stream-http", "/mcp", false, func() http.Handler {
		return mcpserver.NewStreamableHTTPServer(mcpGoServer())
	}},
	"mcp-go-events": {"sse", "/sse", true, func() http.Handler {
		return mcpserver.NewSSEServer(mcpGoServer())
	}},
	"go-sdk": {"stream-http", "/mcp", true, func() http.Handler {
		return mcp.NewStreamableHTTPHandler(sdkServer, nil)
	}},
	"go-sdk-events": {"sse", "/sse", true, func() http.Handler {
		return mcp.NewSSEHandler(sdkServer, nil)
	}},
}

func libraryHost(name string) string { return name + ".library.example" }

func mcpGoServer() *mcpserver.MCPServer {
	s := mcpserver.NewMCPServer("mcp-go", "1")
	s.AddTool(mcpgo.NewTool("echo", mcpgo.WithString("message")),
		func(_ context.Context, r mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
			return mcpgo.NewToolResultText("Echo: " + r.GetString("message", "")), nil
		})
	return s
}

func sdkServer(*http.Request) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "go-sdk", Version: "1"}, nil)
	type message struct {
		Message string `json:"message"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Echo"},
		func(_ context.Context, _ *mcp.CallToolRequest, m message) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Echo: " + m.Message}}}, nil, nil
		})
	return s
}

const remoteToken, wrongRemoteToken = "vendor-0aB1cD2eF3gH4iJ5", "vendor-9zY8xW7vU6tS5rQ4"
const readsEcho = "tool \"echo\" {\n  semantics = \"read\"\n}\n"
const variableToken = "variable-3mN2bV1cX0zL9kJ8"

// vendorTokens are what those hosts accept that want a token.
var vendorTokens = map[string]string{
	remoteHost: remoteToken, evilHost: remoteToken, ownHost: remoteToken, envHost: variableToken,
}

// remoteRequest is what the vendor says of a request.
type remoteRequest struct{ Host, Method, Path, Authorization, Session string }

// serveRemote is a vendor of remote servers: TLS in front of real ones from npm, whose program is the first argument,
// and of those of libraries.
func serveRemote(certificate string) error {
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("lo: %w: %s", err, out)
	}
	streamable, err := behind("streamableHttp", "3001")
	if err != nil {
		return err
	}
	events, err := behind("sse", "3002")
	if err != nil {
		return err
	}
	closed, away := newClosing(), &leaving{config: &tls.Config{Certificates: []tls.Certificate{pair}}}
	away.open()
	libraries := map[string]http.Handler{
		evilHost: evilFront(libraryServers["mcp-go"].handler(), map[string]func(){
			"open": func() { closed.opened.Store(true) }, "leave": func() { away.server.Close() }, "return": away.open,
		}),
		closedHost: closed,
	}
	for name, l := range libraryServers {
		libraries[libraryHost(name)] = l.handler()
	}
	l, err := tls.Listen("tcp", ":443", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	fmt.Println("ready")
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := remoteRequest{r.Host, r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Mcp-Session-Id")}
		mu.Lock()
		out.Encode(q)
		mu.Unlock()
		library, token := libraries[r.Host], vendorTokens[r.Host]
		switch {
		case token != "" && q.Authorization != "Bearer "+token:
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
			w.WriteHeader(http.StatusUnauthorized)
		case library != nil:
			library.ServeHTTP(w, r)
		case r.Host == eventsHost:
			events.ServeHTTP(w, r)
		default:
			streamable.ServeHTTP(w, r)
		}
	}))
}

// behind starts one of the servers, and returns what passes requests on to it.
func behind(transport, port string) (http.Handler, error) {
	c := exec.Command("node", os.Args[1], transport)
	c.Env = append(os.Environ(), "PORT="+port)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, err
	}
	at := "127.0.0.1:" + port
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			conn.Close()
			break
		}
		if time.Since(start) > soon {
			return nil, fmt.Errorf("%s does not listen: %w", transport, err)
		}
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: at})
			r.Out.Host = at
		},
		FlushInterval: -1,
	}, nil
}

// TestRemote has pfar connect to real remote servers, with each of the two transports, a token that is only on the
// wire, one that is down, and some of libraries.
func TestRemote(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	everything := npm(t, "@modelcontextprotocol/server-everything/dist/index.js")
	hosts := []string{
		remoteHost, eventsHost, closedHost, evilHost, strangeHost, ownHost, envHost, leavingHost,
	}
	var libraries []string
	for name, l := range libraryServers {
		if !testing.Short() || !l.long {
			hosts, libraries = append(hosts, libraryHost(name)), append(libraries, name)
		}
	}
	requests, wrap := startStandIn[remoteRequest](t, "remote", hosts, everything)
	remote := func(transport, url, more string) string {
		return fmt.Sprintf("%sserver {\n  transport = %q\n  url = %q\n}\n", more, transport, url)
	}
	p := prepare(t, map[string]string{
		"vendor.hcl": remote("stream-http", "https://"+remoteHost+"/mcp", "auth = { token = \"vault:vendor_token\" }\n"),
		"lazy.hcl": remote("stream-http", "https://"+remoteHost+"/mcp", "idle_timeout = \"1h\"\n"+
			"auth = { token = \"vault:vendor_token\" }\n"),
		"own.hcl": remote("stream-http", "https://"+ownHost+"/mcp", "sessions = \"own\"\n"+readsEcho+
			"auth = { token = \"vault:vendor_token\" }\n"),
		"evil.hcl": remote("stream-http", "https://"+evilHost+"/mcp", "pins = \"trust-first\"\n"+readsEcho+
			"auth = { token = \"vault:vendor_token\" }\n"),
		"variable.hcl": remote("stream-http", "https://"+envHost+"/mcp", "token_env = \"VENDOR_TOKEN\"\n"),
		"events.hcl":   remote("sse", "https://"+eventsHost+"/sse", ""),
		"guess.hcl":    remote("stream-http", "https://"+eventsHost+"/sse", ""), // what it answers decides
		"down.hcl":     remote("stream-http", "https://"+closedHost+"/mcp", readsEcho),
		"gone.hcl":     remote("sse", "https://"+closedHost+"/sse", readsEcho),
		"away.hcl":     remote("stream-http", "https://"+leavingHost+leavingPort+"/mcp", readsEcho),
		"flown.hcl":    remote("sse", "https://"+leavingHost+leavingPort+"/sse", readsEcho),
	})
	for _, name := range libraries {
		l := libraryServers[name]
		p.write(name+".hcl", remote(l.transport, "https://"+libraryHost(name)+l.path, ""))
	}
	clients := filepath.Join(p.home, "clients.d")
	check(t, os.Mkdir(clients, 0o755))
	const client = "token_sha256 = [%q]\nservers = [\"*\"]\nprofile = \"operator\"\nrelax = \"a test\"\n"
	put(t, filepath.Join(clients, "agent.hcl"), fmt.Sprintf(client, digestOf("agent")))
	p.env = append(p.env, "VENDOR_TOKEN="+variableToken)
	p.up(wrap...)
	p.await("the vendor's server waiting for its token", soon, func(r control.Report) bool {
		return server(r, "vendor").State == control.NeedsLogin
	})
	p.awaitRunning(append(libraries, "events", "guess")...)
	signsInFirst := func(name string) {
		t.Helper()
		_, err := p.client("/mcp").call(name+"__echo", map[string]any{"message": "hello"})
		if err == nil || !strings.Contains(err.Error(), "cannot be called before its owner has signed in") {
			t.Errorf("a call of %s before its owner has signed in: %v", name, err)
		}
	}
	signsInFirst("lazy")
	p.keep("set", "vendor_token", wrongRemoteToken)
	p.await("a refused token", soon, func(r control.Report) bool {
		s := server(r, "vendor")
		return s.State == control.NeedsLogin && strings.Contains(s.Detail, "401") && s.Remedy.Command == "pfar login vendor"
	})
	for _, name := range []string{"lazy", "own"} {
		p.await(name+" with a refused token", soon, func(r control.Report) bool {
			s := server(r, name)
			return s.State == control.NeedsLogin && strings.Contains(s.Detail, "401") && s.Remedy.Command == "pfar login "+name
		})
		signsInFirst(name)
	}
	p.keep("rotate", "vendor_token", remoteToken)
	r := p.awaitRunning("vendor", "own", "evil", "variable", "events", "guess")
	if s := server(r, "vendor"); s.Tools < 10 {
		t.Errorf("%d tools", s.Tools)
	}
	for _, name := range append(libraries, "vendor", "lazy", "own", "evil", "variable", "events", "guess") {
		out, stderr, code := p.command("call", "--client", "agent", name+".echo", "--message", "hello")
		if code != 0 || !strings.Contains(out, "Echo: hello") {
			t.Errorf("%s: %d %s %s", name, code, out, stderr)
		}
	}
	for name, want := range map[string]units.Speech{
		"vendor": {Protocol: "2025-11-25", Transport: "stream-http"}, "guess": {Protocol: "2025-11-25", Transport: "sse"},
	} {
		if got := server(p.last(), name).Speech; got != want {
			t.Errorf("pfar speaks with %s by %+v, want %+v", name, got, want)
		}
	}
	if out := p.succeeds("status"); !regexp.MustCompile(`(?m)^vendor .* at ` + remoteHost + ": ").MatchString(out) {
		t.Errorf("the table does not say where the vendor's server is:\n%s", out)
	}
	if out := p.succeeds("top", "--once"); !strings.Contains(out, "vendor at "+remoteHost) {
		t.Errorf("pfar top does not say where the vendor's server is:\n%s", out)
	}
	names := p.client("/mcp").names()
	if !slices.Contains(names, "vendor__echo") ||
		slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "down__") }) {
		t.Errorf("the tools are %q", names)
	}
	// It is tried again, and for as long as that takes it is starting.
	p.await("a server that is down", soon, offline("down", "503"))
	if why := server(p.last(), "down").Detail; strings.ContainsAny(why, `{\`) ||
		!strings.HasSuffix(why, `server_error: "HTTP 503 Service Unavailable: closed for today"`) {
		t.Errorf("its reason is %s", why)
	}
	if out, stderr, code := p.command("status", "down"); code != 0 || !strings.Contains(out, "offline") ||
		!regexp.MustCompile(`(?m)^url +https://`).MatchString(out) {
		t.Errorf("%d %s %s", code, out, stderr)
	}

	tellsOfRemotes(p)
	c := p.agent("agent")
	callsEvil(t, c)
	theirs := p.ownSessions(requests)
	p.opensAtLast(c)
	p.leavesAndReturns(c)
	p.refreshesRemote(c)
	passedOn(t, theirs)
	if got := whoHolds(t, p, remoteToken); len(got) == 0 ||
		slices.ContainsFunc(got, func(name string) bool { return name != "pfar-egress" && name != "pfard" }) {
		t.Errorf("these hold the token in memory: %q", got)
	}
	assertSecretNowhere(t, p, remoteToken)

	if out, stderr, code := p.command("learn", "events", "--for", "1s"); code != 0 || out != "allowed_domains = []\n" {
		t.Errorf("pfar learn suggests what the url has already: %d %s%s", code, out, stderr)
	}
}
