// Package ask has models plan and word what a person asks for: the person's words and accepted descriptions in, a plan
// out; results in, words out. No model that has seen a result chooses what is called.
package ask

import (
	"context"
	"fmt"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/models"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/flows"
)

// MaxWords bounds what a person asks for, in bytes.
const MaxWords = 16 << 10

// Desk asks models for people. Each question passes the gate.
type Desk struct{ Models models.Gated }

// Request is what a person asks for, in one session of a declared client.
type Request struct {
	Who   enforce.Identity
	Words string
	Input bool        // a text of the person's goes to the first step; the model is not shown it
	Nodes []flow.Node // that the client may use
	Model string      // by name; "": the first that may write plans

	// Read reads and checks a flow in JSON whose nodes are among these. The model is told what it finds wrong. So Draft
	// gives it only nodes that the model may read of, and it must not tell of the person's text for the first step.
	Read func(nodes []flow.Node, text string) (*flow.Plan, []flow.Problem)
}

// asks puts one question without waiting for a person. Not being let to ask is a *Refused.
func (d Desk) asks(ctx context.Context, who enforce.Identity, q models.Question) (models.Answer, error) {
	if why, err := d.Models.Judge(ctx, who, q); err != nil || why != "" {
		if err == nil {
			err = &Refused{why}
		}
		return models.Answer{}, err
	}
	return d.Models.Put(ctx, who, q)
}

// Refused is the error of a question that the gate does not let pass by itself.
type Refused struct{ Why string }

func (r *Refused) Error() string { return "the model is not asked: " + r.Why }

// Draft has a model write a plan, and once again if the first has mistakes: then it is told which. With problems there
// is no plan.
func (d Desk) Draft(ctx context.Context, r Request) (*flows.Draft, []flow.Problem, error) {
	if r.Words == "" || len(r.Words) > MaxWords {
		return nil, nil, fmt.Errorf("the words have %d bytes: want 1 to %d", len(r.Words), MaxWords)
	}
	offered, left := accepted(r.Nodes)
	orders, err := plannerOrders(offered, r.Input)
	if err != nil {
		return nil, nil, err
	}
	messages := []inspector.Message{
		{Role: inspector.System, Text: orders}, {Role: inspector.User, Text: r.Words},
	}
	draft := &flows.Draft{LeftOut: left}
	for {
		a, err := d.asks(ctx, r.Who, models.Question{Use: gate.ForPlan, Model: r.Model, Messages: messages, Object: true})
		if err != nil {
			return nil, nil, err
		}
		draft.Model, draft.Label = a.Model, a.Label
		p := planned{words: r.Words, model: a.Model, offered: offered, read: r.Read}
		problems := p.take(a.Text, draft)
		if len(problems) == 0 || draft.Repaired {
			return draft, problems, nil
		}
		draft.Repaired = true
		messages = append(messages, inspector.Message{Role: inspector.Assistant, Text: cut(a.Text, maxRepeated)},
			inspector.Message{Role: inspector.User, Text: repairOrders(problems)})
	}
}
