package runs

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/step"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// denied is the action of a call that the gate or a person has denied. No edge can name it.
const denied = "denied"

// rules say how a run goes on. They have no effect.
type rules struct{ limits Limits }

// ending is how a call has ended.
type ending struct {
	Result
	store  map[string]json.RawMessage // the run's, with the values that the step sets
	fatal  bool                       // the caller's own error: no edge leads on
	writes bool                       // the node may change something
	asked  bool                       // the call had waited for an approval
	begun  time.Time
	took   time.Duration
}

// call is the call of the step that a run is at, and the store that it was made from.
func (l rules) call(run *run, asked bool) (Call, map[string]json.RawMessage, error) {
	p := &run.plan.Steps[run.step]
	if limit := most(&run.plan.Flow); run.turn >= limit {
		return Call{}, nil, fmt.Errorf("step %q: the run has made %d calls, as many as its flow may", p.ID, limit)
	}
	store := maps.Clone(run.store)
	arguments, err := step.Arguments(p, store)
	if err == nil {
		err = l.fits(store)
	}
	if err == nil && len(arguments) > l.limits.Value {
		err = fmt.Errorf("the arguments have %d bytes; the limit is %d", len(arguments), l.limits.Value)
	}
	if err != nil {
		return Call{}, nil, fmt.Errorf("step %q: %w", p.ID, err)
	}
	return Call{
		Run: run.id, Client: run.client, Session: run.session, Proof: run.proof, Plan: run.plan, Step: run.step,
		Turn:      run.turn,
		Arguments: arguments, Floor: run.label, Epoch: run.epoch, Asked: asked,
	}, store, nil
}

// fits reports whether a store is as large as it may be.
func (l rules) fits(store map[string]json.RawMessage) error {
	for name, value := range store {
		if len(name) > longestReason {
			return fmt.Errorf("a name in the store has %d bytes; the limit is %d", len(name), longestReason)
		}
		if len(value) == 0 {
			return fmt.Errorf("%q in the store has no value", name)
		}
		if len(value) > l.limits.Value {
			return fmt.Errorf("%q in the store has %d bytes; the limit is %d", name, len(value), l.limits.Value)
		}
	}
	if n := size(store); n > l.limits.Store {
		return fmt.Errorf("the store has %d bytes; the limit is %d", n, l.limits.Store)
	}
	return nil
}

// judge says what a call has made of a run.
func (l rules) judge(run *run, e ending) outcome {
	p := &run.plan.Steps[run.step]
	switch {
	case e.fatal:
		return traced(run, e, flow.Failed).fail(p, e.Error+"."+doubtful(e))
	case e.Denied:
		return traced(run, e, denied).fail(p, orElse(e.Error, "the gate denied the call"))
	case e.Waits != "":
		return l.waits(run, e)
	case e.Error != "":
		return route(run, e)
	}
	return l.write(run, e)
}

// traced is the outcome of a call that has ended with an action, before it is said where the run goes on.
func traced(run *run, e ending, action string) outcome {
	p := &run.plan.Steps[run.step]
	label := e.reached(run.label)
	return outcome{
		position: position{step: run.step, turn: run.turn + 1}, label: label, inDoubt: inDoubtAfter(e),
		values: changed(e.store, run.store),
		trace: &flows.Step{
			Step: p.ID, Node: p.Node.ID, Call: e.ID, Verdict: e.Verdict, Label: label, Action: action, Class: e.Failed.Class,
			Bytes: len(e.Value), Reused: e.Reused, Begun: e.begun.UTC(), Took: e.took,
		},
	}
}

// reached is the label of a run after a call: what a node has answered counts, even if it is not kept.
func (e *ending) reached(before gate.Label) gate.Label {
	switch {
	case e.Label.Known():
		return before.Join(e.Label)
	case e.Sent || e.Value != nil:
		return gate.Label{Confidentiality: gate.Secret, Integrity: gate.Raw}
	}
	return before
}

