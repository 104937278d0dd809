package request

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

// Headers as net/http keeps them, so that looking one up costs no more than that.
var (
	KeyVersion = http.CanonicalHeaderKey(mcp.HeaderProtocolVersion)
	KeySession = http.CanonicalHeaderKey(mcp.HeaderSessionID)
	KeyMethod  = http.CanonicalHeaderKey(mcp.HeaderMethod)
	KeyName    = http.CanonicalHeaderKey(mcp.HeaderName)
	KeyEvent   = http.CanonicalHeaderKey("Last-Event-ID")
	Singleton  = [...]string{"Content-Type", "Content-Encoding", KeyVersion, KeySession, KeyMethod, KeyName, KeyEvent}
)

// One returns a header that comes once, "" for none.
func (r *Request) One(key string) string {
	if v := r.Header[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// standardHeaders checks that the headers that repeat the method and the name agree with the message (SEP-2243).
func (r *Request) standardHeaders() error {
	switch method := r.One(KeyMethod); {
	case method == "":
		return fmt.Errorf("header %s is missing", mcp.HeaderMethod)
	case method != r.Method:
		return fmt.Errorf("header %s is %.100q, and the method %.100q", mcp.HeaderMethod, method, r.Method)
	case !mcp.MethodRequiresNameHeader(mcp.MCPMethod(r.Method)):
		return nil
	}
	member := "name"
	if r.Method == string(mcp.MethodResourcesRead) {
		member = "uri"
	}
	name := r.One(KeyName)
	if name == "" {
		return fmt.Errorf("header %s is missing", mcp.HeaderName)
	}
	name, ok := mcp.DecodeHeaderValue(name)
	if !ok {
		return fmt.Errorf("header %s is not well encoded", mcp.HeaderName)
	}
	if have, err := jsonrpc.String(r.Parameters.Get(member)); err != nil || have != name {
		return fmt.Errorf("header %s is %.100q, and the %s %.100q", mcp.HeaderName, name, member, have)
	}
	return nil
}

// CheckParams checks the headers in which a tool wants some of its arguments repeated, if it does. On the Unix socket
// they may all be left out: there the client is mostly pfar connect, for clients on stdio, who have no headers. So may
// those of a call that another one carries.
func (r *Request) CheckParams(tool *mcp.Tool) error {
	if !r.Modern || tool == nil || (r.Local || r.Folded) && !r.hasParams() {
		return nil
	}
	err := mcp.ValidateParamHeadersLookup(func(name string) (string, bool) {
		values, ok := r.Header[http.CanonicalHeaderKey(name)]
		return strings.Join(values, ", "), ok
	}, tool, r.Params)
	if err != nil {
		return jsonrpc.Errorf(mcp.HEADER_MISMATCH, "%.300s", err.Error())
	}
	return nil
}

func (r *Request) hasParams() bool {
	for key := range r.Header {
		if strings.HasPrefix(key, mcp.HeaderParamPrefix) {
			return true
		}
	}
	return false
}

// Trace is the trace that the request's header says that it is part of, "" for none.
func (r *Request) Trace() string {
	if values := r.Header["Traceparent"]; len(values) == 1 {
		return values[0]
	}
	return ""
}
