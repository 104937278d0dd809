package fenced

import (
	"bytes"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// A page is HTML of a server's that a client runs beside the conversation: of MCP Apps (SEP-1865), of mcp-ui, of OpenAI's Apps SDK. It
// calls tools, speaks to the model, and reaches the hosts that the server names, all of which neither its owner nor egress nor the gate
// sees. So no client gets any.

// IsPage reports whether a resource with this URI is one.
func IsPage(uri string) bool {
	head := strings.ToLower(uri[:min(len(uri), 16)])
	return strings.HasPrefix(head, "ui://") || strings.HasPrefix(head, "ui-app://")
}

// IsPageType reports whether a resource of this MIME type is one.
func IsPageType(mime string) bool {
	mime = strings.ToLower(mime)
	return slices.ContainsFunc([]string{"mcp-app", "mcp-ui", "text/html+mcp", "+skybridge"}, func(s string) bool { return strings.Contains(mime, s) })
}

// mayRun reports whether some clients run what has this MIME type.
func mayRun(mime string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(mime), ";")
	switch strings.TrimSpace(kind) {
	case "text/html", "application/xhtml+xml", "text/uri-list":
		return true
	}
	return IsPageType(mime)
}

// plainText is the MIME type of what is not to be run.
const plainText = "text/plain"

// Theirs reports whether a server may set a member of _meta: what begins with pfar/ is what pfar says, and nothing is to lead to a page.
func Theirs(name []byte) bool {
	switch name := strings.ToLower(string(name)); {
	case strings.HasPrefix(name, "pfar/"):
		return false
	case name == "ui", strings.HasPrefix(name, "ui/"), strings.HasPrefix(name, "openai/output"), strings.HasPrefix(name, "openai/widget"):
		return false
	}
	return true
}

// Pageless returns the result of a request that is not fenced, and its members: as it came, but that nothing in it is a page or leads to
// one.
func Pageless(method string, result []byte, ms jsonrpc.Members) ([]byte, jsonrpc.Members) {
	if !slices.ContainsFunc(hints, func(hint []byte) bool { return bytes.Contains(result, hint) }) {
		return result, ms
	}
	w := walk{b: result, texts: texts[mcp.MCPMethod(method)], trusted: true, end: len(result)}
	pageless := w.whole()
	if len(w.edits) == 0 {
		return result, ms
	}
	ms, _ = jsonrpc.Object(pageless, nil) // as it was one before
	return pageless, ms
}

// hints are what the address or the MIME type of a page has in it, however its characters are escaped.
var hints = [][]byte{[]byte("://"), []byte(`:\/`), []byte(`\u00`), []byte("mcp"), []byte("skybridge")}
