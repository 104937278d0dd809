package flowdesk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/runs"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/check"
	"github.com/pfar/pfar/policies/flow/form"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// exchange is one order and its answer.
type exchange struct {
	*Desk
	w      http.ResponseWriter
	r      *http.Request
	caller clients.Caller
	who    runs.Who
	order  flows.Order
	begun  bool // something has been written

	run   string       // that the order has begun; "": none
	first flows.Answer // what is told of it first
}

func bytesOf(n int64) string { return strconv.FormatInt(n, 10) + " bytes" }

// answer carries the order out.
func (x *exchange) answer() {
	switch x.order.Verb {
	case flows.Check, flows.Show, flows.Run:
		done, ok := x.turns.take(x.r.Context(), x.who.Client)
		if !ok {
			reply.Refuse(x.w, http.StatusTooManyRequests,
				"other orders of the client are read: wait until they are answered")
			return
		}
		x.flow()
		done()
		if x.run != "" {
			x.follow(x.run, x.first)
		}
	case flows.Ask:
		x.ask()
	case flows.Word:
		x.word()
	case flows.Nodes:
		if x.runsNothing() {
			return
		}
		x.send(flows.Answer{Nodes: x.catalogue(&x.caller).All()})
	case flows.List:
		list, err := x.runner.List(x.who)
		for i := range list {
			x.list(&list[i])
		}
		x.end(flows.Answer{Runs: list}, err)
	case flows.Of:
		s, err := x.runner.Show(x.who, x.order.Run)
		x.hand(&s)
		x.end(flows.Answer{Run: &s}, err)
	case flows.Cancel:
		if err := x.noted(); err != nil {
			x.refuse(err)
			return
		}
		err := x.runner.Cancel(x.who, x.order.Run)
		s, lost := x.runner.Show(x.who, x.order.Run)
		x.hand(&s)
		x.end(flows.Answer{Run: &s}, errors.Join(err, lost))
	case flows.Resume:
		err := x.noted()
		if err == nil {
			err = x.runner.Resume(x.who, x.order.Run, x.order.Past)
		}
		if err != nil {
			x.refuse(err)
			return
		}
		x.follow(x.order.Run, flows.Answer{})
	default:
		reply.Refuse(x.w, http.StatusBadRequest, fmt.Sprintf("there is no verb %.40q: the verbs are %s", x.order.Verb, verbs))
	}
}

var verbs = strings.Join([]string{flows.Check, flows.Show, flows.Run, flows.Nodes, flows.List, flows.Of, flows.Resume,
	flows.Cancel, flows.Ask, flows.Word}, ", ")

// runsNothing refuses an order of the operator's that is a client's.
func (x *exchange) runsNothing() bool {
	if !x.who.Operator {
		return false
	}
	const text = "a flow runs as a declared client, and never as the operator: name one, at /flows/CLIENT"
	reply.Refuse(x.w, http.StatusForbidden, text)
	return true
}

// noted records what somebody does with a run. It must be there, and theirs. What is recorded of the order is one of
// the words that it may have, and nothing that a client has made up.
func (x *exchange) noted() error {
	if want := pastOf(x.order.Verb); !slices.Contains(want, x.order.Past) {
		return &badPast{x.order.Verb, want}
	}
	s, err := x.runner.Show(x.who, x.order.Run)
	if err != nil {
		return err
	}
	return x.plans().Note(x.identity(), s.Client, s.Session, x.order.Verb, x.order.Run, x.order.Past)
}

// pastOf are the words that the past of an order may be.
func pastOf(verb string) []string {
	if verb == flows.Resume {
		return []string{runs.PastDone, runs.PastAgain}
	}
	return []string{""}
}

// badPast is the error of an order whose past is none. It does not repeat it.
type badPast struct {
	verb string
	want []string
}

func (b *badPast) Error() string {
	if b.verb != flows.Resume {
		return `the order's "past" goes with ` + flows.Resume + ": leave it out"
	}
	return fmt.Sprintf(`the order's "past" says what becomes of the last call: write %q or %q`, b.want[0], b.want[1])
}

// identity is who gives the order, for the gate and the record. No run is the person's who has begun it.
func (x *exchange) identity() enforce.Identity {
	who := x.caller.Identity("")
	who.Person = false
	return who
}

// end answers with one line, or with the error.
func (x *exchange) end(a flows.Answer, err error) {
	if err != nil {
		x.refuse(err)
		return
	}
	x.send(a)
}

