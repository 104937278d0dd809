package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/control"
)

// bench is a cli with directories of its own and what it printed.
type bench struct {
	*pfar
	out, err *bytes.Buffer
}

// run carries out one command line.
func (b *bench) run(ctx context.Context, args []string) int { return run(ctx, b.pfar, args) }

func newBench(t *testing.T, stdin string) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfar") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{out: &bytes.Buffer{}, err: &bytes.Buffer{}}
	env := map[string]string{"PFAR_RUN_DIR": dir, "PFAR_STATE_DIR": filepath.Join(dir, "state"), "PFAR_CONFIG_DIR": filepath.Join(dir, "mcp.d")}
	b.pfar = newPfar(strings.NewReader(stdin), b.out, b.err, func(k string) string { return env[k] }, os.Getuid())
	return b
}

// again is the same with nothing printed yet, for the next command line.
func (b *bench) again(stdin string) *bench {
	n := &bench{out: &bytes.Buffer{}, err: &bytes.Buffer{}}
	n.pfar = newPfar(strings.NewReader(stdin), n.out, n.err, b.getenv, b.uid)
	return n
}

func (b *bench) listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveHTTP puts a handler where the gateway listens.
func (b *bench) serveHTTP(t *testing.T, h http.Handler) *http.Server {
	return b.serveAt(t, b.dirs.Gateway(), &http.Server{Handler: h})
}

// serveAt serves on a socket until the end of the test.
func (b *bench) serveAt(t *testing.T, path string, s *http.Server) *http.Server {
	t.Helper()
	l := b.listen(t, path)
	done := make(chan struct{})
	go func() { s.Serve(l); close(done) }()
	t.Cleanup(func() { s.Close(); <-done })
	return s
}

// gatewayOf is an MCP server that lists its tools as pfar-gateway does.
func gatewayOf(tools ...server.ServerTool) http.Handler {
	s := server.NewMCPServer("gateway", "1", server.WithToolCapabilities(true))
	s.AddTools(tools...)
	mux := http.NewServeMux()
	h := server.NewStreamableHTTPServer(s)
	mux.Handle("/mcp/operator/default", h) // pfar says whose it is
	mux.Handle("/mcp/{client}/{session}", h)
	return mux
}

func tooled(server_, name, description, schema string, f server.ToolHandlerFunc) server.ServerTool {
	t := mcp.NewToolWithRawSchema(server_+"__"+name, description, []byte(schema))
	t.Meta = &mcp.Meta{AdditionalFields: map[string]any{"pfar/server": server_, "pfar/tool": name, "pfar/label": "internal"}}
	return server.ServerTool{Tool: t, Handler: f}
}

// echo returns the arguments that it was called with.
func echo(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultJSON(r.GetArguments())
}

// fakePfard is a control socket whose report a test changes.
type fakePfard struct {
	mu       sync.Mutex
	report   control.Report
	changed  chan struct{}
	requests []control.Request
	answer   func(*fakePfard, control.Request) error
	vault    *vault.Vault // that Export and Import are of
	secrets  []control.Secret
	gift     control.Gift // of Give
	left     control.Leftovers
	declares func(control.Request) (*control.Declared, error)
	installs control.Installing
	lists    func(control.Request) control.Listing

	installing func(control.Request) control.Installing // nil: installs
	setUps     *fakeSetUp                               // of Begin and Supply
	signIns    []control.SignIn                         // are told one after the other
	people     control.Declarations                     // of Operators, Invite, Dismiss and ChangeRole
}

