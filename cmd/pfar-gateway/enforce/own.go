package enforce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// ownClient is who makes pfar's own calls, in the audit. No client can be declared by that name.
const ownClient = "(pfar)"

// Own is a call of pfar's own, which only reads. It is of no client's session, and raises no label: what comes back is
// shown to no client.
type Own struct {
	point  *Point
	record audit.Record
}

// OwnCalls are pfar's own, of a point that they pass.
type OwnCalls struct{ *Point }

// Await waits for what a first call needs: the policy, the file of the audit, and which secrets there are.
func (p OwnCalls) Await(ctx context.Context) { p.await(ctx) }

// OnlyReads returns an error unless it is certain that a tool only reads: by the owner, by the operator's policies or
// by
// what is shipped on its service. What its server claims of it does not count. It returns who says so (gate.From).
func (p OwnCalls) OnlyReads(it Item) (from string, err error) {
	it.Hints, it.Typed = nil, nil
	switch f := p.Facts(it); {
	case p.policy.Load() == nil:
		return "", errors.New("pfar does not know yet by what policy to decide")
	case f.Forbidden != "":
		return "", errors.New(f.Forbidden)
	case f.Effect != gate.None:
		return "", fmt.Errorf("pfar is not certain that the tool only reads (%s)", f.From.Effect)
	default:
		return f.From.Effect, nil
	}
}

// Enter decides about a call of pfar's own, and opens its record. With an error it must not be made.
func (p OwnCalls) Enter(ctx context.Context, it Item, r Request) (*Own, error) {
	p.await(ctx)
	if _, err := p.OnlyReads(it); err != nil {
		return nil, err
	}
	if p.Vault != nil && !p.Vault.Known() {
		return nil, errors.New("pfar does not know yet which secrets there are")
	}
	it.Hints, it.Typed = nil, nil
	facts := p.Facts(it)
	o := &Own{p.Point, audit.Record{
		Time: time.Now(), ID: audit.NewID(), Client: ownClient, Server: it.Server, Tool: it.Name, Method: r.Method,
		Arguments: p.kept("", r.Arguments), Facts: &facts, Pin: it.Pin, Policy: p.policy.Load().Digest,
	}}
	opened := o.record
	if err := p.Trail.Open(&opened); err != nil {
		return nil, fmt.Errorf("the record of the call could not be opened: %w", err)
	}
	return o, nil
}

// End closes the record.
func (o *Own) End(outcome string, bytes int64) {
	r := audit.Record{
		ID: o.record.ID, Client: o.record.Client, Server: o.record.Server, Tool: o.record.Tool, Method: o.record.Method,
		Bytes: bytes, Latency: time.Since(o.record.Time), Outcome: outcome,
	}
	if err := o.point.Trail.Close(&r); err != nil {
		o.point.Log.Error("closing the record of a call of pfar's own, ignoring", "call", r.ID, "error", err.Error())
	}
}
