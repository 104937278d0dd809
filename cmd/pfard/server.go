package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/plan"
)

// server is one declaration: what should be, what is, and the way between.
type server struct {
	name  string
	want  *plan.Plan // nil: no declaration any more
	word  string     // digest of the file that says so
	run   bool       // the operator, the declaration or a call wants it to run
	off   bool       // the operator has disabled it, whatever run says
	learn *learner   // wants it to run in learning mode, whatever run says; nil: nobody
	stale bool       // its file is broken now, or asks for secrets that it is not given
	held  *plan.Plan // what its file says then, in the latter case

	heldBefore string // digest of what held was last: it is recorded once

	full   string // why it was stopped, if it has filled the disk; "" once it is started again
	asleep bool   // it does not run until a call wants it

	started *plan.Plan // what the runner was told to start; nil: nothing
	next    *plan.Plan // it runs on, and is about to go by this; nil: by started
	again   bool       // stop it and start it, though the plan is the same
	given   string     // digest of what its launcher was given (delivery.digest); "": nothing, or it is not known
	renew   renewal    // whether that has changed since
	busy    bool       // a stop is under way
	retry   retry      // of its crashes
	served  bool       // it has been up, and nobody has stopped it since
	delayed error      // why what it needs cannot be written; it is tried again

	unreached string // settings of its unit that do not reach it, in words; "": none
	told      string // of these, what was logged last

	unscoped string // why the scopes that it requires are not compared; "": they are, or there are none

	sessions map[string]*session // that have a process of their own, by handle

	before stay   // as the last pfard left it, until it is seen to be so still, or not; the zero value: nothing is known
	since  moment // of status.State; report fills in status.Since
	status control.Server
}

func newServer(name string) *server {
	return &server{name: name, sessions: map[string]*session{}, since: now(), status: control.Server{Name: name, State: control.Stopped}}
}

// converge does the next step towards what should be. It never waits: a stop, which may take seconds, comes back.
func (f *fleet) converge(s *server) {
	f.intents.keep(s)
	switch {
	case s.busy || s.next != nil || s.started == nil && len(s.sessions) > 0: // nothing of it may be left before what comes next
	case s.started != nil && s.want != nil && s.runs() && !s.again && f.adjust(s): // if there is anything to do at all
	case s.started != nil && (s.want == nil || !s.runs() || s.again || plan.Digest(s.plan()) != plan.Digest(*s.started)):
		if s.want != nil && s.runs() {
			if err := f.runner.Prepare(s.plan()); err != nil { // nothing that runs ends for want of space
				f.delay(s, err)
				return
			}
		}
		f.stop(s)
	case s.started == nil && s.want == nil:
		f.forget(s.name)
	case s.started == nil && s.runs():
		f.start(s)
	case s.started == nil && s.asleep && !s.off:
		s.set(control.Sleeping, reasonAsleep(*s.want))
		f.offer(s)
	case s.started == nil && s.full != "" && !s.off && s.want.Enabled:
		s.set(control.Failed, s.full)
	case s.started == nil:
		s.set(control.Stopped, s.reasonNotRun())
		f.offer(s)
	}
}

// offer lets an administrator start a server that does not run, unless nobody may: its declaration says so, or it was
// disabled.
func (f *fleet) offer(s *server) {
	if s.off || !s.want.Enabled {
		f.runner.Offer(s.name, nil)
		return
	}
	p := s.plan()
	f.runner.Offer(s.name, &p)
}

// adjust brings a running server to a plan for which it need not be started again, and reports whether it runs as it
// should, or is about to.
func (f *fleet) adjust(s *server) bool {
	p := s.plan()
	if plan.Digest(p) == plan.Digest(*s.started) {
		return true
	}
	if _, live := plan.Adjusted(*s.started, p); !live {
		return false
	}
	s.next = &p
	instances := []plan.Plan{p}
	for handle, e := range s.sessions {
		if own := p; !e.closing {
			own.Gateway.Session = handle
			instances = append(instances, own)
		}
	}
	go func() {
		failed := map[string]error{}
		for _, i := range instances {
			if err := f.runner.Adjust(i); err != nil {
				failed[i.Gateway.Session] = err
			}
		}
		f.post(func() { f.adjusted(s, failed) })
	}()
	return true
}