// refuse answers that an order is not carried out.
func (x *exchange) refuse(err error) {
	status := http.StatusInternalServerError
	refused, is := errors.AsType[*enforce.Refused](err)
	_, wrong := errors.AsType[*badPast](err)
	text := err.Error()
	switch {
	case wrong:
		status = http.StatusBadRequest
	case is:
		status, text = http.StatusForbidden, "the flow was denied: "+refused.Error()
	case errors.Is(err, runs.ErrUnknown):
		status = http.StatusNotFound
	case errors.Is(err, runs.ErrState):
		status = http.StatusConflict
	case errors.Is(err, runs.ErrFull):
		status = http.StatusTooManyRequests
	case errors.Is(err, runs.ErrClosed):
		status = http.StatusServiceUnavailable
	}
	reply.Refuse(x.w, status, text)
}

// maxName bounds the name of a flow, in bytes.
const maxName = 64

// nameAdvice says what the name of a flow may be.
const nameAdvice = "Write up to 64 letters, digits and the marks - _ and ."

// named reports whether a flow's name is one.
func named(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
	return len(s) <= maxName && strings.Trim(s, letters) == ""
}

// flow reads a flow, checks it, judges it, and runs it, as far as the verb says.
func (x *exchange) flow() {
	if x.runsNothing() {
		return
	}
	o := x.order
	if !named(o.Name) {
		reply.Refuse(x.w, http.StatusBadRequest, "the name of the flow is none: "+nameAdvice)
		return
	}
	who := x.identity()
	if !x.secretless(who, struct {
		Name  string   `json:"name"`
		Text  string   `json:"text"`
		Flags []string `json:"flags"`
		Input *string  `json:"input"`
	}{o.Name, o.Text, o.Flags, o.Input}) {
		return
	}
	nodes := x.catalogue(&x.caller)
	f, problems := form.Read(form.Source{
		Name: o.Name, Form: o.Form, Text: o.Text, Flags: o.Flags, Input: o.Input,
	}, nodes)
	if !x.secretless(who, f) { // quotes and escapes are gone
		return
	}
	plan, problems := checked(x.r.Context(), f, problems, nodes, o.Fresh)
	switch {
	case len(problems) > 0 || plan == nil:
	case o.Digest != "" && o.Digest != plan.Digest:
		problems = []flow.Problem{{
			Text:   "the plan is not the one that was shown: a tool, or what the client may use, has changed",
			Advice: "Look at it again.",
		}}
	default:
		problems = x.distant(plan)
	}
	if len(problems) > 0 || plan == nil {
		x.send(flows.Answer{Problems: problems})
		return
	}
	a := flows.Answer{Digest: plan.Digest}
	if o.Verb == flows.Check {
		x.send(a)
		return
	}
	x.judge(plan, who, a)
}

// secretless reports whether a part of an order holds no secret of the vault. Else the order is refused.
func (x *exchange) secretless(who enforce.Identity, part any) bool {
	text, err := json.Marshal(part)
	if err == nil {
		err = x.plans().Secret(x.r.Context(), who, x.order.Name, text)
	}
	if err != nil {
		x.refuse(err)
	}
	return err == nil
}

// read reads a flow and checks it, with the nodes that its client may use. The plan is nil if there are problems.
func read(ctx context.Context, src form.Source, nodes flow.Nodes) (*flow.Plan, []flow.Problem) {
	f, problems := form.Read(src, nodes)
	return checked(ctx, f, problems, nodes, false)
}

// checked checks a flow in which its form has found these problems.
func checked(ctx context.Context, f flow.Flow, problems []flow.Problem, nodes flow.Nodes, fresh bool) (
	plan *flow.Plan, _ []flow.Problem) {
	f.Fresh = f.Fresh || fresh
	if !named(f.Name) { // a file may name itself
		problems = append(problems, flow.Problem{Text: "the name that the flow gives itself is none", Advice: nameAdvice})
	}
	if len(f.Steps) > 0 {
		var more []flow.Problem
		plan, more = check.Check(ctx, f, nodes)
		problems = append(problems, more...)
	}
	if len(problems) > 0 {
		plan = nil
	}
	return plan, problems
}

