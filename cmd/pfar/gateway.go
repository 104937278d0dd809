package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/spf13/pflag"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/access"
	failures "github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator/ask"
)

// gatewayHost is the gateway: the host is a formality on a Unix socket, and localhost passes the gateway's Host check.
// gatewayURL is its MCP endpoint.
const (
	gatewayHost = "http://localhost"
	gatewayURL  = gatewayHost + "/mcp"
)

// endpoint is the gateway's MCP endpoint for it, of one server or of all for "".
func (p persona) endpoint(server string) (string, error) {
	return p.address("/mcp", access.Operator, server)
}

// address is one of the gateway's for it, below a path. whoever is the client that it is if it names none.
func (p persona) address(below, whoever, server string) (string, error) {
	url := gatewayHost + below + "/" + cmp.Or(p.client, whoever) + "/" + cmp.Or(p.session, access.DefaultSession)
	switch {
	case p.client == "" && p.session != "":
		return "", usage("--session goes with --client, whose session it is")
	case p.client != "" && declaration.ClientNameFault(p.client) != "":
		return "", usage("%q is not a client's name", p.client)
	case p.session != "" && !access.ValidHandle(p.session):
		return "", usage("%q is not the handle of a session", p.session)
	}
	if server != "" {
		url += "/" + server
	}
	return url, nil
}

// errOperator is for who would have a program be the operator.
var errOperator = usage("a program cannot connect as the operator").
	withHint(`declare a client with "pfar client add", or use the client "default"`)

// flags gives a verb the choice of it.
func (p *persona) flags(f *pflag.FlagSet) {
	f.StringVar(&p.client, "client", "", "act as this declared `CLIENT`")
	f.StringVar(&p.session, "session", "", "with --client: `HANDLE` of a session that you made for it")
}

// maxTools and maxPages bound a listing, so that a gateway whose cursor never ends costs no more.
const (
	maxTools = 20_000
	maxPages = 2_000
)

// tool is one tool as the gateway lists it. Description and schema are a stranger's words.
type tool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Meta        toolMeta        `json:"_meta"`

	raw json.RawMessage // the whole definition as the gateway sent it: annotations, output schema and what is to come
}

func (t *tool) UnmarshalJSON(b []byte) error {
	type plain tool
	if err := json.Unmarshal(b, (*plain)(t)); err != nil {
		return err
	}
	t.raw = bytes.Clone(b)
	return nil
}

// MarshalJSON gives the definition back whole.
func (t tool) MarshalJSON() ([]byte, error) { return t.raw, nil }

// toolMeta is what the gateway itself says of a tool.
type toolMeta struct {
	Server string `json:"pfar/server"`
	Tool   string `json:"pfar/tool"`
	Label  string `json:"pfar/label,omitempty"`

	Semantics string `json:"pfar/semantics,omitempty"` // "read", or it writes
	Held      string `json:"pfar/held,omitempty"`      // "new" or "changed": no client sees it; "": it is served
}

// id is the tool's name as pfar writes it.
func (t tool) id() string { return t.Meta.Server + "." + t.Meta.Tool }

// gateway is one session with pfar-gateway.
type gateway struct {
	client *client.Client
	conn   transport.Interface
	next   int64
}

// gatewayHTTP returns a client whose every connection goes to the gateway's Unix socket.
func (c *pfar) gatewayHTTP() *http.Client { return c.socketHTTP(c.dirs.Gateway()) }

func (c *pfar) socketHTTP(path string) *http.Client {
	return &http.Client{Transport: resend{ask.Transport(path, c.uid)}}
}

// plainRefusals makes what the gateway answers to whom it does not let in an error in its own words: mcp-go would take
// it for a server of an older kind.
type plainRefusals struct{ http.RoundTripper }

func (p plainRefusals) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode < 400 || resp.StatusCode > 499 || r.Header.Get(mcp.HeaderSessionID) != "" {
		return resp, err
	}
	defer resp.Body.Close()
	return nil, refusedWith(ask.Refused(resp))
}

