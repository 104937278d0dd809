package protocol

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

// Agreement is what the handshake settled.
type Agreement struct {
	Protocol     string
	Transport    string   // that pfar's adapter has found, see units.Speech
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

// Title is the server's own name and version, short, and safe in a status line and a terminal.
func (a Agreement) Title() string {
	var info struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	_ = json.Unmarshal(a.Info, &info) // plainInfo has read it
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, strings.TrimSpace(info.Name+" "+info.Version))
	return clean[:min(len(clean), 80)]
}

// Client is who speaks to a server, as its handshake or each of its requests says.
type Client struct {
	Protocol     string // newest revision with sessions that it speaks
	Info         []byte // clientInfo
	Capabilities []byte // what a server may ask of it
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
