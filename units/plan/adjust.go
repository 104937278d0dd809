package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/pfar/pfar/policies/egress"
)

// Digest changes when anything of a plan does.
func Digest(p Plan) string { return digestOf(p) }

func digestOf(plan any) string {
	b, err := json.Marshal(plan)
	if err != nil {
		// A plan is plain data. One that cannot be written is equal to none, not even to itself.
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// unlimited is p but for the limits that systemd changes while a server runs.
func (p Plan) unlimited() Plan {
	p.Sandbox.Limits.Memory, p.Sandbox.Limits.CPU = 0, 0
	p.Sandbox.Mounts = slices.Clone(p.Sandbox.Mounts)
	for i := range p.Sandbox.Mounts {
		p.Sandbox.Mounts[i].Size = 0
	}
	return p
}

// Adjustment is what two plans differ in that a server's process need not be started again for.
type Adjustment struct {
	Limits  bool // memory and CPU, which systemd changes while a server runs
	Gateway bool // what the gateway is told
	Bridge  bool // what the egress bridge is told
}

// Adjusted says in what two plans differ, and reports false if that takes another process of the server's.
//
// The sizes of scratch space follow from the memory, and stay what they are until the next start. How many tasks there
// may be is another matter: the launcher tells the kernel as well, once.
func Adjusted(a, b Plan) (Adjustment, bool) {
	if Digest(a.process()) != Digest(b.process()) {
		return Adjustment{}, false
	}
	return Adjustment{
		Limits:  a.Sandbox.Limits != b.Sandbox.Limits,
		Gateway: digestOf(a.Gateway) != digestOf(b.Gateway),
		Bridge:  digestOf(a.bridge()) != digestOf(b.bridge()),
	}, true
}

// process is the part of a plan that a process is started with. Words for people are none of it: a version of pfar that
// says the same in other words goes on with what runs.
func (p Plan) process() Plan {
	p = p.unlimited()
	for i := range p.Sandbox.Mounts {
		p.Sandbox.Mounts[i].Why = ""
	}
	d, _ := p.Declared()
	d.Words, d.Service, d.Reach, d.Owned = nil, "", egress.Policy{}, false
	d.Packages, d.Rests, d.Doubt = nil, nil, nil // another server's declaration can put them in doubt
	d.Kept, d.Keeps = false, false               // Undo says what the launcher does
	p.Gateway = p.Gateway.Process()
	p.Gateway.Declared, _ = json.Marshal(d) // as it was read
	// The rules of its namespace are loaded once, by the addresses among the endpoints.
	p.Egress = egress.Policy{Endpoints: p.Egress.Literals(), Learn: p.Egress.Learn}
	p.Proofs = Proofs{}
	return p
}

// bridge is the part of a plan that may change while the server runs, and that its egress bridge begins with.
func (p Plan) bridge() any {
	p.Egress.Names = nil
	return []any{p.Egress, p.Proofs}
}

// Keeping returns p with the synthetic addresses that names have in a plan by which the server runs: it may have
// looked them up. It reports false if there is no room for them: another process knows none.
func (p Plan) Keeping(running Plan) (Plan, bool) {
	p.Egress.Names = p.Egress.NamesAfter(running.Egress)
	return p, len(p.Egress.Names) <= egress.MaxNames
}
