package main

import (
	"context"
	"net/http"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
)

func (c approvalsVerb) approvalsHistory(ctx context.Context) error {
	all := []operator.Past{}
	if err := c.askOperator(ctx, http.MethodGet, "/approvals/history", nil, &all); err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(all)
	}
	rows := [][]cell{heading("ASKED", "CLIENT", "CALL", "STATE", "BY", "WHY")}
	for _, p := range all {
		by := ""
		if p.By != nil {
			by = p.By.Name
		}
		rows = append(rows, []cell{{minute(p.Asked), ""}, {cut(p.Client, 20), ""},
			{cut(visible.Reveal(p.Server+"."+p.Name), 40), ""}, {p.State, ""}, {by, ""}, {visible.Reveal(p.Reason), ""}})
	}
	c.table(c.stdout, rows)
	return nil
}
