// Package fold judges the steps of a plan before the first of them is called: facts, arguments and edges in; for each
// step the worst label that its session may have by then, and the strictest decision that a call of it may get, out.
package fold

import (
	"context"
	"maps"
	"slices"

	"github.com/pfar/pfar/policies/gate"
)

// Step is one step of a plan, as far as a decision about it depends on it.
type Step struct {
	// Call is the call as it would be decided now. Its facts have the stains that there are now, and its Arguments say
	// what is known of the arguments that the plan itself gives.
	Call gate.Call
	// Opens are the facts of a call that has the server open a URL, in a session that is not clean; nil: the same.
	Opens *gate.Facts
	// Whole says that no earlier step gives an argument, so that Call.Arguments.FreeText holds for every call.
	Whole bool
	// Foreign is how secret that of the server's data is which was written there from elsewhere (gate.Session.Sources);
	// 0: nothing was.
	Foreign gate.Confidentiality
	Holds   []gate.Place // where the server's data is that other servers have, too
	Next    []int        // places of the steps that may follow
}

// Judged is what Steps finds out about one step. The zero value is one that no path leads to.
type Judged struct {
	Before gate.Label // of the session before a call, at worst
	// Decision is the strictest that a call may get, if inspectors find nothing. Its Facts have the stains of all that the
	// plan may have written by then.
	Decision gate.Decision
}

// Reached reports whether a path leads to the step.
func (j Judged) Reached() bool { return j.Before.Known() }

// Steps folds the gate over a plan that begins with its first step, in a session as it is now. The session may see more
// meanwhile by other requests: a call then is judged by more than the plan was. Labels only rise, so the result does
// not depend on the order in which steps are looked at, and the fold ends. When ctx is done it ends at once, and no
// step is reached.
func Steps(ctx context.Context, p *gate.Policy, s gate.Session, steps []Step) []Judged {
	judged, _ := judge(ctx, p, s, steps)
	return judged
}

// judge is Steps, and says how often it has found out what is known after a step.
func judge(ctx context.Context, p *gate.Policy, s gate.Session, steps []Step) (judged []Judged, looks int) {
	judged = make([]Judged, len(steps))
	if len(steps) == 0 || !s.Label.Known() {
		return judged, 0
	}
	at := make([]seen, len(steps))
	at[0] = seen{worst: s.Label, least: s.Label, exact: s.Sources != nil, sources: map[string]gate.Label{}}
	for _, one := range s.Sources {
		at[0].contribute(one.Server, one.Label)
	}
	queue, queued := []int{0}, make([]bool, len(steps))
	for len(queue) > 0 && ctx.Err() == nil {
		i := queue[0]
		queue, queued[i] = queue[1:], false
		looks++
		after := at[i].after(steps, i)
		for _, next := range steps[i].Next {
			if next >= 0 && next < len(steps) && at[next].join(after) && !queued[next] {
				queue, queued[next] = append(queue, next), true
			}
		}
	}
	for i := range steps {
		if ctx.Err() != nil {
			return make([]Judged, len(steps)), looks
		}
		if at[i].worst.Known() {
			judged[i] = Judged{at[i].worst, at[i].decide(p, s, &steps[i])}
		}
	}
	return judged, looks
}

// seen is what is known of a session before a step. Each change makes it worse, and there are finitely many: the
// halves of a label can change six times, and so can those of each server's stain.
type seen struct {
	// Every label that the session may have lies between these; the zero values: no path leads here.
	worst, least gate.Label
	exact        bool                  // the two are one, and sources are exactly what has contributed
	sources      map[string]gate.Label // by server
	stains       map[string]gate.Label // that the plan's own steps have left, by server
}

// contribute notes what comes from a server.
func (s *seen) contribute(server string, l gate.Label) { s.sources[server] = s.sources[server].Join(l) }

// join has a step be reached on one more path, and reports whether that says anything new.
func (s *seen) join(on seen) bool {
	if !s.worst.Known() {
		*s = on
		s.sources, s.stains = maps.Clone(on.sources), maps.Clone(on.stains)
		return true
	}
	worst, least := s.worst.Join(on.worst), meet(s.least, on.least)
	exact := s.exact && on.exact && worst == least && maps.Equal(s.sources, on.sources)
	changed := worst != s.worst || least != s.least || exact != s.exact
	s.worst, s.least, s.exact = worst, least, exact
	for server, l := range on.stains {
		if more := s.stains[server].Join(l); more != s.stains[server] {
			changed = true
			s.stain(server, l)
		}
	}
	return changed
}

