package flowdesk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/consent"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/native"
	"github.com/pfar/pfar/cmd/pfar-gateway/runs"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/request"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

// errGone is why a run of a client ends that is not let in any more.
const errGone = "pfar no longer knows its client, session, token or user"

// Call makes one call of a run (runs.Caller). Before the first, the plan is decided about.
func (d *Desk) Call(ctx context.Context, c runs.Call) (runs.Result, error) {
	r, err := d.call(ctx, c)
	if err == nil && r.Error != "" && r.Waits == "" && !d.life.goesOn(ctx) {
		return runs.Result{Sent: r.Sent}, runs.ErrLeft
	}
	return r, err
}

func (d *Desk) call(ctx context.Context, c runs.Call) (runs.Result, error) {
	caller, here := d.calls.Clients.Flow(ctx, c.Client, c.Session, c.Proof)
	if !here {
		return runs.Result{Denied: true, Error: errGone}, nil
	}
	who := caller.Identity("")
	yes, ended, err := d.decided(ctx, &caller, who, c)
	if err != nil || ended != nil {
		return deref(ended), err
	}
	p := &c.Plan.Steps[c.Step]
	v := &call.Visit{Caller: caller, Ctx: ctx, Step: &call.Step{Run: enforce.Run{
		ID: c.Run, Step: p.ID, Floor: c.Floor, Epoch: c.Epoch, Yes: yes, Consents: d.consents,
	}, Begun: c.Begun}}
	v.Endpoint = p.Node.Server
	if !c.Plan.Flow.Fresh {
		v.Step.Reuse.Results = d.results
	}
	if v.Request, err = request.ToolCall("flow "+c.Run, cmp.Or(p.Node.Tool, p.Node.ID), c.Arguments); err != nil {
		return runs.Result{Error: err.Error()}, nil
	}
	if p.Node.Server == "" {
		return d.native(v, who, p, c), nil
	}
	return d.tool(v, p.Node, c), nil
}

func deref(r *runs.Result) runs.Result {
	if r == nil {
		return runs.Result{}
	}
	return *r
}

// decided returns what was decided about the plan of a run. Before the first call of a run that is decided now; a
// result then says that the run waits, or may not begin. What is of another plan covers nothing.
func (d *Desk) decided(ctx context.Context, c *clients.Caller, who enforce.Identity, of runs.Call) (
	consent.Yes, *runs.Result, error) {
	yes, err := d.consents.Get(of.Run)
	switch {
	case err == nil && yes.Plan == of.Plan.Digest, errors.Is(err, consent.ErrNone) && of.Turn > 0:
		return yes, nil, nil
	case err == nil:
		return consent.Yes{}, nil, nil
	case !errors.Is(err, consent.ErrNone):
		return yes, nil, err
	}
	for i := range of.Plan.Steps {
		if server := of.Plan.Steps[i].Node.Server; server != "" {
			d.appears(ctx, server)
		}
	}
	plan, err := d.plan(c, who, of.Plan, of.Floor)
	if err != nil {
		return yes, &runs.Result{Error: err.Error(), Denied: true}, nil
	}
	plan.Run, plan.Call = of.Run, d.asked.get(of.Run).call
	yes, outcome, err := d.plans().Decide(ctx, who, plan)
	if err != nil {
		d.asked.set(of.Run, question{})
		no, _ := errors.AsType[*enforce.Refused](err)
		return yes, &runs.Result{ID: callOf(no), Denied: true, Error: err.Error()}, nil
	}
	if outcome.State == approval.Pending {
		before := d.asked.set(of.Run, question{outcome.ID, yes.Call})
		if before.approval != "" && before.approval != outcome.ID {
			d.runs().Withdraw(before.approval, "its run now asks another question")
		}
		return yes, &runs.Result{
			ID: yes.Call, Verdict: gate.Ask, Waits: outcome.ID, Error: "a person must approve the plan",
		}, nil
	}
	d.asked.set(of.Run, question{})
	return yes, nil, d.consents.Put(of.Run, yes)
}

func callOf(no *enforce.Refused) string {
	if no == nil {
		return ""
	}
	return no.Call
}

func (d *Desk) runs() approval.Runs { return approval.Runs{Store: d.calls.Gate.Approvals} }

// tool calls a tool, like any client's call of it.
func (d *Desk) tool(v *call.Visit, n *flow.Node, c runs.Call) runs.Result {
	d.appears(v.Ctx, n.Server)
	re, err := d.calls.Reach(v, func() (call.Target, error) {
		route, err := d.find(&v.Caller, n.Server, n.Tool)
		if err != nil {
			return call.Target{Route: route, Kind: gate.Tool}, err
		}
		return target(route, v.Parameters.Get("arguments"))
	})
	r := result(v, c, re, err)
	if r.Error != "" || r.Waits != "" {
		return r
	}
	if kind := re.Members.Get("resultType"); kind != nil && string(kind) != `"complete"` {
		r.Error = n.Server + " asks the client a question during the call, but a flow cannot answer"
		return r
	}
	r.Value = spliced(re.Result, re.Edits)
	if used := v.Step.Reuse.Used; used != nil {
		r.Label, r.Reused = r.Label.Join(*used), true
	} else {
		v.Step.Reuse.Keep(r.Value, v.Step.Pass.Label())
	}
	return r
}