// waits is the outcome of a call that waits for an approval: nothing was called.
func (l rules) waits(run *run, e ending) outcome {
	p := &run.plan.Steps[run.step]
	o := outcome{position: run.position, label: run.label}
	o.sent = false
	o.standing = standing{state: flows.Waiting, approval: e.Waits, reason: short(e.Error)}
	if o.since == 0 {
		o.since = e.begun.UnixNano()
	}
	if !e.asked {
		return o
	}
	if e.Waits == run.waited {
		return o.fail(p, fmt.Sprintf("the approval %s was answered, and the call still waits for it", e.Waits))
	}
	if o.asks++; o.asks > l.limits.Asks {
		return o.fail(p, fmt.Sprintf("the call was answered for %d times, and still needs an approval", l.limits.Asks))
	}
	return o
}

// route is the outcome of a call that has failed: the edge of its action is taken. Without one the run fails.
func route(run *run, e ending) outcome {
	p := &run.plan.Steps[run.step]
	action := flow.Action(e.Failed.Class)
	o := traced(run, e, action)
	words := flow.Words(e.Failed, orElse(p.Node.Server, p.Node.ID), e.Error) + doubtful(e)
	next, ok := p.Next[action]
	switch {
	case !ok || action == flow.Default:
		return o.fail(p, words)
	case barred(e) && reaches(run.plan, next, run.step):
		return o.fail(p, fmt.Sprintf("%s The edge of %q leads back to this step, and this call must not be made again.",
			words, action))
	}
	return o.goOn(next)
}

// write is the outcome of a call that has succeeded: its outputs are in the store.
func (l rules) write(run *run, e ending) outcome {
	p := &run.plan.Steps[run.step]
	o := traced(run, e, flow.Default)
	if len(e.Value) > l.limits.Value {
		return o.fail(p, fmt.Sprintf("the result has %d bytes; the limit is %d", len(e.Value), l.limits.Value))
	}
	if !json.Valid(e.Value) {
		return o.fail(p, "the result is not JSON")
	}
	store := maps.Clone(e.store)
	if err := step.Write(p, e.Value, store); err != nil {
		return o.fail(p, "reading its result: "+err.Error())
	}
	if err := l.fits(store); err != nil {
		return o.fail(p, err.Error())
	}
	if next, ok := p.Next[flow.Default]; ok {
		o.values = changed(store, run.store)
		return o.goOn(next)
	}
	o.state, o.values = flows.Done, nil
	if o.result = e.Value; len(o.result) > l.limits.Result {
		o.reason = fmt.Sprintf("the result has %d bytes; pfar keeps at most %d", len(o.result), l.limits.Result)
		o.result = nil
	}
	return o
}

func (o outcome) goOn(next int) outcome {
	o.state, o.step = flows.Running, next
	return o
}

// fail is a run that a step has ended.
func (o outcome) fail(p *flow.Planned, words string) outcome {
	o.values, o.result = nil, nil
	o.standing = standing{state: flows.Failed, reason: short(fmt.Sprintf("step %q: %s", p.ID, words))}
	return o
}

// inDoubtAfter reports whether a call may have changed something, although it has failed.
func inDoubtAfter(e ending) bool {
	if !e.writes || !e.Sent || e.Error == "" {
		return false
	}
	switch e.Failed.Class {
	case failure.RateLimited, failure.Unauthorized, failure.Forbidden, failure.NotFound:
		return false // the service has refused it
	}
	return true
}

// barred reports whether a call that has failed must not be made again in the same run, unless its owner says so.
func barred(e ending) bool {
	return e.Failed.Class == failure.TLS || e.Failed.Class == failure.Schema || inDoubtAfter(e)
}

func doubtful(e ending) string {
	if inDoubtAfter(e) {
		return " The call may have been carried out: look before you repeat it."
	}
	return ""
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
