package serve

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/policies/egress"
)

// Refusals tells which connection a server's bridge has refused last, and when.
// file is the name of its declaration's. session is the handle of a process that serves one client session, "" of any
// other.
type Refusals func(ctx context.Context, server, session string) (refused egress.Refusal, file string, at time.Time)

// Explain has failed calls of tools say what their servers were refused meanwhile, from before the first client is let
// in.
func (s *Server) Explain(r Refusals) { s.refusals = r }

// refusedTime bounds the question: a call that failed is not to wait for pfard.
const refusedTime = time.Second

// refused says what was refused to a server while it worked on a call that failed, and how its owner allows that; ""
// for nothing. The server chooses the host's name, which is a name or an address, and no more. So the words go the way
// of its own answer: they are inspected and fenced with it.
func (x *exchange) refused(ctx context.Context, up *registry.Upstream) string {
	if x.srv.refusals == nil || mcp.MCPMethod(x.msg.Method) != mcp.MethodToolsCall || x.identity().Person {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, refusedTime)
	defer cancel()
	server := up.Server()
	refused, file, at := x.srv.refusals(ctx, server.Name, server.Session)
	remedy := refused.Remedy(file)
	if remedy == "" || at.Before(x.pass.Begun()) {
		return ""
	}
	return fmt.Sprintf("pfar refused the server %s a connection to %s meanwhile. For the owner of this machine: %s.",
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