func (s *seen) stain(server string, l gate.Label) {
	if s.stains == nil {
		s.stains = make(map[string]gate.Label)
	}
	s.stains[server] = s.stains[server].Join(l)
}

// meet is the best of each half.
func meet(a, b gate.Label) gate.Label {
	return gate.Label{Confidentiality: min(a.Confidentiality, b.Confidentiality), Integrity: min(a.Integrity, b.Integrity)}
}

// after is what is known when a step has been called.
func (s *seen) after(steps []Step, i int) seen {
	step := &steps[i]
	facts, server := step.Call.Facts, step.Call.Server
	stained := facts.Stained(s.stains[server])
	stained.Extract = false // a result may be more than typed values
	next := seen{
		worst: gate.Joined(gate.Session{Label: s.worst}, stained), least: gate.Joined(gate.Session{Label: s.least}, facts),
		sources: maps.Clone(s.sources), stains: maps.Clone(s.stains),
	}
	next.exact = s.exact && next.worst == next.least && s.stains[server] == gate.Label{}
	output := gate.Joined(gate.Session{Label: gate.Start}, facts)
	next.contribute(server, output)
	foreign := gate.Label{Confidentiality: min(step.Foreign, output.Confidentiality)}
	next.contribute("", gate.Start.Join(foreign))
	sent := s.worst
	switch {
	case facts.Effect != gate.None:
	case facts.Remembers:
		sent.Integrity = gate.Clean
	default:
		return next
	}
	for at := range steps {
		if to := &steps[at]; to.Call.Server == server || leaves(step.Holds, to.Holds) {
			next.stain(to.Call.Server, sent)
		}
	}
	return next
}

// leaves reports whether one server can leave something for another one.
func leaves(from, to []gate.Place) bool {
	return slices.ContainsFunc(from, func(p gate.Place) bool { return p.Writes && slices.ContainsFunc(to, p.Reaches) })
}

// decide is the strictest decision that a call of a step may get. A table need not be stricter for a worse label, so
// all labels between the best and the worst are decided about.
func (s *seen) decide(p *gate.Policy, session gate.Session, step *Step) (strictest gate.Decision) {
	first := true
	consider := func(l gate.Label, f gate.Facts, free bool) {
		session.Label, session.Sources = l, s.known()
		call := step.Call
		call.Facts = f.Stained(s.stains[call.Server])
		call.Arguments.FreeText = free
		d := p.Decide(session, call)
		if first || outcome(d).Stricter(outcome(strictest)) {
			first, strictest = false, d
		}
	}
	for _, l := range s.labels(p, step) {
		for _, free := range []bool{true, false} {
			if step.Whole && free != step.Call.Arguments.FreeText {
				continue
			}
			if step.Opens != nil && l.Integrity != gate.Clean {
				consider(l, *step.Opens, free)
			}
			consider(l, step.Call.Facts, free)
		}
	}
	return strictest
}

func outcome(d gate.Decision) gate.Outcome { return gate.Outcome{Verdict: d.Verdict, Once: d.Once} }

// known is what has contributed to the session, nil if that is not certain: then no flow of the policy counts.
func (s *seen) known() []gate.Source {
	if !s.exact {
		return nil
	}
	list := []gate.Source{}
	for _, server := range slices.Sorted(maps.Keys(s.sources)) {
		list = append(list, gate.Source{Server: server, Label: s.sources[server]})
	}
	return list
}

// labels are all that the session may have, the worst first. A flow of the policy makes data count as no more secret
// than its audience, so that is one of them where a flow may count.
func (s *seen) labels(p *gate.Policy, step *Step) (list []gate.Label) {
	for i := s.worst.Integrity; i >= s.least.Integrity; i-- {
		for c := s.worst.Confidentiality; c >= s.least.Confidentiality; c-- {
			list = append(list, gate.Label{Confidentiality: c, Integrity: i})
		}
	}
	audience := step.Call.Facts.Audience
	if p != nil && len(p.Flows) > 0 && !s.exact && audience >= gate.Public && audience < s.least.Confidentiality {
		list = append(list, gate.Label{Confidentiality: audience, Integrity: s.least.Integrity})
	}
	return list
}
