package request

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Shown is the request as a person is shown it and as the gate looks through it: all that reaches the server of the
// client's choosing. bounded reports whether there is nothing in it but arguments.
func (r *Request) Shown() (q enforce.Request, bounded bool) {
	q = enforce.Request{Method: r.Method, Params: jsonrpc.OrEmpty(r.Params), Arguments: r.Parameters.Get("arguments")}
	var edits []jsonrpc.Edit
	if trace := r.Trace(); trace != "" && r.Meta.Get("traceparent") == nil {
		edits = append(edits, r.Parameters.Prepend(q.Params, append([]byte(`"traceparent":`), jsonrpc.Quote(trace)...)))
	}
	if slices.ContainsFunc(r.Meta, func(m jsonrpc.Member) bool { return PerRequest(m.Name) }) { // the server gets others
		own := r.Meta.Merge(nil, func(name []byte) bool { return !PerRequest(name) }, nil)
		edits = append(edits, r.Parameters.Replace(r.Parameters.Index("_meta"), own))
	}
	if len(edits) > 0 {
		q.Params = jsonrpc.Splice(nil, q.Params, edits...)
	}
	bounded = !slices.ContainsFunc(r.Meta, func(m jsonrpc.Member) bool {
		return !PlainMeta(m.Name) && string(m.Name) != mcp.MetaKeyClientInfo
	})
	for i := range r.Parameters {
		if name := string(r.Parameters[i].Name); !r.unseen(name) && (name != "arguments" || !r.names()) {
			q.Arguments = r.whole()
			return q, false
		}
	}
	q.Arguments = jsonrpc.OrEmpty(q.Arguments)
	return q, bounded
}

// names reports whether the request has the name of a tool or a prompt.
func (r *Request) names() bool {
	method := mcp.MCPMethod(r.Method)
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet
}

// unseen reports whether a person does not have to see a parameter: it does not reach the server as it is, is shown as
// what the request is about, or was sealed by pfar.
func (r *Request) unseen(name string) bool {
	switch name {
	case "_meta":
		return true
	case "name":
		return r.names()
	case "requestState":
		return r.Modern
	}
	return false
}

// whole returns the parameters that a person has to see.
func (r *Request) whole() []byte {
	b := []byte{'{'}
	for i := range r.Parameters {
		name := string(r.Parameters[i].Name)
		if r.unseen(name) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, jsonrpc.Quote(name)...), ':'), r.Parameters[i].Raw()...)
	}
	return append(b, '}')
}

// PerRequest reports whether a member of _meta is one with which a request of 2026-07-28 says what older revisions say
// in their handshake.
func PerRequest(name []byte) bool {
	switch string(name) {
	case mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientInfo, mcp.MetaKeyClientCapabilities, mcp.MetaKeyLogLevel:
		return true
	}
	return false
}

// PlainMeta reports whether a member of _meta may go to a server with a request that a person has approved without
// seeing it.
func PlainMeta(name []byte) bool {
	return slices.Contains([]string{"progressToken", mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientCapabilities,
		mcp.MetaKeyLogLevel}, string(name))
}

// Digest covers the caller and the request, but for its answers, its state and _meta, which differ when a client comes
// back.
func (r *Request) Digest(by ...string) [sha256.Size]byte {
	h := sha256.New()
	add := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, s := range append(by, r.Method) {
		add([]byte(s))
	}
	for i := range r.Parameters {
		switch string(r.Parameters[i].Name) {
		case "_meta", "inputResponses", "requestState":
		default:
			add(r.Parameters[i].Name)
			add(bytes.TrimSpace(r.Parameters[i].Raw()))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}
