package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/pfar/pfar/cmd/pfar-gateway/models"
	"github.com/pfar/pfar/cmd/pfar-gateway/native"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/flowdesk"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
)

// openFlows opens what runs flows. Their files lie in the gateway's directory, and their runs in its database. asks are
// the models that they ask, and pfard asks pfard for an answer.
func openFlows(
	dir string, db *state.DB, calls *call.Calls, asks *models.Models, pfard func(context.Context) error,
	log *slog.Logger,
) (*flowdesk.Desk, error) {
	nodes := &native.Nodes{
		Files:  &native.Files{Dir: filepath.Join(dir, "flows"), DB: db, Limits: native.DefaultFileLimits()},
		Models: asks,
		Picker: []string{"/proc/self/exe", native.PickVerb}, Clock: calls.Clock, Log: log,
	}
	return flowdesk.Open(flowdesk.Parts{Calls: calls, DB: db, Nodes: nodes, Models: asks, Pfard: pfard, Log: log})
}
