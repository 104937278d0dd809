package protocol

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Handshake finds out which generation of the protocol the server speaks, and then speaks only that. As the revision
// 2026-07-28 wants it of clients that know both, it is asked in the newer way first, and whatever is no answer to that
// means the older one. Some servers end when they are asked before initialize. legacy: this one is not asked.
func (c *Conversation) Handshake(ctx context.Context, client Client, legacy bool) (Agreement, error) {
	if legacy {
		return initialize(ctx, c, client)
	}
	probe, cancel := context.WithTimeoutCause(ctx, c.limits.Probe, errSilent)
	a, err := discover(probe, c, client)
	if isUnsupported(err) { // it speaks the newer generation: once more, and it may have thought better of it
		a, err = discover(probe, c, client)
	}
	cancel()
	if err == nil {
		return a, nil
	}
	if c.Why() != nil {
		return Agreement{}, fmt.Errorf("%w: %w", ErrProbe, err)
	}
	a, older := initialize(ctx, c, client)
	if older != nil && errors.Is(context.Cause(probe), errSilent) { // it was slow, and speaks only the newer one
		if a, err := discover(ctx, c, client); err == nil {
			return a, nil
		}
	}
	return a, older
}

var (
	errSilent       = errors.New("the server did not answer server/discover")
	ErrProbe  error = failure.Fact("the server ended when pfar sent it server/discover")
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

// discover is server/discover.
func discover(ctx context.Context, c *Conversation, client Client) (Agreement, error) {
	a := Agreement{Protocol: mcp.ProtocolVersion20260728, meta: RequestMeta(client)}
	ask := Call{Method: string(mcp.MethodServerDiscover), Params: withMeta(nil, a.meta), Meta: true, Own: true}
	raw, err := c.Call(ctx, ask)
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
	a.Info, a.Transport = plainInfo(meta.Get(mcp.MetaKeyServerInfo), c.name()), transportOf(c.Server(), meta)
	a.Said = textOf(ms.Get("instructions"))
	return a, nil
}

// initialize speaks the newest revision that the client speaks, or what the server answers if we know that too.
func initialize(ctx context.Context, c *Conversation, client Client) (Agreement, error) {
	params := fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":%s,"clientInfo":%s}`, client.Protocol, client.Capabilities, client.Info)
	raw, err := c.Call(ctx, Call{Method: string(mcp.MethodInitialize), Params: params, Own: true})
	if err != nil {
		return Agreement{}, fmt.Errorf("initializing: %w", err)
	}
	ms, err := jsonrpc.Object(raw, nil)
	if err != nil {
		return Agreement{}, fmt.Errorf("initializing: %w", err)
	}
	a := Agreement{Info: plainInfo(ms.Get("serverInfo"), c.name()), Said: textOf(ms.Get("instructions"))}
	if a.Protocol, err = jsonrpc.String(ms.Get("protocolVersion")); err != nil {
		return Agreement{}, fmt.Errorf("initializing: protocolVersion %s is %w", Quote(ms.Get("protocolVersion")), err)
	}
	if !slices.Contains(mcp.LegacyProtocolVersions(), a.Protocol) {
		return Agreement{}, fmt.Errorf("initializing: the server speaks protocol %s, pfar speaks %q",
			Quote(a.Protocol), mcp.LegacyProtocolVersions())
	}
	meta, _ := jsonrpc.Object(ms.Get("_meta"), nil)
	a.Transport = transportOf(c.Server(), meta)
	if a.Capabilities, err = jsonrpc.Object(ms.Get("capabilities"), nil); err != nil {
		return Agreement{}, fmt.Errorf("initializing: reading capabilities: %w", err)
	}
	line := jsonrpc.AppendRequest(nil, 0, string(mcp.MethodNotificationInitialized), nil)
	if err := transport.Write(ctx, c.conn, line); err != nil {
		return Agreement{}, fmt.Errorf("initializing: %w", c.writeError(ctx, err))
	}
	return a, nil
}

// transportOf is the one that pfar's adapter names in the _meta of the handshake's result, "" if none is in between. A
// server that pfar starts beside the adapter could forge it, and would only be shown with the other one of the two.
func transportOf(server handover.Server, meta jsonrpc.Members) string {
	said := textOf(meta.Get(units.TransportKey))
	if !server.HTTP || said != units.TransportHTTP && said != units.TransportSSE {
		return ""
	}
	return said
}

// textOf decodes a string that may be missing.
func textOf(raw []byte) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	s, _ := jsonrpc.String(raw)
	return s
}

// plainWord is a name or a version in which there is no room for a sentence.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9@_./+-]{1,64}$`)

// plainInfo returns serverInfo fit to be passed on: a name and a version, as long as they are no more than that. What
// else is said there (titles, descriptions, addresses, icons) comes before any call, and nobody has accepted it.
func plainInfo(raw []byte, server string) []byte {
	ms, _ := jsonrpc.Object(raw, nil)
	word := func(member, instead string) []byte {
		if text, err := jsonrpc.String(ms.Get(member)); err == nil && plainWord.MatchString(text) {
			return jsonrpc.Quote(text)
		}
		return jsonrpc.Quote(instead)
	}
	return fmt.Appendf(nil, `{"name":%s,"version":%s}`, word("name", server), word("version", "unknown"))
}
