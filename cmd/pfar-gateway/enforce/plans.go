package enforce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/consent"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/gate/fold"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units/operator"
)

// Plans judges plans of flows, of a point that their calls pass one by one. It raises no label and opens no record of a
// call.
type Plans struct{ *Point }

// Planned is a step of a plan.
type Planned struct {
	ID    string
	Item  Item
	Known []byte   // arguments that the plan itself gives, a JSON object
	From  []string // names of those that earlier steps may give
	Next  []int    // places of the steps that may follow

	// Or has the values that the plan gives to arguments that are not certain. Those in From have one of them if no step
	// gives them; others always have one.
	Or map[string][]json.RawMessage
}

// Whole reports whether Known has all arguments of a call.
func (s *Planned) Whole() bool { return len(s.From) == 0 && len(s.Or) == 0 }

// text is all that the plan gives to a step, as JSON.
func (s *Planned) text() []byte {
	if len(s.Or) == 0 {
		return s.Known
	}
	b, err := json.Marshal([]any{given(s.Known), s.Or})
	if err != nil {
		return s.Known
	}
	return b
}

// objects are the objects of arguments that the plan gives to a step: those that are certain, and each other value.
func (s *Planned) objects() [][]byte {
	all := [][]byte{s.Known}
	for name, values := range s.Or {
		for _, v := range values {
			if b, err := json.Marshal(map[string]json.RawMessage{name: v}); err == nil {
				all = append(all, b)
			}
		}
	}
	return all
}

// Plan is a plan, its steps in their order; the first is called first.
type Plan struct {
	Flow   string // its name; "": it was given on a command line
	Run    string // that is to run it; "": none yet
	Call   string // id of the record of what was decided about it before; "": there is none
	Digest string
	Floor  gate.Label // of all that the run holds
	Steps  []Planned
}

// Folded is a plan as the gate judges it. The zero value may not begin.
type Folded struct {
	Plan
	Judged []fold.Judged // of each step
	Before gate.Label    // the session's, now
	who    Identity
	policy string
	denied string // why it may not begin; "": it may
}

// Fold judges a plan in a client's session as it is now.
func (p Plans) Fold(ctx context.Context, who Identity, plan Plan) Folded {
	p.await(ctx)
	f := Folded{Plan: plan, who: who, Judged: make([]fold.Judged, len(plan.Steps)), denied: "it is not judged"}
	policy := p.policy.Load()
	if p.Now != nil {
		var here bool
		if f.who, here = p.Now(who); !here {
			f.denied = errGone.Error()
			return f
		}
	}
	if policy == nil || p.Vault != nil && !p.Vault.Known() {
		f.denied = "it is not known yet what calls are decided by"
		return f
	}
	run := Run{ID: plan.Run, Floor: plan.Floor}
	session := gate.Session{Profile: f.who.Profile}
	l, err := p.Sessions.Label(f.who.Client, f.who.Handle)
	if err != nil {
		f.denied = err.Error()
		return f
	}
	session.Label = run.floored(l) // and its Sources are not known (Run.sources)
	f.Before, f.policy = session.Label, policy.Digest
	steps := make([]fold.Step, len(plan.Steps))
	for i := range plan.Steps {
		if ctx.Err() != nil { // the fold then reaches none
			break
		}
		steps[i] = p.step(policy, f.who, &plan.Steps[i])
	}
	f.Judged = fold.Steps(ctx, policy, session, steps)
	if f.denied = p.deny(f); ctx.Err() != nil {
		f.denied = "it was given up: " + context.Cause(ctx).Error()
	}
	if text, err := f.text(); f.Asks() && (err != nil || len(text) > maxShown) {
		const long = "a person would be asked with %d bytes, of at most %d: use shorter values, or fewer steps"
		f.denied = fmt.Sprintf(long, len(text), maxShown)
	}
	return f
}

// maxShown bounds what a person is asked about a plan, in bytes: more can nobody read, and it waits for days.
const maxShown = 64 << 10

// step is a step as the fold wants it.
func (p Plans) step(policy *gate.Policy, who Identity, s *Planned) fold.Step {
	it := s.Item
	_, here := p.now(who, &it)
	if who.Person {
		it.Typed = nil
	}
	item := p.facts.now(policy, &it)
	stained := p.Sessions.Stained(it.Server)
	facts := tightened(item.facts, who.Rights, it.Server)
	step := fold.Step{
		Call: gate.Call{
			Client: who.Client, Server: it.Server, Name: it.Name, Method: toolsCall, Facts: facts.Stained(stained),
			Pinned: here && it.Pin != "", Schema: it.Fits, Audit: p.Trail.Failed() == nil,
		},
		Whole: s.Whole(), Holds: item.holds, Next: s.Next, Foreign: label.Foreign(p.Sessions, it.Server),
	}
	a := &step.Call.Arguments
	for _, object := range s.objects() {
		a.Address = cmp.Or(a.Address, item.astray(&sent{text: object}))
	}
	a.FreeText = it.FreeText == nil || it.FreeText(s.Known)
	builtin := inspect.Builtin{Vault: p.Vault, Parsed: true}
	report := builtin.Inspect(inspector.Outbound, s.text())
	a.Vault, a.Pattern = report.Vault(), report.Pattern()
	if item.opens != item.facts && item.mayOpen(s) {
		opens := tightened(item.opens, who.Rights, it.Server).Stained(stained)
		step.Opens = &opens
	}
	return step
}

