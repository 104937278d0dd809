package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	markclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mark "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// library is a Go library's client, connected.
type library interface {
	server() (name, instructions string)
	list(ctx context.Context, member string) ([]string, error) // names, or URIs
	call(ctx context.Context, tool string, arguments object, token string) (any, error)
	prompt(ctx context.Context, name string, arguments map[string]string) (any, error)
	complete(ctx context.Context, kind, subject, argument, value string) (any, error)
	read(ctx context.Context, uri string) (any, error)
	watch(ctx context.Context, uri string) error
	follow(ctx context.Context) error // changes of the list of tools
	failure(err error) object
	close() error
}

// heard is what comes without having been asked for.
type heard struct {
	changed chan struct{}
	updated chan string

	mu       sync.Mutex
	progress map[string]chan []any
}

func newHeard() *heard {
	return &heard{changed: make(chan struct{}, 8), updated: make(chan string, 8), progress: map[string]chan []any{}}
}

// offer sends what somebody waits for; what comes too often, since others cause it too, is dropped.
func offer[T any](c chan T, v T) {
	select {
	case c <- v:
	default:
	}
}

// of returns the progress under a token.
func (h *heard) of(token string) chan []any {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.progress[token] == nil {
		h.progress[token] = make(chan []any, 16)
	}
	return h.progress[token]
}

// startGo starts a run of one of the Go libraries in this process.
func (p *pfar) startGo(t *testing.T, r *run) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		if err := p.runGo(ctx, r); err != nil {
			r.say("error", err.Error())
		}
	}()
	t.Cleanup(func() { <-ended })
}

func (p *pfar) runGo(ctx context.Context, r *run) error {
	h := newHeard()
	lib, err := p.connect(ctx, r, h)
	if err != nil {
		r.say("refused", object{"message": err.Error()})
		return nil
	}
	name, instructions := lib.server()
	r.say("server", name)
	r.say("instructions", instructions)
	for _, member := range []string{"tools", "prompts", "resources", "templates"} {
		names, err := lib.list(ctx, member)
		if err != nil {
			return fmt.Errorf("listing %s: %w", member, err)
		}
		r.say(member, names)
	}
	for _, s := range r.Servers {
		if err := r.visit(ctx, lib, h, s); err != nil {
			return fmt.Errorf("using %s: %w", s.Name, err)
		}
	}
	if err := lib.follow(ctx); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	r.say("ready", true)
	select {
	case <-h.changed:
	case <-ctx.Done():
		return errors.New("nobody said that a list changed")
	}
	after, err := lib.list(ctx, "tools")
	if err != nil {
		r.say("changed", lib.failure(err)["code"])
	} else {
		r.say("changed", after)
	}
	if err := lib.close(); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	r.say("closed", true)
	return nil
}

// plainResult is a result without what is pfar's own and what only one generation has.
func plainResult(result any) any {
	b, err := json.Marshal(result)
	if err != nil {
		return err.Error()
	}
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		return err.Error()
	}
	for _, name := range []string{"_meta", "resultType", "ttlMs", "cacheScope"} {
		delete(o, name)
	}
	return o
}

// visit uses one server.
func (r *run) visit(ctx context.Context, lib library, h *heard, s visited) error {
	say := func(step string, value any) { r.say(s.Name+" "+step, value) }
	for _, step := range []struct {
		tool      string
		arguments object
	}{{"text", object{"message": "h\u00e9llo \U0001f600"}}, {"sum", object{"a": 1, "b": 2.5}}, {"media", object{}}, {"fail", object{}}} {
		result, err := lib.call(ctx, s.Prefix+step.tool, step.arguments, "")
		if err != nil {
			return fmt.Errorf("%s: %w", step.tool, err)
		}
		say(step.tool, plainResult(result))
	}
	if err := r.step(ctx, lib, h, s); err != nil {
		return fmt.Errorf("steps: %w", err)
	}
	if _, err := lib.call(ctx, s.Prefix+"nothing", object{}, ""); err != nil {
		say("unknown", lib.failure(err))
	}
	greeting, err := lib.prompt(ctx, s.Prefix+"greet", map[string]string{"name": "Ada"})
	if err != nil {
		return err
	}
	say("greet", plainResult(greeting))
	if err := r.read(ctx, lib, s); err != nil {
		return err
	}
	if err := r.cancel(ctx, lib, h, s); err != nil {
		return fmt.Errorf("cancelling: %w", err)
	}
	if err := lib.watch(ctx, "plain://"+s.Name+"/text"); err != nil {
		return err
	}
	if _, err := lib.call(ctx, s.Prefix+"touch", object{}, ""); err != nil {
		return err
	}
	for {
		select {
		case uri := <-h.updated:
			if uri == "plain://"+s.Name+"/text" { // others touch what this client watched before
				say("updated", true)
				return nil
			}
		case <-ctx.Done():
			return errors.New("nobody said that a resource changed")
		}
	}
}