// adjusted takes it that a running server goes by its next plan. What may not is stopped: it runs by no older one.
func (f *fleet) adjusted(s *server, failed map[string]error) {
	if s.started != nil {
		s.started = s.next
		f.relabel(s)
	}
	s.next = nil
	for handle, err := range failed {
		e := s.sessions[handle]
		switch {
		case handle == "":
			s.again = s.started != nil
		case e != nil && !e.closing:
			f.endSession(s, e)
		default:
			continue // it has ended
		}
		f.log.Warn("starting again what could not be changed while it ran", "server", s.name, "session", handle, "error", err)
	}
	f.converge(s)
	f.around.tell()
}

// relabel shows the label of a server's data in the status lines of its units.
func (f *fleet) relabel(s *server) {
	if s.started == nil {
		return
	}
	f.units.relabelled(s.name, s.started.Gateway.Label)
	for handle := range s.sessions {
		f.units.relabelled(units.Instance(s.name, handle), s.started.Gateway.Label)
	}
}

func (s *server) runs() bool { return !s.off && (s.run || s.learn != nil) }

// plan is what should run, of a server that has a declaration.
func (s *server) plan() plan.Plan {
	p := *s.want
	p.Egress.Learn = s.learn != nil
	return p
}

func (f *fleet) stop(s *server) {
	s.busy, s.again = true, false
	s.set(control.Stopping, "stopping")
	for _, e := range s.sessions {
		f.endSession(s, e)
	}
	go func() {
		f.runner.Stop(s.name)
		f.post(func() {
			s.busy, s.started = false, nil
			s.status.PID, s.status.Tools, s.status.Limits, s.status.Shared, s.status.Launcher, s.status.Crashes = 0, 0, "", "", "", 0
			f.converge(s)
			f.around.tell()
		})
	}()
}

func (f *fleet) start(s *server) {
	s.again, s.full = false, ""
	if s.renew == renewalDue {
		s.renew = noRenewal
	}
	before := s.status.State
	defer func() { f.failed(s, before) }()
	secrets, err := f.delivery.secrets(*s.want)
	s.given = ""
	if !f.waits { // or systemd asks for them
		if waits := s.status.State == control.Waiting && s.status.Detail == waitingFor(secrets.Missing); !waits {
			if unrecorded := f.delivery.record(*s.want, secrets, err); unrecorded != nil {
				secrets = units.Secrets{Missing: []string{unrecorded.Error()}}
			}
		}
		if err == nil && len(s.want.Credentials) > 0 {
			s.given = f.delivery.digest(secrets)
		}
	}
	f.intents.keep(s)
	if err != nil {
		s.set(control.Failed, err.Error())
		return
	}
	plan := s.plan()
	if len(secrets.Missing) > 0 { // LIF-03: not an error, and never a crash loop
		s.set(control.Waiting, waitingFor(secrets.Missing))
		if !f.waits {
			return
		}
	} else {
		s.set(control.Starting, "starting")
	}
	if err := f.runner.Start(plan, secrets); err != nil {
		s.set(control.Failed, err.Error())
		if fullDisk(err) {
			f.delay(s, err)
		}
		return
	}
	s.started = &plan
	if plan.State && f.homes != nil {
		f.homes.inUse()
	}
}

// delay has it tried again later: nobody says when a disk has space.
func (f *fleet) delay(s *server, err error) {
	if s.delayed == nil {
		f.log.Error("cannot apply plan, retrying", "server", s.name, "error", err)
		time.AfterFunc(delayTime, func() {
			f.post(func() {
				s.delayed = nil
				if f.servers[s.name] == s {
					f.converge(s)
					f.around.tell()
				}
			})
		})
	}
	s.delayed = err
}

const delayTime = 5 * time.Second

