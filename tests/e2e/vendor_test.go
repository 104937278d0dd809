package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/control"
)

// vendor is a remote server of the test's, at a port of loopback: mcp-go's Streamable HTTP, behind what a service has
// in front of it.
type vendor struct {
	t    *testing.T
	port string

	ids atomic.Int64 // of requests

	mu      sync.Mutex
	refuses map[string][]http.HandlerFunc // what becomes of the next calls of a tool, in place of the tool
	calls   map[string]int                // how often each tool was asked for
	stop    func()
}

// newVendor makes one that is not there yet. Its tools look and post have nothing but their names.
func newVendor(t *testing.T) *vendor {
	v := &vendor{t: t, port: freePort(t), refuses: map[string][]http.HandlerFunc{}, calls: map[string]int{}}
	t.Cleanup(v.close)
	return v
}

// declared is the text of a declaration of it.
func (v *vendor) declared(more string) string {
	const tools = "tool \"look\" {\n  semantics = \"read\"\n}\ntool \"post\" {\n  semantics = \"write\"\n}\n"
	url := fmt.Sprintf("  url = \"http://127.0.0.1:%s/mcp\"\n", v.port)
	return "pins = \"trust-first\"\n" + more + "server {\n  transport = \"stream-http\"\n" + url + "}\n" + tools
}

// open has it listen.
func (v *vendor) open() {
	v.t.Helper()
	s := mcpserver.NewMCPServer("vendor", "1")
	v.offer(s)
	l, err := net.Listen("tcp", "127.0.0.1:"+v.port)
	check(v.t, err)
	server := &http.Server{Handler: v.front(mcpserver.NewStreamableHTTPServer(s))}
	go server.Serve(l)
	v.stop = func() { server.Close() }
}

// offer gives a server the tools.
func (v *vendor) offer(s *mcpserver.MCPServer) {
	for _, name := range []string{"look", "post"} {
		s.AddTool(mcp.NewTool(name), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(name + " is done"), nil
		})
	}
}

func (v *vendor) close() {
	if v.stop != nil {
		v.stop()
		v.stop = nil
	}
}

// front is what a service has in front of its server.
func (v *vendor) front(server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var asked struct {
			Method string
			Params struct{ Name string }
		}
		_ = json.Unmarshal(body, &asked)
		instead := server.ServeHTTP
		v.mu.Lock()
		if asked.Method == "tools/call" {
			tool := asked.Params.Name
			v.calls[tool]++
			if next := v.refuses[tool]; len(next) > 0 {
				instead, v.refuses[tool] = next[0], next[1:]
			}
		}
		v.mu.Unlock()
		instead(w, r)
	})
}

// refuse has the next calls of a tool answered like this, and counts its calls from here.
func (v *vendor) refuse(tool string, with ...http.HandlerFunc) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.refuses[tool], v.calls[tool] = with, 0
}

func (v *vendor) called(tool string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls[tool]
}

// status is an answer of a service without any of MCP. after is its Retry-After.
func status(code int, after string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		http.Error(w, "words of the service", code)
	}
}

// told calls a tool, and returns what the error says; the zero value: it was answered.
func (v *vendor) told(c *rawHTTP, tool string) (failure.Told, string) {
	v.t.Helper()
	id := fmt.Sprintf(`"%d"`, v.ids.Add(1))
	a, err := c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, "vendor__"+tool), id, "", "vendor__"+tool)
	check(v.t, err)
	return toldOf(v.t, a.value), string(a.value)
}

// offlineCall is pfar call of a server that is offline, while pfar does not try it again by itself.
func (p *pfar) offlineCall(args ...string) (out, complaint string, code int) {
	p.t.Helper()
	until(p.t, "no try being under way", func() bool {
		out, complaint, code = p.command(append([]string{"call"}, args...)...)
		return !underWay.MatchString(complaint)
	})
	return out, complaint, code
}

// underWay matches why a server offers nothing while it is tried.
var underWay = regexp.MustCompile(`(it|the server) is (starting|stopping|being stopped)`)

// TestOfflineIsTriedByCalls: a call does not wait until it is time to try a server again that is offline. Many at once
// are one try.
func TestOfflineIsTriedByCalls(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	p := start(t, map[string]string{"vendor.hcl": v.declared("")})
	failures := func(n int) control.Server {
		words := fmt.Sprintf("after failure %d:", n)
		return server(p.await("vendor offline "+words, soon, func(r control.Report) bool {
			s := server(r, "vendor")
			return s.State == control.Offline && strings.Contains(s.Detail, words)
		}), "vendor")
	}
	s := failures(3) // 30 seconds until the next try
	c := p.speakHTTP(false, "/mcp")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			told, text := v.told(c, "look")
			if told.Class != failure.NetworkError || told.After < 1 || told.After > 60 ||
				!strings.Contains(told.Remedy, "try again in ") || !strings.Contains(text, "is offline since") {
				t.Errorf("a call ends with %s", text)
			}
		})
	}
	all.Wait()
	if now := failures(4); !now.Wait.Until.After(s.Wait.Until) {
		t.Errorf("tried again at %v, and before at %v", now.Wait.Until, s.Wait.Until)
	}
	out, complaint, code := p.offlineCall("vendor.look")
	if code != 15 || out != "" || !strings.Contains(complaint, "is offline") {
		t.Errorf("pfar call: exit %d, %q, %q", code, out, complaint)
	}
	last := server(p.last(), "vendor").Wait.Until
	v.open()
	if told, text := v.told(c, "look"); told.Class != "" || !strings.Contains(text, "look is done") {
		t.Errorf("a call of what is there again: %s", text)
	}
	if up := server(p.awaitRunning("vendor"), "vendor"); !up.Since.Before(last) {
		t.Errorf("up at %v, and tried by itself at %v", up.Since, last)
	}
}

