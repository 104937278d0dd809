package local

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// Adjust has a running instance go by another plan without a stop, and returns once it does. With an error it may not:
// then it has to be stopped. What starts meanwhile starts by the new plan.
func (r *Runner) Adjust(p plan.Plan) error {
	name := units.Instance(p.Name, p.Gateway.Session)
	r.mu.Lock()
	s := r.servers[name]
	r.mu.Unlock()
	err := errors.New("the server does not run")
	if s != nil {
		err = s.adjust(p)
	}
	if err != nil {
		return fmt.Errorf("adjusting %q: %w", name, err)
	}
	return nil
}

func (s *server) adjust(p plan.Plan) error {
	change, err := s.replan(p)
	if err != nil {
		return err
	}
	if change.Gateway && p.Gateway.Session == "" { // it has its sessions' processes go by that as well
		if err := handover.Tell(s.r.cfg.Gateway.Servers.Addr().String(), p.Gateway, s.r.cfg.Secrets.Proof(p)); err != nil {
			return err
		}
	}
	s.mu.Lock()
	bridge := s.bridge
	s.mu.Unlock()
	if change.Bridge && bridge != nil {
		bridge.again()
	}
	return nil
}

// order is what processes of a server are started by.
type order struct {
	declared plan.Plan
	plan     plan.Plan // with the places of mounts on this machine
	raw      []byte    // of plan
}

// replan has what is started from now on start by another plan.
func (s *server) replan(p plan.Plan) (plan.Adjustment, error) {
	o := *s.order.Load()
	change, live := plan.Adjusted(o.declared, p)
	kept, ok := p.Keeping(o.plan)
	if !live || !ok || change.Limits {
		return change, errors.New("the server needs another process")
	}
	o.declared, o.plan.Gateway, o.plan.Egress, o.plan.Proofs = p, kept.Gateway, kept.Egress, kept.Proofs
	return change, s.startBy(o.declared, o.plan)
}

// startBy has processes be started by a plan from now on.
func (s *server) startBy(declared, placed plan.Plan) error {
	raw, err := json.Marshal(placed)
	if err != nil {
		return err
	}
	s.order.Store(&order{declared, placed, raw})
	return nil
}
