package enforce

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/consent"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/gate/fold"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/units/jsonrpc"
)

// RunLife is how long a request of a run waits for a person, at most.
const RunLife = 7 * 24 * time.Hour

// runMethod is the method of what is recorded of a run itself.
const runMethod = "flows/run"

// Run is the run of a flow whose step a request is. All of its methods take nil for a request that is of no run.
type Run struct {
	ID   string
	Step string
	// Floor is the label of all that the run holds. The request is decided about as if its session had that, which a reset
	// of the session does not change. What is not known denies.
	Floor    gate.Label
	Yes      consent.Yes   // to the plan
	Consents consent.Store // where its uses are counted
}

// approved reports whether a person has approved the plan for this step.
func (r *Run) approved() bool {
	if r == nil {
		return false
	}
	_, ok := r.Yes.Steps[r.Step]
	return ok
}

// life is how long the request may wait for a person; 0: as long as others.
func (r *Run) life() time.Duration {
	if r == nil {
		return 0
	}
	return RunLife
}

// floored is the label that a request is decided by in a session of a label.
func (r *Run) floored(l gate.Label) gate.Label {
	if r == nil || !l.Known() {
		return l
	}
	if !r.Floor.Known() {
		return gate.Label{}
	}
	return l.Join(r.Floor)
}

// raise has the session have seen all that the run holds. The record has it, if that is more than before.
func (r *Run) raise(p *Point, who Identity) error {
	if r == nil {
		return nil
	}
	if !r.Floor.Known() {
		return errors.New("what the run holds is not known")
	}
	before, err := p.Sessions.Label(who.Client, who.Handle)
	if err != nil {
		return err
	}
	if r.Floor.Below(before) {
		return nil
	}
	by := label.Source{Tool: "flow " + r.ID, Call: audit.NewID()}
	err = p.Trail.Append(&audit.Record{
		Kind: audit.Session, ID: by.Call, Client: who.Client, Session: who.Handle, Method: runMethod, Subject: r.ID,
		Before: p.labelled(who, before), After: &audit.Label{Label: before.Join(r.Floor), Sources: []string{by.String()}},
	})
	if err == nil {
		_, _, err = p.Sessions.Raise(who.Client, who.Handle, r.Floor, by)
	}
	return err
}

// covers reports whether the yes to the plan covers a request that the gate asks about. The request is counted by then.
func (r *Run) covers(pass *Passage, w *weighed, q *Request, found []audit.Finding) bool {
	if !r.approved() || q.Answer {
		return false
	}
	shown := r.Yes.Steps[r.Step]
	made := fold.Made{
		Decision: w.decision, Label: w.session.Label, Server: pass.item.Server, Name: pass.item.Name,
		Pin: cmp.Or(pass.item.Pin, notPinned), Declared: declaredNow(&pass.item), Client: clientNow(pass.who),
		Clean: w.report.Outcome == inspect.Clean && len(found) == 0,
	}
	var err error
	if made.Arguments, err = canonicalMembers(q.Arguments); err != nil {
		return false
	}
	why := shown.Other(&made)
	if why == "" {
		err = r.Consents.Use(r.ID, r.Step, pass.id)
	}
	if why != "" || err != nil {
		pass.point.Log.Info("the approval of a plan does not cover a call", "run", r.ID, "step", r.Step, "call", pass.id,
			"reason", cmp.Or(why, fmt.Sprint(err)))
		return false
	}
	pass.yes.plan = &r.Yes
	return true
}

// ask has a person decide about a request. Nobody waits with one of a run.
func (r *Run) ask(ctx context.Context, p *Point, q *Request, request approval.Request,
	again func() (approval.Request, error)) (approval.Outcome, error) {
	if r == nil {
		return p.Approvals.Ask(ctx, request, again, q.Held)
	}
	if err := ctx.Err(); err != nil { // what nobody wants any more is not used up
		return approval.Outcome{Reason: "the run was given up"}, err
	}
	return approval.Runs{Store: p.Approvals}.Ask(request, again)
}

// declaredNow is the digest of what the owner says of an item's server: of both, if it was edited meanwhile.
func declaredNow(it *Item) string {
	h := sha256.New()
	h.Write(it.Declared)
	if edited, ok := it.edited(); ok {
		h.Write([]byte("\n"))
		h.Write(edited.Declared)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// clientNow is the digest of what a client is judged by: its profile and its rights.
func clientNow(who Identity) string {
	shape := ""
	if who.Rights != nil {
		shape = who.Rights.Shape()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", who.Client, who.Profile, shape))
	return hex.EncodeToString(sum[:])
}

// canonicalMembers are the members of an object, each in canonical form.
func canonicalMembers(object []byte) (map[string]json.RawMessage, error) {
	ms, err := jsonrpc.Object(jsonrpc.OrEmpty(object), nil)
	if err != nil {
		return nil, err
	}
	all := make(map[string]json.RawMessage, len(ms))
	for i := range ms {
		value, err := jsonrpc.Canonical(nil, ms[i].Raw())
		if err != nil {
			return nil, err
		}
		all[string(ms[i].Name)] = value
	}
	return all, nil
}