// refusedBy is of a request that was sent once.
func refusedBy(class failure.Class, after int64, status int) failure.Failure {
	return failure.Failure{Class: class, After: after, Status: status, Tries: 1}
}

// TestServiceStatus: a call that a service refuses by a status of HTTP has its class, with the time to try again. What
// only reads is sent again as the declaration says, and a write never.
func TestServiceStatus(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	v.open()
	p := prepare(t, map[string]string{"vendor.hcl": v.declared("retries = 2\n")})
	clients := filepath.Join(p.home, "clients.d")
	check(t, os.Mkdir(clients, 0o755))
	const client = "token_sha256 = [%q]\nservers = [\"*\"]\nprofile = \"operator\"\nrelax = \"a test\"\n"
	put(t, filepath.Join(clients, "agent.hcl"), fmt.Sprintf(client, digestOf("agent")))
	p.up()
	p.awaitRunning("vendor")
	c := p.speakHTTP(true, "/mcp")
	c.token, c.young = "agent", false
	_, err := c.ask("initialize", helloLegacy, "1", "", "")
	check(t, err)

	limited := status(http.StatusTooManyRequests, "2")
	v.refuse("look", limited)
	begun := time.Now()
	told, text := v.told(c, "look")
	if told.Class != "" || !strings.Contains(text, "look is done") || v.called("look") != 2 {
		t.Errorf("a read that is limited once is sent %d times: %s", v.called("look"), text)
	} else if took := time.Since(begun); took < 2*time.Second {
		t.Errorf("it is sent again after %v, and the service wants 2s", took)
	}
	v.refuse("look", limited, limited, limited, limited)
	if told, text := v.told(c, "look"); told.Class != failure.RateLimited || told.Tries != 3 || v.called("look") != 3 {
		t.Errorf("a read that is limited is sent %d times: %s", v.called("look"), text)
	}
	v.refuse("look", status(http.StatusTooManyRequests, "3600"))
	told, text = v.told(c, "look")
	want := failure.Failure{Class: failure.RateLimited, After: 3600, Status: http.StatusTooManyRequests, Tries: 1}
	if told.Failure != want || v.called("look") != 1 {
		t.Errorf("for an hour nobody waits: %s, sent %d times", text, v.called("look"))
	}

	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   failure.Failure
		code   int    // of pfar call
		hint   string // likewise
	}{
		"limited": {status(429, "7"), refusedBy(failure.RateLimited, 7, 429), 10, "try again in 7 s"},
		"401":     {status(401, ""), refusedBy(failure.Unauthorized, 0, 401), 11, "pfar"},
		"403":     {status(403, ""), refusedBy(failure.Forbidden, 0, 403), 12, "lack a right for this"},
		"404":     {status(404, ""), refusedBy(failure.NotFound, 0, 404), 4, "still there"},
		"500":     {status(500, ""), refusedBy(failure.ServerError, 0, 500), 14, "may have been carried out"},
		"503":     {status(503, "90"), refusedBy(failure.RateLimited, 90, 503), 10, "try again in 90 s"},
	} {
		want := test.want
		v.refuse("post", test.answer, test.answer, test.answer)
		told, text := v.told(c, "post")
		if told.Failure != want || !strings.Contains(told.Remedy, test.hint) || v.called("post") != 1 {
			t.Errorf("%s: %s, sent %d times", name, text, v.called("post"))
		}
		v.refuse("post", test.answer, test.answer, test.answer)
		out, complaint, code := p.command("call", "vendor.post")
		if code != test.code || out != "" || !strings.Contains(complaint, "hint: ") ||
			!strings.Contains(complaint, test.hint) || v.called("post") != 1 {
			t.Errorf("%s: pfar call: exit %d, %q, %q, sent %d times", name, code, out, complaint, v.called("post"))
		}
	}
	records := p.succeeds("audit", "--json", "--server", "vendor")
	if n := strings.Count(records, `"kind":"retry"`); n != 3 {
		t.Errorf("the audit has %d retries, want 3", n)
	}
	if up := server(p.last(), "vendor"); up.State != control.Running {
		t.Errorf("after all that it is %s: %s", up.State, up.Detail)
	}
}
