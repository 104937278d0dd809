package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"strings"

	markclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mark "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func (p *pfar) connect(ctx context.Context, r *run, h *heard) (library, error) {
	if r.Library == "go-sdk" {
		return p.connectOfficial(ctx, r, h)
	}
	return p.connectMark(ctx, r, h)
}

// headed adds headers to each request.
type headed struct {
	headers map[string]string
	via     http.RoundTripper
}

func (h headed) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, value := range h.headers {
		req.Header.Set(name, value)
	}
	return h.via.RoundTrip(req)
}

// official is the library github.com/modelcontextprotocol/go-sdk.
type official struct{ *mcp.ClientSession }

func (p *pfar) connectOfficial(ctx context.Context, r *run, h *heard) (library, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "pfar-tests", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { offer(h.changed, struct{}{}) },
		ResourceUpdatedHandler: func(_ context.Context, n *mcp.ResourceUpdatedNotificationRequest) { offer(h.updated, n.Params.URI) },
		ProgressNotificationHandler: func(_ context.Context, n *mcp.ProgressNotificationClientRequest) {
			offer(h.of(fmt.Sprint(n.Params.ProgressToken)), []any{n.Params.Progress, n.Params.Total, n.Params.Message})
		},
	})
	version := "2025-11-25"
	if r.modern() {
		version = "2026-07-28"
	}
	var via mcp.Transport = &mcp.StreamableClientTransport{
		Endpoint:   r.URL,
		HTTPClient: &http.Client{Transport: headed{r.Headers, cmp.Or(r.Via, http.DefaultTransport)}},
	}
	if r.Command != "" {
		c := exec.Command(r.Command, r.Args...)
		c.Env = p.env
		via = &mcp.CommandTransport{Command: c}
	}
	session, err := client.Connect(ctx, via, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, err
	}
	if got := session.InitializeResult().ProtocolVersion; got != version {
		return nil, errors.Join(fmt.Errorf("agreed on %s, not %s", got, version), session.Close())
	}
	return official{session}, nil
}

func (o official) server() (name, instructions string) {
	return o.InitializeResult().ServerInfo.Name, o.InitializeResult().Instructions
}

func (o official) list(ctx context.Context, member string) (names []string, err error) {
	switch member {
	case "tools":
		for t, err := range o.Tools(ctx, nil) {
			if err != nil {
				return nil, err
			}
			names = append(names, t.Name)
		}
	case "prompts":
		for p, err := range o.Prompts(ctx, nil) {
			if err != nil {
				return nil, err
			}
			names = append(names, p.Name)
		}
	case "resources":
		for r, err := range o.Resources(ctx, nil) {
			if err != nil {
				return nil, err
			}
			names = append(names, r.URI)
		}
	case "templates":
		for r, err := range o.ResourceTemplates(ctx, nil) {
			if err != nil {
				return nil, err
			}
			names = append(names, r.URITemplate)
		}
	}
	return names, nil
}

func (o official) call(ctx context.Context, tool string, arguments object, token string) (any, error) {
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	if token != "" {
		params.SetProgressToken(token)
	}
	return o.CallTool(ctx, params)
}

func (o official) prompt(ctx context.Context, name string, arguments map[string]string) (any, error) {
	return o.GetPrompt(ctx, &mcp.GetPromptParams{Name: name, Arguments: arguments})
}

func (o official) complete(ctx context.Context, kind, subject, argument, value string) (any, error) {
	ref := &mcp.CompleteReference{Type: kind, Name: subject}
	if kind == "ref/resource" {
		ref = &mcp.CompleteReference{Type: kind, URI: subject}
	}
	result, err := o.Complete(ctx, &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: argument, Value: value}})
	if err != nil {
		return nil, err
	}
	return object{"values": result.Completion.Values, "total": result.Completion.Total, "hasMore": result.Completion.HasMore}, nil
}

func (o official) read(ctx context.Context, uri string) (any, error) {
	return o.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
}

func (o official) watch(ctx context.Context, uri string) error {
	return o.Subscribe(ctx, &mcp.SubscribeParams{URI: uri})
}

func (o official) follow(context.Context) error { return nil } // it does so by itself

func (o official) failure(err error) object {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return object{"code": e.Code, "message": e.Message}
	}
	return object{"message": err.Error()}
}

func (o official) close() error { return o.Close() }

// marks is the library github.com/mark3labs/mcp-go.
type marks struct {
	*markclient.Client
	modern bool
	init   *mark.InitializeResult
	stops  []func()
}

func (p *pfar) connectMark(ctx context.Context, r *run, h *heard) (library, error) {
	via, err := p.markTransport(r)
	if err != nil {
		return nil, err
	}
	options := []markclient.ClientOption{markclient.WithDiscoverTimeout(soon)} // a busy machine takes more than its 5 s
	if !r.modern() {
		//lint:ignore SA1019 both generations of the protocol are tested
		options = append(options, markclient.WithLegacyProtocolOnly())
	}
	m := &marks{Client: markclient.NewClient(via, options...), modern: r.modern()}
	m.OnNotification(func(n mark.JSONRPCNotification) { h.notified(n) })
	if err := m.Start(ctx); err != nil {
		return nil, err
	}
	m.init, err = m.Initialize(ctx, mark.InitializeRequest{Params: mark.InitializeParams{
		ProtocolVersion: mark.LATEST_PROTOCOL_VERSION, ClientInfo: mark.Implementation{Name: "pfar-tests", Version: "1"}}})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if got := mark.IsModernProtocol(m.init.ProtocolVersion); got != m.modern {
		return nil, errors.Join(fmt.Errorf("agreed on %s", m.init.ProtocolVersion), m.Close())
	}
	return m, nil
}

