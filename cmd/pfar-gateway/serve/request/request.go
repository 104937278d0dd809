// Package request reads a client's message and decides which generation of the protocol it is of.
package request

import (
	"encoding/json"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Request is a message with what of it says how to treat it.
type Request struct {
	jsonrpc.Message
	Parameters jsonrpc.Members // members of params
	Meta       jsonrpc.Members // members of _meta in them
	Modern     bool            // 2026-07-28: no session, everything is in the request

	LogID  string      // under which the log speaks of it
	Header http.Header // of HTTP
	Local  bool        // it came on the Unix socket
	Folded bool        // it was in the arguments of another one, whose client does not know the tool's schema
}

// maxDepth bounds the nesting of a client's message.
const maxDepth = 512

// Parse reads a message. Whatever another parser could read differently is refused here, so that nothing behind has to
// think of it. With an error, the request has no more than its id.
func (r *Request) Parse(body []byte) *jsonrpc.Error {
	err := r.parse(body)
	if err != nil && !jsonrpc.ValidID(r.ID) {
		r.ID = nil
	}
	return err
}

func (r *Request) parse(body []byte) *jsonrpc.Error {
	var err error
	if r.Message, err = jsonrpc.Parse(body); err != nil {
		return jsonrpc.Errorf(mcp.PARSE_ERROR, "reading the message: %v", err)
	}
	if err := r.Message.Members.LookAlike("jsonrpc", "id", "method", "params", "result", "error"); err != nil {
		return invalid(err.Error())
	}
	switch {
	case !r.Version:
		return invalid(`"jsonrpc" is not "2.0"`)
	case r.ID != nil && !jsonrpc.ValidID(r.ID):
		return invalid(`"id" is not a string or an integer`)
	case r.Method != "" && (r.Result != nil || r.Error != nil):
		return invalid("it is both a request and a response")
	case r.Method == "" && r.Result == nil && r.Error == nil:
		return invalid(`"method" is missing`)
	case r.Depth > maxDepth:
		return invalid("it nests too deep")
	}
	if r.Params != nil {
		if e := r.readParams(); e != nil {
			return e
		}
	}
	return r.era()
}

func invalid(text string) *jsonrpc.Error { return jsonrpc.Errorf(mcp.INVALID_REQUEST, "%s", text) }

func (r *Request) readParams() *jsonrpc.Error {
	var err error
	if r.Parameters, err = jsonrpc.Object(r.Params, make(jsonrpc.Members, 0, 4)); err == nil {
		err = r.Parameters.LookAlike("name", "arguments", "uri", "_meta", "cursor", "ref", "argument", "level", "requestId", "protocolVersion",
			"capabilities", "clientInfo", "requestState", "inputResponses")
	}
	if meta := r.Parameters.Get("_meta"); err == nil && meta != nil {
		if r.Meta, err = jsonrpc.Object(meta, make(jsonrpc.Members, 0, 6)); err == nil {
			err = r.Meta.LookAlike("progressToken", mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientInfo,
				mcp.MetaKeyClientCapabilities, mcp.MetaKeyLogLevel)
		}
	}
	if err != nil {
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "reading params: %v", err)
	}
	return nil
}

// era tells the two generations of the protocol apart: a request of the newer one says so itself, in its header and in
// _meta alike.
func (r *Request) era() *jsonrpc.Error {
	header := r.One(KeyVersion)
	meta, _ := jsonrpc.String(r.Meta.Get(mcp.MetaKeyProtocolVersion))
	r.Modern = mcp.IsModernProtocol(header) || mcp.IsModernProtocol(meta)
	if !r.Modern {
		return nil
	}
	switch {
	case r.ID == nil && meta == "": // a notification has no place for it
		meta = header
	case meta == "":
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "_meta has no %s", mcp.MetaKeyProtocolVersion)
	case header != meta:
		return jsonrpc.Errorf(mcp.HEADER_MISMATCH, "header MCP-Protocol-Version and _meta's %s differ", mcp.MetaKeyProtocolVersion)
	}
	if !mcp.IsValidProtocolVersion(meta) {
		return Unsupported(meta)
	}
	if r.ID == nil {
		return nil
	}
	if raw := r.Meta.Get(mcp.MetaKeyClientCapabilities); len(raw) == 0 || raw[0] != '{' {
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "_meta has no %s", mcp.MetaKeyClientCapabilities)
	}
	if raw := r.Meta.Get(mcp.MetaKeyLogLevel); raw != nil {
		if level, _ := jsonrpc.String(raw); hub.Severity(level) <= 0 {
			return jsonrpc.Errorf(mcp.INVALID_PARAMS, "%s in _meta is not a log level", mcp.MetaKeyLogLevel)
		}
	}
	if err := r.standardHeaders(); err != nil {
		return jsonrpc.Errorf(mcp.HEADER_MISMATCH, "%v", err)
	}
	return nil
}

// Unsupported is the error of a version of the protocol that is not spoken here.
func Unsupported(version string) *jsonrpc.Error {
	data, _ := json.Marshal(map[string]any{"supported": mcp.ValidProtocolVersions, "requested": version})
	return &jsonrpc.Error{Code: mcp.UNSUPPORTED_PROTOCOL_VERSION, Text: "unsupported protocol version", Data: data}
}

// Text returns a string parameter.
func (r *Request) Text(name string) (string, error) {
	raw := r.Parameters.Get(name)
	if raw == nil {
		return "", jsonrpc.Errorf(mcp.INVALID_PARAMS, "parameter %q is missing", name)
	}
	s, err := jsonrpc.String(raw)
	if err != nil {
		return "", jsonrpc.Errorf(mcp.INVALID_PARAMS, "parameter %q is %v", name, err)
	}
	return s, nil
}

// Capable reports whether a client of 2026-07-28 says in the request that it can be asked for that.
func (r *Request) Capable(capability string) bool {
	ms, err := jsonrpc.Object(r.Meta.Get(mcp.MetaKeyClientCapabilities), nil)
	return err == nil && ms.Get(capability) != nil
}