const toolsCall = "tools/call"

// mayOpen reports whether a call of a step may have the server open a URL.
func (r resolved) mayOpen(s *Planned) bool {
	known, err := canonicalMembers(s.Known)
	return err != nil || slices.ContainsFunc(r.addresses, func(name string) bool {
		_, given := known[name]
		return given || slices.Contains(s.From, name) || s.Or[name] != nil
	})
}

// deny says why a plan may not begin, in the words of the first step that ends in a denial; "": it may.
func (p Plans) deny(f Folded) string {
	switch {
	case len(f.Judged) == 0:
		return "it has no steps"
	case !f.Judged[0].Reached():
		return "what the session has seen is not known"
	}
	if p.guesses.spent(f.who.Client) {
		return errGuesses.Error()
	}
	for i, j := range f.Judged {
		switch vain := f.Steps[i].Item.Vain; {
		case !j.Reached():
		case j.Decision.Verdict == gate.Deny && j.Decision.Rule == gate.VaultRule:
			return "it was denied; the person who runs pfar sees why" // nor which step: the client may be guessing
		case j.Decision.Verdict == gate.Deny:
			return "the step " + f.Steps[i].ID + " would be denied: " + lower(j.Decision.Reason)
		case j.Decision.Verdict == gate.Ask && vain != nil:
			return "the step " + f.Steps[i].ID + " would be asked about in vain: " + vain.Error()
		}
	}
	return ""
}

// Guessed reports whether a step was denied for a secret of the vault in it. The client hears of no step then.
func (f *Folded) Guessed() bool { return slices.ContainsFunc(f.Judged, guess) }

func guess(j fold.Judged) bool { return j.Reached() && j.Decision.Rule == gate.VaultRule }

// Denied says why the plan may not begin; "": it may.
func (f *Folded) Denied() string { return f.denied }

// Asks reports whether a person has to approve the plan.
func (f *Folded) Asks() bool {
	return f.denied == "" && slices.ContainsFunc(f.Judged, func(j fold.Judged) bool {
		return j.Reached() && j.Decision.Verdict == gate.Ask
	})
}

// Decide decides about a plan before its run makes its first call, and records that. It asks a person once if a step
// needs one. Pending: the run comes back, and gives the Call of the Yes as that of the Plan. Approved: the run may
// begin, and the Yes is what was approved. With an error it may not.
func (p Plans) Decide(ctx context.Context, who Identity, plan Plan) (consent.Yes, approval.Outcome, error) {
	f := p.Fold(ctx, who, plan)
	if no := p.Refuse(&f); no != nil {
		return consent.Yes{}, approval.Outcome{Reason: f.denied}, no
	}
	call := cmp.Or(plan.Call, audit.NewID())
	if plan.Call == "" {
		if err := p.record(&f, call); err != nil {
			return consent.Yes{}, approval.Outcome{}, refused(call, "the record of the plan could not be written")
		}
	}
	y := consent.Yes{Plan: plan.Digest, Call: call}
	if !f.Asks() {
		return y, approval.Outcome{State: approval.Approved}, nil
	}
	request, err := p.request(&f, call)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return consent.Yes{}, approval.Outcome{}, refused(call, err.Error())
	}
	outcome, err := approval.Runs{Store: p.Approvals}.Ask(request, func() (approval.Request, error) {
		now := p.Fold(ctx, who, plan)
		if now.denied != "" {
			return approval.Request{}, errors.New(now.denied)
		}
		return p.request(&now, call)
	})
	if err := p.answered(call, outcome); err != nil && outcome.State == approval.Approved {
		return consent.Yes{}, approval.Outcome{}, refused(call, "the record of its approval could not be written")
	}
	if err != nil || outcome.State == approval.Denied {
		return consent.Yes{}, outcome, &Refused{Call: call, Outcome: outcome}
	}
	if outcome.State == approval.Approved {
		y.Approval, y.Steps = outcome.ID, f.shown()
		if outcome.By != nil {
			y.By = *outcome.By
		}
	}
	return y, outcome, nil
}

