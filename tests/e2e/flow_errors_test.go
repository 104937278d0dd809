package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/flow"
)

// flawed is a service that fails calls of its tool look.
type flawed struct {
	name  string     // of the server
	fails func()     // has the next call fail
	calls func() int // that have reached it since then
}

// flaw is a class of failures, and how a service really fails so.
type flaw struct {
	class failure.Class // "": none that pfar knows
	of    func(variant string) *flawed
	words string // of the flow that fails
	code  int    // exit code of that
	bars  bool   // no edge may lead back to the call
	sent  int    // how often pfar sends a read that fails so
}

// TestFlowErrors: a real server fails by each class. Without an edge the flow ends with the words and the exit code of
// the class. An edge of the class's action is taken. By an edge back to the call, with a wait between, the call is made
// again, if that may bring another answer.
func TestFlowErrors(t *testing.T) {
	t.Parallel()
	b := newFlaws(t)
	seen := map[failure.Class]bool{}
	for _, f := range b.all() {
		seen[f.class] = true
		for _, variant := range flawVariants() {
			t.Run(string(f.class)+" "+variant, func(t *testing.T) { b.tryFlaw(t, f, variant) })
		}
	}
	for _, c := range append(failure.Classes(), "") {
		if !seen[c] && c != failure.TLS { // see TestFlowErrorTLS
			t.Errorf("nothing fails by %q", c)
		}
	}
	t.Run("a write", b.writes)
}

func flawVariants() []string { return []string{"ends", "is routed", "is tried again"} }

// flaws is a pfar with services that fail.
type flaws struct {
	*pfar
	vendor *vendor
	dir    string
}

func newFlaws(t *testing.T) *flaws {
	t.Helper()
	b := &flaws{vendor: newVendor(t), dir: directory(t, "")}
	check(t, os.Chmod(b.dir, 0o777))
	b.vendor.open()
	declarations := map[string]string{"vendor.hcl": b.vendor.declared("")}
	var names []string
	for _, name := range []string{"local", "slow", "mortal-1", "mortal-2", "mortal-3"} {
		put(t, b.acts(name), "")
		check(t, os.Chmod(b.acts(name), 0o666))
		more := "pins = \"trust-first\"\ntool \"look\" { semantics = \"read\" }\nsandbox { writable = [" +
			quote(b.dir) + "] }\n"
		if name == "slow" {
			more += "timeout = \"3s\"\n"
		}
		declarations[name+".hcl"] = declare(program(t, "standin"), []string{"-acts", b.acts(name)}, more)
		names = append(names, name)
	}
	b.pfar = prepare(t, declarations)
	check(t, os.Mkdir(filepath.Join(b.home, "clients.d"), 0o755))
	put(t, filepath.Join(b.home, "clients.d", "default.hcl"),
		"servers = [\"*\"]\nprofile = \"operator\"\nrelax = \"a test\"\n")
	b.up()
	b.awaitRunning(append(names, "vendor")...)
	return b
}

func (b *flaws) acts(server string) string { return filepath.Join(b.dir, server) }

// acted has the next call of a local server end in a way.
func (b *flaws) acted(server, act string) *flawed {
	return &flawed{
		name: server,
		fails: func() {
			os.Remove(b.acts(server) + ".calls")
			put(b.t, b.acts(server), act+"\n")
			check(b.t, os.Chmod(b.acts(server), 0o666))
		},
		calls: func() int {
			all, _ := os.ReadFile(b.acts(server) + ".calls")
			return bytes.Count(all, []byte("\n"))
		},
	}
}

// refused has the vendor answer the next call of a tool otherwise.
func (b *flaws) refused(tool string, with http.HandlerFunc) *flawed {
	return &flawed{
		name: "vendor", fails: func() { b.vendor.refuse(tool, with) },
		calls: func() int { return b.vendor.called(tool) },
	}
}

func (b *flaws) all() []flaw {
	remote := func(with http.HandlerFunc) func(string) *flawed {
		return func(string) *flawed { return b.refused("look", with) }
	}
	local := func(server, act string) func(string) *flawed {
		return func(string) *flawed { return b.acted(server, act) }
	}
	hangUp := func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }
	return []flaw{
		{failure.RateLimited, remote(status(429, "7")), "vendor API rate limit exceeded. Please try again in 7 s.", 10,
			false, 1},
		{failure.Unauthorized, remote(status(401, "")), "Authentication failed. Check your vendor token.", 11, false, 1},
		{failure.Forbidden, remote(status(403, "")), "Permission denied. Check your token scopes.", 12, false, 1},
		{failure.NotFound, remote(status(404, "")), "Resource not found. Check the names and the query.", 4, false, 1},
		{failure.Timeout, local("slow", "hang"), "Request timed out. Please try again.", 13, false, 1},
		{failure.ServerError, remote(status(500, "")), "vendor server error. Please try again later.", 14, false, 1},
		{failure.NetworkError, remote(hangUp), "Network error. Check your connection.", 15, false, 1},
		{failure.Schema, local("local", "schema"), "The answer of local does not conform to the tool's schema.", 17, true, 1},
		{failure.Died, func(variant string) *flawed {
			mortal := map[string]string{"ends": "mortal-1", "is routed": "mortal-2", "is tried again": "mortal-3"}
			return b.acted(mortal[variant], "die\ndie")
		}, "has ended. Start it: pfar start mortal-", 18, false, 2},
		{"", local("local", "fail"), "MCP error: the service said no", 1, false, 1},
	}
}