// openGateway begins a session. The caller closes it. mcp-go bounds no answer; the gateway sends no longer one than the
// line that it reads of a server (registry.Limits.Line), and what its fence adds.
func (c *pfar) openGateway(ctx context.Context) (*gateway, error) {
	endpoint, err := c.persona.endpoint("")
	if err != nil {
		return nil, err
	}
	speaker := c.gatewayHTTP()
	speaker.Transport = plainRefusals{speaker.Transport}
	conn, err := transport.NewStreamableHTTP(endpoint,
		transport.WithHTTPBasicClient(speaker), transport.WithHTTPLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	//lint:ignore SA1019 requests go to the transport as raw JSON, and a session says once what each would have to say in _meta
	g := &gateway{client: client.NewClient(conn, client.WithLegacyProtocolOnly()), conn: conn}
	if err := g.client.Start(ctx); err != nil {
		return nil, fmt.Errorf("starting the gateway's client: %w", err)
	}
	var hello mcp.InitializeRequest
	hello.Params.ClientInfo = mcp.Implementation{Name: "pfar", Version: readBuild().Version}
	if _, err := g.client.Initialize(ctx, hello); err != nil {
		g.close()
		return nil, fmt.Errorf("greeting the gateway: %w", err)
	}
	return g, nil
}

func (g *gateway) close() { g.client.Close() }

// rpcError is the gateway's JSON-RPC error.
type rpcError struct {
	Code    int
	Message string
	Failure failures.Told // the zero value: it has no class
}

// newRPCError reads what the gateway says of an error's class.
func newRPCError(e *mcp.JSONRPCErrorDetails) *rpcError {
	is := &rpcError{Code: e.Code, Message: e.Message}
	var data map[string]json.RawMessage
	if b, err := json.Marshal(e.Data); err == nil && json.Unmarshal(b, &data) == nil && data[failures.Key] != nil {
		_ = json.Unmarshal(data[failures.Key], &is.Failure) // another gateway's may be of another kind
	}
	return is
}

func (e *rpcError) Error() string { return e.Message }

// request asks for one result, raw: decoding it into mcp-go's types would round large numbers.
func (g *gateway) request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	g.next++
	response, err := g.conn.SendRequest(ctx, transport.JSONRPCRequest{
		JSONRPC: mcp.JSONRPC_VERSION, ID: mcp.NewRequestId(fmt.Sprintf("pfar-%d", g.next)), Method: method, Params: params,
	})
	switch {
	case err != nil:
		return nil, err
	case response.Error != nil:
		return nil, newRPCError(response.Error)
	}
	return response.Result, nil
}

// tools lists every tool of every server.
func (g *gateway) tools(ctx context.Context) ([]tool, error) {
	var all []tool
	params := map[string]string{}
	for range maxPages {
		raw, err := g.request(ctx, "tools/list", params)
		if err != nil {
			return nil, fmt.Errorf("listing tools: %w", err)
		}
		var page struct {
			Tools      []tool `json:"tools"`
			NextCursor string `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, fmt.Errorf("listing tools: %w", err)
		}
		for _, t := range page.Tools {
			if t.Meta.Server == "" || t.Meta.Tool == "" {
				continue // not from pfar's registry, so it cannot be named
			}
			all = append(all, t)
		}
		if page.NextCursor == "" || page.NextCursor == params["cursor"] || len(all) > maxTools {
			break
		}
		params["cursor"] = page.NextCursor
	}
	return all, nil
}

// call calls a tool and returns its result.
func (g *gateway) call(ctx context.Context, t tool, arguments map[string]json.RawMessage) (json.RawMessage, error) {
	raw, err := g.request(ctx, "tools/call", map[string]any{"name": t.Name, "arguments": arguments})
	if err != nil {
		return nil, fmt.Errorf("calling %s: %w", t.id(), err)
	}
	return raw, nil
}

// helpLine is how to see the flags of a tool. A name that a shell would take for more than a word is not put there to
// be copied.
func (t tool) helpLine() string {
	if !visible.ShellSafe(t.id()) {
		return "pfar call NAME.TOOL --help"
	}
	return "pfar call " + t.id() + " --help"
}
