package enforce

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/consent"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
	"github.com/pfar/pfar/units/operator"
)

// RunLife is how long a request of a run waits for a person, at most.
const RunLife = 7 * 24 * time.Hour

// runMethod is the method of what is recorded of a run itself.
const runMethod = operator.WholeFlow

// Run is the run of a flow whose step a request is. All of its methods take nil for a request that is of no run.
type Run struct {
	ID   string
	Step string
	// Floor is the label of all that the run holds. The request is decided about as if its session had that, which a reset
	// of the session does not change. What is not known denies.
	Floor gate.Label
	// Epoch is that of the session when the run began (label.Epoch). While it has that, the servers of all that the run
	// holds are among those of the session. Zero: they are not known.
	Epoch    int64
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

// givenUp reports whether the run was cancelled while the gate decided: no yes is used up for what is not sent.
func (r *Run) givenUp(ctx context.Context) bool { return r != nil && ctx.Err() != nil }

// SeenStep is Passage.Seen of what one of pfar's own nodes gives: it may hold text of all that the run holds, whose
// label is floor, and has a label of its own. Inspectors look at it by both, since a node may make other text of what
// they have seen. What is not known is an error.
func SeenStep(g *Passage, floor, own gate.Label, got []byte) error {
	if !floor.Known() || !own.Known() {
		return errors.New("the label of what the node gives is not known")
	}
	l := floor.Join(own)
	g.mu.Lock()
	g.facts.Output = g.facts.Output.Join(l)
	g.mu.Unlock()
	return seen(g, "a step of a flow has given it", l, got)
}

// SeenKept is Passage.Seen of a result that was kept of an earlier call, and has the label that it had then.
func SeenKept(g *Passage, l gate.Label, got []byte) error {
	if !l.Known() {
		return errors.New("the label of the result that was kept is not known")
	}
	return seen(g, "a result that was kept is used again", l, got)
}

// Hand is to be called before a client gets what is told of a run, with that: its session has seen by then what the run
// holds, of a label, also if the session was reset meanwhile. With an error the client must not get it. From which
// servers that is, nobody knows, so the owner's declassifications do not apply to it.
func (p Plans) Hand(who Identity, run string, l gate.Label, told ...[]byte) error {
	return p.HandOf(who, &Run{ID: run, Floor: l}, told...)
}

// HandOf is Hand of a run whose epoch is known, too.
func (p Plans) HandOf(who Identity, r *Run, told ...[]byte) error {
	before, err := p.Sessions.Label(who.Client, who.Handle)
	if err != nil {
		return err
	}
	p.Reads.Meet(who.Client, who.Handle, before)
	if err := raise(p.Point, r, who); err != nil {
		return err
	}
	for _, text := range told {
		p.Reads.Note(who.Client, who.Handle, r.Floor, text)
	}
	return nil
}

// Holding has a session have seen what a request to a server will hold, of a label, before the request. The record has
// it, if that is more than before. A label that is not known is an error.
func Holding(p *Point, who Identity, holds gate.Label, server, method string) error {
	if !holds.Known() {
		return errors.New("what the request holds is not known")
	}
	before, err := p.Sessions.Label(who.Client, who.Handle)
	if err != nil {
		return err
	}
	by := label.Source{Server: server, Call: audit.NewID()}
	if after := before.Join(holds); after != before {
		err := p.Trail.Append(&audit.Record{
			Kind: audit.Session, ID: by.Call, Client: who.Client, Session: who.Handle, Server: server, Method: method,
			Before: p.labelled(who, before), After: &audit.Label{Label: after, Sources: []string{by.String()}},
		})
		if err != nil {
			return err
		}
	}
	_, _, err = p.Sessions.Raise(who.Client, who.Handle, holds, by)
	return err
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

// sources are the servers whose data a request may carry, in a session with these; nil: they are not known. Those of a
// run never are: it may have read data before a reset, and the session knows nothing of that.
func (r *Run) sources(of []gate.Source) []gate.Source {
	if r != nil {
		return nil
	}
	return of
}

// grants reports whether a grant may cover a request for an audience. A grant answers for arguments that repeat nothing
// of what the session has read. That does not tell of what a run holds and its session has not read since a reset.
func (r *Run) grants(audience gate.Confidentiality) bool {
	return r == nil || r.Floor.Known() && r.Floor.Confidentiality <= audience
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

// canonicalValues are values, each in canonical form.
func canonicalValues(of map[string][]json.RawMessage) (map[string][]json.RawMessage, error) {
	all := make(map[string][]json.RawMessage, len(of))
	for name, values := range of {
		for _, v := range values {
			value, err := jsonrpc.Canonical(nil, v)
			if err != nil {
				return nil, err
			}
			all[name] = append(all[name], value)
		}
	}
	return all, nil
}
