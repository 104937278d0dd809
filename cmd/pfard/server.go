package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfard/vault"
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
func (d *daemon) converge(s *server) {
	d.intents.keep(s)
	switch {
	case s.busy || s.next != nil || s.started == nil && len(s.sessions) > 0: // nothing of it may be left before what comes next
	case s.started != nil && s.want != nil && s.runs() && !s.again && d.adjust(s): // if there is anything to do at all
	case s.started != nil && (s.want == nil || !s.runs() || s.again || plan.Digest(s.plan()) != plan.Digest(*s.started)):
		if s.want != nil && s.runs() {
			if err := d.runner.Prepare(s.plan()); err != nil { // nothing that runs ends for want of space
				d.delay(s, err)
				return
			}
		}
		d.stop(s)
	case s.started == nil && s.want == nil:
		d.forget(s.name)
	case s.started == nil && s.runs():
		d.start(s)
	case s.started == nil && s.asleep && !s.off:
		s.set(control.Sleeping, reasonAsleep(*s.want))
		d.offer(s)
	case s.started == nil && s.full != "" && !s.off && s.want.Enabled:
		s.set(control.Failed, s.full)
	case s.started == nil:
		s.set(control.Stopped, s.reasonNotRun())
		d.offer(s)
	}
}

// offer lets an administrator start a server that does not run, unless nobody may: its declaration says so, or it was
// disabled.
func (d *daemon) offer(s *server) {
	if s.off || !s.want.Enabled {
		d.runner.Offer(s.name, nil)
		return
	}
	p := s.plan()
	d.runner.Offer(s.name, &p)
}

// adjust brings a running server to a plan for which it need not be started again, and reports whether it runs as it
// should, or is about to.
func (d *daemon) adjust(s *server) bool {
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
			if err := d.runner.Adjust(i); err != nil {
				failed[i.Gateway.Session] = err
			}
		}
		d.post(func() { d.adjusted(s, failed) })
	}()
	return true
}

// adjusted takes it that a running server goes by its next plan. What may not is stopped: it runs by no older one.
func (d *daemon) adjusted(s *server, failed map[string]error) {
	if s.started != nil {
		s.started = s.next
		d.relabel(s)
	}
	s.next = nil
	for handle, err := range failed {
		e := s.sessions[handle]
		switch {
		case handle == "":
			s.again = s.started != nil
		case e != nil && !e.closing:
			d.endSession(s, e)
		default:
			continue // it has ended
		}
		d.log.Warn("starting again what could not be changed while it ran", "server", s.name, "session", handle, "error", err)
	}
	d.converge(s)
	d.tell()
}

// relabel shows the label of a server's data in the status lines of its units.
func (d *daemon) relabel(s *server) {
	if d.relabelled == nil || s.started == nil {
		return
	}
	d.relabelled(s.name, s.started.Gateway.Label)
	for handle := range s.sessions {
		d.relabelled(units.Instance(s.name, handle), s.started.Gateway.Label)
	}
}

func (s *server) runs() bool { return !s.off && (s.run || s.learn != nil) }

// plan is what should run, of a server that has a declaration.
func (s *server) plan() plan.Plan {
	p := *s.want
	p.Egress.Learn = s.learn != nil
	return p
}

func (s *server) reasonNotRun() string {
	switch {
	case s.off:
		return control.DetailOff(s.name)
	case !s.want.Enabled:
		return control.DetailDisabled
	}
	return "stopped"
}

func (d *daemon) stop(s *server) {
	s.busy, s.again = true, false
	s.set(control.Stopping, "stopping")
	for _, e := range s.sessions {
		d.endSession(s, e)
	}
	go func() {
		d.runner.Stop(s.name)
		d.post(func() {
			s.busy, s.started = false, nil
			s.status.PID, s.status.Tools, s.status.Limits, s.status.Shared, s.status.Launcher, s.status.Crashes = 0, 0, "", "", "", 0
			d.converge(s)
			d.tell()
		})
	}()
}

