package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/health"
	"github.com/pfar/pfar/units/operator/ask"
)

// checkList is what the checks of this machine found.
type checkList struct {
	Running bool // they are under way
	At      string
	Checks  []check
}

// check is what one check found.
type check struct {
	Name, Outcome string
	Bad           bool // it has failed
	Detail        string
	Remedy        []string // lines
}

// checksPage shows the checks. While they are under way, or pfard is busy, it loads again by itself.
func checksPage(ctx context.Context, s *site) (content, error) {
	c := content{title: "Checks of this machine", template: "checks", body: checkList{}, again: true}
	v := attach.View{What: attach.ViewChecks}
	found, err := viewOf[health.Checks](ctx, s.archive, v, "the checks", "pfar doctor")
	if err != nil {
		return c, err
	}
	c.quiet, c.again = !found.Running, found.Running
	if found.Error != "" {
		err = &ask.Refusal{Reason: "the checks did not end well: " + visible.Reveal(found.Error)}
	}
	c.body = listOf(found)
	return c, err
}

// listOf lists the checks that need somebody first.
func listOf(found health.Checks) checkList {
	b := checkList{Running: found.Running, At: moment(found.At)}
	for _, f := range found.Findings {
		b.Checks = append(b.Checks, checkOf(f))
	}
	rank := []string{failed, "warning", "pass", "n/a"}
	slices.SortStableFunc(b.Checks, func(x, y check) int {
		return cmp.Compare(slices.Index(rank, x.Outcome), slices.Index(rank, y.Outcome))
	})
	return b
}

// failed is the outcome of a check that has failed, and of one that says nothing that pfar knows.
const failed = "failed"

func checkOf(f health.Finding) check {
	outcomes := map[health.Outcome]string{health.Pass: "pass", health.Warn: "warning", health.None: "n/a"}
	c := check{
		Name: visible.Reveal(f.Check), Outcome: cmp.Or(outcomes[f.Outcome], failed), Detail: visible.Reveal(f.Detail),
	}
	c.Bad = c.Outcome == failed
	for line := range strings.Lines(f.Remedy) {
		c.Remedy = append(c.Remedy, visible.Reveal(strings.TrimSuffix(line, "\n")))
	}
	return c
}

// showChecks makes the page of the checks.
func showChecks(s *site) maker {
	return func(ctx context.Context, _ *session) (content, error) { return checksPage(ctx, s) }
}