func (p *pfar) markTransport(r *run) (transport.Interface, error) {
	if r.Command != "" {
		return transport.NewStdioWithOptions(r.Command, p.env, r.Args), nil
	}
	via := []transport.StreamableHTTPCOption{transport.WithHTTPHeaders(r.Headers), transport.WithHTTPLogger(slog.New(slog.DiscardHandler))}
	if !r.modern() {
		//lint:ignore SA1019 both generations of the protocol are tested
		via = append(via, transport.WithContinuousListening())
	}
	return transport.NewStreamableHTTP(r.URL, via...)
}

func (h *heard) notified(n mark.JSONRPCNotification) {
	switch f := n.Params.AdditionalFields; n.Method {
	case "notifications/tools/list_changed":
		offer(h.changed, struct{}{})
	case "notifications/resources/updated":
		offer(h.updated, fmt.Sprint(f["uri"]))
	case "notifications/progress":
		offer(h.of(fmt.Sprint(f["progressToken"])), []any{f["progress"], f["total"], f["message"]})
	}
}

func (m *marks) server() (name, instructions string) {
	return m.init.ServerInfo.Name, m.init.Instructions
}

func (m *marks) list(ctx context.Context, member string) (names []string, err error) {
	switch member {
	case "tools":
		result, err := m.ListTools(ctx, mark.ListToolsRequest{})
		if err != nil {
			return nil, err
		}
		for _, t := range result.Tools {
			names = append(names, t.Name)
		}
	case "prompts":
		result, err := m.ListPrompts(ctx, mark.ListPromptsRequest{})
		if err != nil {
			return nil, err
		}
		for _, p := range result.Prompts {
			names = append(names, p.Name)
		}
	case "resources":
		result, err := m.ListResources(ctx, mark.ListResourcesRequest{})
		if err != nil {
			return nil, err
		}
		for _, r := range result.Resources {
			names = append(names, r.URI)
		}
	case "templates":
		result, err := m.ListResourceTemplates(ctx, mark.ListResourceTemplatesRequest{})
		if err != nil {
			return nil, err
		}
		for _, r := range result.ResourceTemplates {
			names = append(names, r.URITemplate.Raw())
		}
	}
	return names, nil
}

func (m *marks) call(ctx context.Context, tool string, arguments object, token string) (any, error) {
	params := mark.CallToolParams{Name: tool, Arguments: arguments}
	if token != "" {
		params.Meta = &mark.Meta{ProgressToken: token}
	}
	return m.CallTool(ctx, mark.CallToolRequest{Params: params})
}

func (m *marks) prompt(ctx context.Context, name string, arguments map[string]string) (any, error) {
	return m.GetPrompt(ctx, mark.GetPromptRequest{Params: mark.GetPromptParams{Name: name, Arguments: arguments}})
}

func (m *marks) complete(ctx context.Context, kind, subject, argument, value string) (any, error) {
	var ref any = mark.PromptReference{Type: kind, Name: subject}
	if kind == "ref/resource" {
		ref = mark.ResourceReference{Type: kind, URI: subject}
	}
	result, err := m.Complete(ctx, mark.CompleteRequest{Params: mark.CompleteParams{Ref: ref, Argument: mark.CompleteArgument{Name: argument, Value: value}}})
	if err != nil {
		return nil, err
	}
	return object{"values": result.Completion.Values, "total": result.Completion.Total, "hasMore": result.Completion.HasMore}, nil
}

func (m *marks) read(ctx context.Context, uri string) (any, error) {
	return m.ReadResource(ctx, mark.ReadResourceRequest{Params: mark.ReadResourceParams{URI: uri}})
}

func (m *marks) watch(ctx context.Context, uri string) error {
	if !m.modern {
		//lint:ignore SA1019 both generations of the protocol are tested
		return m.Subscribe(ctx, mark.SubscribeRequest{Params: mark.SubscribeParams{URI: uri}})
	}
	return m.listen(ctx, mark.SubscriptionFilter{ResourceSubscriptions: []string{uri}})
}

func (m *marks) follow(ctx context.Context) error {
	if !m.modern {
		return nil
	}
	return m.listen(ctx, mark.SubscriptionFilter{ToolsListChanged: true})
}

func (m *marks) listen(ctx context.Context, filter mark.SubscriptionFilter) error {
	stop, err := m.ListenAsync(ctx, filter, func(error) {})
	if err == nil {
		m.stops = append(m.stops, stop)
	}
	return err
}

// failure finds the code again, which the library turns into an error of its own, or loses.
func (m *marks) failure(err error) object {
	for code, known := range map[int]error{mark.INVALID_PARAMS: mark.ErrInvalidParams, mark.RESOURCE_NOT_FOUND: mark.ErrResourceNotFound} {
		if errors.Is(err, known) {
			return object{"code": code, "message": strings.TrimPrefix(err.Error(), known.Error()+": ")}
		}
	}
	if strings.Contains(err.Error(), "is not running since") {
		return object{"code": -32010}
	}
	return object{"message": err.Error()}
}

func (m *marks) close() error {
	for _, stop := range m.stops {
		stop()
	}
	return m.Close()
}
