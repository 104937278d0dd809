package flowdesk

import (
	"crypto/rand"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/jsonrpc"
)

// fence puts fences around what strangers may have written in what is told of a run: a model may read it. A person who
// acts for a client by its name reads it as it came.
func (x *exchange) fence(s *flows.Status) {
	if x.caller.Bound.Acting || !strange(s.Label) {
		return
	}
	a := fenced.Answer{Meta: fence.Meta{Server: access.OwnNodes, Tool: "flow", Label: s.Label}}
	_, _ = rand.Read(a.ID[:]) // crashes rather than fails
	if s.Reason != "" {
		s.Reason = a.Text(s.Reason)
	}
	if s.Result != nil {
		s.Result = fencedResult(a, s.Result)
	}
}

// fencedResult is a result with fences: a tool's as clients get it, and any other value as one text.
func fencedResult(a fenced.Answer, result []byte) []byte {
	ms, err := jsonrpc.Object(result, nil)
	if err == nil && ms.Index("content") >= 0 {
		edits, _, unmarked := a.Result(string(mcp.MethodToolsCall), result, ms)
		if unmarked == nil {
			return jsonrpc.Splice(nil, result, edits...)
		}
	}
	text, err := jsonrpc.String(result)
	if err != nil {
		text = string(result)
	}
	return jsonrpc.Quote(a.Text(text))
}