// tryFlaw runs a flow whose first call fails.
func (p *pfar) tryFlaw(t *testing.T, f flaw, variant string) {
	s := f.of(variant)
	look, action := s.name+".look", flow.Action(f.class)
	lines := map[string]string{
		"ends": look + " >> template --template 'went on'",
		"is routed": look + " >> template --template 'went on' ; " + look + " - " + action +
			" >> log --message 'took the edge'",
		"is tried again": look + " >> template --template 'went on' ; " + look + " - " + action +
			" >> backoff --seconds 1 --factor 1 >> " + look,
	}
	s.fails()
	out, complaint, code := p.command("flow", "run", lines[variant])
	calls, took := s.calls(), strings.Contains(complaint, look+": allow, "+action)
	switch {
	case variant == "is routed":
		if code != 0 || !strings.Contains(out, "took the edge") || !took {
			t.Errorf("exit %d, %s%s", code, out, complaint)
		}
	case variant == "is tried again" && f.bars:
		if code != f.code || !strings.Contains(complaint, "must not be made again") {
			t.Errorf("exit %d, want %d, %s%s", code, f.code, out, complaint)
		}
	case variant == "is tried again":
		if code != 0 || !strings.Contains(out, "went on") || !took || calls != f.sent+1 {
			t.Errorf("exit %d after %d calls, %s%s", code, calls, out, complaint)
		}
		return
	default:
		if code != f.code || out != "" || !strings.Contains(complaint, f.words) ||
			!strings.Contains(complaint, "pfar flow show ") {
			t.Errorf("exit %d, want %d and %q: %s%s", code, f.code, f.words, out, complaint)
		}
	}
	if calls > f.sent {
		t.Errorf("the call is made %d times: %s", calls, complaint)
	}
}

// writes: a call that may have changed something is made again by an edge only if the service has refused it.
func (b *flaws) writes(t *testing.T) {
	const back = "vendor.post >> template --template 'went on' ; vendor.post - %s >> backoff --seconds 0 >> vendor.post"
	for name, tt := range map[string]struct {
		status, code, calls int
		says                string
	}{
		"rate_limited": {429, 0, 2, "went on"}, "auth_failed": {403, 0, 2, "went on"},
		"resource_missing": {404, 0, 2, "went on"},
		"server_error":     {500, 14, 1, "The call may have been carried out: look before you repeat it."},
		"timeout":          {504, 13, 1, "this call must not be made again"},
	} {
		s := b.refused("post", status(tt.status, ""))
		s.fails()
		out, complaint, code := b.command("flow", "run", fmt.Sprintf(back, name))
		if n := s.calls(); code != tt.code || n != tt.calls || !strings.Contains(out+complaint, tt.says) {
			t.Errorf("%s: exit %d, want %d, after %d calls: %s%s", name, code, tt.code, n, out, complaint)
		}
	}
}

const liarHost = "liar.vendor.example"

// serveLiar is a remote server that proves who it is until its tool lie is called.
func serveLiar(certificate string) error {
	good, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return err
	}
	unknown := httptest.NewUnstartedServer(nil)
	unknown.StartTLS()
	bad := unknown.TLS.Certificates[0]
	unknown.Close()
	var lies atomic.Bool
	l, err := net.Listen("tcp", ":443")
	if err != nil {
		return err
	}
	s := mcpserver.NewMCPServer("liar", "1")
	server := &http.Server{
		Handler: mcpserver.NewStreamableHTTPServer(s), ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if lies.Load() {
				return &bad, nil
			}
			return &good, nil
		}},
	}
	server.SetKeepAlivesEnabled(false) // so that each request is proof anew
	for _, name := range []string{"look", "lie"} {
		s.AddTool(mcp.NewTool(name), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if name == "lie" {
				lies.Store(true)
			} else {
				fmt.Println(`"look"`)
			}
			return mcp.NewToolResultText(name + " is done"), nil
		})
	}
	fmt.Println("ready")
	return server.ServeTLS(l, "", "")
}

// TestFlowErrorTLS is TestFlowErrors of a remote server that proves who it is at first, and then does not.
func TestFlowErrorTLS(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	said, wrap := startStandIn[string](t, "liar", []string{liarHost})
	p := prepare(t, map[string]string{"liar.hcl": "pins = \"trust-first\"\n" +
		"allow_private = { \"" + liarHost + "\" = [\"" + notionAddress + "\"] }\nserver {\n" +
		"  transport = \"stream-http\"\n  url = \"https://" + liarHost + "/mcp\"\n}\n" +
		"tool \"look\" { semantics = \"read\" }\n"})
	check(t, os.Mkdir(filepath.Join(p.home, "clients.d"), 0o755))
	put(t, filepath.Join(p.home, "clients.d", "default.hcl"),
		"servers = [\"*\"]\nprofile = \"operator\"\nrelax = \"a test\"\n")
	p.up(wrap...)
	p.awaitRunning("liar")
	p.succeeds("flow", "run", "liar.look")
	if got := <-said; got != "look" {
		t.Fatal(got)
	}
	p.succeeds("call", "liar.lie")
	lying := &flawed{name: "liar", fails: func() {}, calls: func() int { return len(said) }}
	for _, variant := range flawVariants() {
		const words = "TLS failed: the host of liar did not prove"
		f := flaw{failure.TLS, func(string) *flawed { return lying }, words, 16, true, 0}
		t.Run(variant, func(t *testing.T) { p.tryFlaw(t, f, variant) })
	}
}
