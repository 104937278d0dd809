package request

import (
	"fmt"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

// ToolCall makes the request of a tool's call that no client has sent: pfar makes it for a run of a flow. It is of
// 2026-07-28, by a client that can be asked for nothing. name is the server's own of the tool.
func ToolCall(logID, name string, arguments []byte) (*Request, error) {
	const version = mcp.ProtocolVersion20260728
	r := &Request{LogID: logID, Header: http.Header{
		KeyVersion: {version}, KeyMethod: {string(mcp.MethodToolsCall)},
		KeyName: {name},
	}}
	const call = `{"jsonrpc":"2.0","id":1,"method":%q,"params":{"name":%s,"arguments":%s,"_meta":{%q:%q,%q:{}}}}`
	e := r.Parse(fmt.Appendf(nil, call,
		mcp.MethodToolsCall, jsonrpc.Quote(name), jsonrpc.OrEmpty(arguments), mcp.MetaKeyProtocolVersion, version,
		mcp.MetaKeyClientCapabilities))
	if e != nil {
		return nil, e
	}
	return r, nil
}
