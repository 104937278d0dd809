package systemd

import (
	"context"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/units"
)

// Found is an instance that was there when the Runner began.
type Found struct {
	Plan   generator.Plan
	Update units.Update
}

// Adopt takes over what systemd runs, which an earlier pfard has started, and returns it with the digests of the plans
// that were applied, by server: one that is not among what was found has been stopped since.
func (r *Runner) Adopt(ctx context.Context) (found []Found, applied map[string]string, err error) {
	var known map[string]UnitState
	err = r.persist(ctx, "looking for what runs", func(ctx context.Context, bus *Bus) (err error) {
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
		return nil, nil, err
	}
	names, err := r.plans.instances()
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	applied = map[string]string{}
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
		if _, now := r.plans.applied(name); now != "" {
			applied[name] = now
		}
		if idle {
			continue
		}
		i := newInstance(p, digest)
		follow(&i.update, s)
		r.instances[name] = i
		found = append(found, Found{p, i.update})
	}
	for name, s := range known { // systemctl shows it, and nobody knows what it is
		if s.Active == "inactive" {
			continue
		}
		r.instances[name] = &instance{update: units.Update{Server: name}}
		go r.Stop(name)
	}
	return found, applied, nil
}
