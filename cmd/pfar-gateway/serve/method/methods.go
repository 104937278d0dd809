// Package method implements the methods of MCP.
package method

import (
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Methods are all that there are, by their family.
type Methods struct {
	Sessions Sessions
	About    About
	Watches  *Watches
	Levels   Levels
	Listens  Listens
	Calls    *call.Calls
	Connect  Connecting
}

// Run executes a request. The list is closed: no other method reaches a server.
func (m *Methods) Run(v *call.Visit) (reply.Reply, error) {
	switch mcp.MCPMethod(v.Method) {
	case mcp.MethodInitialize:
		return m.initialize(v)
	case mcp.MethodServerDiscover:
		return m.About.discover(v)
	case mcp.MethodPing:
		if v.Modern {
			break
		}
		return reply.Empty, nil
	case mcp.MethodToolsList:
		re, err := list(m.Calls, v, registry.Tools)
		if err != nil {
			return re, err
		}
		return m.Connect.listed(v, re), nil
	case mcp.MethodPromptsList:
		return list(m.Calls, v, registry.Prompts)
	case mcp.MethodResourcesList:
		return list(m.Calls, v, registry.Resources)
	case mcp.MethodResourcesTemplatesList:
		return list(m.Calls, v, registry.Templates)
	case mcp.MethodToolsCall:
		if m.Connect.called(v) {
			return m.Connect.call(v)
		}
		return callTool(m.Calls, v)
	case mcp.MethodPromptsGet:
		return getPrompt(m.Calls, v)
	case mcp.MethodResourcesRead:
		return read(m.Calls, v)
	case mcp.MethodResourcesSubscribe:
		return m.Watches.subscribe(v)
	case mcp.MethodResourcesUnsubscribe:
		return m.Watches.unsubscribe(v)
	case mcp.MethodCompletionComplete:
		return complete(m.Calls, v)
	case mcp.MethodSetLogLevel:
		return m.Levels.set(v)
	case mcp.MethodSubscriptionsListen:
		return m.Listens.listen(v)
	}
	return reply.Reply{}, jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: %.100q", v.Method)
}

// initialize opens a session, and says what there is.
func (m *Methods) initialize(v *call.Visit) (reply.Reply, error) {
	version, err := negotiated(v)
	if err != nil {
		return reply.Reply{}, err
	}
	view, err := v.Catalogue(m.Calls.Registry).View(v.Endpoint)
	if err != nil {
		return reply.Reply{}, err
	}
	if err := m.Sessions.open(v, version); err != nil {
		return reply.Reply{}, err
	}
	return m.About.initialized(v, view, version), nil
}

// Notified acts on notifications and on answers to questions. Other notifications of clients concern no server.
func (m *Methods) Notified(v *call.Visit) {
	switch {
	case v.Session == nil:
	case v.Method == "" && jsonrpc.ValidID(v.ID):
		v.Session.Questions.Answered(v.Message)
	case v.Method == string(mcp.MethodNotificationCancelled):
		if id := v.Parameters.Get("requestId"); jsonrpc.ValidID(id) {
			v.Session.Cancel(id)
		}
	case v.Method == string(mcp.MethodNotificationRootsListChanged):
		m.Watches.Signals.rootsChanged(v)
	}
}
