package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/pfar/pfar/cmd/pfard/setups"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/control"
)

// answer carries out one request on the control socket.
func (d *daemon) answer(ctx context.Context, p control.Peer, q control.Request, send func(control.Response) error) error {
	switch q.Verb {
	case control.Status:
		_, err := d.sendReport(send)
		return err
	case control.Watch:
		return d.watchReports(ctx, nil, send)
	case control.Learn:
		return d.learn(ctx, q.Server, send)
	case control.Start, control.Stop, control.Restart, control.Enable, control.Disable:
		by := audit.Record{User: fmt.Sprintf("uid %d", p.UID), Channel: byCommand}
		if err := changeServer(d, by, q.Verb, q.Server); err != nil {
			return err
		}
		_, err := d.sendReport(send)
		return err
	case control.Open:
		return acknowledge(send, d.orders.open(ctx, q.Server, q.Session))
	case control.Close:
		return acknowledge(send, d.do(func() error { return d.fleet.closeSession(q.Server, q.Session) }))
	case control.Wake:
		return acknowledge(send, d.orders.wake(ctx, q.Server))
	case control.Sleep:
		return acknowledge(send, d.do(func() error { return d.orders.sleep(q.Server) }))
	case control.Demand:
		return d.orders.watchDemand(ctx, send)
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
		return send(control.Response{Declarations: control.Declarations{Leftovers: l}})
	case control.Declare, control.Undeclare:
		r, err := d.declarer().answer(p, q)
		if err != nil {
			return err
		}
		return send(control.Response{Declarations: control.Declarations{Declared: r}})
	case control.List:
		return d.lister().answer(ctx, q, send)
	case control.LogIn:
		return d.orders.logins.run(ctx, p, q, func(state control.SignIn) error {
			return send(control.Response{Declarations: control.Declarations{SignIn: &state}})
		})
	case control.Console:
		return d.orders.consoles.answer(ctx, p, q.Await, send)
	case control.Logout:
		d.orders.consoles.logout(p.UID)
		return acknowledge(send, nil)
	case control.Operators, control.Invite, control.Dismiss, control.ChangeRole:
		r, err := answerOperators(d.clientele.operators, p, q)
		if err != nil {
			return err
		}
		return send(control.Response{Declarations: r})
	case control.Install:
		return d.orders.install(ctx, q, send)
	case control.Begin:
		return d.orders.flows.answer(ctx, p, q, send)
	case control.Supply:
		now, err := d.orders.flows.supply(p, q)
		if err != nil {
			return err
		}
		return send(control.Response{Declarations: control.Declarations{Flow: now}})
	case control.Store, control.Rotate, control.Remove, control.Rekey, control.Secrets, control.Export, control.Import, control.Give:
		r, err := d.keeper.answer(p, q)
		if err != nil {
			return err
		}
		return send(r)
	}
	return fmt.Errorf("%w: verb %q", control.ErrInvalid, q.Verb)
}

// answerOperators tells who the operators at other machines are, invites one, removes one, or changes a role.
func answerOperators(o *operators, p control.Peer, q control.Request) (r control.Declarations, err error) {
	if !operates(p) {
		return r, fmt.Errorf("%w: only root and the user who runs pfard decide about operators", control.ErrDenied)
	}
	by := audit.Record{User: fmt.Sprintf("uid %d", p.UID), Channel: byCommand}
	switch {
	case q.Verb == control.Operators:
		return o.listed()
	case q.Operator == nil:
		return r, fmt.Errorf("%w: the request names no operator", control.ErrInvalid)
	case q.Verb == control.Dismiss:
		return r, o.dismiss(by, q.Operator.Name)
	case q.Verb == control.ChangeRole:
		return r, o.changeRole(by, q.Operator.Name, q.Operator.Role)
	}
	r.Link, err = o.invite(by, *q.Operator)
	return r, err
}

// How somebody has a server started, stopped and so on.
const (
	byCommand = "cli"
	byConsole = "console"
	byPasskey = "passkey" // an operator at another machine signed it
)

