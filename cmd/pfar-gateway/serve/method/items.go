package method

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/schema"
	"github.com/pfar/pfar/units/jsonrpc"
)

// callTool calls a tool.
func callTool(calls *call.Calls, v *call.Visit) (reply.Reply, error) {
	name, err := named(v)
	switch {
	case err != nil:
		return reply.Reply{}, err
	case name == searchTools && searching(v):
		return search(calls, v)
	case name == describeTool && searching(v):
		return describe(calls, v)
	}
	var none error       // there is no tool of that name, or it is held back
	var read call.Target // whose definition the arguments fit
	re, err := calls.Reach(v, func() (call.Target, error) {
		route, err := v.Catalogue(calls.Registry).Named(registry.Tools, v.Endpoint, name)
		if err == nil {
			err = route.Upstream.Granted(route.Name)
		}
		switch none = err; {
		case err != nil:
			return call.Target{Route: route, Kind: gate.Tool}, err
		case read.Fits && read.Name == route.Name && bytes.Equal(read.Item.Raw, route.Item.Raw):
			read.Route = route
			return read, nil
		}
		read, err = fitting(v, route, name)
		return read, err
	})
	if wrong, ok := errors.AsType[*misused](err); ok {
		return wrong.answer(calls, v)
	}
	if none != nil {
		calls.NotFound(v, name, none)
	}
	return re, err
}

// fitting is a tool whose arguments are as it wants them.
func fitting(v *call.Visit, route registry.Route, name string) (call.Target, error) {
	if err := v.CheckParams(route.Item.Headers); err != nil {
		return call.Target{}, err
	}
	t := call.Target{Route: route, Kind: gate.Tool, Reads: route.Item.Reads, Edits: rename(v.Parameters, name, route.Name)}
	violation := route.Item.CheckArguments(v.Parameters.Get("arguments"))
	if t.Fits = violation == nil; !t.Fits {
		return t, &misused{route, violation}
	}
	return t, nil
}

// getPrompt gets a prompt.
func getPrompt(calls *call.Calls, v *call.Visit) (reply.Reply, error) {
	name, err := named(v)
	if err != nil {
		return reply.Reply{}, err
	}
	var none error // there is no prompt of that name, or it is held back
	re, err := calls.Reach(v, func() (call.Target, error) {
		route, err := v.Catalogue(calls.Registry).Named(registry.Prompts, v.Endpoint, name)
		none = err
		return prompt(route, rename(v.Parameters, name, route.Name)...), err
	})
	if none != nil {
		calls.NotFound(v, name, none)
	}
	return re, err
}

// named returns the name of a tool or a prompt in a request with arguments.
func named(v *call.Visit) (string, error) {
	name, err := v.Text("name")
	if err != nil {
		return "", err
	}
	if a := v.Parameters.Get("arguments"); a != nil && a[0] != '{' && string(a) != "null" {
		return "", invalidParams(`parameter "arguments" is not an object`)
	}
	return name, nil
}

// rename edits the name that a client uses into the server's own.
func rename(params jsonrpc.Members, name, own string) []jsonrpc.Edit {
	if own == name {
		return nil
	}
	return []jsonrpc.Edit{params.Replace(params.Index("name"), jsonrpc.Quote(own))}
}

// prompt is the target of a prompt, whose server gets the parameters with these edits.
func prompt(route registry.Route, edits ...jsonrpc.Edit) call.Target {
	return call.Target{Route: route, Kind: gate.Prompt, Fits: true, Reads: true, Edits: edits}
}

// misused is the error of a call whose arguments are not as the tool wants them.
type misused struct {
	route     registry.Route
	violation *schema.Violation
}

func (m *misused) Error() string {
	return fmt.Sprintf("arguments of tool %q: %s", m.route.Name, m.violation.Text)
}

