// Package headers says in HTTP's header fields what a message of the revision 2026-07-28 says, as servers of that
// revision require.
package headers

import (
	"bytes"
	"net/http"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

// Tools knows which tools want some of their arguments in header fields.
type Tools struct {
	mu sync.Mutex
	of map[string]*mcp.Tool
}

// maxTools and maxSchema bound what is kept of a server's tools: how many, and bytes of one's schema.
const (
	maxTools  = 4096
	maxSchema = 256 << 10
)

// Learn takes the result of tools/list, which may be one page of several.
func (t *Tools) Learn(result []byte) {
	ms, err := jsonrpc.Object(result, nil)
	if err != nil {
		return
	}
	list, err := jsonrpc.Array(ms.Get("tools"), nil, maxTools)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*mcp.Tool{}
	}
	for _, raw := range list {
		tool, err := jsonrpc.Object(raw, nil)
		if err != nil {
			continue
		}
		name, err := jsonrpc.String(tool.Get("name"))
		if err != nil {
			continue
		}
		delete(t.of, name)
		schema := tool.Get("inputSchema")
		if len(schema) > maxSchema || len(t.of) >= maxTools || !bytes.Contains(schema, []byte("x-mcp-header")) {
			continue
		}
		known := &mcp.Tool{Name: name, RawInputSchema: bytes.Clone(schema)}
		if mcp.ValidateParamHeaderAnnotations(known) == nil { // the gateway does not serve it otherwise
			t.of[name] = known
		}
	}
}

// Add adds the header fields of a message with a method.
func (t *Tools) Add(header http.Header, method string, params []byte, version string) {
	header.Set(mcp.HeaderProtocolVersion, version)
	for name, value := range mcp.StandardHeaders(version, mcp.MCPMethod(method), params) {
		header.Set(name, value)
	}
	if method != string(mcp.MethodToolsCall) {
		return
	}
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return
	}
	name, _ := jsonrpc.String(ms.Get("name"))
	t.mu.Lock()
	tool := t.of[name]
	t.mu.Unlock()
	for name, value := range mcp.GenerateParamHeaders(tool, params) {
		header.Set(name, value)
	}
}

// VersionOf returns the revision that the parameters of a message of 2026-07-28 name, "" for another message.
func VersionOf(params []byte) string {
	if !bytes.Contains(params, []byte(mcp.MetaKeyProtocolVersion)) {
		return ""
	}
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return ""
	}
	meta, err := jsonrpc.Object(ms.Get("_meta"), nil)
	if err != nil {
		return ""
	}
	version, _ := jsonrpc.String(meta.Get(mcp.MetaKeyProtocolVersion))
	if !mcp.IsModernProtocol(version) {
		return ""
	}
	return version
}
