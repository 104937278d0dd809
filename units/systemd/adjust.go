package systemd

import (
	"context"
	"errors"
	"fmt"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

// Adjust has a running instance go by another plan without a stop, and returns once it does. With an error it may not:
// then it has to be stopped. The plan is written first, so that what starts meanwhile starts by the new one, and
// marked last, so that a pfard that finds half of it done has the instance started again.
func (r *Runner) Adjust(p plan.Plan) error {
	name := units.Instance(p.Name, p.Gateway.Session)
	i, change, done, err := r.rewrite(name, p)
	if err != nil {
		return fmt.Errorf("adjusting %q: %w", name, err)
	}
	if change.Gateway && p.Gateway.Session == "" { // it has its sessions' processes go by that as well
		err = r.cfg.Told(p)
	}
	if err == nil && change.Bridge {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		// The next connection starts another one, by the new plan.
		err = r.asks.persist(ctx, "ending the bridge of "+name, func(ctx context.Context, bus *Bus) error {
			return bus.StopUnit(ctx, BridgeUnit(name))
		})
	}
	if err != nil {
		return fmt.Errorf("adjusting %q: %w", name, err)
	}
	r.mu.Lock()
	done()
	r.mu.Unlock()
	if change.Limits {
		go r.relimit(name, i)
	}
	return nil
}

// rewrite writes another plan of a running instance. done marks it as the one that it runs by; the lock is held in it.
func (r *Runner) rewrite(name string, p plan.Plan) (
	i *instance, change plan.Adjustment, done func(), err error,
) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i = r.instances[name]
	if i == nil || i.stopping != nil {
		return nil, change, nil, errors.New("the server does not run")
	}
	old, _, err := r.plans.read(name)
	if err != nil {
		return nil, change, nil, err
	}
	change, live := plan.Adjusted(old, p)
	if p, ok := p.Keeping(old); live && ok {
		started, _ := r.plans.applied(name)
		digest, err := r.plans.write(name, p)
		return i, change, func() { r.plans.note(name, started, digest) }, err
	}
	return nil, change, nil, errors.New("the server needs another process")
}
