package call

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/policies/schema"
	"github.com/pfar/pfar/units/jsonrpc"
)

// CodeResult is the error of a call whose result is not as the tool's outputSchema has it. The tool has run.
const CodeResult = -32012

const (
	maxWhy        = 500 // bytes of what is wrong with an answer
	tooSuspicious = "in what way, inspectors found too suspicious to be told"
)

// against is the error of an answer that the protocol does not have. What the server has chosen the words of is for
// unread.
func against(up *registry.Upstream, format string, args ...any) error {
	server, what := up.Server().Name, fmt.Sprintf(format, args...)
	return failure.As(failure.Schema, server,
		jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q answered against the protocol: %s", server, what))
}

// unread is the error of an answer that cannot be read alike by all, or is against the protocol. The names in it are
// the server's words.
func (n *incoming) unread(why error) error {
	text := reply.Cut(redact.Strip(why.Error()), maxWhy)
	if err := n.Pass.Seen(jsonrpc.Quote(text)); err != nil {
		return n.unseeable(err)
	}
	switch {
	case !n.Pass.Strange():
	case n.Pass.Inbound(n.Ctx, fmt.Appendf(nil, `[%s]`, jsonrpc.Quote(text))):
		text = n.Pass.Answer().Text(text)
	default:
		text = tooSuspicious
	}
	return against(n.up, "%s", text)
}

// unseeable is the error of what a client must not see, for its session's label cannot be raised.
func (n *incoming) unseeable(err error) error {
	n.Log.Error("joining the label of what came back; it is withheld", "call", n.Pass.Call(), "error", err.Error())
	return jsonrpc.Errorf(approval.Code, "pfar has withheld what %s answered: that this session has seen it cannot be "+
		"written down", n.up.Server().Name)
}

// misfit is the error of a result that is against its schema. The names in it are the server's words.
func (n *incoming) misfit(v *schema.Violation) error {
	text := redact.Strip(v.Text)
	data := fmt.Appendf(nil, `{"path":%s,"rule":%s}`, jsonrpc.Quote(v.Path), jsonrpc.Quote(v.Rule))
	if err := n.Pass.Seen(fmt.Appendf(nil, `[%s,%s]`, jsonrpc.Quote(text), data)); err != nil {
		return n.unseeable(err)
	}
	if n.Pass.Strange() {
		if !n.Pass.Inbound(n.Ctx, fmt.Appendf(nil, `[%s,%s]`, jsonrpc.Quote(text), data)) {
			text, data = tooSuspicious, nil
		} else if n.fences() {
			text, data = n.Pass.Answer().Text(text), n.Pass.Answer().Data(data)
		}
	}
	e := jsonrpc.Errorf(CodeResult, "server %q has run tool %q, and its result is against its own outputSchema: %s",
		n.up.Server().Name, n.target.Name, text)
	e.Data = data
	return failure.As(failure.Schema, n.up.Server().Name, e)
}

// heard prepares a server's error for the client. An error that sends the client's user to an address is a question
// (URL elicitation, 2025-11-25): the server's declaration must allow it, and the client be capable of it.
func (n *incoming) heard(err error) error {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || e.Raw == nil {
		return err
	}
	if ms, merr := jsonrpc.Object(e.Raw, nil); merr != nil || ms.LookAlike("code", "message", "data") != nil {
		return against(n.up, "two parsers could read its error differently")
	}
	switch code := e.Number(); code {
	case mcp.HEADER_MISMATCH, mcp.UNSUPPORTED_PROTOCOL_VERSION: // between pfar and the server, and nothing of the client's
		return against(n.up, "the error %d is about pfar's own words", code)
	case mcp.URL_ELICITATION_REQUIRED:
	default:
		return n.fenced(e, failure.Of(err))
	}
	if err := mayNot(n.up, string(mcp.MethodElicitationCreate)); err != nil {
		return err
	}
	if !n.capable("elicitation") {
		return incapable(n.up.Server().Name, "elicitation")
	}
	if n.Session != nil {
		n.Session.Sub.ExpectsAll(n.up.Server().Name, e.Raw)
	}
	return n.fenced(e, failure.Failure{})
}

// fenced is a server's error as the client may have it, with its class.
func (n *incoming) fenced(e *jsonrpc.Error, f failure.Failure) error {
	refused, text := n.refused()
	if refused && f.Class == failure.ServerError && !n.up.Server().Adapted {
		f.Class = failure.NetworkError
	}
	classed := func(e *jsonrpc.Error) error {
		if f.Class == "" {
			return e
		}
		return &failure.Error{Failure: f, Server: n.up.Server().Name, Err: e}
	}
	e = &jsonrpc.Error{Raw: explainedError(e.Raw, text)}
	if err := n.Pass.Seen(e.Raw); err != nil {
		return n.unseeable(err)
	}
	if !n.Pass.Strange() {
		return classed(e)
	}
	if !n.Pass.Inbound(n.Ctx, e.Raw) {
		return jsonrpc.Errorf(approval.Code, "pfar has withheld the error of %s, because inspectors found it suspicious. "+
			"Its owner sees why: pfar audit %s", n.up.Server().Name, n.Pass.Call())
	}
	if !n.fences() {
		return classed(e)
	}
	return classed(&jsonrpc.Error{Raw: n.Pass.Answer().Error(e.Raw)})
}

// mayNot is the error of a server that asks its client for what its declaration does not allow; nil if it does.
func mayNot(up *registry.Upstream, method string) error {
	e := up.Refusal(method)
	if e == nil {
		return nil
	}
	return jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q asks its client for what it may not: %s", up.Server().Name,
		strings.TrimPrefix(e.Text, "method not found: "))
}

// incapable is the error of a client that does not say that it can be asked for what the server needs.
func incapable(server, capability string) *jsonrpc.Error {
	e := jsonrpc.Errorf(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, "server %q needs %s of its client, which this one is "+
		"not capable of", server, capability)
	e.Data = fmt.Appendf(nil, `{"requiredCapabilities":{%q:{}}}`, capability)
	return e
}