// result is what has become of a call, without its value.
func result(v *call.Visit, c runs.Call, re reply.Reply, err error) runs.Result {
	r := runs.Result{Sent: v.Step.Sent}
	if pass := v.Step.Pass; pass != nil {
		r.ID, r.Verdict, r.Label = pass.Call(), pass.Verdict(), c.Floor.Join(pass.Label())
	}
	switch no, refused := errors.AsType[*enforce.Refused](cmp.Or(err, re.Why)); {
	case refused && no.State == approval.Pending:
		return runs.Result{ID: no.Call, Verdict: gate.Ask, Waits: no.ID, Error: "a person must approve this call"}
	case refused:
		return runs.Result{ID: no.Call, Denied: true, Error: no.Error(), Sent: r.Sent, Label: r.Label}
	case err != nil:
		r.Failed, r.Error = failure.Of(err), text(err)
	case re.ToolError || re.Refused:
		r.Error = cmp.Or(said(re.Result), "the tool reported an error")
	}
	return r
}

// text is an error in words: of a server's error its message alone.
func text(err error) string {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || e.Raw == nil {
		return err.Error()
	}
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(e.Raw, &said)
	return cmp.Or(said.Message, err.Error())
}

// said is the text of a result.
func said(result []byte) string {
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	_ = json.Unmarshal(result, &r)
	words := ""
	for _, c := range r.Content {
		if c.Text != "" && words != "" {
			words += "\n"
		}
		words += c.Text
	}
	return words
}

// native calls one of pfar's own nodes, which passes the gate like a tool.
func (d *Desk) native(v *call.Visit, who enforce.Identity, p *flow.Planned, c runs.Call) runs.Result {
	ready, err := d.nodes.Ready(native.Call{
		Name: p.Node.ID, Who: who, Run: c.Run, Step: p.ID, Arguments: c.Arguments, Label: c.Floor,
	})
	if err != nil {
		d.calls.Unfit(v, access.OwnNodes, p.Node.ID, err)
		return runs.Result{Error: err.Error()}
	}
	v.Step.Made = ready.Made
	var value json.RawMessage
	label := gate.Start
	re, err := d.calls.Own(v, ready.Item, func(o *call.Call) (reply.Reply, error) {
		v.Step.Sent = true
		var err error
		if value, label, err = ready.Do(o.Ctx); err != nil {
			return reply.Reply{}, err
		}
		if err = enforce.SeenStep(o.Pass, c.Floor, label, value); err != nil {
			return reply.Reply{}, err
		}
		if !o.Pass.Inbound(o.Ctx, value) {
			return reply.Reply{}, errors.New("inspectors flagged the result")
		}
		return reply.Reply{Result: value}, nil
	})
	r := result(v, c, re, err)
	if r.Label.Known() && label.Known() {
		r.Label = r.Label.Join(label)
	}
	if r.Error == "" && r.Waits == "" {
		r.Value = value
	}
	return r
}

// Held counts that a call of a run gave something that must not be kept (runs.Caller).
func (d *Desk) Held(c runs.Call) {
	caller, here := d.calls.Clients.Flow(d.calls.Life, c.Client, c.Session, c.Proof)
	if !here {
		return
	}
	why := "The result of the step " + c.Plan.Steps[c.Step].ID + " contains the value of a secret."
	_ = d.plans().Held(caller.Identity(""), c.Plan.Flow.Name, c.Run, why) // nobody is told
}

// Answered has a run go on when its approval does not wait any more (runs.Caller). A run that does not want the answer
// any more takes the question back.
func (d *Desk) Answered(id string, then func()) (stop func()) {
	var fired atomic.Bool
	forget := d.runs().After(id, func() {
		fired.Store(true)
		then()
	})
	return func() {
		forget()
		if !fired.Load() {
			d.runs().Withdraw(id, "its run no longer makes the call")
			d.asked.withdrawn(id)
		}
	}
}

// Ended takes back what was asked for a run that is over, answered or not (runs.Ended).
func (d *Desk) Ended(run string) {
	d.asked.set(run, question{})
	d.runs().Over(run)
}

// Writes reports whether a call of a node may change something (runs.Caller).
func (d *Desk) Writes(client string, n *flow.Node) bool {
	t := d.calls.Clients.Table()
	if t == nil {
		return true
	}
	m := t.Declared(client)
	return m == nil || d.writes(&clients.Caller{Bound: clients.Binding{Client: client, Flow: true}, Member: m}, n)
}
