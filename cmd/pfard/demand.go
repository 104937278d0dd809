package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// reasonAsleep says what ends a server's sleep, behind its state.
func reasonAsleep(p plan.Plan) string {
	if idle := p.Gateway.IdleTimeout; idle > 0 {
		return fmt.Sprintf("starts with the first call (idle_timeout %s)", declaration.Short(idle))
	}
	return "starts with the first call (autostart = false)"
}

// wake starts a server that sleeps, for a call, and returns when its launcher is under way, or with the reason why it
// will not be. What the operator stopped it leaves alone: whoever calls is a client.
func (d *daemon) wake(ctx context.Context, name string) error {
	changed := make(chan struct{}, 1)
	err := d.do(func() error {
		d.watchers[changed] = true
		return d.beginWaking(name)
	})
	defer d.do(func() error { delete(d.watchers, changed); return nil })
	for err == nil {
		var done bool
		err = d.do(func() (err error) { done, err = d.woken(name); return err })
		if done || err != nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done(): // it is started all the same: another call may come, and it will not run for long without one
			return context.Cause(ctx)
		case <-d.ended:
			return errEnding
		}
	}
	return err
}

func (d *daemon) beginWaking(name string) error {
	s, err := d.startable(name)
	if err != nil {
		return err
	}
	if s.asleep {
		s.run, s.asleep = true, false
		d.converge(s)
		d.tell()
	} else if s.run { // what it waits for may be there by now
		d.retryWaiting(s)
		d.tell()
	}
	return nil
}

// woken reports whether a server that is to run is under way, or why it is not going to be.
func (d *daemon) woken(name string) (bool, error) {
	s, err := d.startable(name)
	switch {
	case err != nil:
		return false, err
	case !s.runs() && s.asleep: // put to sleep again in the meantime: it has been up
		return true, nil
	case !s.runs():
		return false, fmt.Errorf("%w: %q was stopped; pfar start %s", control.ErrStopped, name, name)
	case s.busy:
		return false, nil
	}
	switch s.status.State {
	case control.Waiting, control.Failed, control.BackOff, control.Stopped:
		return false, s.down()
	}
	return s.status.PID != 0, nil
}

// down is the error of what needs a server that does not run.
func (s *server) down() error {
	return fmt.Errorf("%w: %q is %s: %s", control.ErrDown, s.name, s.status.State, s.status.Detail)
}

// sleep stops a server until a call wants it. That nobody does now the gateway knows; whether it may sleep is decided
// here, for the gateway reads what strangers write.
func (d *daemon) sleep(name string) error {
	s, err := d.startable(name)
	switch {
	case err != nil:
		return err
	case s.asleep:
		return nil
	case !s.want.Gateway.OnDemand && s.renew != renewalDue:
		return fmt.Errorf("%w: %q has neither idle_timeout nor autostart = false in %s", control.ErrInvalid, name, s.want.File)
	case s.learn != nil:
		return fmt.Errorf("%w: somebody has %q in learning mode", control.ErrBusy, name)
	case len(s.sessions) > 0:
		return fmt.Errorf("%w: %q has %d sessions with a process of their own", control.ErrBusy, name, len(s.sessions))
	case s.busy || s.status.State != control.Running:
		return s.down()
	case s.renew == renewalDue:
		d.renewIdle(s)
		return nil
	}
	s.run, s.asleep = false, true
	d.converge(s)
	d.tell()
	return nil
}

// watchDemand sends the servers on demand, and those that are to be started again, now and whenever that changes, until
// the peer hangs up.
func (d *daemon) watchDemand(ctx context.Context, send func(control.Response) error) error {
	changed := make(chan struct{}, 1)
	if err := d.do(func() error { d.watchers[changed] = true; return nil }); err != nil {
		return err
	}
	defer d.do(func() error { delete(d.watchers, changed); return nil })
	var last []control.OnDemand
	for first := true; ; first = false {
		var now []control.OnDemand
		if err := d.do(func() error { now = d.onDemand(); return nil }); err != nil {
			return err
		}
		if first || !reflect.DeepEqual(now, last) {
			if err := send(control.Response{OnDemand: now}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// returns reports whether a server that was up is on its way down and up again.
func (s *server) returns() bool {
	if !s.served {
		return false
	}
	switch s.status.State {
	case control.Stopping, control.Starting:
		return s.want != nil && s.want.Fault == "" && s.runs()
	}
	return false
}

func (d *daemon) onDemand() []control.OnDemand {
	var list []control.OnDemand
	for _, s := range d.servers {
		if s.want == nil || !s.want.Gateway.OnDemand && s.renew == noRenewal && !s.returns() {
			continue
		}
		o := control.OnDemand{Server: s.want.Gateway, Returns: s.returns(), Renews: s.renew == renewalDue && s.status.State == control.Running}
		switch s.status.State {
		case control.Sleeping:
			o.Sleeps = true
		case control.Waiting: // a call looks whether it is there by now, and says what is not
			o.Sleeps = s.run
		case control.Stopped, control.Failed, control.BackOff:
			o.Stays = s.status.State != control.BackOff
			o.Down = strings.TrimSuffix("it is "+string(s.status.State)+": "+s.status.Detail, ": "+string(s.status.State))
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b control.OnDemand) int { return strings.Compare(a.Server.Name, b.Server.Name) })
	return list
}
