package systemd

import (
	"errors"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

// Attach is asked when a launcher has attached: may this process run, and what? One that somebody else has had started
// is known from now on, and told of as coming from Outside.
func (r *Runner) Attach(name, digest string, pid, uid int) (plan.Plan, error) {
	r.order.Lock()
	defer r.order.Unlock()
	p, update, err := r.attach(name, digest, pid, uid)
	if err == nil {
		r.cfg.Events(update)
	}
	return p, err
}

func (r *Runner) attach(name, digest string, pid, uid int) (plan.Plan, units.Update, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now, err := r.plans.read(name)
	if err != nil {
		return p, units.Update{}, err
	}
	started, _ := r.plans.applied(name)
	i := r.instances[name]
	switch {
	case digest != now && digest != started:
		err = errors.New("the plan has changed since the launcher was started")
	case i != nil && i.stopping != nil:
		err = errors.New("the server is being stopped")
	case i == nil && p.Gateway.Session != "":
		err = errors.New("the session is over")
	}
	if err != nil {
		return p, units.Update{}, err
	}
	outside := i == nil
	if outside {
		i = newInstance(p, now)
		r.instances[name] = i
		r.plans.note(name, digest, now)
	}
	i.starting = false
	u := &i.update
	if u.Ended {
		u.Ended, u.State, u.Detail = false, units.StateStarting, "starting"
	}
	u.PID, u.UID = pid, uid
	told := *u
	told.Outside = outside
	return p, told, nil
}

// Admit returns the plan of an instance for its bridge, which was started with the one of that digest.
func (r *Runner) Admit(name, digest string) (plan.Plan, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now, err := r.plans.read(name)
	if err != nil {
		return p, err
	}
	if started, _ := r.plans.applied(name); digest != now && digest != started {
		return p, errors.New("the plan of its server has changed since it was started")
	}
	return p, nil
}

// Tell takes what an instance's process has told, which f makes of what is known. f must not call the Runner.
func (r *Runner) Tell(name string, f func(*units.Update)) {
	r.mu.Lock()
	i := r.instances[name]
	r.mu.Unlock()
	if i != nil {
		r.change(name, i, f)
	}
}
