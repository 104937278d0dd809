package main

import (
	"fmt"
	"strings"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/operator"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/audit"
)

// remember opens what is kept of sessions and approvals.
func (g *gateway) remember(dir string) (err error) {
	if g.state, err = state.Open(dir); err != nil {
		return err
	}
	if g.sessions, err = label.Open(g.state); err == nil {
		g.approvals, err = approval.Open(g.state, g.sessions, approval.DefaultLimits())
	}
	if err != nil {
		g.state.Close()
	}
	return err
}

// forget closes it again, after the last call.
func (g *gateway) forget() {
	if err := g.point.Grants.Close(); err != nil {
		g.log.Warn("keeping what is granted, ignoring", "error", err.Error())
	}
	if err := g.sessions.Close(); err != nil {
		g.log.Warn("writing down when sessions were last used, ignoring", "error", err.Error())
	}
	if err := g.state.Close(); err != nil {
		g.log.Warn("closing what is kept of sessions, ignoring", "error", err.Error())
	}
}

// desk is what the operator's socket offers.
func (g *gateway) desk() *operator.Desk {
	d := &operator.Desk{Approvals: g.approvals, Grants: g.point.Grants, Sessions: g.sessions, Pins: g.pins, Mask: g.secrets.JSON, Facts: g.endpoint.Facts, Ended: g.endpoint.Unmint,
		Stats: g.telemetry.StatsHandler(), Undo: g.registry, Servers: g.registry, Notices: g.teller, Log: g.log}
	if g.pfard != nil {
		d.Record = func(a operator.Act) error { return g.record(acted(a)) }
	}
	return d
}

// acted is the record of what the operator does.
func acted(a operator.Act) audit.Record {
	r := audit.Record{Kind: audit.Session, Method: a.Verb, Subject: a.Subject, Approver: a.By.Name, Channel: a.By.Channel, User: fmt.Sprintf("uid %d", a.By.UID), Reason: a.Detail}
	switch _, what, _ := strings.Cut(a.Verb, "-"); what {
	case "session":
		r.Client, r.Session, _ = strings.Cut(a.Subject, "/")
		r.Subject = ""
	case "pins":
		r.Kind, r.Server, r.Subject = audit.Pin, a.Subject, ""
	case "stain", "writes", "server":
		r.Server, r.Subject = a.Subject, ""
	default:
		r.Kind = audit.Approval
	}
	if a.Was != nil {
		r.Before = &audit.Label{Label: a.Was.Label}
		for _, s := range a.Was.Sources {
			r.Before.Sources = append(r.Before.Sources, s.String())
		}
	}
	if a.Failed != "" {
		r.Outcome, r.Reason = "failed", a.Failed
	}
	return r
}
