package call

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/request"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/units/jsonrpc"
)

// outgoing is the request as the server gets it. The client's headers, and with them its token, go no further than
// here.
func (c *Call) outgoing(up *registry.Upstream, t Target) (call protocol.Call, err error) {
	call = protocol.Call{Method: c.Method, Params: c.Params, Client: c.client(), Meta: true, Withdraw: withdraw(c.Pass)}
	back, err := c.stateFor(up)
	if err != nil {
		return call, err
	}
	meta, err := c.metaFor(up, &call)
	if err != nil {
		return call, err
	}
	edits := slices.Concat(t.Edits, back, meta)
	switch {
	case len(edits) > 0 && call.Params == nil:
		call.Params = jsonrpc.Splice(nil, []byte("{}"), edits...)
	case len(edits) > 0:
		slices.SortFunc(edits, func(a, b jsonrpc.Edit) int { return cmp.Or(a.Start-b.Start, a.End-b.End) })
		call.Params = jsonrpc.Splice(make([]byte, 0, len(call.Params)+64), call.Params, edits...)
	}
	if c.Pass.Approved() { // by somebody who was shown no white space, nor how strings are escaped
		if call.Params, err = jsonrpc.Compact(nil, jsonrpc.OrEmpty(call.Params)); err != nil {
			return call, invalidParams("reading params: %v", err)
		}
	}
	return call, nil
}

func invalidParams(format string, args ...any) error {
	return jsonrpc.Errorf(mcp.INVALID_PARAMS, format, args...)
}

// withdraw reports whether a server may hear that its client has left. A client that the operator has dismissed has
// chosen nothing.
func withdraw(pass *enforce.Passage) func(cause error) bool {
	return func(cause error) bool {
		return errors.Is(cause, clients.ErrDismissed) || errors.Is(cause, session.ErrStopping) || pass.Withdraw()
	}
}

// client says whose call it is: a session's, or each request's since 2026-07-28.
func (v *Visit) client() string {
	if v.Session != nil {
		return v.Session.ID
	}
	return "request " + v.LogID
}

// metaFor returns the edit that adapts _meta to the server's generation of the protocol, with a progress token that no
// other client has.
func (c *Call) metaFor(up *registry.Upstream, call *protocol.Call) ([]jsonrpc.Edit, error) {
	added, drop, err := c.generation(up)
	if err != nil {
		return nil, err
	}
	if token := c.Meta.Get("progressToken"); token != nil {
		if !jsonrpc.ValidID(token) {
			return nil, invalidParams("the progressToken is not a string or an integer")
		}
		if c.Response != nil {
			call.Token, call.ClientToken = up.Token(), token
			added = append(comma(added), `"progressToken":`...)
			added = strconv.AppendInt(added, call.Token, 10)
		}
	}
	if c.trace.parent != "" && !c.Pass.Approved() {
		added = append(append(append(comma(added), `"traceparent":"`...), c.trace.parent...), '"')
		if c.trace.state != "" {
			added = append(append(added, `,"tracestate":`...), jsonrpc.Quote(c.trace.state)...)
		}
		kept := drop
		drop = func(name []byte) bool {
			return string(name) == "traceparent" || string(name) == "tracestate" || kept(name)
		}
	}
	i := c.Parameters.Index("_meta")
	if i < 0 {
		if len(added) == 0 {
			return nil, nil
		}
		return []jsonrpc.Edit{c.Parameters.Prepend(jsonrpc.OrEmpty(c.Params), slices.Concat([]byte(`"_meta":{`), added, []byte{'}'}))}, nil
	}
	keep := func(name []byte) bool {
		return string(name) != "progressToken" && !drop(name) && (!c.Pass.Approved() || request.PlainMeta(name))
	}
	return []jsonrpc.Edit{c.Parameters.Replace(i, c.Meta.Merge(nil, keep, added))}, nil
}

func comma(b []byte) []byte {
	if len(b) > 0 {
		return append(b, ',')
	}
	return b
}

// generation returns what the server's generation of the protocol has in _meta that the client's has not, and what is
// to be left out.
func (v *Visit) generation(up *registry.Upstream) (added []byte, drop func([]byte) bool, err error) {
	switch {
	case !up.Modern():
		return nil, request.PerRequest, nil
	case !v.Modern:
		client, err := v.Session.AsClient(up.Server().Capabilities)
		if err != nil {
			return nil, nil, err
		}
		added = protocol.RequestMeta(client)
		if level := v.Session.Level(); level != "" {
			added = append(append(append(added, `,"`+mcp.MetaKeyLogLevel+`":"`...), level...), '"')
		}
		return added, request.PerRequest, nil
	}
	allowed, err := protocol.Allow(v.Meta.Get(mcp.MetaKeyClientCapabilities), up.Server().Capabilities)
	if err != nil {
		return nil, nil, invalidParams("reading _meta: %v", err)
	}
	return fmt.Appendf(nil, `%q:%s,%q:%s`, mcp.MetaKeyClientInfo, session.ClientInfo(v.Bound), mcp.MetaKeyClientCapabilities, allowed),
		func(name []byte) bool {
			return string(name) == mcp.MetaKeyClientCapabilities || string(name) == mcp.MetaKeyClientInfo
		}, nil
}

// stateFor returns the edit that gives a server its state back, as it gave it.
func (v *Visit) stateFor(up *registry.Upstream) ([]jsonrpc.Edit, error) {
	if v.Back == nil {
		if !v.Modern && up.Modern() && (v.Parameters.Index("requestState") >= 0 || v.Parameters.Index("inputResponses") >= 0) {
			return nil, invalidParams("requestState and inputResponses are of protocol %s: in a session pfar asks and answers "+
				"in your name", mcp.ProtocolVersion20260728)
		}
		return nil, nil
	}
	if v.Back.Server != up.Server().Name {
		return nil, errForeign
	}
	i := v.Parameters.Index("requestState")
	if !v.Back.Given {
		return []jsonrpc.Edit{v.Parameters.Remove(i)}, nil
	}
	return []jsonrpc.Edit{v.Parameters.Replace(i, jsonrpc.Quote(v.Back.Text))}, nil
}

var errForeign = invalidParams("the requestState is not of this request, or has been used, or is too old: begin again without it")