// changeServer starts, stops, restarts, enables or disables a declared server. by says who asks for it, and is recorded
// before: a change may be carried out in part and fail then. Without a record nobody changes anything from another
// machine.
func changeServer(d *daemon, by audit.Record, verb control.Verb, server string) error {
	err := d.do(func() error {
		if _, err := d.fleet.startable(server); errors.Is(err, control.ErrNoServer) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	by.Kind, by.Method, by.Server, by.Outcome = audit.Lifecycle, string(verb), server, "requested"
	if err := d.audit.append(by); err != nil && by.Channel == byPasskey {
		return fmt.Errorf("%w; without a record nothing is done from another machine", err)
	}
	return d.do(func() error {
		switch verb {
		case control.Enable:
			return d.enable(server)
		case control.Disable:
			return d.disable(server)
		}
		return d.orders.turn(verb, server)
	})
}

// acknowledge says that something was done, or returns why it was not.
func acknowledge(send func(control.Response) error, err error) error {
	if err != nil {
		return err
	}
	return send(control.Response{})
}

// sendReport sends a report. The channel is closed when what it says of set-ups is not so any more.
func (d *daemon) sendReport(send func(control.Response) error) (changed <-chan struct{}, err error) {
	var r control.Report
	if err := d.do(func() error { r = d.report(); return nil }); err != nil {
		return nil, err
	}
	r.SetUps, changed = setups.UnderWay(d.orders.flows.Flows) // not in the loop, which set-ups wait for
	return changed, send(control.Response{Status: &r})
}

// watchReports sends a report now and after each change, until the peer hangs up or enough is closed.
func (d *daemon) watchReports(ctx context.Context, enough <-chan struct{}, send func(control.Response) error) error {
	wake, leave, err := d.followers.follow()
	if err != nil {
		return err
	}
	defer leave()
	for {
		flows, err := d.sendReport(send)
		if err != nil {
			return err
		}
		select {
		case <-wake:
		case <-flows:
		case <-enough:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// learn runs a server in learning mode until the peer hangs up, in whatever way, or somebody takes the server away.
func (d *daemon) learn(ctx context.Context, name string, send func(control.Response) error) error {
	l := &learner{ended: make(chan struct{})}
	if err := d.do(func() error { return d.orders.beginLearning(name, l) }); err != nil {
		return err
	}
	err := d.watchReports(ctx, l.ended, send)
	if ended := d.do(func() error { return d.orders.endLearning(name, l) }); ended != nil {
		return ended
	}
	return err
}

// lastRefused is what the bridge of a server, or of its process for one session, has refused last; nil for nothing.
func (d *daemon) lastRefused(server, session string) (*control.Refusal, error) {
	r := d.audit.refusals.lastOf(server, session)
	err := d.do(func() error {
		if s := d.fleet.servers[server]; s != nil && s.want != nil {
			r.File = filepath.Base(s.want.File)
		}
		return nil
	})
	if err != nil || r.File == "" || r.Time.IsZero() {
		return nil, err
	}
	return &r, nil
}

// gatewayStuck shows that the gateway's records cannot be written, until the gateway hangs up. pfard's own may be: root
// may fill the part of a disk that is reserved for it.
func (d *daemon) gatewayStuck(ctx context.Context, why string, send func(control.Response) error) error {
	// The gateway reads what strangers write: it may bring any text.
	words := "the gateway's records cannot be written, so it calls nothing and accepts no pin: " + printable(d.redaction.clean(why))
	d.audit.stick(nil, &words)
	defer d.audit.stick(&words, nil)
	if err := send(control.Response{}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// enable takes that back, and starts the server as if it had never crashed.
func (d *daemon) enable(name string) error {
	s := d.fleet.servers[name]
	if s == nil || s.want == nil {
		return fmt.Errorf("%w: %q", control.ErrNoServer, name)
	}
	if err := unmark(d.options.dirs.Disabled(name)); err != nil {
		return fmt.Errorf("forgetting that %q is disabled: %w", name, err)
	}
	d.atBoot()
	s.off = false
	d.tokens.use(d.uses.keysInUse())
	err := d.orders.turn(control.Start, name)
	if err != nil { // its file disables it as well; it is to say so
		d.fleet.converge(s)
		d.tell()
	}
	return err
}

// disable stops a server and keeps it off, whatever its file says, also after pfard or the machine were started again.
func (d *daemon) disable(name string) error {
	s := d.fleet.servers[name]
	if s == nil || s.want == nil {
		return fmt.Errorf("%w: %q", control.ErrNoServer, name)
	}
	if err := mark(d.options.dirs.Disabled(name)); err != nil {
		return fmt.Errorf("remembering that %q is disabled: %w", name, err)
	}
	d.atBoot()
	s.off, s.run, s.asleep = true, false, false
	d.tokens.use(d.uses.keysInUse())
	s.dismiss(fmt.Errorf("%w: somebody else disabled %q", control.ErrStopped, name))
	d.fleet.converge(s)
	d.tell()
	return nil
}
