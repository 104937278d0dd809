package systemd

import (
	"context"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

// Found is an instance that was known when the Runner began.
type Found struct {
	Plan    plan.Plan
	Idle    bool         // it does not run: the plan is one that was offered, or has been stopped
	Update  units.Update // of one that runs
	Applied string       // digest of the plan that an earlier pfard had started, and did not begin to stop
	Outside bool         // it runs, and no pfard has had it started
	Half    bool         // it runs, and a pfard was killed as it had it go by Plan (Adjust): nobody knows by what it goes
}

// Adopt takes over what systemd runs and what an earlier pfard has offered.
func (r *Runner) Adopt(ctx context.Context) (found []Found, err error) {
	var known map[string]UnitState
	err = r.asks.persist(ctx, "looking for what runs", func(ctx context.Context, bus *Bus) (err error) {
		if known, err = bus.Launchers(ctx); err != nil {
			return err
		}
		for name := range known {
			if known[name], err = bus.State(ctx, LauncherUnit(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	names, err := r.plans.instances()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		s, ok := known[name]
		delete(known, name)
		p, digest, err := r.plans.read(name)
		idle := !ok || s.Active == "inactive"
		switch {
		case err != nil:
			r.cfg.Log.Warn("a plan cannot be read; what runs by it is stopped", "server", name, "error", err)
			known[name] = s // "" is not inactive
			r.forget(name)
			continue
		case idle && p.Gateway.Session != "":
			r.forget(name)
			continue
		}
		by, now := r.plans.applied(name)
		f := Found{Plan: p, Idle: idle, Applied: now, Outside: !idle && by == "", Half: !idle && now != "" && now != digest}
		if !idle {
			i := newInstance(p, digest)
			follow(&i.update, s)
			r.instances[name] = i
			f.Update = i.update
			if f.Outside {
				r.plans.note(name, digest, digest)
			}
		}
		found = append(found, f)
	}
	for name, s := range known { // systemctl shows it, and nobody knows what it is
		if s.Active == "inactive" {
			continue
		}
		r.instances[name] = &instance{update: units.Update{Server: name}}
		go r.Stop(name)
	}
	return found, nil
}
