package serve

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// Headers as net/http keeps them, so that looking one up costs no more than that.
var (
	keyVersion = http.CanonicalHeaderKey(mcp.HeaderProtocolVersion)
	keySession = http.CanonicalHeaderKey(mcp.HeaderSessionID)
	keyMethod  = http.CanonicalHeaderKey(mcp.HeaderMethod)
	keyName    = http.CanonicalHeaderKey(mcp.HeaderName)
	keyEvent   = http.CanonicalHeaderKey("Last-Event-ID")
	singleton  = [...]string{"Content-Type", "Content-Encoding", keyVersion, keySession, keyMethod, keyName, keyEvent}
)

// header returns a header that comes once, "" for none.
func (x *exchange) header(key string) string {
	if v := x.r.Header[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// standardHeaders checks that the headers which tell others what is in a request tell the truth (SEP-2243).
func (x *exchange) standardHeaders() error {
	switch method := x.header(keyMethod); {
	case method == "":
		return fmt.Errorf("header %s is missing", mcp.HeaderMethod)
	case method != x.msg.Method:
		return fmt.Errorf("header %s is %.100q, and the method %.100q", mcp.HeaderMethod, method, x.msg.Method)
	case !mcp.MethodRequiresNameHeader(mcp.MCPMethod(x.msg.Method)):
		return nil
	}
	member := "name"
	if x.msg.Method == string(mcp.MethodResourcesRead) {
		member = "uri"
	}
	name := x.header(keyName)
	if name == "" {
		return fmt.Errorf("header %s is missing", mcp.HeaderName)
	}
	name, ok := mcp.DecodeHeaderValue(name)
	if !ok {
		return fmt.Errorf("header %s is not well encoded", mcp.HeaderName)
	}
	if have, err := jsonrpc.String(x.params.Get(member)); err != nil || have != name {
		return fmt.Errorf("header %s is %.100q, and the %s %.100q", mcp.HeaderName, name, member, have)
	}
	return nil
}

// paramHeaders checks the headers in which a tool wants some of its arguments repeated, if it does. On the Unix socket
// they may all be left out: there it is mostly pfar connect, for clients on stdio, who have no headers.
func (x *exchange) paramHeaders(tool *mcp.Tool) error {
	if !x.modern || tool == nil || x.local && !x.hasParams() {
		return nil
	}
	err := mcp.ValidateParamHeadersLookup(func(name string) (string, bool) {
		values, ok := x.r.Header[http.CanonicalHeaderKey(name)]
		return strings.Join(values, ", "), ok
	}, tool, x.msg.Params)
	if err != nil {
		return jsonrpc.Errorf(mcp.HEADER_MISMATCH, "%.300s", err.Error())
	}
	return nil
}

func (x *exchange) hasParams() bool {
	for key := range x.r.Header {
		if strings.HasPrefix(key, mcp.HeaderParamPrefix) {
			return true
		}
	}
	return false
}