// step makes a call that is answered once all its progress has come.
func (r *run) step(ctx context.Context, lib library, h *heard, s visited) error {
	label := r.Name + " of " + s.Name
	type outcome struct {
		result any
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		result, err := lib.call(ctx, s.Prefix+"steps", object{"steps": 3, "label": label}, "progress of "+s.Name)
		ended <- outcome{result, err}
	}()
	var progress [][]any
	for range 3 {
		select {
		case p := <-h.of("progress of " + s.Name):
			progress = append(progress, p)
		case <-ctx.Done():
			return fmt.Errorf("no more progress than %v", progress)
		}
	}
	r.say(s.Name+" progress", progress)
	if _, err := lib.call(ctx, s.Prefix+"release", object{"label": label}, ""); err != nil {
		return err
	}
	o := <-ended
	r.say(s.Name+" steps", plainResult(o.result))
	return o.err
}

// read completes and reads.
func (r *run) read(ctx context.Context, lib library, s visited) error {
	say := func(step string, value any) { r.say(s.Name+" "+step, value) }
	names, err := lib.complete(ctx, "ref/prompt", s.Prefix+"greet", "name", "A")
	if err != nil {
		return err
	}
	say("complete", names)
	ids, err := lib.complete(ctx, "ref/resource", "plain://"+s.Name+"/item/{id}", "id", "G")
	if err != nil {
		return err
	}
	say("complete template", ids)
	for _, path := range []string{"text", "blob", "item/7"} {
		result, err := lib.read(ctx, "plain://"+s.Name+"/"+path)
		if err != nil {
			return err
		}
		say("read "+path, plainResult(result))
	}
	if _, err := lib.read(ctx, "missing://nowhere"); err != nil {
		say("missing", lib.failure(err)["code"])
	}
	return nil
}

// cancel gives a call up once the server has begun it; the server says when it has heard.
func (r *run) cancel(ctx context.Context, lib library, h *heard, s visited) error {
	label, token := r.Name+" of "+s.Name, "wait for "+s.Name
	call, giveUp := context.WithCancel(ctx)
	defer giveUp()
	ended := make(chan error, 1)
	go func() {
		_, err := lib.call(call, s.Prefix+"wait", object{"label": label}, token)
		ended <- err
	}()
	select {
	case <-h.of(token):
	case <-ctx.Done():
		return errors.New("the call did not begin")
	}
	giveUp()
	r.say(s.Name+" given up", <-ended == nil)
	result, err := lib.call(ctx, s.Prefix+"cancelled", object{"label": label}, "")
	if err != nil {
		return err
	}
	b, err := json.Marshal(plainResult(result))
	want, _ := json.Marshal(content(says(label)))
	r.say(s.Name+" cancelled", string(b) == string(want))
	return err
}

func (p *pfar) connect(ctx context.Context, r *run, h *heard) (library, error) {
	if r.Library == "go-sdk" {
		return p.connectOfficial(ctx, r, h)
	}
	return p.connectMark(ctx, r, h)
}

// headed adds headers to each request.
type headed struct{ headers map[string]string }

func (h headed) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, value := range h.headers {
		req.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(req)
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
	var via mcp.Transport = &mcp.StreamableClientTransport{Endpoint: r.URL, HTTPClient: &http.Client{Transport: headed{r.Headers}}}
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
	var options []markclient.ClientOption
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
	via := []transport.StreamableHTTPCOption{transport.WithHTTPHeaders(r.Headers)}
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
