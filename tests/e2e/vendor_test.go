package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
	shut    bool                               // it answers 503
	refuses map[string][]http.HandlerFunc      // what becomes of the next calls of a tool, in place of the tool
	calls   map[string]int                     // how often each tool was asked for
	carries func(tool string, r *http.Request) // what a tool does; nil: it answers
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
	for _, name := range []string{"look", "post"} {
		s.AddTool(mcp.NewTool(name), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(name + " is done"), nil
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+v.port)
	check(v.t, err)
	server := &http.Server{Handler: v.front(mcpserver.NewStreamableHTTPServer(s))}
	go server.Serve(l)
	v.stop = func() { server.Close() }
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
		if v.shut {
			instead = status(http.StatusServiceUnavailable, "")
		}
		v.mu.Unlock()
		instead(w, r)
	})
}

// shuts has it answer 503, or not any more.
func (v *vendor) shuts(shut bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = shut
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
	out, complaint, code := p.command("call", "vendor.look")
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
