package call

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

// refusedTime bounds the question: a call that failed is not to wait for pfard.
const refusedTime = time.Second

// explain says what was refused to a server while it worked on a call that failed, and how its owner allows that; ""
// for nothing. The server chooses the host's name, which is a name or an address, and no more. So the words go the way
// of its own answer: they are inspected and fenced with it.
func (n *incoming) explain() string {
	if n.Identity().Person {
		return ""
	}
	_, text := n.refused()
	return text
}

// refused reports whether a server was refused a connection while it worked on a call that failed, and explains that to
// whoever is not the owner.
func (n *incoming) refused() (bool, string) {
	if n.Refusals == nil || mcp.MCPMethod(n.Method) != mcp.MethodToolsCall {
		return false, ""
	}
	ctx, cancel := context.WithTimeout(n.Ctx, refusedTime)
	defer cancel()
	server := n.up.Server()
	refused, file, at := n.Refusals(ctx, server.Name, server.Session)
	if refused.Reason == "" || at.Before(n.Pass.Begun()) {
		return false, ""
	}
	remedy := refused.Remedy(file)
	if remedy == "" || n.Identity().Person {
		return true, ""
	}
	return true, fmt.Sprintf("pfar refused the server %s a connection to %s meanwhile. For the owner of this machine: %s.",
		server.Name, refused.Host, remedy)
}

// explained is the result of a failed call with one more text block.
func explained(result []byte, ms jsonrpc.Members, text string) []byte {
	i := ms.Index("content")
	if text == "" || i < 0 {
		return result
	}
	list := bytes.TrimSpace(ms[i].Raw())
	if len(list) < 2 || list[0] != '[' {
		return result
	}
	inner := bytes.TrimSpace(list[1 : len(list)-1])
	block := fmt.Appendf(nil, `{"type":"text","text":%s}`, jsonrpc.Quote(text))
	if len(inner) > 0 {
		block = append([]byte{','}, block...)
	}
	return jsonrpc.Splice(nil, result, ms.Replace(i, append(append(append([]byte{'['}, inner...), block...), ']')))
}

// explainedError is a server's error object with one more line in its message.
func explainedError(raw []byte, text string) []byte {
	ms, err := jsonrpc.Object(raw, nil)
	if text == "" || err != nil {
		return raw
	}
	i := ms.Index("message")
	if i < 0 {
		return raw
	}
	message, err := jsonrpc.String(ms[i].Raw())
	if err != nil {
		return raw
	}
	return jsonrpc.Splice(nil, raw, ms.Replace(i, jsonrpc.Quote(message+"\n"+text)))
}
