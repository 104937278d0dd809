package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/operator/wording"
	"github.com/pfar/pfar/units/wants"
)

// errNothingSaid is the refusal until pfard sends its first report, which it does at once.
var errNothingSaid error = &ask.Refusal{Reason: "pfard has not said yet what there is: load the page again"}

// servers are all that are declared.
type servers struct{ Servers []server }

// server is what the pages show of one server: its state, and what its owner can grant it.
type server struct {
	Path, Name string
	State      string
	Bad        bool   // somebody has to do something
	Words      string // of its state
	Rows       rows
}

func (s *site) serversPage(ctx context.Context, one *session) (content, error) {
	report, lacks, _, err := s.lacks(ctx)
	if report == nil {
		return content{title: "Servers", template: "servers", body: servers{}}, errNothingSaid
	}
	var b servers
	for _, each := range report.Servers {
		b.Servers = append(b.Servers, serverOf(one, each, lacks))
	}
	return content{title: "Servers", template: "servers", body: b}, err
}

// lacks asks what servers lack, and which of their definitions wait for the owner.
func (s *site) lacks(ctx context.Context) (*control.Report, []wants.Want, []operator.ServerPins, error) {
	report, _ := s.runs.now()
	if report == nil {
		return nil, nil, nil, errNothingSaid
	}
	pins, err := s.desk.pins(ctx)
	return report, wants.Of(*report, pins), pins, err
}

func serverOf(one *session, s control.Server, lacks []wants.Want) server {
	r := server{
		Path: one.path("server/" + s.Name), Name: visible.Reveal(s.Name), State: visible.Reveal(string(s.State)),
		Bad:   s.Broken || s.Stale || s.State.Waits() || s.State == control.Failed || s.State == control.CredentialInvalid,
		Words: visible.Reveal(s.Detail),
	}
	if s.Stale {
		r.Words = strings.TrimPrefix(r.Words+"; its file is broken: the last good version is in force", "; ")
	}
	r.Rows.add("tools", fmt.Sprint(s.Tools))
	r.Rows.add("last refusal", s.LastRefusal)
	for _, w := range lacks {
		if w.Server == s.Name {
			r.Rows.add("wants", w.What+": "+w.Command)
		}
	}
	return r
}

// oneServer is a server with its tools.
type oneServer struct {
	server
	Review  *button     // of its definitions; nil: there is nothing to review
	Log     *button     // leads to its log; nil: the person may not read it
	Explain button      // leads to what it can see and reach, in words
	Learn   *learn      // nil: the person may not have it learn here
	Usage   *usage      // nil: it stands still
	Turns   []serverAct // if the person may start and stop servers
	Seen    string      // of turnsOf
	Tools   folded[tool]
}

// serverAct is a button that starts or stops a server.
type serverAct struct{ Act, Words string }

// tool is one tool with the facts by which the gate decides.
type tool struct {
	Name string
	Rows []wording.Row
}

func (s *site) serverPage(ctx context.Context, one *session, name string) (content, error) {
	report, lacks, pins, err := s.lacks(ctx)
	if report == nil {
		return content{}, err
	}
	i := slices.IndexFunc(report.Servers, func(each control.Server) bool { return each.Name == name })
	if i < 0 {
		return content{}, &ask.Refusal{Reason: "there is no such server"}
	}
	declared := report.Servers[i]
	b := oneServer{server: serverOf(one, declared, lacks)}
	b.Explain = button{one.path("explain/" + name), "What it can see and reach"}
	b.Rows.add("about", declared.Description)
	b.Rows.add("label", declared.Label)
	b.Rows.add("since", moment(declared.Since))
	b.Rows.add("url", declared.URL)
	b.Rows.add("declared in", declared.File)
	b.Rows.add("log", declared.Log)
	if mayCommand(s, one) == nil {
		l := learnOf(one, declared)
		b.Learn = &l
	}
	if mayOrder(s, one) == nil {
		b.Turns, b.Seen = turnsOf(declared.State)
	}
	if readsLogs(s, report) {
		b.Log = &button{one.path("log/" + name), "Log"}
	}
	b.Review = wantingOf(one, declared, nil, pins, granting{}).Review
	var unmeasured error
	if declared.State.Up() || len(declared.Sessions) > 0 {
		b.Usage, unmeasured = usageNow(ctx, s, declared)
	}
	facts, lost := s.desk.facts(ctx)
	for _, f := range facts {
		if f.Server == name {
			b.Tools.add(func() tool { return toolOf(f) })
		}
	}
	c := content{title: "Server " + b.Name, template: "server", body: b, again: true}
	return c, cmp.Or(err, lost, unmeasured)
}

// readsLogs reports whether pfard lets the person read logs: who runs pfard, and at this machine whoever has a console
// if the logs are in the journal.
func readsLogs(s *site, report *control.Report) bool {
	return s.orders.allowed.Load() || report.Journal && s.entrance == nil
}

func toolOf(f operator.ToolFacts) tool {
	t := tool{Name: visible.Reveal(f.Tool)}
	row := func(name, text, from string) {
		if from != "" {
			text += " (" + from + ")"
		}
		t.Rows = append(t.Rows, wording.Row{Name: name, Text: visible.Reveal(text)})
	}
	row("output", f.Facts.Output.Confidentiality.String(), f.Facts.From.Confidentiality)
	row("written by", f.Facts.Output.Integrity.String(), f.Facts.From.Integrity)
	row("audience", f.Facts.Audience.String(), f.Facts.From.Audience)
	row("effect", f.Facts.Effect.String(), f.Facts.From.Effect)
	row("pin", cmp.Or(f.Pin, "unreviewed"), "")
	return t
}

// turnsOf are the orders that make sense for a server in a state. seen identifies them.
func turnsOf(state control.State) (list []serverAct, seen string) {
	start, stop := serverAct{attach.OrderStart, "Start"}, serverAct{attach.OrderStop, "Stop"}
	switch {
	case state.Up():
		return []serverAct{{attach.OrderRestart, "Restart"}, stop}, "up"
	case state == control.Stopped, state == control.Failed, state == control.Stopping:
		return []serverAct{start}, "down"
	default: // it is on its way up, or waits
		return []serverAct{start, stop}, "between"
	}
}

// learn is the button that has a server learn.
type learn struct {
	Path   string
	Begins bool // false: the server cannot learn now
}

// learnOf is the button for a server.
func learnOf(one *session, s control.Server) learn {
	return learn{one.path("learn/" + s.Name), !s.Learning && !s.Broken && !s.State.Waits() && s.Off == ""}
}

// serverNamed returns what pfard reports of a server.
func serverNamed(s *site, server string) (now control.Server, err error) {
	report, _ := s.runs.now()
	if report == nil {
		return now, errNothingSaid
	}
	i := slices.IndexFunc(report.Servers, func(each control.Server) bool { return each.Name == server })
	if i < 0 {
		return now, &ask.Refusal{Reason: "there is no such server"}
	}
	return report.Servers[i], nil
}
