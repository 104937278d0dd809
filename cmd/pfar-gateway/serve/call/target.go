package call

import (
	"bytes"
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Target is the tool, prompt or resource that a request names.
type Target struct {
	registry.Route
	Kind  gate.Kind
	Fits  bool           // the request is as its schema has it, if it has one
	Reads bool           // asking twice does no harm
	Edits []jsonrpc.Edit // of the parameters
}

// Find finds the target of a request among those served now. With an error, the target may have some fields set.
type Find func() (Target, error)

// Resource is the target of a resource, which has no schema.
func Resource(r registry.Route) Target { return Target{Route: r, Kind: gate.Resource, Fits: true} }

// server is the name of the target's server.
func (t Target) server() string { return t.Upstream.Server().Name }

// Still returns find for a request that has passed the gate with t, when its server's declaration was declared. A
// target found later must be the same one, with the same declaration.
func (t Target) Still(find Find, declared []byte) Find {
	server := t.server()
	return func() (Target, error) {
		now, err := find()
		if err != nil {
			return now, err
		}
		is := now.Upstream.Server()
		if now.Name != t.Name || now.Item.Pin != t.Item.Pin || is.Name != server || !bytes.Equal(is.Declared, declared) {
			err = jsonrpc.Errorf(protocol.CodeUnavailable, "what was asked for has changed meanwhile: ask again")
		}
		return now, err
	}
}

// Judged is the target as the gate judges it.
func (t Target) Judged() enforce.Item {
	owner, word := t.Upstream.Declared()
	it := enforce.Item{
		Owner: owner, Server: t.server(), Declared: word, Now: t.Upstream.Declared,
		Kind: t.Kind, Name: t.Name, Pin: t.Item.Pin, Fits: t.Fits,
	}
	if t.Kind == gate.Tool {
		it.FreeText, it.Vain = t.Item.FreeText, t.Upstream.Vain(t.Item.Name)
		if t.Item.Reviewed {
			it.Hints, it.Typed = func() *gate.Hints { return hints(t.Item) }, func() bool { return t.Item.Extracts() }
		}
	}
	return it
}

// hints are a server's claims about its tool, nil for none.
func hints(i registry.Item) *gate.Hints {
	var h struct {
		ReadOnly    *bool `json:"readOnlyHint"`
		Destructive *bool `json:"destructiveHint"`
		OpenWorld   *bool `json:"openWorldHint"`
	}
	if json.Unmarshal(i.Member("annotations"), &h) != nil {
		return nil
	}
	return &gate.Hints{ReadOnly: h.ReadOnly, Destructive: h.Destructive, OpenWorld: h.OpenWorld}
}

// misfit returns the check that a client will make of structuredContent, nil for none.
func (t Target) misfit(method string) func(content []byte) (path string, wrong bool) {
	if mcp.MCPMethod(method) != mcp.MethodToolsCall {
		return nil
	}
	return func(content []byte) (string, bool) {
		v := t.Item.CheckStructured(content)
		if v == nil {
			return "", false
		}
		return v.Path, true
	}
}
