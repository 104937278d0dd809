package remote

import (
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

// message is one of the gateway's, or one in its place.
type message struct {
	jsonrpc.Message
	line    []byte
	version string // of the protocol, of a message of 2026-07-28; "": it belongs to a session
}

func parse(line []byte) (message, error) {
	m, err := jsonrpc.Parse(line)
	return message{Message: m, line: line}, err
}

// withID is the same request under an id of the adapter's own. The gateway's are numbers.
func (m message) withID(n int) message {
	id := fmt.Appendf(nil, `"pfar-%d"`, n)
	line := jsonrpc.Splice(nil, m.line, m.Members.Replace(m.Members.Index("id"), id))
	again, _ := parse(line) // as it was, but for the id
	again.version = m.version
	return again
}

// repeatable reports whether a request may be sent again though the server may have acted on it.
func repeatable(method string) bool {
	switch mcp.MCPMethod(method) {
	case mcp.MethodInitialize, mcp.MethodServerDiscover, mcp.MethodPing, mcp.MethodToolsList, mcp.MethodPromptsList,
		mcp.MethodPromptsGet, mcp.MethodResourcesList, mcp.MethodResourcesTemplatesList, mcp.MethodResourcesRead,
		mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe, mcp.MethodSetLogLevel, mcp.MethodCompletionComplete:
		return true
	}
	return false
}
