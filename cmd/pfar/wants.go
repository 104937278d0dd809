package main

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/monitor"
	"github.com/pfar/pfar/units/operator"
)

// want is one thing that a server asks for and does not have, or that would do a client's session good, with the
// command that allows it.
type want struct {
	Server  string `json:"server,omitempty"`
	Session string `json:"session,omitempty"`
	What    string `json:"what"`
	Command string `json:"command"`
	host    string // the entry of allowed_domains; "": it is something else
}

// wants asks pfard, and the gateway if it serves anything: asking would start it. Who may not ask it sees the rest.
func (c *pfar) wants(ctx context.Context, report control.Report) []want {
	var all []pinned
	var sessions []operator.Session
	if serves(report) {
		all, _ = c.allPins(ctx)
		_ = c.askOperator(ctx, http.MethodGet, "/sessions", nil, &sessions)
	}
	return append(wantsOf(report, all), freshSessions(sessions)...)
}

// wantsOf are what servers were refused, what of theirs nobody has accepted, and the secrets that they wait for.
func wantsOf(report control.Report, all []pinned) []want {
	list := []want{}
	for _, s := range report.Servers {
		for _, r := range s.Refusals {
			if w, ok := wantedHost(s, r); ok {
				list = append(list, w)
			}
		}
		if s.State.Waits() && s.For != units.WaitProgram && s.Remedy != "" {
			list = append(list, want{Server: s.Name, What: s.Detail, Command: s.Remedy})
		}
		if v := s.Verification; v.Result == units.Invalid && v.Remedy != "" {
			list = append(list, want{Server: s.Name, What: "other credentials", Command: v.Remedy})
		}
	}
	for _, p := range all {
		if n := len(p.Held) + p.Left; n > 0 {
			what := count(n, "definition") + " to accept"
			list = append(list, want{Server: p.Server, What: what, Command: "pfar pins accept " + p.Server})
		}
	}
	slices.SortStableFunc(list, func(a, b want) int { return cmp.Compare(a.Server, b.Server) })
	return slices.Compact(list)
}

// freshSessions are the sessions that a clean one may be better than: their clients were silent for long, and are back.
func freshSessions(all []operator.Session) []want {
	var list []want
	for _, s := range all {
		if name := nameOf(s); s.Silent > 0 && s.Frozen == "" && shellSafe(name) {
			what := "a clean session, if its program began a new conversation"
			list = append(list, want{Session: name, What: what, Command: "pfar sessions reset " + name})
		}
	}
	return list
}

// wantedHost is a refused host that the declaration could allow, and does not by now.
func wantedHost(s control.Server, r egress.Refusal) (want, bool) {
	w := wishOf(monitor.Connection{Host: r.Host, Reason: r.Reason})
	if w.obstacle != "" || !shellSafe(w.entry()) {
		return want{}, false
	}
	var declared egress.Policy
	for _, d := range s.Domains {
		if e, err := egress.ParseEndpoint(d); err == nil {
			declared.Endpoints = append(declared.Endpoints, e)
		}
	}
	if declared.Decide(w.host, cmp.Or(w.port, 443)).Verdict == egress.Allow {
		return want{}, false
	}
	command := "pfar allow " + s.Name + " " + w.entry()
	return want{Server: s.Name, What: "to reach " + w.target(), Command: command, host: w.entry()}, true
}

// printWants lists them, if there are any.
func (c *pfar) printWants(list []want) {
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
