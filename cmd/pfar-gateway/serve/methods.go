package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/schema"
	"github.com/pfar/pfar/policies/gate"
)

// method does what a request asks. The list is closed: what is not on it does not reach a server (GC-25).
func (x *exchange) method(ctx context.Context) (reply, error) {
	switch mcp.MCPMethod(x.msg.Method) {
	case mcp.MethodInitialize:
		return x.initialize()
	case mcp.MethodServerDiscover:
		return x.discover()
	case mcp.MethodPing:
		if x.modern {
			break
		}
		return empty, nil
	case mcp.MethodToolsList:
		return x.list(registry.Tools)
	case mcp.MethodPromptsList:
		return x.list(registry.Prompts)
	case mcp.MethodResourcesList:
		return x.list(registry.Resources)
	case mcp.MethodResourcesTemplatesList:
		return x.list(registry.Templates)
	case mcp.MethodToolsCall:
		return x.named(ctx, registry.Tools)
	case mcp.MethodPromptsGet:
		return x.named(ctx, registry.Prompts)
	case mcp.MethodResourcesRead:
		return x.read(ctx)
	case mcp.MethodResourcesSubscribe:
		return x.subscribe(ctx)
	case mcp.MethodResourcesUnsubscribe:
		return x.unsubscribe(ctx)
	case mcp.MethodCompletionComplete:
		return x.completion(ctx)
	case mcp.MethodSetLogLevel:
		return x.setLevel(ctx)
	case mcp.MethodSubscriptionsListen:
		return x.listen(ctx)
	}
	return reply{}, jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: %.100q", x.msg.Method)
}

var empty = reply{result: []byte("{}")}

// notified acts on what needs no answer. What clients tell beyond this concerns no server.
func (x *exchange) notified() {
	switch {
	case x.session == nil:
	case x.msg.Method == "" && jsonrpc.ValidID(x.msg.ID):
		x.session.answered(x.msg)
	case x.msg.Method == string(mcp.MethodNotificationCancelled):
		if id := x.params.Get("requestId"); jsonrpc.ValidID(id) {
			x.session.cancel(id)
		}
	case x.msg.Method == string(mcp.MethodNotificationRootsListChanged):
		x.rootsChanged()
	}
}

func invalidParams(format string, args ...any) error {
	return jsonrpc.Errorf(mcp.INVALID_PARAMS, format, args...)
}

// text returns a string parameter.
func (x *exchange) text(name string) (string, error) {
	raw := x.params.Get(name)
	if raw == nil {
		return "", invalidParams("parameter %q is missing", name)
	}
	s, err := jsonrpc.String(raw)
	if err != nil {
		return "", invalidParams("parameter %q is %v", name, err)
	}
	return s, nil
}