func (d *daemon) start(s *server) {
	s.again, s.full = false, ""
	if s.renew == renewalDue {
		s.renew = noRenewal
	}
	before := s.status.State
	defer func() { d.failed(s, before) }()
	secrets, err := d.delivery.secrets(*s.want)
	s.given = ""
	if !d.waits { // or systemd asks for them
		if waits := s.status.State == control.Waiting && s.status.Detail == waitingFor(secrets.Missing); !waits {
			if unrecorded := d.delivery.record(*s.want, secrets, err); unrecorded != nil {
				secrets = units.Secrets{Missing: []string{unrecorded.Error()}}
			}
		}
		if err == nil && len(s.want.Credentials) > 0 {
			s.given = d.delivery.digest(secrets)
		}
	}
	d.intents.keep(s)
	if err != nil {
		s.set(control.Failed, err.Error())
		return
	}
	plan := s.plan()
	if len(secrets.Missing) > 0 { // LIF-03: not an error, and never a crash loop
		s.set(control.Waiting, waitingFor(secrets.Missing))
		if !d.waits {
			return
		}
	} else {
		s.set(control.Starting, "starting")
	}
	if err := d.runner.Start(plan, secrets); err != nil {
		s.set(control.Failed, err.Error())
		if fullDisk(err) {
			d.delay(s, err)
		}
		return
	}
	s.started = &plan
	if plan.State && d.homeInUse != nil {
		d.homeInUse()
	}
}

// delay has it tried again later: nobody says when a disk has space.
func (d *daemon) delay(s *server, err error) {
	if s.delayed == nil {
		d.log.Error("cannot apply plan, retrying", "server", s.name, "error", err)
		time.AfterFunc(delayTime, func() {
			d.post(func() {
				s.delayed = nil
				if d.servers[s.name] == s {
					d.converge(s)
					d.tell()
				}
			})
		})
	}
	s.delayed = err
}

const delayTime = 5 * time.Second

