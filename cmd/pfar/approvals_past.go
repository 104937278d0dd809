package main

import (
	"context"
	"net/http"
	"strings"

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
		rows = append(rows, []cell{{minute(p.Asked), ""}, {cut(p.Client, 20), ""}, {cut(visible.Reveal(p.Server+"."+p.Name), 40), ""}, {p.State, ""}, {by, ""}, {visible.Reveal(p.Reason), ""}})
	}
	c.table(c.stdout, rows)
	return nil
}

func (c approvalsVerb) approvalRules(ctx context.Context) error {
	all, err := operatorList[operator.Rule](ctx, c.pfar, "/rules", "nothing is remembered")
	if err != nil || len(all) == 0 {
		return err
	}
	rows := [][]cell{heading("ID", "CLIENT", "CALL", "UNTIL", "BY", "WITH")}
	for _, r := range all {
		var with []string
		for _, m := range r.Match {
			with = append(with, m.Path+"="+m.Glob)
		}
		with = append(with, "the other arguments "+r.Rest[:min(len(r.Rest), exactly)])
		rows = append(rows, []cell{{r.ID, ""}, {cut(r.Client, 20), ""}, {cut(visible.Reveal(r.Server+"."+r.Name), 40), ""}, {minute(r.Expires), ""}, {r.By.Name, ""}, {visible.Reveal(strings.Join(with, ", ")), ""}})
	}
	c.table(c.stdout, rows)
	return nil
}

func (c approvalsVerb) forgetRule(ctx context.Context, id string) error {
	path, err := approvalPath("/rules/", id)
	if err != nil {
		return err
	}
	return c.answered(ctx, path+"/forget", struct{}{})
}