// initialize opens a session.
func (x *exchange) initialize() (reply, error) {
	if x.plain || x.r.Header.Get(mcp.HeaderSessionID) != "" {
		return reply{}, jsonrpc.Errorf(mcp.INVALID_REQUEST, "the session is initialized already")
	}
	if x.modern {
		return reply{}, jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: since protocol %s there is no initialize", mcp.ProtocolVersion20260728)
	}
	wanted, err := x.text("protocolVersion")
	if err != nil {
		return reply{}, err
	}
	view, err := x.view()
	if err != nil {
		return reply{}, err
	}
	session, err := x.newSession(mcp.NegotiateLegacyVersion(wanted))
	if err != nil {
		return reply{}, err
	}
	x.w.Header().Set(mcp.HeaderSessionID, session.id)
	about := x.reviewed(view)
	result := fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"serverInfo":%s`, session.version, capabilities(view), x.srv.info(view, about))
	return reply{result: append(appendInstructions(result, view, about), '}')}, nil
}

// newSession makes the session that initialize asks for.
func (x *exchange) newSession(version string) (*session, error) {
	s := &session{id: newSessionID(), bound: x.bound, endpoint: x.endpoint, version: version, abilities: []byte("{}")}
	for _, name := range [...]string{"clientInfo", "capabilities"} {
		raw := x.params.Get(name)
		if raw == nil {
			continue
		}
		if _, err := jsonrpc.Object(raw, nil); err != nil || len(raw) > maxClient {
			return nil, invalidParams("parameter %q is not an object of at most %d bytes", name, maxClient)
		}
	}
	if raw := x.params.Get("capabilities"); raw != nil {
		s.abilities = bytes.Clone(raw)
	}
	if err := x.labelApart(s); err != nil {
		return nil, err
	}
	s.sub = x.subscriber(registry.AllKinds)
	s.sub.session = s.id
	x.srv.hub.add(s.sub)
	if err := x.srv.sessions.open(s); err != nil {
		x.srv.hub.remove(s.sub)
		if s.handle != "" {
			_ = x.srv.gate.Sessions.End(s.bound.Client, s.handle) // it has seen nothing; what stays of it on the disk is pruned
		}
		return nil, jsonrpc.Errorf(registry.CodeBusy, "%v", err)
	}
	if err := x.stays(); err != nil {
		x.srv.sessions.remove(s)
		return nil, err
	}
	x.srv.turn(s.sub, x.member.rights)
	x.srv.noted()
	return s, nil
}

// maxClient bounds what a client says of itself, in bytes: it is kept as long as its session.
const maxClient = 16 << 10

// discover is what initialize was, without a session.
func (x *exchange) discover() (reply, error) {
	if x.session != nil {
		return reply{}, jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: %q begins with protocol %s", x.msg.Method, mcp.ProtocolVersion20260728)
	}
	view, err := x.view()
	if err != nil {
		return reply{}, err
	}
	versions, err := json.Marshal(mcp.ValidProtocolVersions)
	if err != nil {
		return reply{}, err
	}
	result := fmt.Appendf(nil, `{"supportedVersions":%s,"capabilities":%s`, versions, capabilities(view))
	about := x.reviewed(view)
	result = appendInstructions(result, view, about)
	return reply{result: fmt.Appendf(result, `,"_meta":{%q:%s}}`, mcp.MetaKeyServerInfo, x.srv.info(view, about))}, nil
}

// list answers from the ready bytes.
func (x *exchange) list(k registry.Kind) (reply, error) {
	cursor := ""
	if x.params.Index("cursor") >= 0 {
		var err error
		if cursor, err = x.text("cursor"); err != nil {
			return reply{}, err
		}
	}
	view, err := x.view()
	if err != nil {
		return reply{}, err
	}
	left, err := x.listed(view.Lists[k])
	if err != nil {
		return reply{}, err
	}
	if len(left) > 0 {
		view = x.srv.registry.Without(x.catalogue(), x.endpoint, left)
	}
	page, ok := view.Lists[k].Page(cursor)
	if !ok {
		return reply{}, invalidParams("the cursor is not of this list, which may have changed: begin again")
	}
	return reply{result: page, closed: true, hint: view.Lists[k].Hint()}, nil
}

// listed has a client be shown what servers list, as far as nobody has reviewed it: for its session that is what they
// answer. It returns the servers of which the client's profile or a rule shows it nothing.
func (x *exchange) listed(list *registry.List) (left []string, err error) {
	strange, holding := list.Strange(), list.Holding()
	servers := slices.Concat(strange, holding)
	slices.Sort(servers)
	for _, server := range slices.Compact(servers) {
		err := x.show(server, slices.Contains(holding, server), slices.Contains(strange, server))
		switch {
		case errors.Is(err, enforce.ErrNotListed):
			left = append(left, server)
		case err != nil:
			return nil, jsonrpc.Errorf(approval.Code, "what %q lists may not be shown: %v", server, err)
		}
	}
	return left, nil
}

// show has a client be shown something that a server lists.
func (x *exchange) show(server string, holding, strange bool) error {
	if !holding && !strange {
		return nil
	}
	if x.srv.gate == nil {
		return errNoGate
	}
	return x.srv.gate.Listed(x.r.Context(), x.identity(), enforce.Listing{
		Lister: x.srv.lister(server), Method: x.msg.Method, Holding: holding, Strange: strange,
	})
}

// named calls a tool or gets a prompt.
func (x *exchange) named(ctx context.Context, k registry.Kind) (reply, error) {
	name, err := x.text("name")
	if err != nil {
		return reply{}, err
	}
	if a := x.params.Get("arguments"); a != nil && a[0] != '{' && string(a) != "null" {
		return reply{}, invalidParams(`parameter "arguments" is not an object`)
	}
	var none error // there is nothing of that name, or it is held back
	re, err := x.reach(ctx, func() (target, error) {
		route, err := x.catalogue().Named(k, x.endpoint, name)
		none = err
		t := target{Route: route, kind: gate.Prompt, fits: true, reads: true, edits: rename(x.params, name, route.Name)}
		if k == registry.Tools {
			t.kind, t.fits, t.reads = gate.Tool, false, route.Item.Reads
		}
		if err == nil && k == registry.Tools {
			if err := x.paramHeaders(route.Item.Headers); err != nil {
				return target{}, err
			}
			v := route.Item.CheckArguments(x.params.Get("arguments"))
			if t.fits = v == nil; !t.fits {
				err = &misused{route, v}
			}
		}
		return t, err
	})
	if wrong, ok := errors.AsType[*misused](err); ok {
		server := wrong.route.Upstream.Server().Name
		if err := x.show(server, false, wrong.route.Item.Strange()); err != nil { // the schema's words are in the answer
			return reply{}, jsonrpc.Errorf(approval.Code, "the arguments do not fit, and what %q says of them may not be shown: %v", server, err)
		}
		return x.observed(ctx, wrong.route.Upstream.Server().Name, wrong.route.Name, func(context.Context) (reply, error) {
			re := wrong.reply()
			re.why = wrong
			return re, nil
		})
	}
	if none != nil {
		x.notCalled(name, none)
	}
	return re, err
}

// misused is a call whose arguments are not as the tool wants them.
type misused struct {
	route     registry.Route
	violation *schema.Violation
}

func (m *misused) Error() string {
	return fmt.Sprintf("arguments of tool %q: %s", m.route.Name, m.violation.Text)
}

// reply tells the model what to mend: since 2025-11-25 that is not an error of the protocol, which models do not see,
// but the tool's result. The server has not been asked.
func (m *misused) reply() reply {
	server := m.route.Upstream.Server()
	return reply{refused: true, result: fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}],"isError":true,"_meta":{"pfar/server":%s,"pfar/label":%s,"pfar/violation":{"path":%s,"rule":%s}}}`,
		jsonrpc.Quote("pfar has not called the tool: "+m.Error()), jsonrpc.Quote(server.Name), jsonrpc.Quote(m.route.Label),
		jsonrpc.Quote(m.violation.Path), jsonrpc.Quote(m.violation.Rule))}
}

