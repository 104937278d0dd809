package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
)

// Gated asks models through the gate: each question is one call, with a record of its own.
type Gated struct {
	*Models
	Point *enforce.Point
}

// Question is one to a model.
type Question struct {
	Use      gate.Use
	Model    string // by name; "": the first that may be asked for Use
	Messages []inspector.Message
	Object   bool // the answer is to be one JSON object

	// Floor is the label of all that the question is made of, to which the session is raised first; zero: the session has
	// that.
	Floor gate.Label
	// Held shows the client where a person can answer, if the gate asks (enforce.Request); nil: it can be shown nothing.
	Held func(approval.Held) approval.Showing
}

// Answer is what a model has said. It is a stranger's text.
type Answer struct {
	Text  string
	Model string
	Label gate.Label // of the text: that of the session which has it
	Call  string     // id of the question in the audit
}

// method is that of questions to models, for rules: they are calls of tools.
const method = "tools/call"

// Put asks a model, if the gate lets the question pass. It may take as long as a person takes to answer, if the gate
// asks one. An error of the gate is an *enforce.Refused; those of models have a class (failure.Of).
func (g Gated) Put(ctx context.Context, who enforce.Identity, q Question) (Answer, error) {
	if g.Point == nil || g.Models == nil {
		return Answer{}, errors.New("nothing is asked: there is no gate")
	}
	one, err := g.find(q.Use, q.Model)
	if err != nil {
		return Answer{}, err
	}
	p := inspector.Prompt{Version: 1, Messages: q.Messages, Object: q.Object}
	if err := g.may(one, who, p); err != nil {
		return Answer{}, err
	}
	shown, err := json.Marshal(asked{q.Messages})
	if err != nil {
		return Answer{}, fmt.Errorf("asking the model %q: %w", one.Name, err)
	}
	if err := g.raise(who, q.Floor); err != nil {
		return Answer{}, err
	}
	pass, err := g.Point.Enter(ctx, who, one.item(), enforce.Request{
		Method: method, Arguments: shown, Params: shown, Held: q.Held,
	})
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Model: one.Name, Call: pass.Call()}
	answer.Text, err = g.answered(ctx, one, p, pass)
	if err != nil {
		return Answer{}, err
	}
	answer.Label, err = g.Point.Sessions.Label(who.Client, who.Handle)
	return answer, err
}

// raise has a session have seen what a question is made of, though it was reset meanwhile. The record has it.
func (g Gated) raise(who enforce.Identity, floor gate.Label) error {
	if floor == (gate.Label{}) {
		return nil
	}
	return enforce.Holding(g.Point, who, floor, gate.ModelServer, method)
}

var errSuspicious = failure.Fact("inspectors found the answer of the model suspicious, so it is withheld")

// answered puts a question that has passed the gate to a model, and closes its record. The client gets no answer that
// is not recorded.
func (g Gated) answered(ctx context.Context, one *model, p inspector.Prompt, pass *enforce.Passage) (string, error) {
	outcome, size := "failed", 0
	text, err := g.put(ctx, one, p)
	if err == nil {
		outcome, size = "ok", len(text)
		var said []byte
		if said, err = json.Marshal(text); err == nil {
			err = pass.Seen(said)
		}
		if err == nil && !pass.Inbound(ctx, said) {
			outcome, err = "withheld", errSuspicious
		}
	}
	if err != nil {
		pass.Failed(failure.Of(err))
		text = ""
	}
	if unrecorded := pass.End(outcome, size); unrecorded != nil {
		return "", errors.New("the model was asked, and its answer is withheld: the record of it could not be closed")
	}
	return text, err
}

// Judge says why the gate would not let a question pass by itself: it would deny it, or ask a person. "" if it would.
// Nothing is asked, recorded or raised. An error says why the client may not ask.
func (g Gated) Judge(ctx context.Context, who enforce.Identity, q Question) (why string, err error) {
	if g.Point == nil || g.Models == nil {
		return "", errors.New("nothing is asked: there is no gate")
	}
	one, err := g.find(q.Use, q.Model)
	if err != nil {
		return "", err
	}
	shown, err := json.Marshal(asked{q.Messages})
	if err != nil {
		return "", fmt.Errorf("asking the model %q: %w", one.Name, err)
	}
	plan := enforce.Plan{Floor: q.Floor, Steps: []enforce.Planned{{ID: one.Name, Item: one.item(), Known: shown}}}
	if plan.Floor == (gate.Label{}) {
		plan.Floor = gate.Start
	}
	f := enforce.Plans{Point: g.Point}.Fold(ctx, who, plan)
	switch {
	case len(f.Judged) == 1 && f.Judged[0].Decision.Rule == gate.VaultRule:
		return "", nil // the guess is counted where it is made
	case f.Denied() != "":
		return f.Denied(), nil
	case f.Asks():
		return fmt.Sprintf("a person would have to agree to it (%s); the model %q may see what is %s",
			f.Judged[0].Decision.Reason, one.Name, one.Audience), nil
	}
	return "", nil
}

// asked are the arguments of a question, as it is judged and shown.
type asked struct {
	Messages []inspector.Message `json:"messages"`
}