// judged has the gate judge a plan, and adds to an answer how: with problems it cannot run. It returns the label of the
// session.
func (x *exchange) judged(plan *flow.Plan, who enforce.Identity, a *flows.Answer) (gate.Label, error) {
	floor, err := x.calls.Gate.Sessions.Label(who.Client, who.Handle)
	if err != nil {
		return floor, fmt.Errorf("the client's session: %w", err)
	}
	judged, err := x.plan(&x.caller, who, plan, floor)
	if wrong, is := errors.AsType[*stepError](err); is {
		a.Problems = []flow.Problem{{Step: wrong.step, Text: wrong.err.Error()}}
		return floor, nil
	}
	folded := x.plans().Fold(x.r.Context(), who, judged)
	if !folded.Guessed() {
		a.Steps = stepsOf(plan, &folded)
	}
	if why := folded.Denied(); why != "" {
		a.Problems = []flow.Problem{{Text: "the flow cannot run: " + why}}
		if x.order.Verb == flows.Run || folded.Guessed() { // it is recorded, as a run that did not begin
			a.Problems[0].Advice = "pfar explain " + x.plans().Refuse(&folded).Call
		}
	}
	return floor, nil
}

// judge has the gate judge a plan, and begins the run of one that may begin.
func (x *exchange) judge(plan *flow.Plan, who enforce.Identity, a flows.Answer) {
	floor, err := x.judged(plan, who, &a)
	if err != nil {
		x.refuse(err)
		return
	}
	if x.order.Verb == flows.Show || len(a.Problems) > 0 {
		x.send(a)
		return
	}
	id, err := x.runner.Begin(runs.New{
		Client: who.Client, Session: who.Handle, Proof: who.Proof, Plan: plan, Store: plan.Flow.Store, Label: floor,
	})
	if errors.Is(err, runs.ErrHeld) {
		err = x.plans().Held(who, plan.Flow.Name, "", "The plan of the flow holds the value of a secret.")
	}
	if err != nil {
		x.refuse(err)
		return
	}
	x.run, x.first = id, a
}

// stepsOf are the steps of a plan as they are judged.
func stepsOf(p *flow.Plan, f *enforce.Folded) []flows.Judged {
	var list []flows.Judged
	for i, s := range f.Steps {
		j := f.Judged[i]
		if !j.Reached() {
			continue
		}
		list = append(list, flows.Judged{
			Step: s.ID, Node: p.Steps[i].Node.ID, Arguments: s.Known, From: slices.Clone(s.From), Or: s.Or,
			Verdict: j.Decision.Verdict, Reason: j.Decision.Reason, Label: j.Before, Facts: j.Decision.Facts,
		})
	}
	return list
}

// follow tells of each change of a run, until it is over or the client hangs up: the run goes on without it. Meanwhile
// nothing of the order is kept.
func (x *exchange) follow(id string, first flows.Answer) {
	x.order, x.first = flows.Order{}, flows.Answer{}
	free, ok := x.followed.take(x.who.Client, mostFollowed)
	if !ok { // it has begun all the same
		s, err := x.runner.Show(x.who, id)
		x.fence(&s)
		first.Run = &s
		x.end(first, err)
		return
	}
	defer free()
	w, err := x.runner.Watch(x.who, id)
	if err != nil {
		x.refuse(err)
		return
	}
	defer w.Close()
	for {
		s, err := w.Next(x.r.Context())
		if err != nil {
			return // it is over, the gateway is stopping, or nobody listens
		}
		x.hand(&s)
		first.Run = &s
		if !x.send(first) {
			return
		}
		first = flows.Answer{}
	}
}

// hand makes what is told of a run fit for whoever asks. The client's session has seen it by then, or it is withheld. A
// person who acts for the client shows it to no model.
func (x *exchange) hand(s *flows.Status) {
	if !x.caller.Bound.Acting && (s.Result != nil || s.Reason != "") {
		if err := x.plans().Hand(x.identity(), s.ID, s.Label, s.Result, []byte(s.Reason)); err != nil {
			s.Result, s.Reason = nil, "what the run has brought is withheld: "+err.Error()
		}
	}
	x.fence(s)
}

// list makes a run fit for a list, which raises no label: of a run that has seen more than its session now has, the
// list does not say why it failed.
func (x *exchange) list(s *flows.Status) {
	l, err := x.calls.Gate.Sessions.Label(s.Client, s.Session)
	if withheld := err != nil || !s.Label.Below(l); !x.caller.Bound.Acting && s.Reason != "" && withheld {
		s.Reason = "withheld: its session was reset; show the run by its id"
		return
	}
	x.fence(s)
}

// strange reports whether a label says that strangers may have written something.
func strange(l gate.Label) bool { return l.Integrity != gate.Clean }
