package protocol

import (
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// classed is an error of the gateway's own about a server, with its class.
func classed(class failure.Class, server string, code int, format string, args ...any) error {
	return failure.As(class, server, jsonrpc.Errorf(code, format, args...))
}

// reported is the error in a server's answer. pfar's adapter names the class of its own errors. Any other error gets
// its class from its code alone. Nothing that a server says in pfar's name reaches the client.
func reported(server handover.Server, raw []byte) error {
	ms, err := jsonrpc.Object(raw, make(jsonrpc.Members, 0, 4))
	if err != nil { // jsonrpc.ValidError has read it
		return &jsonrpc.Error{Raw: raw}
	}
	f, wants, detail := failure.Failure{}, oauth.Demand{}, ""
	if data, noData := jsonrpc.Object(ms.Get("data"), nil); server.Adapted && noData == nil {
		told := data.Get(failure.Key)
		f, wants = failure.Read(told), failure.ReadDemand(told)
		ours, _ := jsonrpc.Object(told, nil)
		detail, _ = jsonrpc.String(ours.Get("detail"))
	}
	if f.Class == "" {
		f.Class = classOf((&jsonrpc.Error{Raw: raw}).Number())
	}
	var e error = &jsonrpc.Error{Raw: unforged(raw, ms)}
	switch {
	case f.Class == "":
		return e
	case detail != "":
		e = adapterError{e, f.Class, detail}
	}
	return &failure.Error{Failure: f, Server: server.Name, Wants: wants, Err: e}
}

// adapterError is an error of pfar's adapter, which says what has happened, partly in the server's words.
type adapterError struct {
	answer error
	class  failure.Class
	detail string
}

func (e adapterError) Error() string { return string(e.class) + ": " + jsonrpc.Quoted(e.detail) }
func (e adapterError) Unwrap() error { return e.answer }

// unforged is an error object without what it says in pfar's name.
func unforged(raw []byte, ms jsonrpc.Members) []byte {
	var edits []jsonrpc.Edit
	for i := range ms {
		switch string(ms[i].Name) {
		case "code", "message":
			continue
		}
		value := ms[i].Raw()
		if value[0] != '{' {
			continue
		}
		of, err := jsonrpc.Object(value, nil)
		if err != nil || forges(of) { // what cannot be looked through holds nothing
			edits = append(edits, ms.Replace(i, of.Merge(nil, theirs, nil)))
		}
	}
	if edits == nil {
		return raw
	}
	return jsonrpc.Splice(nil, raw, edits...)
}

// Unclaimed is a result with these members without what its server says of it in pfar's name.
func Unclaimed(result []byte, ms jsonrpc.Members) []byte {
	i := ms.Index("_meta")
	if i < 0 || ms[i].Raw()[0] != '{' {
		return result
	}
	meta, err := jsonrpc.Object(ms[i].Raw(), nil)
	if err == nil && !forges(meta) {
		return result
	}
	return jsonrpc.Splice(nil, result, ms.Replace(i, meta.Merge(nil, theirs, nil)))
}

func theirs(name []byte) bool { return !failure.Ours(name) }

func forges(ms jsonrpc.Members) bool {
	for i := range ms {
		if failure.Ours(ms[i].Name) {
			return true
		}
	}
	return false
}

// classOf is what JSON-RPC and MCP mean by an error's code, "" if they do not say it for certain: of INVALID_PARAMS a
// client may be at fault, and a server that does not know a tool says the same.
func classOf(code int) failure.Class {
	switch code {
	case mcp.RESOURCE_NOT_FOUND, mcp.METHOD_NOT_FOUND:
		return failure.NotFound
	case mcp.URL_ELICITATION_REQUIRED, mcp.HEADER_MISMATCH, mcp.UNSUPPORTED_PROTOCOL_VERSION,
		mcp.MISSING_REQUIRED_CLIENT_CAPABILITY:
		return ""
	}
	if code == mcp.INTERNAL_ERROR || code >= leastServerError && code <= mostServerError {
		return failure.ServerError
	}
	return ""
}

// JSON-RPC reserves these codes for errors that a server defines.
const (
	leastServerError = -32099
	mostServerError  = -32000
)