// answer tells the model what to mend: since 2025-11-25 that is not an error of the protocol, which models do not see,
// but the tool's result. The server has not been asked.
func (m *misused) answer(calls *call.Calls, v *call.Visit) (reply.Reply, error) {
	server := m.route.Upstream.Server().Name
	// The words of the schema are in the answer.
	if err := show(calls, v, listerOf(m.route.Upstream), false, m.route.Item.Strange()); err != nil {
		return reply.Reply{}, jsonrpc.Errorf(approval.Code, "the arguments do not fit, and what %q says of them may not "+
			"be shown: %v", server, err)
	}
	return calls.Unsent(v, server, m.route.Name, reply.Reply{Refused: true, Why: m, Result: fmt.Appendf(nil,
		`{"content":[{"type":"text","text":%s}],"isError":true,"_meta":{"pfar/server":%s,"pfar/label":%s,"pfar/violation":{"path":%s,"rule":%s}}}`,
		jsonrpc.Quote("pfar has not called the tool: "+m.Error()), jsonrpc.Quote(server), jsonrpc.Quote(m.route.Label),
		jsonrpc.Quote(m.violation.Path), jsonrpc.Quote(m.violation.Rule))})
}

// resource finds the server of the resource that the parameters name.
func resource(calls *call.Calls, v *call.Visit) (call.Target, error) {
	uri, err := v.Text("uri")
	if err != nil {
		return call.Resource(registry.Route{}), err
	}
	route, ok, err := v.Catalogue(calls.Registry).ByURI(v.Endpoint, uri)
	if err == nil && !ok {
		code := mcp.RESOURCE_NOT_FOUND
		if v.Modern {
			code = mcp.INVALID_PARAMS
		}
		e := jsonrpc.Errorf(code, "%s", missing(uri))
		e.Data = fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(uri))
		err = failure.As(failure.NotFound, v.Endpoint, e)
	}
	return call.Resource(route), err
}

// missing returns the text for a resource that no server has.
func missing(uri string) string {
	if fenced.IsPage(uri) {
		return fmt.Sprintf("%.200q is a page of an MCP App, which a client would run outside of the sandbox: pfar serves none", uri)
	}
	return fmt.Sprintf("no server has the resource %.200q", uri)
}

// read reads a resource.
func read(calls *call.Calls, v *call.Visit) (reply.Reply, error) {
	return calls.Reach(v, func() (call.Target, error) {
		t, err := resource(calls, v)
		t.Reads = true
		return t, err
	})
}

// complete asks the server of the prompt or template that the reference names.
func complete(calls *call.Calls, v *call.Visit) (reply.Reply, error) {
	i := v.Parameters.Index("ref")
	if i < 0 {
		return reply.Reply{}, invalidParams(`parameter "ref" is missing`)
	}
	raw := v.Parameters[i].Raw()
	ref, err := jsonrpc.Object(raw, nil)
	if err == nil {
		err = ref.LookAlike("type", "name", "uri")
	}
	if err != nil {
		return reply.Reply{}, invalidParams(`reading "ref": %v`, err)
	}
	kind, _ := jsonrpc.String(ref.Get("type"))
	switch kind {
	case "ref/prompt":
		name, err := jsonrpc.String(ref.Get("name"))
		if err != nil {
			return reply.Reply{}, invalidParams(`the name in "ref" is %v`, err)
		}
		return calls.Reach(v, func() (call.Target, error) {
			route, err := v.Catalogue(calls.Registry).Named(registry.Prompts, v.Endpoint, name)
			own := jsonrpc.Splice(nil, raw, ref.Replace(ref.Index("name"), jsonrpc.Quote(route.Name)))
			return prompt(route, v.Parameters.Replace(i, own)), err
		})
	case "ref/resource":
		uri, err := jsonrpc.String(ref.Get("uri"))
		if err != nil {
			return reply.Reply{}, invalidParams(`the uri in "ref" is %v`, err)
		}
		return calls.Reach(v, func() (call.Target, error) {
			route, ok, err := v.Catalogue(calls.Registry).ByURI(v.Endpoint, uri)
			if err == nil && !ok {
				err = invalidParams("%s", missing(uri))
			}
			t := call.Resource(route)
			t.Reads = true
			return t, err
		})
	}
	return reply.Reply{}, invalidParams("a reference is a ref/prompt or a ref/resource, not %.100q", kind)
}