func fullDisk(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// retryWaiting starts a server again that waits for credentials if they are there by now.
func (f *fleet) retryWaiting(s *server) {
	if s.status.State != control.Waiting || s.undecided() || s.want == nil || s.busy {
		return
	}
	secrets, err := f.delivery.values(*s.want)
	if len(secrets.Missing) == 0 {
		secrets.Missing = f.withheld(*s.want)
	}
	switch {
	case err != nil: // what is there cannot be read; starting it again would say so, and not help
	case len(secrets.Missing) > 0:
		s.set(control.Waiting, waitingFor(secrets.Missing))
	default:
		s.again = s.started != nil
		f.converge(s)
	}
}

// withheld is for what a launcher waits whose secrets are there, and cannot be recorded to be handed to it.
func (f *fleet) withheld(p plan.Plan) []string {
	why := f.audit.failing()
	if why == nil || !slices.ContainsFunc(p.Credentials, func(c plan.Credential) bool { return c.Deliver != broker.OnWire }) {
		return nil
	}
	return []string{unrecorded{why}.Error()}
}

// turnedOutside takes it that somebody else has had the service manager start or stop a server: systemctl is as good a
// word of the owner's as ours.
func (f *fleet) turnedOutside(s *server, u local.Update) {
	if u.Ended {
		s.run, s.asleep, s.started = false, false, nil
		s.dismiss(fmt.Errorf("%w: somebody else stopped %q", control.ErrStopped, s.name))
		f.take(s, u)
		s.status.PID, s.status.Tools, s.status.Limits, s.status.Shared, s.status.Launcher, s.status.Crashes = 0, 0, "", "", "", 0
		for _, e := range s.sessions {
			f.endSession(s, e)
		}
	} else if s.want != nil && s.started == nil {
		p := s.plan() // which it is: what is offered is that
		s.run, s.asleep, s.started, s.retry.tries = s.want.Enabled, false, &p, 0
		f.take(s, u)
	}
	f.converge(s)
}

// take has a server take what the runner says, and tells the administrator once what the unit says in vain.
func (f *fleet) take(s *server, u local.Update) {
	s.take(u)
	s.unreached = u.Unreached
	if s.unreached != "" && s.unreached != s.told {
		s.told = s.unreached
		f.log.Warn("settings of a unit do not reach its server", "server", s.name, "reason", s.told)
	}
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

// learner is a peer that has a server run in learning mode as long as it stays connected.
type learner struct {
	ended chan struct{} // closed when it is no longer the server's learner
	err   error         // then: why, if not because the peer hung up
}

// compareScopes notes for those who watch a server, and in the log, that the scopes which it requires could not be
// compared.
func (f *fleet) compareScopes(s *server) {
	words := f.delivery.compare(*s.want).unknown()
	if words != "" && words != s.unscoped {
		f.log.Warn("scopes are not compared", "server", s.name, "reason", words)
	}
	s.unscoped = words
}

// failed has the owner told of a server that has just failed, where that is pfard's to do.
func (f *fleet) failed(s *server, before control.State) {
	if f.owner != nil && s.status.State == control.Failed && before != control.Failed {
		f.owner.tell(failure{server: s.name, reason: s.status.Detail})
	}
}

// retryCrashed takes it that a server's state is another than before. One that crashes have disabled is started again
// in time; what cannot start on this host is not.
func (f *fleet) retryCrashed(s *server) {
	switch {
	case s.status.State == control.Running:
		s.retry.end()
		s.retry.tries = 0
	case s.status.State != control.Failed:
		s.retry.end()
	case s.status.Crashes > 0 && s.retry.timer == nil:
		s.retry.begin(f.after, func() {
			f.post(func() { f.startCrashed(s) })
		})
	}
}

// startCrashed starts a server that is still as its crashes have left it.
func (f *fleet) startCrashed(s *server) {
	s.retry.timer = nil
	if f.servers[s.name] != s || s.status.State != control.Failed || s.want == nil || !s.runs() || s.busy {
		return
	}
	f.log.Info("starting a server again that its crashes had disabled", "server", s.name)
	s.again = s.started != nil
	f.converge(s)
	f.around.tell()
}
