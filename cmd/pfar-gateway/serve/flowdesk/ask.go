package flowdesk

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/pfar/pfar/cmd/pfar-gateway/ask"
	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/cmd/pfar-gateway/models"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/form"
	"github.com/pfar/pfar/policies/flow/native"
	"github.com/pfar/pfar/policies/flow/node"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// planners has models asked, for whoever gives the order.
func (x *exchange) planners() ask.Desk {
	return ask.Desk{Models: models.Gated{Models: x.models, Point: x.calls.Gate}}
}

// ask has a model write a flow from a person's words, and shows it as the gate judges it. Nothing is run.
func (x *exchange) ask() {
	if x.runsNothing() {
		return
	}
	o, who := x.order, x.identity()
	nodes := x.catalogue(&x.caller)
	var planned *flow.Plan // with the nodes that the model has chosen
	draft, problems, err := x.planners().Draft(x.r.Context(), ask.Request{
		Who: who, Words: o.Words, Input: o.Input != nil, Nodes: nodes.All(), Model: o.Model,
		Read: func(offered []flow.Node, text string) (*flow.Plan, []flow.Problem) {
			// The model is told what is wrong, and is not to see the input.
			src := form.Source{Form: form.JSON, Text: text, Unseen: o.Input != nil}
			var problems []flow.Problem
			planned, problems = read(x.r.Context(), src, node.New(offered, nil))
			return planned, problems
		},
	})
	if err != nil {
		x.unasked(err)
		return
	}
	a := flows.Answer{Problems: problems}
	if len(problems) == 0 && draft.Flow != nil {
		src := form.Source{Form: form.JSON, Text: string(draft.Flow), Input: o.Input}
		plan, problems := read(x.r.Context(), src, nodes)
		if len(problems) == 0 {
			problems = others(planned, plan)
		}
		if a.Problems = problems; len(problems) == 0 {
			draft.Digest, a.Digest = plan.Digest, plan.Digest
			if _, err := x.judged(plan, who, &a); err != nil {
				x.refuse(err)
				return
			}
		}
	}
	draft.Answer, draft.Reasoning = x.fenceText(draft.Answer, draft.Label), x.fenceText(draft.Reasoning, draft.Label)
	a.Draft = draft
	x.send(a)
}

// others finds the steps whose node is another one among all nodes than among those that the model may read of.
func others(planned, plan *flow.Plan) (problems []flow.Problem) {
	for i, s := range plan.Steps {
		if want := planned.Steps[i].Node; s.Node.ID != want.ID {
			problems = append(problems, flow.Problem{
				Step: s.ID, Text: fmt.Sprintf("the model means %q by a name that %q has, too", want.ID, s.Node.ID),
				Advice: "Ask again, and name the tool by its server: " + want.ID + ".",
			})
		}
	}
	return problems
}

// word has a model put the result of a run into words.
func (x *exchange) word() {
	if x.runsNothing() {
		return
	}
	s, err := x.runner.Show(x.who, x.order.Run)
	if err != nil {
		x.refuse(err)
		return
	}
	worded, err := x.planners().Word(x.r.Context(), ask.Results{
		Who: x.identity(), Words: x.order.Words, Run: s, Model: x.order.Model,
	})
	if err != nil {
		x.unasked(err)
		return
	}
	if worded.Text != "" && !x.caller.Bound.Acting { // a person who acts for the client shows it to no model
		if err := x.plans().Hand(x.identity(), s.ID, worded.Label, []byte(worded.Text)); err != nil {
			x.refuse(err)
			return
		}
	}
	worded.Text = x.fenceText(worded.Text, worded.Label)
	x.send(flows.Answer{Worded: worded})
}

// unasked answers that no model has answered.
func (x *exchange) unasked(err error) {
	_, refused := errors.AsType[*ask.Refused](err)
	_, forbidden := errors.AsType[*models.Forbidden](err)
	_, none := errors.AsType[*models.None](err)
	class := failure.Of(err).Class
	switch {
	case none:
		reply.Refuse(x.w, flows.NoModel, err.Error())
	case refused, forbidden:
		reply.Refuse(x.w, http.StatusForbidden, err.Error())
	case class == failure.RateLimited:
		reply.Refuse(x.w, http.StatusTooManyRequests, err.Error())
	case class != "":
		reply.Refuse(x.w, http.StatusBadGateway, err.Error())
	default:
		x.refuse(err)
	}
}

// fenceText puts a fence around what a model has said, as fence does.
func (x *exchange) fenceText(text string, l gate.Label) string {
	if text == "" || x.caller.Bound.Acting {
		return text
	}
	a := fenced.Answer{Meta: fence.Meta{Server: access.OwnNodes, Tool: native.LLM, Label: l}}
	_, _ = rand.Read(a.ID[:]) // crashes rather than fails
	return a.Text(text)
}

// distant finds the steps that ask a model which clients on the Unix socket alone may ask: the order has come from
// elsewhere. A model that only a run can name may be any.
func (x *exchange) distant(p *flow.Plan) (problems []flow.Problem) {
	if x.caller.Local || x.models == nil {
		return nil
	}
	for _, s := range p.Steps {
		if s.Node.Server != "" || s.Node.ID != native.LLM && s.Node.ID != native.Summarize {
			continue
		}
		named := modelOf(s.Params["model"])
		if _, stored := s.Reads["model"]; stored { // the run's store names one
			named = ""
		}
		if name := x.models.Near(named); name != "" {
			problems = append(problems, flow.Problem{
				At: s.At, Step: s.ID, Text: fmt.Sprintf("the model %q may be asked on the Unix socket alone", name),
				Advice: "Write local = false into its file in models.d.",
			})
		}
	}
	return problems
}

// modelOf is the model that a step names; "": it is not known before the step is called, or the first one.
func modelOf(param json.RawMessage) (name string) {
	_ = json.Unmarshal(param, &name)
	return name
}
