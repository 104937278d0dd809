package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// orders carries out what people and the gateway ask of servers.
type orders struct {
	inbox
	around    around
	fleet     *fleet
	followers *followers
	installs  *installs
	flows     *flows
	logins    *logins
	consoles  *consoles
	commands  *commands
	checkup   *checkup

	verification *verification
}

// wake starts a server that sleeps, for a call, and returns when its launcher is under way, or with the reason why it
// will not be. Of one that is offline it returns when the launcher was told to try. What the operator stopped it leaves
// alone: whoever calls is a client.
func (o *orders) wake(ctx context.Context, name string) error {
	changed, leave, err := o.followers.follow()
	if err != nil {
		return err
	}
	defer leave()
	var done bool
	err = o.do(func() (err error) { done, err = o.beginWaking(name); return err })
	for err == nil && !done {
		err = o.do(func() (err error) { done, err = o.woken(name); return err })
		if done || err != nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done(): // it is started all the same: another call may come, and it will not run for long without one
			return context.Cause(ctx)
		case <-o.ended:
			return errEnding
		}
	}
	return err
}

// beginWaking reports whether there is nothing to wait for.
func (o *orders) beginWaking(name string) (done bool, err error) {
	s, err := o.fleet.startable(name)
	if err != nil {
		return false, err
	}
	switch {
	case s.asleep:
		s.run, s.asleep = true, false
		o.fleet.converge(s)
		o.around.tell()
	case s.run && s.status.State == control.Offline:
		o.fleet.units.try(name)
		return true, nil
	case s.run: // what it waits for may be there by now
		o.fleet.retryWaiting(s)
		o.around.tell()
	}
	return false, nil
}

// woken reports whether a server that is to run is under way, or why it is not going to be.
func (o *orders) woken(name string) (bool, error) {
	s, err := o.fleet.startable(name)
	switch {
	case err != nil:
		return false, err
	case !s.runs() && s.asleep: // put to sleep again in the meantime: it has been up
		return true, nil
	case !s.runs():
		return false, fmt.Errorf("%w: %q was stopped; pfar start %s", control.ErrStopped, name, name)
	case s.has.Stopping:
		return false, nil
	}
	switch s.status.State {
	case control.Waiting, control.Failed, control.BackOff, control.Offline, control.Stopped:
		return false, s.down()
	}
	return s.status.PID != 0, nil
}

// sleep stops a server until a call wants it. That nobody does now the gateway knows; whether it may sleep is decided
// here, for the gateway reads what strangers write.
func (o *orders) sleep(name string) error {
	s, err := o.fleet.startable(name)
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
	case s.has.Stopping || s.status.State != control.Running:
		return s.down()
	case s.renew == renewalDue:
		o.renewIdle(s)
		return nil
	}
	s.run, s.asleep = false, true
	o.fleet.converge(s)
	o.around.tell()
	return nil
}

