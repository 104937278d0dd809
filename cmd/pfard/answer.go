package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/pfar/pfar/units/control"
)

var errEnding = errors.New("pfard is ending")

// answer carries out one request on the control socket.
func (d *daemon) answer(ctx context.Context, p control.Peer, q control.Request, send func(control.Response) error) error {
	switch q.Verb {
	case control.Status:
		return d.sendReport(send)
	case control.Watch:
		return d.watchReports(ctx, nil, send)
	case control.Learn:
		return d.learn(ctx, q.Server, send)
	case control.Start, control.Stop, control.Restart:
		if err := d.do(func() error { return d.turn(q.Verb, q.Server) }); err != nil {
			return err
		}
		return d.sendReport(send)
	case control.Enable, control.Disable:
		act := d.enable
		if q.Verb == control.Disable {
			act = d.disable
		}
		if err := d.do(func() error { return act(q.Server) }); err != nil {
			return err
		}
		return d.sendReport(send)
	case control.Open:
		if err := d.open(ctx, q.Server, q.Session); err != nil {
			return err
		}
		return send(control.Response{})
	case control.Close:
		if err := d.do(func() error { return d.closeSession(q.Server, q.Session) }); err != nil {
			return err
		}
		return send(control.Response{})
	case control.Wake:
		if err := d.wake(ctx, q.Server); err != nil {
			return err
		}
		return send(control.Response{})
	case control.Sleep:
		if err := d.do(func() error { return d.sleep(q.Server) }); err != nil {
			return err
		}
		return send(control.Response{})
	case control.Demand:
		return d.watchDemand(ctx, send)
	case control.Redaction:
		return d.redaction.watch(ctx, send)
	case control.Clients:
		return d.clientele.watch(ctx, send)
	case control.Audit:
		return d.audit.gatewayFiles(send)
	case control.LastRefusal:
		r, err := d.lastRefused(q.Server, q.Session)
		if err != nil {
			return err
		}
		return send(control.Response{Refusal: r})
	case control.Stuck:
		return d.gatewayStuck(ctx, q.Why, send)
	case control.Policy:
		return d.policy.watch(ctx, send)
	case control.Clean:
		l, err := d.leftovers.clean(p, q)
		if err != nil {
			return err
		}
		return send(control.Response{Leftovers: l})
	case control.Store, control.Rotate, control.Remove, control.Rekey, control.Secrets, control.Export, control.Import, control.Give:
		r, err := d.keeper.answer(p, q)
		if err != nil {
			return err
		}
		return send(r)
	}
	return fmt.Errorf("%w: verb %q", control.ErrInvalid, q.Verb)
}

func (d *daemon) sendReport(send func(control.Response) error) error {
	var r control.Report
	if err := d.do(func() error { r = d.report(); return nil }); err != nil {
		return err
	}
	return send(control.Response{Status: &r})
}

// watchReports sends a report now and after each change, until the peer hangs up or enough is closed.
func (d *daemon) watchReports(ctx context.Context, enough <-chan struct{}, send func(control.Response) error) error {
	wake := make(chan struct{}, 1)
	if err := d.do(func() error { d.watchers[wake] = true; return nil }); err != nil {
		return err
	}
	defer d.do(func() error { delete(d.watchers, wake); return nil })
	for {
		if err := d.sendReport(send); err != nil {
			return err
		}
		select {
		case <-wake:
		case <-enough:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// learner is a peer that has a server run in learning mode as long as it stays connected.
type learner struct {
	ended chan struct{} // closed when it is no longer the server's learner
	err   error         // then: why, if not because the peer hung up
}

// learn runs a server in learning mode until the peer hangs up, in whatever way, or somebody takes the server away.
func (d *daemon) learn(ctx context.Context, name string, send func(control.Response) error) error {
	l := &learner{ended: make(chan struct{})}
	if err := d.do(func() error { return d.beginLearning(name, l) }); err != nil {
		return err
	}
	err := d.watchReports(ctx, l.ended, send)
	if ended := d.do(func() error { return d.endLearning(name, l) }); ended != nil {
		return ended
	}
	return err
}

func (d *daemon) beginLearning(name string, l *learner) error {
	s, err := d.startable(name)
	if err != nil {
		return err
	}
	if s.learn != nil {
		return fmt.Errorf("%w: somebody else has %q in learning mode", control.ErrLearning, name)
	}
	s.learn = l
	d.converge(s) // whatever was started, its plan is another now: what failed is tried again as well
	d.tell()
	return nil
}

// endLearning brings the server back to what it is without the learner, and returns why somebody else did so before.
func (d *daemon) endLearning(name string, l *learner) error {
	if s := d.servers[name]; s != nil && s.learn == l {
		s.dismiss(nil)
		d.converge(s)
		d.tell()
	}
	return l.err
}

// dismiss ends the learning, if there is one.
func (s *server) dismiss(why error) {
	if s.learn != nil {
		s.learn.err = why
		close(s.learn.ended)
		s.learn = nil
	}
}

// checkLearner ends the learning of a server that may not run any more.
func (s *server) checkLearner() {
	switch {
	case s.want == nil:
		s.dismiss(fmt.Errorf("%w: the declaration of %q was removed", control.ErrNoServer, s.name))
	case !s.want.Enabled:
		s.dismiss(fmt.Errorf("%w: %q has enabled = false in %s", control.ErrDisabled, s.name, s.want.File))
	}
}

// turn is start, stop and restart.
func (d *daemon) turn(verb control.Verb, name string) error {
	s, err := d.startable(name)
	if errors.Is(err, control.ErrNoServer) || err != nil && verb != control.Stop {
		return err
	}
	s.run, s.asleep, s.retry.tries = verb != control.Stop, false, 0
	if !s.run {
		s.dismiss(fmt.Errorf("%w: somebody else stopped %q", control.ErrStopped, name))
	}
	before := s.status.State
	// Start is for a server that is not there; what serves is left alone.
	s.again = verb == control.Restart || verb == control.Start && before != control.Running && before != control.Starting
	asked := s.again
	d.converge(s)
	if asked && s.status.State == before { // it was tried, and whoever asked must see that it ended where it began
		s.since = now()
	}
	d.tell()
	return nil
}

// startable finds a server. One that may not be started comes with the error that says so.
func (d *daemon) startable(name string) (*server, error) {
	s := d.servers[name]
	if s == nil || s.want == nil {
		return nil, fmt.Errorf("%w: %q", control.ErrNoServer, name)
	}
	if s.off {
		return s, fmt.Errorf("%w: %q", control.ErrOff, name)
	}
	if !s.want.Enabled {
		return s, fmt.Errorf("%w: %q has enabled = false in %s", control.ErrDisabled, name, s.want.File)
	}
	return s, nil
}
