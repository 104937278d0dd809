// Package wants says what servers were refused or wait for, and the command with which their owner grants each.
package wants

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/monitor"
	"github.com/pfar/pfar/units/operator"
)

// Want is one thing that a server asks for and does not have, or that would do a client's session good, with the
// command that allows it.
type Want struct {
	Server  string `json:"server,omitempty"`
	Session string `json:"session,omitempty"`
	What    string `json:"what"`
	Command string `json:"command"`
	Host    string `json:"-"` // the entry of allowed_domains; "": it is something else
	Secret  bool   `json:"-"` // the vault lacks a secret, which a person can enter
	SignIn  bool   `json:"-"` // a sign-in is due, for which there can be a one-time page
}

// Of lists what servers were refused, what of theirs nobody has accepted, and the secrets that they wait for.
func Of(report control.Report, all []operator.ServerPins) []Want {
	list := []Want{}
	for _, s := range report.Servers {
		for _, r := range s.Refusals {
			if w, ok := wantedHost(s, r); ok {
				list = append(list, w)
			}
		}
		if s.State.Waits() && s.For != units.WaitProgram && s.Remedy.Act != "" {
			list = append(list, Want{
				Server: s.Name, What: cmp.Or(s.Words, s.Detail), Command: s.Remedy.Command,
				Secret: s.For == units.WaitCredentials && s.Remedy.Act == units.StoreSecret,
				SignIn: s.SignInPage && s.NeedsLogin(),
			})
		}
		if v := s.Verification; v.Result == units.Invalid && v.Remedy.Act != "" {
			list = append(list, Want{Server: s.Name, What: "other credentials", Command: v.Remedy.Command})
		}
	}
	for _, p := range all {
		if n := len(p.Held) + p.Left; n > 0 {
			what := "1 definition to accept"
			if n > 1 {
				what = fmt.Sprint(n, " definitions to accept")
			}
			list = append(list, Want{Server: p.Server, What: what, Command: AcceptCommand(p.Server)})
		}
	}
	slices.SortStableFunc(list, func(a, b Want) int { return cmp.Compare(a.Server, b.Server) })
	return slices.Compact(list)
}

// AcceptCommand accepts what of a server waits for its owner.
func AcceptCommand(server string) string {
	return units.ToDo(units.AcceptPins, server).Command
}

// Sessions are the sessions that a clean one may be better than: their clients were silent for long, and are back.
func Sessions(all []operator.Session) []Want {
	var list []Want
	for _, s := range all {
		if name := s.Client + "/" + s.Handle; s.Silent > 0 && s.Frozen == "" && visible.ShellSafe(name) {
			what := "a clean session, if its program began a new conversation"
			list = append(list, Want{Session: name, What: what, Command: "pfar sessions reset " + name})
		}
	}
	return list
}

// wantedHost is a refused host that the declaration could allow, and does not by now.
func wantedHost(s control.Server, r egress.Refusal) (Want, bool) {
	w := WishOf(monitor.Connection{Host: r.Host, Reason: r.Reason})
	if w.Obstacle != "" || !visible.ShellSafe(w.Entry()) {
		return Want{}, false
	}
	var declared egress.Policy
	for _, d := range s.Domains {
		if e, err := egress.ParseEndpoint(d); err == nil {
			declared.Endpoints = append(declared.Endpoints, e)
		}
	}
	if declared.Decide(w.Host, cmp.Or(w.Port, 443)).Verdict == egress.Allow {
		return Want{}, false
	}
	command := "pfar allow " + s.Name + " " + w.Entry()
	return Want{Server: s.Name, What: "to reach " + w.Target(), Command: command, Host: w.Entry()}, true
}
