package main

import (
	"path/filepath"

	"github.com/pfar/pfar/cmd/pfar-gateway/native"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/flowdesk"
)

// openFlows opens what runs flows. Their files lie in the gateway's directory, and their runs in its database.
func (g *gateway) openFlows(dir string, calls *call.Calls) (*flowdesk.Desk, error) {
	nodes := &native.Nodes{
		Files:  &native.Files{Dir: filepath.Join(dir, "flows"), DB: g.state, Limits: native.DefaultFileLimits()},
		Models: g.models,
		Picker: []string{"/proc/self/exe", native.PickVerb}, Clock: calls.Clock, Log: g.log,
	}
	return flowdesk.Open(flowdesk.Parts{Calls: calls, DB: g.state, Nodes: nodes, Models: g.models, Log: g.log})
}
