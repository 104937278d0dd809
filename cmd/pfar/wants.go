package main

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/wants"
)

// wants asks pfard, and the gateway if it serves anything: asking would start it. Who may not ask it sees the rest.
func (c *pfar) wants(ctx context.Context, report control.Report) []wants.Want {
	var all []operator.ServerPins
	var sessions []operator.Session
	if serves(report) {
		_ = c.askPins(ctx, http.MethodGet, "", nil, &all)
		_ = c.askOperator(ctx, http.MethodGet, "/sessions", nil, &sessions)
	}
	return append(wants.Of(report, all), wants.Sessions(sessions)...)
}

// printWants lists them, if there are any.
func (c *pfar) printWants(list []wants.Want) {
	if len(list) == 0 {
		return
	}
	rows := [][]cell{heading("WHO", "WANTS", "TO ALLOW IT")}
	for _, w := range list {
		who, what := cmp.Or(w.Server, w.Session), strings.Join(strings.Fields(w.What), " ")
		rows = append(rows, []cell{{who, ""}, {what, ""}, {w.Command, cyan}})
	}
	c.table(c.stdout, rows)
}
