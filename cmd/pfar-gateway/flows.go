package main

import (
	"log/slog"
	"path/filepath"

	"github.com/pfar/pfar/cmd/pfar-gateway/models"
	"github.com/pfar/pfar/cmd/pfar-gateway/native"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/flowdesk"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
)

// openFlows opens what runs flows. Their files lie in the gateway's directory, and their runs in its database. asks are
// the models that they ask.
func openFlows(
	dir string, db *state.DB, calls *call.Calls, asks *models.Models, log *slog.Logger,
) (*flowdesk.Desk, error) {
	nodes := &native.Nodes{
		Files:  &native.Files{Dir: filepath.Join(dir, "flows"), DB: db, Limits: native.DefaultFileLimits()},
		Models: asks,
		Picker: []string{"/proc/self/exe", native.PickVerb}, Clock: calls.Clock, Log: log,
	}
	return flowdesk.Open(flowdesk.Parts{Calls: calls, DB: db, Nodes: nodes, Models: asks, Log: log})
}
