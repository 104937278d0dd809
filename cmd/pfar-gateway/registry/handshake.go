package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// Agreement is what the handshake settled.
type Agreement struct {
	Protocol     string
	Versions     []string // that it supports, of a server of 2026-07-28
	Capabilities jsonrpc.Members
	Info         []byte // serverInfo as it came
	Said         string // its instructions, as it says them

	meta []byte // members of _meta for requests of the gateway's own, to a server of 2026-07-28
}

// Modern reports whether the server is spoken to without a session, as 2026-07-28 has it.
func (a Agreement) Modern() bool { return mcp.IsModernProtocol(a.Protocol) }

// Legacy reports whether the server would speak a revision that has sessions as well.
func (a Agreement) Legacy() bool {
	return !a.Modern() || slices.ContainsFunc(a.Versions, func(v string) bool { return slices.Contains(mcp.LegacyProtocolVersions(), v) })
}

// Has reports whether the server offers the capability.
func (a Agreement) Has(capability string) bool {
	raw := a.Capabilities.Get(capability)
	return len(raw) > 0 && raw[0] == '{'
}

// Subscribes reports whether the server tells of changes to single resources.
func (a Agreement) Subscribes() bool { return a.says("resources", "subscribe") }

// says reports whether a capability has a member that is true.
func (a Agreement) says(capability, member string) bool {
	if !a.Has(capability) {
		return false
	}
	ms, err := jsonrpc.Object(a.Capabilities.Get(capability), nil)
	return err == nil && string(ms.Get(member)) == "true"
}

// Client is who speaks to a server, as its handshake or each of its requests says.
type Client struct {
	Protocol     string // newest revision with sessions that it speaks
	Info         []byte // clientInfo
	Capabilities []byte // what a server may ask of it
}

// self is the gateway as a client. What a server may ask of clients it may ask of those whose calls it passes on.
func (r *Registry) self(allowed []string) Client {
	return Client{
		Protocol: mcp.LATEST_LEGACY_PROTOCOL_VERSION, Capabilities: every(allowed),
		Info: fmt.Appendf(nil, `{"name":"pfar","version":%s}`, jsonrpc.Quote(r.version)),
	}
}

// RequestMeta returns the members of _meta that a request to a server of 2026-07-28 must have, without brackets.
func RequestMeta(c Client) []byte {
	return fmt.Appendf(nil, `%q:%q,%q:%s,%q:%s`, mcp.MetaKeyProtocolVersion, mcp.ProtocolVersion20260728,
		mcp.MetaKeyClientInfo, c.Info, mcp.MetaKeyClientCapabilities, c.Capabilities)
}

// withMeta adds members to the _meta of parameters, which the gateway has made itself.
func withMeta(params, added []byte) []byte {
	if params == nil {
		params = []byte("{}")
	}
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return params
	}
	return jsonrpc.Splice(nil, params, ms.Prepend(params, fmt.Appendf(nil, `"_meta":{%s}`, added)))
}

// handshake finds out which generation of the protocol the server speaks, and then speaks only that. As the revision
// 2026-07-28 wants it of clients that know both, it is asked in the newer way first, and whatever is no answer to that
// means the older one. Some servers end when they are asked before initialize. legacy: this one is not asked.
func (u *Upstream) handshake(ctx context.Context, c Client, legacy bool) (Agreement, error) {
	if legacy {
		return u.initialize(ctx, c)
	}
	probe, cancel := context.WithTimeoutCause(ctx, u.limits.Probe, errSilent)
	a, err := u.probe(probe, c)
	if isUnsupported(err) { // it speaks the newer generation: once more, and it may have thought better of it
		a, err = u.probe(probe, c)
	}
	cancel()
	if err == nil {
		return a, nil
	}
	if u.why() != nil {
		return Agreement{}, fmt.Errorf("%w: %w", errProbe, err)
	}
	a, older := u.initialize(ctx, c)
	if older != nil && errors.Is(context.Cause(probe), errSilent) { // it was slow, and speaks only the newer one
		if a, err := u.probe(ctx, c); err == nil {
			return a, nil
		}
	}
	return a, older
}

var (
	errSilent = errors.New("it did not answer server/discover")
	errProbe  = errors.New("it ended when it was asked server/discover")
)

