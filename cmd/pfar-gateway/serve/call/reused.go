package call

import (
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/reuse"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/gate"
)

// Reuse are the results of pure tools that a step may use again, and what has become of that.
type Reuse struct {
	Results *reuse.Store // nil: none are used again, or kept
	Used    *gate.Label  // of the result that was used in place of a call; nil: the call was made

	key  reuse.Key
	kept bool // a result of this call may be kept under the key
}

// reusedOutcome is how a call ends in the audit that used a result which was kept.
const reusedOutcome = "reused"

// Keep keeps what the call has brought, if the tool is pure, for later calls with the same arguments. The label is that
// of the value alone.
func (r *Reuse) Keep(value []byte, l gate.Label) {
	if r.Results != nil && r.kept && r.Used == nil {
		r.Results.Keep(r.key, reuse.Result{Value: value, Label: l})
	}
}

// reused is the result of an earlier call of a pure tool for the same client with the same arguments, if there is one.
// The request has passed the gate and has its record like one that is sent, and its session has the label of the result
// by then. nil: the request is to be sent.
func reused(c *Call, t Target) (*reply.Reply, error) {
	if c.Step == nil || c.Step.Reuse.Results == nil || t.Kind != gate.Tool || !t.Item.Pure || !enforce.OnlyReads(c.Pass) {
		return nil, nil
	}
	is := &c.Step.Reuse
	is.key, is.kept = reuseKey(c, t), true
	found, ok := is.Results.Find(is.key)
	if !ok {
		return nil, nil
	}
	if err := enforce.SeenKept(c.Pass, found.Label, found.Value); err != nil {
		return nil, err
	}
	is.Used = &found.Label
	return &reply.Reply{Result: found.Value}, nil
}

// reuseKey is all that a result of the call depends on.
func reuseKey(c *Call, t Target) reuse.Key {
	k := reuse.Key{
		Client: c.Bound.Client, Profile: enforce.ProfileOf(c.Pass), Server: t.server(), Tool: t.Item.Name,
		Pin: t.Item.Pin, Declared: c.Pass.Declared(), Secrets: t.Upstream.Secrets(), Arguments: c.Parameters.Get("arguments"),
	}
	if p := c.Gate.Policy(); p != nil {
		k.Policy = p.Digest
	}
	if t.Upstream.Server().Sessions.Own {
		k.Session = c.Bound.Handle
	}
	return k
}
