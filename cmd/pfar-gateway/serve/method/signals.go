package method

import (
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/quota"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// Signals tell servers what clients do outside of any request.
type Signals struct {
	Calls *call.Calls
	Quota quota.Quota // of records, by client
}

// heard asks the gate whether a server may hear of a client. Beyond the quota of records, it may not.
func (s *Signals) heard(who enforce.Identity, server handover.Server, method mcp.MCPMethod) bool {
	if s.Calls.Gate == nil || !s.Quota.Allow(who.Client) {
		return false
	}
	return s.Calls.Gate.Signal(who, enforce.Item{Server: server.Name, Declared: server.Declared, Kind: gate.Resource,
		Fits: true}, string(method))
}

// rootsChanged tells the session's own processes that the client's folders have changed, if they know of roots and may
// hear it.
func (s *Signals) rootsChanged(v *call.Visit) {
	const method = mcp.MethodNotificationRootsListChanged
	for _, p := range v.Session.Own.Running() {
		knows := slices.Contains(p.Up.Server().Capabilities, "roots") && !p.Up.Modern()
		if knows && s.heard(v.Identity(), p.Up.Server(), mcp.MCPMethod(method)) {
			p.Up.Notify(string(method))
		}
	}
}