// isUnsupported reports whether a server refused our revision and yet names it among those that it speaks.
func isUnsupported(err error) bool {
	e := new(jsonrpc.Error)
	if !errors.As(err, &e) || e.Number() != mcp.UNSUPPORTED_PROTOCOL_VERSION {
		return false
	}
	ms, _ := jsonrpc.Object(e.Raw, nil)
	data, _ := jsonrpc.Object(ms.Get("data"), nil)
	versions, _ := jsonrpc.Array(data.Get("supported"), nil, 64)
	return slices.ContainsFunc(versions, func(v []byte) bool { return string(v) == `"`+mcp.ProtocolVersion20260728+`"` })
}

// probe is server/discover.
func (u *Upstream) probe(ctx context.Context, c Client) (Agreement, error) {
	a := Agreement{Protocol: mcp.ProtocolVersion20260728, meta: RequestMeta(c)}
	raw, err := u.Call(ctx, Call{Method: string(mcp.MethodServerDiscover), Params: withMeta(nil, a.meta), Meta: true})
	if err != nil {
		return Agreement{}, fmt.Errorf("discovering: %w", err)
	}
	ms, err := jsonrpc.Object(raw, nil)
	if err != nil {
		return Agreement{}, fmt.Errorf("discovering: %w", err)
	}
	versions, err := jsonrpc.Array(ms.Get("supportedVersions"), nil, 64)
	if err != nil {
		return Agreement{}, fmt.Errorf("discovering: reading supportedVersions: %w", err)
	}
	for _, v := range versions {
		if s, err := jsonrpc.String(v); err == nil {
			a.Versions = append(a.Versions, s)
		}
	}
	if !slices.Contains(a.Versions, a.Protocol) {
		return Agreement{}, fmt.Errorf("discovering: the server speaks protocol %q, pfar speaks %q", a.Versions, mcp.ValidProtocolVersions)
	}
	if a.Capabilities, err = jsonrpc.Object(ms.Get("capabilities"), nil); err != nil {
		return Agreement{}, fmt.Errorf("discovering: reading capabilities: %w", err)
	}
	meta, _ := jsonrpc.Object(ms.Get("_meta"), nil) // it need not say who it is
	a.Info = plainInfo(meta.Get(mcp.MetaKeyServerInfo), u.Server().Name)
	a.Said = textOf(ms.Get("instructions"))
	return a, nil
}

// initialize speaks the newest revision that the client speaks, or what the server answers if we know that too.
func (u *Upstream) initialize(ctx context.Context, c Client) (Agreement, error) {
	params := fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"clientInfo":%s}`, c.Protocol, c.Capabilities, c.Info)
	raw, err := u.Call(ctx, Call{Method: string(mcp.MethodInitialize), Params: params})
	if err != nil {
		return Agreement{}, fmt.Errorf("initializing: %w", err)
	}
	ms, err := jsonrpc.Object(raw, nil)
	if err != nil {
		return Agreement{}, fmt.Errorf("initializing: %w", err)
	}
	a := Agreement{Info: plainInfo(ms.Get("serverInfo"), u.Server().Name), Said: textOf(ms.Get("instructions"))}
	if a.Protocol, err = jsonrpc.String(ms.Get("protocolVersion")); err != nil {
		return Agreement{}, fmt.Errorf("initializing: protocolVersion %s is %w", quote(ms.Get("protocolVersion")), err)
	}
	if !slices.Contains(mcp.LegacyProtocolVersions(), a.Protocol) {
		return Agreement{}, fmt.Errorf("initializing: the server speaks protocol %s, pfar speaks %q",
			quote(a.Protocol), mcp.LegacyProtocolVersions())
	}
	if a.Capabilities, err = jsonrpc.Object(ms.Get("capabilities"), nil); err != nil {
		return Agreement{}, fmt.Errorf("initializing: reading capabilities: %w", err)
	}
	line := jsonrpc.AppendRequest(nil, 0, string(mcp.MethodNotificationInitialized), nil)
	if err := u.conn.write(ctx, line); err != nil {
		return Agreement{}, fmt.Errorf("initializing: %w", u.writeError(ctx, err))
	}
	return a, nil
}

// textOf decodes a string that may be missing.
func textOf(raw []byte) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	s, _ := jsonrpc.String(raw)
	return s
}