// rename edits the name that a client uses into the server's own.
func rename(params jsonrpc.Members, name, own string) []jsonrpc.Edit {
	if own == name {
		return nil
	}
	return []jsonrpc.Edit{params.Replace(params.Index("name"), jsonrpc.Quote(own))}
}

// resource finds the server of the resource that the parameters name.
func (x *exchange) resource() (string, registry.Route, error) {
	uri, err := x.text("uri")
	if err != nil {
		return "", registry.Route{}, err
	}
	route, ok, err := x.catalogue().ByURI(x.endpoint, uri)
	if err == nil && !ok {
		code := mcp.RESOURCE_NOT_FOUND
		if x.modern {
			code = mcp.INVALID_PARAMS
		}
		e := jsonrpc.Errorf(code, "%s", missing(uri))
		e.Data = fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(uri))
		err = e
	}
	return uri, route, err
}

// missing says why a resource is not to be had.
func missing(uri string) string {
	if fenced.IsPage(uri) {
		return fmt.Sprintf("%.200q is a page of an MCP App, which a client would run outside of the sandbox: pfar serves none", uri)
	}
	return fmt.Sprintf("no server has the resource %.200q", uri)
}

func (x *exchange) read(ctx context.Context) (reply, error) {
	return x.reach(ctx, func() (target, error) {
		_, route, err := x.resource()
		t := resourceOf(route)
		t.reads = true
		return t, err
	})
}

// completion asks the server of the prompt or template that the reference names.
func (x *exchange) completion(ctx context.Context) (reply, error) {
	i := x.params.Index("ref")
	if i < 0 {
		return reply{}, invalidParams(`parameter "ref" is missing`)
	}
	raw := x.params[i].Raw()
	ref, err := jsonrpc.Object(raw, nil)
	if err == nil {
		err = ref.LookAlike("type", "name", "uri")
	}
	if err != nil {
		return reply{}, invalidParams(`reading "ref": %v`, err)
	}
	kind, _ := jsonrpc.String(ref.Get("type"))
	switch kind {
	case "ref/prompt":
		name, err := jsonrpc.String(ref.Get("name"))
		if err != nil {
			return reply{}, invalidParams(`the name in "ref" is %v`, err)
		}
		return x.reach(ctx, func() (target, error) {
			route, err := x.catalogue().Named(registry.Prompts, x.endpoint, name)
			own := jsonrpc.Splice(nil, raw, ref.Replace(ref.Index("name"), jsonrpc.Quote(route.Name)))
			return target{Route: route, kind: gate.Prompt, fits: true, reads: true, edits: []jsonrpc.Edit{x.params.Replace(i, own)}}, err
		})
	case "ref/resource":
		uri, err := jsonrpc.String(ref.Get("uri"))
		if err != nil {
			return reply{}, invalidParams(`the uri in "ref" is %v`, err)
		}
		return x.reach(ctx, func() (target, error) {
			route, ok, err := x.catalogue().ByURI(x.endpoint, uri)
			if err == nil && !ok {
				err = invalidParams("%s", missing(uri))
			}
			t := resourceOf(route)
			t.reads = true
			return t, err
		})
	}
	return reply{}, invalidParams("a reference is a ref/prompt or a ref/resource, not %.100q", kind)
}

// levelTime is how long a client waits for servers to take its level; they are asked side by side.
const levelTime = 5 * time.Second

// setLevel turns log messages on for this client. The server is set to the most verbose level that any of its clients
// has wanted of this process; each gets what it asked for.
func (x *exchange) setLevel(ctx context.Context) (reply, error) {
	if x.session == nil {
		return reply{}, onlyInSessions(mcp.MetaKeyLogLevel + " in _meta")
	}
	name, err := x.text("level")
	if err != nil {
		return reply{}, err
	}
	level := severity(name)
	if level <= 0 {
		return reply{}, invalidParams("%.100q is not a level", name)
	}
	sub := x.session.sub
	sub.mu.Lock()
	sub.level = level
	sub.mu.Unlock()
	x.srv.noted()
	x.session.setLevel(ctx, name)
	ctx, cancel := context.WithTimeout(x.srv.calls, levelTime)
	defer cancel()
	var told sync.WaitGroup
	for _, up := range x.catalogue().Offering(x.endpoint, "logging") {
		if !up.Server().Sessions.Own { // told above
			told.Go(func() { x.srv.level(ctx, up, x.srv.hub.lowest(up.Server().Name)) })
		}
	}
	told.Wait()
	return empty, nil
}