func fullDisk(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// retryWaiting starts a server again that waits for credentials if they are there by now.
func (d *daemon) retryWaiting(s *server) {
	if s.status.State != control.Waiting || s.undecided() || s.want == nil || s.busy {
		return
	}
	secrets, err := d.delivery.values(*s.want)
	if len(secrets.Missing) == 0 {
		secrets.Missing = d.withheld(*s.want)
	}
	switch {
	case err != nil: // what is there cannot be read; starting it again would say so, and not help
	case len(secrets.Missing) > 0:
		s.set(control.Waiting, waitingFor(secrets.Missing))
	default:
		s.again = s.started != nil
		d.converge(s)
	}
}

// undecided reports whether a server waits for its owner to accept its program. Its launcher ends by itself once that
// is done.
func (s *server) undecided() bool {
	return s.status.State == control.Waiting && strings.HasPrefix(s.status.Detail, units.ForProgram)
}

// withheld is for what a launcher waits whose secrets are there, and cannot be recorded to be handed to it.
func (d *daemon) withheld(p plan.Plan) []string {
	why := d.audit.failing()
	if why == nil || !slices.ContainsFunc(p.Credentials, func(c plan.Credential) bool { return c.Deliver != broker.OnWire }) {
		return nil
	}
	return []string{unrecorded{why}.Error()}
}

func waitingFor(missing []string) string { return "for credentials: " + strings.Join(missing, "; ") }

// turnedOutside takes it that somebody else has had the service manager start or stop a server: systemctl is as good a
// word of the owner's as ours.
func (d *daemon) turnedOutside(s *server, u local.Update) {
	if u.Ended {
		s.run, s.asleep, s.started = false, false, nil
		s.dismiss(fmt.Errorf("%w: somebody else stopped %q", control.ErrStopped, s.name))
		d.take(s, u)
		s.status.PID, s.status.Tools, s.status.Limits, s.status.Shared, s.status.Launcher, s.status.Crashes = 0, 0, "", "", "", 0
		for _, e := range s.sessions {
			d.endSession(s, e)
		}
	} else if s.want != nil && s.started == nil {
		p := s.plan() // which it is: what is offered is that
		s.run, s.asleep, s.started, s.retry.tries = s.want.Enabled, false, &p, 0
		d.take(s, u)
	}
	d.converge(s)
}

// entered is since when a server is in a state that it was not seen in. What another pfard left running is seen to
// start first.
func (s *server) entered(state control.State) moment {
	before := s.before
	if state != control.Starting || before.State == state {
		s.before = stay{}
	}
	if before.State == state && before.PID == s.status.PID {
		return after(before.Since)
	}
	return now()
}

// stay is what the next pfard is to know of since when a server is in its state.
func (s *server) stay() stay {
	if s.before.State != "" {
		return s.before
	}
	return stay{s.status.State, s.status.PID, s.since.boot}
}

func (s *server) set(state control.State, detail string) {
	if s.status.State != state || s.before.State == state {
		s.since = s.entered(state)
	}
	switch s.status.State, s.status.Detail = state, detail; state {
	case control.Running:
		s.served = true
	case control.Stopped, control.Failed, control.Sleeping, control.Waiting:
		s.served = false
	}
}

// take applies what the runner says. While a stop is under way the server is stopping, whatever its processes say.
func (s *server) take(u local.Update) {
	if s.started == nil {
		return
	}
	if u.Refusal.Reason != "" {
		s.status.Refused, s.status.LastRefusal, s.status.LastRefused = u.Refusal, u.Refusal.String(), time.Now().UTC()
	}
	if s.busy {
		return
	}
	s.status.PID = u.PID
	s.set(control.State(u.State), u.Detail)
	if s.renew == renewalDone && s.status.State == control.Running {
		s.renew = noRenewal
	}
	s.status.UID, s.status.Tools, s.status.Crashes = u.UID, u.Tools, u.Crashes
	s.status.Limits, s.status.Shared = u.Limits, u.Shared
	s.status.Launcher = otherLauncher(u)
}

// otherLauncher is the version of a launcher of another pfar than this one, "" if it is of this one or has not said
// yet.
func otherLauncher(u units.Update) string {
	if u.PID == 0 || u.Limits == "" || u.Version == units.Version() {
		return ""
	}
	return cmp.Or(u.Version, "an earlier version")
}

// take has a server take what the runner says, and tells the administrator once what the unit says in vain.
func (d *daemon) take(s *server, u local.Update) {
	s.take(u)
	s.unreached = u.Unreached
	if s.unreached != "" && s.unreached != s.told {
		s.told = s.unreached
		d.log.Warn("settings of a unit do not reach its server", "server", s.name, "reason", s.told)
	}
}

func (s *server) report(log string) control.Server {
	r := s.status
	r.Since, r.Log, r.Stale, r.Sessions = s.since.time(now()), log, s.stale && s.held == nil, s.openSessions()
	r.Broken = s.want != nil && s.want.Fault != ""
	p := s.want
	if p == nil || s.next != nil && s.started != nil { // an edit shows once it is in force
		p = s.started
	}
	if p != nil {
		r.File, r.Description, r.Label = p.File, p.Gateway.Description, p.Gateway.Label
		for _, e := range p.Egress.Endpoints {
			r.Domains = append(r.Domains, e.String())
		}
		if p.Gateway.Sessions.Own {
			r.SessionsMax = p.Gateway.Sessions.Max
		}
	}
	if s.retry.timer != nil {
		r.Detail += "; " + s.retry.words
	}
	if s.delayed != nil && s.started != nil {
		r.Detail = strings.TrimPrefix(r.Detail+"; not yet as its file says: "+s.delayed.Error(), "; ")
	}
	if s.held != nil {
		r.Detail = strings.TrimPrefix(r.Detail+"; not as its file says, which asks for secrets that it is not given: pfar vault give "+s.name, "; ")
	}
	if s.learn != nil {
		r.Learning = true
		r.Detail = strings.TrimPrefix(r.Detail+"; "+detailLearning, "; ")
	}
	return r
}

// detailLearning stands behind what else is to be said, so that nobody forgets that a server is not as it was declared.
const detailLearning = "learning: what it wants to reach and may not is recorded"

func notFound(err error) bool { return errors.Is(err, vault.ErrNotFound) }
