package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// pastCall is one that is over, as the gateway remembers it.
type pastCall struct {
	ID       string    `json:"id"`
	Client   string    `json:"client"`
	Session  string    `json:"session"`
	Server   string    `json:"server"`
	Name     string    `json:"name"`
	Asked    time.Time `json:"asked"`
	State    string    `json:"state"`
	Reason   string    `json:"reason,omitempty"`
	Answered time.Time `json:"answered,omitzero"`
	By       *approver `json:"by,omitempty"`
}

func (c approvalsVerb) approvalsHistory(ctx context.Context) error {
	all := []pastCall{}
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
		rows = append(rows, []cell{{minute(p.Asked), ""}, {cut(p.Client, 20), ""}, {cut(reveal(p.Server+"."+p.Name), 40), ""}, {p.State, ""}, {by, ""}, {reveal(p.Reason), ""}})
	}
	c.table(c.stdout, rows)
	return nil
}

// rememberedApproval is what calls are approved by without a question.
type rememberedApproval struct {
	ID     string `json:"id"`
	Client string `json:"client"`
	Server string `json:"server"`
	Name   string `json:"name"`
	Method string `json:"method"`
	Rest   string `json:"arguments"`
	Match  []struct {
		Path string `json:"path"`
		Glob string `json:"glob"`
	} `json:"match,omitempty"`
	Label   labelWords `json:"label"`
	Rule    string     `json:"rule"`
	Profile string     `json:"profile"`
	Pin     string     `json:"pin"`
	Policy  string     `json:"policy"`
	By      approver   `json:"by"`
	Created time.Time  `json:"created"`
	Expires time.Time  `json:"expires"`
}

func (c approvalsVerb) approvalRules(ctx context.Context) error {
	all := []rememberedApproval{}
	if err := c.askOperator(ctx, http.MethodGet, "/rules", nil, &all); err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(c.stderr, "nothing is remembered")
		return nil
	}
	rows := [][]cell{heading("ID", "CLIENT", "CALL", "UNTIL", "BY", "WITH")}
	for _, r := range all {
		var with []string
		for _, m := range r.Match {
			with = append(with, m.Path+"="+m.Glob)
		}
		with = append(with, "the other arguments "+r.Rest[:min(len(r.Rest), exactly)])
		rows = append(rows, []cell{{r.ID, ""}, {cut(r.Client, 20), ""}, {cut(reveal(r.Server+"."+r.Name), 40), ""}, {minute(r.Expires), ""}, {r.By.Name, ""}, {reveal(strings.Join(with, ", ")), ""}})
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