// watchDemand sends the servers on demand, and those that are to be started again, now and whenever that changes, until
// the peer hangs up.
func (o *orders) watchDemand(ctx context.Context, send func(control.Response) error) error {
	changed, leave, err := o.followers.follow()
	if err != nil {
		return err
	}
	defer leave()
	var last []control.OnDemand
	for first := true; ; first = false {
		var now []control.OnDemand
		if err := o.do(func() error { now = o.onDemand(); return nil }); err != nil {
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

func (o *orders) onDemand() []control.OnDemand {
	var list []control.OnDemand
	for _, s := range o.fleet.servers {
		offline := s.runs() && s.status.State == control.Offline
		login := s.runs() && s.status.State == control.Waiting && s.status.Wait.NeedsLogin()
		if s.want == nil ||
			!s.want.Gateway.OnDemand && s.renew == noRenewal && !s.returns() && !offline && !login {
			continue
		}
		d := control.OnDemand{
			Server: s.want.Gateway, Returns: s.returns(),
			Renews:  s.renew == renewalDue && s.status.State == control.Running,
			Offline: offline, Login: login,
		}
		if offline {
			w := s.status.Wait
			d.Next, d.Failed, d.AsksLater = w.Until, w.Failed, w.AsksLater
		}
		switch s.status.State {
		case control.Sleeping:
			d.Sleeps = true
		case control.Waiting: // a call looks whether it is there by now, and says what is not
			if d.Sleeps = s.run && !login; login {
				d.Down = control.Waiting
			}
		case control.Stopped, control.Failed, control.BackOff, control.Offline:
			d.Stays = !s.status.State.TriedAgain()
			d.Down = s.status.State
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b control.OnDemand) int { return strings.Compare(a.Server.Name, b.Server.Name) })
	return list
}

// turn is start, stop and restart.
func (o *orders) turn(verb control.Verb, name string) error {
	s, err := o.fleet.startable(name)
	if errors.Is(err, control.ErrNoServer) || err != nil && verb != control.Stop {
		return err
	}
	s.run, s.asleep = verb != control.Stop, false
	s.retries.anew()
	if !s.run {
		s.dismiss(fmt.Errorf("%w: somebody else stopped %q", control.ErrStopped, name))
	}
	before := s.status.State
	// Start is for a server that is not there; what serves is left alone.
	s.again = verb == control.Restart || verb == control.Start && before != control.Running && before != control.Starting
	asked := s.again
	o.fleet.converge(s)
	if asked && s.status.State == before { // it was tried, and whoever asked must see that it ended where it began
		s.since = now()
	}
	o.around.tell()
	return nil
}

func (o *orders) beginLearning(name string, l *learner) error {
	s, err := o.fleet.startable(name)
	if err != nil {
		return err
	}
	if s.learn != nil {
		return fmt.Errorf("%w: somebody else has %q in learning mode", control.ErrLearning, name)
	}
	s.learn = l
	o.fleet.converge(s) // whatever was started, its plan is another now: what failed is tried again as well
	o.around.tell()
	return nil
}

// endLearning brings the server back to what it is without the learner, and returns why somebody else did so before.
func (o *orders) endLearning(name string, l *learner) error {
	if s := o.fleet.servers[name]; s != nil && s.learn == l {
		s.dismiss(nil)
		o.fleet.converge(s)
		o.around.tell()
	}
	return l.err
}

// open starts a process for one session, and returns when its launcher is under way.
func (o *orders) open(ctx context.Context, name, handle string) error {
	for {
		var e, leaving *session
		err := o.do(func() (err error) {
			e, leaving, err = o.fleet.openSession(name, handle)
			return err
		})
		switch {
		case err != nil && leaving == nil:
			return err
		case err != nil:
			select {
			case <-leaving.gone:
			case <-ctx.Done():
				return err
			case <-o.ended:
				return errEnding
			}
			continue
		}
		select {
		case err := <-e.begun:
			return err
		case <-ctx.Done(): // whoever asked has left, and will not know that it is there
			_ = o.do(func() error { return o.fleet.closeSession(name, handle) })
			return context.Cause(ctx)
		case <-o.ended:
			return errEnding
		}
	}
}

// renewIdle starts a server again that is idle by the gateway's word.
func (o *orders) renewIdle(s *server) {
	s.renew, s.again = renewalDone, true
	o.fleet.converge(s)
	o.around.tell()
}

// install has a package installed, and sends each change until it is there or cannot be.
func (o *orders) install(ctx context.Context, q control.Request, send func(control.Response) error) error {
	p, err := o.wished(q)
	if err != nil {
		return err
	}
	job, err := o.installs.jobs.Begin(p)
	if err != nil {
		return err
	}
	return job.Watch(ctx, func(state control.Installing) error {
		return send(control.Response{Declarations: control.Declarations{Installing: &state}})
	})
}

// wished is the package that a request means.
func (o *orders) wished(q control.Request) (p source.Package, err error) {
	parse, text := source.Parse, q.Package
	switch {
	case (q.Package == "") == (q.Server == ""):
		return p, fmt.Errorf("%w: want a package or a server", control.ErrInvalid)
	case q.Server != "" && !units.IsServer(q.Server):
		return p, fmt.Errorf("%w: %q is not the name of a server", control.ErrInvalid, q.Server)
	case q.Server != "":
		parse = source.ParseExact
		if err = o.do(func() error { text, err = o.installs.packageNamed(q.Server); return err }); err != nil {
			return p, err
		}
	}
	if p, err = parse(text); err != nil {
		return p, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	p.Bin = ""
	return p, nil
}