func (p *fakePfard) set(f func(*control.Report)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.report)
	p.report.Servers = append([]control.Server(nil), p.report.Servers...)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *fakePfard) serve(ctx context.Context, _ control.Peer, r control.Request, send func(control.Response) error) error {
	p.mu.Lock()
	p.requests = append(p.requests, r)
	p.mu.Unlock()
	for {
		p.mu.Lock()
		report, changed := p.report, p.changed
		report.Servers = append([]control.Server(nil), report.Servers...)
		p.mu.Unlock()
		switch r.Verb {
		case control.Status:
			return send(control.Response{Status: &report})
		case control.Secrets:
			return send(control.Response{Secrets: p.secrets})
		case control.Watch:
			if err := send(control.Response{Status: &report}); err != nil {
				return err
			}
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		switch {
		case p.setUps != nil && (r.Verb == control.Begin || r.Verb == control.Supply):
			return p.setUps.serve(ctx, r, send)
		case p.setUps != nil && r.Verb == control.LogIn:
			return p.setUps.signIn(r, send)
		}
		if p.vault != nil {
			return p.move(r, send)
		}
		if p.answer == nil {
			return errors.New("not prepared for that")
		}
		if err := p.answer(p, r); err != nil {
			return err
		}
		switch r.Verb {
		case control.Declare, control.Undeclare:
			d, err := p.declares(r)
			if err != nil {
				return err
			}
			return send(control.Response{Declarations: control.Declarations{Declared: d}})
		case control.List:
			l := p.lists(r)
			return send(control.Response{Declarations: control.Declarations{Listing: &l}})
		case control.Install:
			i := p.installs
			if p.installing != nil {
				i = p.installing(r)
			}
			return send(control.Response{Declarations: control.Declarations{Installing: &i}})
		case control.LogIn:
			for _, s := range p.signIns {
				if err := send(control.Response{Declarations: control.Declarations{SignIn: &s}}); err != nil {
					return err
				}
			}
			return nil
		case control.Operators, control.Invite, control.Dismiss, control.ChangeRole:
			return send(control.Response{Declarations: p.people})
		case control.Give:
			g := p.gift
			g.Given = r.Gift != "" && r.Gift == g.Digest
			return send(control.Response{Gift: &g})
		case control.Clean:
			l := p.left
			return send(control.Response{Declarations: control.Declarations{Leftovers: &l}})
		case control.Store, control.Remove, control.Rotate:
			return send(control.Response{Changes: []control.Change{vaultChange(r)}})
		}
		return send(control.Response{})
	}
}

// move exports and imports as pfard does.
func (p *fakePfard) move(r control.Request, send func(control.Response) error) error {
	if r.Verb == control.Export {
		b, err := p.vault.Export(r.Keys, r.Recipient)
		if errors.Is(err, vault.ErrNotFound) {
			return fmt.Errorf("%w: %w", control.ErrNoKey, err)
		} else if err != nil {
			return err
		}
		return send(control.Response{Bundle: b})
	}
	changes, err := p.vault.Import(r.Bundle, r.Replace)
	if errors.Is(err, vault.ErrExists) {
		return &existing{err}
	} else if err != nil {
		return err
	}
	var told []control.Change
	for _, c := range changes {
		value, err := p.vault.Deliver(c.Key)
		if err != nil {
			return err
		}
		told = append(told, control.Change{Key: c.Key, Result: string(c.Outcome), Unsearched: redact.Unsearched(value)})
	}
	return send(control.Response{Changes: told})
}

type existing struct{ error }

func (*existing) Is(err error) bool { return err == control.ErrExists }

func vaultChange(r control.Request) control.Change {
	switch r.Verb {
	case control.Rotate:
		return control.Change{Key: r.Key, Result: "changed", Unsearched: redact.Unsearched([]byte(r.Secret)), Uses: []control.Use{{Server: "notion", Then: control.Restarts}}}
	case control.Remove:
		return control.Change{Key: r.Key, Result: "removed"}
	}
	c := control.Change{Key: r.Key, Result: "new", Unsearched: redact.Unsearched([]byte(r.Secret))}
	if r.OAuth {
		c.Unrefreshed = "it says no end"
		c.Uses = []control.Use{{Server: "drive", Then: control.Waits, Why: "it lacks \"write\""}, {Server: "other", Then: control.Waits}}
	}
	return c
}

func (b *bench) pfard(t *testing.T, report control.Report, answer func(*fakePfard, control.Request) error) *fakePfard {
	t.Helper()
	p := &fakePfard{report: report, changed: make(chan struct{}), answer: answer}
	p.secrets = []control.Secret{{Key: "notion_token", Kind: "plain", Servers: []string{"notion"}}, {Key: "other", Kind: "plain"}}
	l := b.listen(t, b.dirs.Control())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { control.Serve(ctx, l, p.serve); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// serveOperator puts a handler where the gateway listens for the operator.
func (b *bench) serveOperator(t *testing.T, h http.Handler) *http.Server {
	return b.serveAt(t, b.dirs.Operator(), &http.Server{Handler: h})
}
