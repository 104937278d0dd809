package call

import (
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/jsonrpc"
)

// known are the members of results that have a meaning. A name that another parser could take for one of them is
// refused: that parser would see another result than the one that was checked here.
var known = []string{"_meta", "resultType", "inputRequests", "requestState", "isError", "structuredContent", "content", "contents",
	"messages", "description", "completion", "ttlMs", "cacheScope"}

// finish prepares a result for the client: the server's label is put on what a model will read, and every other byte
// stays as it came. A result that is a question to the client is returned as that.
func (n *incoming) finish(result []byte) (reply.Reply, *asked, error) {
	ms, err := jsonrpc.Object(result, make(jsonrpc.Members, 0, 8))
	if err == nil {
		err = ms.LookAlike(known...)
	}
	if err != nil {
		return reply.Reply{}, nil, n.unread(err)
	}
	asks, err := isQuestion(ms)
	if err != nil {
		return reply.Reply{}, nil, n.unread(err)
	}
	if asks {
		q, err := n.questions(result, ms)
		return reply.Reply{}, q, err
	}
	re, err := n.answer(reply.Reply{Result: result, Members: ms})
	return re, nil, err
}

// answer prepares a result that does not ask the client.
func (n *incoming) answer(re reply.Reply) (reply.Reply, error) {
	if !mayAsk(n.Method) {
		if err := n.Pass.Seen(re.Result); err != nil { // it may have been written to meanwhile
			return reply.Reply{}, n.unseeable(err)
		}
		if !n.Pass.Strange() {
			re.Result = protocol.Unclaimed(re.Result, re.Members)
			var err error
			if re.Members, err = jsonrpc.Object(re.Result, re.Members[:0]); err != nil {
				return reply.Reply{}, n.unread(err)
			}
			return re, nil
		}
		return n.received(re)
	}
	if mcp.MCPMethod(n.Method) == mcp.MethodToolsCall {
		if v := n.target.Item.CheckResult(re.Members); v != nil {
			return reply.Reply{}, n.misfit(v)
		}
	}
	if n.Modern && mcp.MCPMethod(n.Method) == mcp.MethodResourcesRead {
		if fit := n.up.Hint(re.Result, re.Members); len(fit) != len(re.Result) || &fit[0] != &re.Result[0] {
			re.Result = fit
			var err error
			if re.Members, err = jsonrpc.Object(fit, nil); err != nil {
				return reply.Reply{}, n.unread(err)
			}
		}
	}
	re.ToolError = string(re.Members.Get("isError")) == "true"
	if re.ToolError {
		var err error
		re.Result = explained(re.Result, re.Members, n.explain())
		if re.Members, err = jsonrpc.Object(re.Result, re.Members[:0]); err != nil {
			return reply.Reply{}, n.unread(err)
		}
		re.Result = redact.StripJSON(re.Result)
		if re.Members, err = jsonrpc.Object(re.Result, re.Members[:0]); err != nil {
			return reply.Reply{}, n.unread(err)
		}
	}
	return n.received(re)
}

// mayAsk reports whether a server of 2026-07-28 may ask its client something in the course of a method. These are also
// the ones whose results a model will read.
func mayAsk(method string) bool {
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsCall, mcp.MethodResourcesRead, mcp.MethodPromptsGet:
		return true
	}
	return false
}

// isQuestion reports whether a result asks the client for input. One that does and says otherwise is an error.
func isQuestion(ms jsonrpc.Members) (bool, error) {
	raw := ms.Get("resultType")
	kind := string(mcp.ResultTypeComplete)
	if raw != nil {
		var err error
		if kind, err = jsonrpc.String(raw); err != nil {
			return false, fmt.Errorf("resultType is %w", err)
		}
	}
	if kind == string(mcp.ResultTypeInputRequired) {
		return true, nil
	}
	if ms.Index("inputRequests") >= 0 || ms.Index("requestState") >= 0 {
		return false, fmt.Errorf("a result of type %q has questions", kind)
	}
	return false, nil
}

// received is a result as the client may have it: labelled, and if strangers may have written it, looked through and
// fenced.
func (n *incoming) received(re reply.Reply) (reply.Reply, error) {
	if values, err := n.extract(re); values != nil || err != nil {
		return n.typed(values, err)
	}
	if err := n.Pass.Seen(re.Result); err != nil {
		return reply.Reply{}, n.unseeable(err)
	}
	if !n.fences() {
		if !n.Pass.Inbound(n.Ctx, re.Result) { // as long as strangers may have written it
			return n.withheld()
		}
		re.Result, re.Members = fenced.Pageless(n.Method, re.Result, re.Members)
		return labelled(n.up, atLeast(n.target.Label, n.Pass.Label().Confidentiality), re), nil
	}
	edits, ok := n.Pass.Result(n.Ctx, n.Method, re.Result, re.Members, n.target.misfit(n.Method))
	if !ok {
		return n.withheld()
	}
	re.Edits = edits
	return re, nil
}

// extract returns the typed values of a result if the client is to get nothing else, nil if the result is raw.
func (n *incoming) extract(re reply.Reply) ([]byte, error) {
	if !n.Pass.Extracts() {
		return nil, nil
	}
	values, more := n.target.Item.Extract(re.Members)
	if more != nil {
		return nil, n.Pass.SeenAs(more.Error(), nil) // it is seen as a whole
	}
	if taken, err := n.Pass.Taken(values); !taken {
		return nil, err
	}
	return values, nil
}

// typed is a result of these values as the client may have it. All else that the server put into it is left out, so
// that nobody has to look for text there.
func (n *incoming) typed(values []byte, err error) (reply.Reply, error) {
	if err != nil {
		return reply.Reply{}, n.unseeable(err)
	}
	if !n.Pass.Inbound(n.Ctx, values) {
		return n.withheld()
	}
	result := n.Pass.Answer().Typed(values)
	ms, err := jsonrpc.Object(result, nil)
	return reply.Reply{Result: result, Members: ms}, err
}

// withheld replaces a result that inspectors have flagged. Only the record has the result and the reason.
func (n *incoming) withheld() (reply.Reply, error) {
	text := "pfar has withheld what " + n.target.server() + " answered, because inspectors found it suspicious. Its " +
		"owner sees why: pfar audit " + n.Pass.Call()
	if mcp.MCPMethod(n.Method) != mcp.MethodToolsCall {
		return reply.Reply{}, jsonrpc.Errorf(approval.Code, "%s", text)
	}
	return reply.Reply{ToolError: true,
		Result: fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}],"isError":true,"_meta":{"pfar/server":%s}}`,
			jsonrpc.Quote(text), jsonrpc.Quote(n.target.server()))}, nil
}

// atLeast returns the higher one of a server's label and its answer's. An unknown label is kept.
func atLeast(label string, c gate.Confidentiality) string {
	var have gate.Confidentiality
	if label == "" || have.UnmarshalText([]byte(label)) != nil || have >= c {
		return label
	}
	return c.String()
}

// labelled puts a label on a result.
func labelled(up *registry.Upstream, label string, re reply.Reply) reply.Reply {
	if re.Members.Index("_meta") < 0 {
		re.Added = up.Mark(label)
		return re
	}
	re.Result = up.Label(label, re.Result, re.Members)
	return re
}