// Refuse records that a plan may not begin, and returns why; nil: it may. A secret of the vault in it counts as a
// guess.
func (p Plans) Refuse(f *Folded) *Refused {
	if f.denied == "" {
		return nil
	}
	call := cmp.Or(f.Call, audit.NewID())
	if err := p.record(f, call); err != nil {
		return refused(call, "the record of the plan could not be written")
	}
	if i := slices.IndexFunc(f.Judged, guess); i >= 0 { // one guess, however many steps it is in
		p.guessed(f.who, &weighed{decision: f.Judged[i].Decision}, call)
	}
	return refused(call, f.denied)
}

// answered records what a person has said to a plan, on the disk if it is a yes.
func (p Plans) answered(call string, o approval.Outcome) error {
	r := audit.Record{
		Kind: audit.Approval, ID: call, Method: "ask", Subject: o.ID, Outcome: o.State.String(), Reason: o.Reason,
	}
	if o.By != nil {
		r.Approver, r.Channel = o.By.Name, o.By.Channel
	}
	err := p.Trail.Append(&r)
	if err == nil && o.State == approval.Approved {
		err = p.Trail.Sync()
	}
	return err
}

// record writes down what was decided about a plan. Nothing of it is sent: its calls have records of their own.
func (p Plans) record(f *Folded, call string) error {
	shown, _ := f.text()
	d, _ := f.worst()
	r := audit.Record{
		ID: call, Client: f.who.Client, Session: f.who.Handle, Server: access.Own, Tool: p.said(f.name()), Method: runMethod,
		Arguments: p.kept(f.who.Profile, shown), Decision: &d, Facts: &d.Facts, Pin: f.Digest, Policy: d.Policy,
		Subject: f.Run, Outcome: "planned", Reason: f.denied,
	}
	if f.Before.Known() {
		r.Before = p.labelled(f.who, f.Before)
	}
	if f.denied != "" {
		r.Outcome = "denied"
	}
	return p.Trail.Open(&r)
}

// name is what a plan is called where a tool's name stands.
func (f *Folded) name() string { return "flow:" + cmp.Or(f.Flow, "line") }

// request is the question about a whole plan.
func (p Plans) request(f *Folded, call string) (approval.Request, error) {
	shown, err := f.text()
	d, n := f.worst()
	d.Verdict, d.Rule, d.Once = gate.Ask, "gate: plan", false
	d.Reason = fmt.Sprintf("The flow has %s. A person decides about %s. A yes allows one call of each, as it is shown.",
		plural.Count(len(f.Steps), "step"), plural.Count(n, "step"))
	return approval.Request{
		Client: f.who.Client, Proof: f.who.Proof, Session: f.who.Handle,
		Server: access.Own, Name: f.name(), Method: runMethod, Arguments: shown,
		Facts: d.Facts, Decision: d, Pin: f.Digest, Policy: f.policy,
		Beside: operator.Beside{
			Sources: p.Sessions.Sources(f.who.Client, f.who.Handle), Call: call,
		},
		Unshown: operator.Unshown{Life: RunLife, Run: f.Run},
	}, err
}

// worst is the strictest decision about a step, with the worst of the facts and labels of all that a person is asked
// about, and how many these are.
func (f *Folded) worst() (d gate.Decision, asked int) {
	first := true
	for _, j := range f.Judged {
		if j.Reached() && (first || j.Decision.Verdict < d.Verdict) {
			d, first = j.Decision, false
		}
	}
	for _, j := range f.Judged {
		if !j.Reached() || j.Decision.Verdict > gate.Ask {
			continue
		}
		asked++
		d.Facts, d.Data = d.Facts.Strictest(j.Decision.Facts), d.Data.Join(j.Before)
	}
	d.Facts.Forbidden, d.Profile = "", f.who.Profile
	d.Policy = cmp.Or(d.Policy, f.policy)
	return d, asked
}

// told is a step as a person is shown it.
type told struct {
	Step      string          `json:"step"`
	Calls     string          `json:"calls"`
	Arguments json.RawMessage `json:"arguments"`
	From      []string        `json:"arguments from earlier steps,omitempty"`

	Or map[string][]json.RawMessage `json:"arguments that are else one of,omitempty"`

	Verdict  string `json:"verdict"`
	Why      string `json:"why"`
	Seen     string `json:"session has seen at worst"`
	Audience string `json:"who sees its arguments"`
	Effect   string `json:"effect"`
	Gives    string `json:"gives"`
	Pin      string `json:"definition"`
	Declared string `json:"declaration"`
}

