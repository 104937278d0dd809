package main

import (
	"context"
	"strings"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/health"
)

// condition is the problems of this machine.
type condition struct {
	Rows    rows
	Checks  button   // leads to the checks of this machine
	Files   []string // mistakes in declarations and policies
	Notes   []string
	Notices []string // that their hosts do not take
}

// healthPage shows what pfard and the gateway say of the machine and of themselves.
func healthPage(ctx context.Context, s *site, one *session) (content, error) {
	c := content{title: "Health", template: "health"}
	report, _ := s.runs.now()
	if report == nil {
		c.body = condition{}
		return c, errNothingSaid
	}
	b := condition{Checks: button{one.path("checks"), "Checks of this machine"}}
	b.Rows.add("version", report.Version)
	b.Rows.add("endpoint", report.Endpoint)
	for _, f := range report.SetUps {
		b.Rows.add("set-up", f.Server+": "+f.Detail+"; to go on: pfar add "+f.Server+"; to cancel: pfar add --cancel")
	}
	for _, d := range report.Diagnostics {
		b.Files = append(b.Files, visible.Reveal(strings.TrimSpace(d.Text)))
	}
	for _, n := range health.Notes(*report) {
		b.Notes = append(b.Notes, visible.Reveal(n))
	}
	all, err := s.desk.notices(ctx)
	for _, n := range health.Unsent(all) {
		b.Notices = append(b.Notices, visible.Reveal(n))
	}
	c.body = b
	return c, err
}

// showHealth makes the page of the machine's problems.
func showHealth(s *site) maker {
	return func(ctx context.Context, one *session) (content, error) { return healthPage(ctx, s, one) }
}
