package method

import (
	"bytes"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Sessions opens sessions.
type Sessions struct {
	Calls *call.Calls
	Table *session.Table
	Hub   *hub.Hub
	Queue int    // messages that wait for one client
	Noted func() // is called when what the next gateway has to know has changed
}

// negotiated is the version of the protocol that a session will have.
func negotiated(v *call.Visit) (string, error) {
	if v.Response == nil || v.Header.Get(mcp.HeaderSessionID) != "" {
		return "", jsonrpc.Errorf(mcp.INVALID_REQUEST, "the session is initialized already")
	}
	if v.Modern {
		return "", jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: since protocol %s there is no initialize", mcp.ProtocolVersion20260728)
	}
	wanted, err := v.Text("protocolVersion")
	return mcp.NegotiateLegacyVersion(wanted), err
}

// maxClient bounds what a client says of itself, in bytes: it is kept as long as its session.
const maxClient = 16 << 10

// open makes the session that initialize asks for.
func (o *Sessions) open(v *call.Visit, version string) error {
	s := session.New(v.Bound, v.Endpoint, version, o.Queue)
	for _, name := range [...]string{"clientInfo", "capabilities"} {
		raw := v.Parameters.Get(name)
		if raw == nil {
			continue
		}
		if _, err := jsonrpc.Object(raw, nil); err != nil || len(raw) > maxClient {
			return invalidParams("parameter %q is not an object of at most %d bytes", name, maxClient)
		}
	}
	if raw := v.Parameters.Get("capabilities"); raw != nil {
		s.Abilities = bytes.Clone(raw)
	}
	if err := o.labelApart(v, s); err != nil {
		return err
	}
	s.Sub.Allow(v.Member.Rights)
	o.Hub.Add(s.Sub)
	if err := o.Table.Open(s); err != nil {
		o.Hub.Remove(s.Sub)
		if s.Label != "" {
			_ = o.Calls.Gate.Sessions.End(s.Bound().Client, s.Label) // it has seen nothing; what stays of it on the disk is pruned
		}
		return jsonrpc.Errorf(protocol.CodeBusy, "%v", err)
	}
	if err := o.Calls.Clients.Stays(&v.Caller); err != nil {
		o.Table.Remove(s)
		return err
	}
	s.Sub.Turn(v.Member.Rights)
	o.Noted()
	v.Response.Header().Set(mcp.HeaderSessionID, s.ID)
	return nil
}

// labelApart gives a connection a label of its own, if its client's declaration says so.
func (o *Sessions) labelApart(v *call.Visit, s *session.Session) error {
	if o.Calls.Gate == nil || v.Member.Sessions != access.Connection || v.Bound.Handle != access.DefaultSession {
		return nil
	}
	var err error
	if s.Label, err = o.Calls.Gate.Sessions.Connect(v.Bound.Client); err != nil {
		return jsonrpc.Errorf(protocol.CodeBusy, "%v", err)
	}
	return nil
}