// text is the whole plan as a person is shown it: an object of JSON. An approval is bound to every byte of it.
func (f *Folded) text() ([]byte, error) {
	all := struct {
		Flow    string `json:"flow"`
		Run     string `json:"run"`
		Digest  string `json:"plan"`
		Session string `json:"session has seen"`
		Client  string `json:"rights of the client"`
		Steps   []told `json:"steps"`
	}{cmp.Or(f.Flow, "line"), f.Run, f.Digest, f.Before.String(), clientNow(f.who)[:32], nil}
	for i, s := range f.Steps {
		j := f.Judged[i]
		if !j.Reached() {
			continue
		}
		facts := j.Decision.Facts
		all.Steps = append(all.Steps, told{
			Step: s.ID, Calls: s.Item.Server + "." + s.Item.Name, Arguments: given(s.Known), From: s.From, Or: s.Or,
			Verdict: gate.Outcome{Verdict: j.Decision.Verdict, Once: j.Decision.Once}.String(), Why: j.Decision.Reason,
			Seen: j.Before.String(), Audience: facts.Audience.String() + " (" + facts.From.Audience + ")",
			Effect: facts.Effect.String() + " (" + facts.From.Effect + ")", Gives: facts.Output.String(),
			Pin: cmp.Or(s.Item.Pin, notPinned), Declared: s.Item.declaredNow()[:32],
		})
	}
	return json.Marshal(all)
}

// given are the arguments that a plan gives a step, never nil.
func given(object []byte) json.RawMessage {
	if len(strings.TrimSpace(string(object))) == 0 {
		return json.RawMessage("{}")
	}
	return object
}

// shown are the steps that a yes to the plan covers.
func (f *Folded) shown() map[string]fold.Shown {
	all := make(map[string]fold.Shown)
	for i, s := range f.Steps {
		j := f.Judged[i]
		if !j.Reached() || j.Decision.Verdict != gate.Ask || j.Decision.Once {
			continue
		}
		arguments, err := canonicalMembers(s.Known)
		or, wrong := canonicalValues(s.Or)
		if err != nil || wrong != nil {
			continue
		}
		all[s.ID] = fold.Shown{
			Verdict: j.Decision.Verdict, Once: j.Decision.Once, Before: j.Before, Facts: j.Decision.Facts,
			Server: s.Item.Server, Name: s.Item.Name, Pin: cmp.Or(s.Item.Pin, notPinned), Declared: s.Item.declaredNow(),
			Policy: f.policy, Client: clientNow(f.who), Arguments: arguments, From: s.From, Or: or,
		}
	}
	return all
}

// Secret denies what a client sends of a flow, if it holds a secret of the vault: a guess like a call with one, which
// is counted, and of which only the record says more. text is what was sent, as JSON. nil: there is none.
func (p Plans) Secret(ctx context.Context, who Identity, flow string, text []byte) error {
	p.await(ctx)
	call := audit.NewID()
	switch {
	case p.Vault != nil && !p.Vault.Known():
		return refused(call, "it is not known yet which secrets there are")
	case p.guesses.spent(who.Client):
		return refused(call, errGuesses.Error())
	}
	builtin := inspect.Builtin{Vault: p.Vault}
	report := builtin.Inspect(inspector.Outbound, text)
	name := report.Vault()
	if name == "" {
		return nil
	}
	return p.caught(who, flow, "", "The flow holds the value of the secret "+name+".", text)
}

// Held denies what came of a run, if it must not be written to the disk: it holds a secret of the vault, and counts as
// a guess. why says what holds it, for the record. The error says nothing of it.
func (p Plans) Held(who Identity, flow, run, why string) error {
	if p.Vault == nil || !p.Vault.Known() {
		return refused(audit.NewID(), "it is not known yet which secrets there are")
	}
	return p.caught(who, flow, run, why, []byte("{}"))
}

// caught records a guess and counts it.
func (p Plans) caught(who Identity, flow, run, why string, text []byte) error {
	call := audit.NewID()
	w := weighed{decision: gate.Decision{Rule: gate.VaultRule, Reason: why, Profile: who.Profile}}
	err := p.Trail.Open(&audit.Record{
		ID: call, Client: who.Client, Session: who.Handle, Server: access.Own, Tool: p.said("flow:" + cmp.Or(flow, "line")),
		Method: runMethod, Arguments: p.kept(who.Profile, text), Decision: &w.decision, Subject: run, Outcome: "denied",
		Reason: w.decision.Reason,
	})
	if err != nil {
		p.Log.Warn("recording a flow that held a secret, ignoring", "call", call, "error", err.Error())
	}
	p.guessed(who, &w, call)
	return refused(call, p.tells(who, &w, call))
}

// Note records what somebody does with a run of a client's session: "resume" or "cancel". With an error it must not be
// done.
func (p Plans) Note(who Identity, client, session, verb, run, detail string) error {
	return p.Trail.Append(&audit.Record{
		Kind: audit.Session, ID: audit.NewID(), Client: client, Session: session, Method: "flows/" + verb, Subject: run,
		New: detail, User: who.Client + ", " + who.Proof,
	})
}
