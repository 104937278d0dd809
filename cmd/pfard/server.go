package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/converge"
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

	has    *converge.State  // what runs
	wanted *converge.Server // what is to
	again  bool             // stop it and start it, though the plan is the same
	tried  control.State    // of before it was last started
	proofs
	retries
	served  bool  // it has been up or offline, and nobody has stopped it since
	delayed error // why what it needs cannot be written; it is tried again

	unreached string // settings of its unit that do not reach it, in words; "": none
	told      string // of these, what was logged last

	unscoped string // why the scopes that it requires are not compared; "": they are, or there are none

	sessions map[string]*session // that have a process of their own, by handle

	before stay   // as the last pfard left it, until it is seen to be so still, or not; the zero value: nothing is known
	since  moment // of status.State; report fills in status.Since
	status control.Server
}

// proofs are what a server's verification is about.
type proofs struct {
	given   string  // digest of what its launcher was given (delivery.digest); "": nothing, or it is not known
	renew   renewal // whether that has changed since
	former  string  // the proof of secrets that were replaced while it ran: what is still said of them counts no more
	present string  // that of those it has by now, if it has had others
}

func newServer(name string, has *converge.State) *server {
	return &server{
		name: name, has: has, sessions: map[string]*session{}, since: now(),
		status: control.Server{Name: name, State: control.Stopped},
	}
}

// converge has what runs of a server brought to what should be. It does not wait.
func (f *fleet) converge(s *server) {
	f.rewant(s)
	f.apply()
}

// apply has what runs brought to what should be of all servers.
func (f *fleet) apply() {
	want := make(converge.Want, len(f.servers))
	for name, s := range f.servers {
		if s.wanted != nil {
			want[name] = s.wanted
		}
	}
	f.runner.Apply(want)
}

// rewant takes what should be of a server, for the next time that what runs is brought to that.
func (f *fleet) rewant(s *server) {
	f.intents.keep(s)
	if s.wanted = nil; s.want == nil {
		return
	}
	s.wanted = &converge.Server{
		Plan: s.plan(), Run: s.runs(), Again: s.again, Offer: !s.off && s.want.Enabled, Sessions: map[string]bool{},
	}
	for handle, e := range s.sessions {
		if !e.closing {
			s.wanted.Sessions[handle] = true
		}
	}
}

// Post has the loop call what the runner has to do, and tells those who watch.
func (f *fleet) Post(do func()) {
	f.post(func() {
		do()
		f.around.tell()
	})
}

// Happened takes what has become of a server.
func (f *fleet) Happened(event converge.Event) {
	switch e := event.(type) {
	case converge.Stopping:
		s := f.servers[e.Server]
		s.again = false
		s.set(control.Stopping, "stopping")
		for _, session := range s.sessions {
			session.close()
		}
	case converge.Stopped:
		f.servers[e.Server].forgetProcess()
	case converge.Started:
		if p := f.servers[e.Server].has.Started; p.State && f.homes != nil {
			f.homes.inUse()
		}
	case converge.Refused:
		f.refused(f.servers[e.Server], e)
	case converge.Delayed:
		f.delay(f.servers[e.Server], e.Err)
	case converge.Adjusted:
		f.adjusted(f.servers[e.Server], e.Failed)
	case converge.Left:
		f.servers[e.Server].left(e.Session)
	case converge.Rests:
		f.servers[e.Server].rests()
	case converge.Forgotten:
		f.forget(e.Server)
	}
}

// refused takes it that a process cannot be started.
func (f *fleet) refused(s *server, e converge.Refused) {
	if e.Session != "" {
		session := s.sessions[e.Session]
		delete(s.sessions, e.Session)
		session.begin(e.Err)
		return
	}
	if errors.Is(e.Err, errWaits) {
		return
	}
	s.set(control.Failed, e.Err.Error())
	if fullDisk(e.Err) {
		f.delay(s, e.Err)
	}
	f.failed(s, s.tried)
}

// rests shows why a server does not run.
func (s *server) rests() {
	switch {
	case s.asleep && !s.off:
		s.set(control.Sleeping, reasonAsleep(*s.want))
	case s.full != "" && !s.off && s.want.Enabled:
		s.set(control.Failed, s.full)
	default:
		s.set(control.Stopped, s.reasonNotRun())
	}
}

// adjusted takes it that a running server goes by its next plan, but for what is stopped.
func (f *fleet) adjusted(s *server, failed map[string]error) {
	if s.has.Started != nil { // its label may be another one
		f.units.relabelled(s.name, s.has.Started.Gateway.Label)
		for handle := range s.sessions {
			f.units.relabelled(units.Instance(s.name, handle), s.has.Started.Gateway.Label)
		}
	}
	for handle, err := range failed {
		if e := s.sessions[handle]; e != nil {
			e.close()
		}
		f.log.Warn("starting again what could not be changed while it ran", "server", s.name, "session", handle, "error", err)
	}
}

func (s *server) runs() bool { return !s.off && (s.run || s.learn != nil) }

// plan is what should run, of a server that has a declaration.
func (s *server) plan() plan.Plan {
	p := *s.want
	p.Egress.Learn = s.learn != nil
	return p
}

// forgetProcess forgets what is true of a process.
func (s *server) forgetProcess() {
	r := &s.status
	r.PID, r.Tools, r.Limits, r.Shared, r.Launcher, r.Crashes = 0, 0, "", "", "", 0
}

// errWaits is the error of a server that is not started, for it waits.
var errWaits = errors.New("the server waits for credentials")

// Launch returns what the process of a plan is started with.
func (f *fleet) Launch(p plan.Plan) (units.Secrets, error) {
	if p.Gateway.Session != "" {
		return f.launchSession(p)
	}
	s := f.servers[p.Name]
	s.again, s.full, s.tried = false, "", s.status.State
	if s.renew == renewalDue {
		s.renew = noRenewal
	}
	secrets, err := f.delivery.secrets(*s.want)
	s.given = ""
	if !f.waits { // or systemd asks for them
		if waits := s.status.State == control.Waiting && s.status.Wait == units.WaitForSecrets(secrets); !waits {
			if unrecorded := f.delivery.record(*s.want, secrets, err); unrecorded != nil {
				secrets = units.Secrets{Missing: []string{unrecorded.Error()}}
			}
		}
		if err == nil && len(s.want.Credentials) > 0 {
			s.given = f.delivery.digest(secrets)
		}
	}
	f.intents.keep(s)
	switch {
	case err != nil:
		return units.Secrets{}, err
	case len(secrets.Missing) == 0:
		s.set(control.Starting, "starting")
		return secrets, nil
	}
	s.lacks(secrets) // it waits: not an error, and never a crash loop
	if !f.waits {
		return units.Secrets{}, errWaits
	}
	return secrets, nil
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
	if s.renews() && s.want != nil && !s.has.Stopping && !s.awaitsRefresh(f.delivery) {
		s.again = s.has.Started != nil
		f.converge(s)
		return
	}
	if s.status.State != control.Waiting || s.undecided() || s.refused() || s.want == nil || s.has.Stopping {
		return
	}
	secrets, err := f.delivery.values(*s.want)
	if len(secrets.Missing) == 0 {
		secrets.Missing = f.withheld(*s.want)
	}
	switch {
	case err != nil: // what is there cannot be read; starting it again would say so, and not help
	case len(secrets.Missing) > 0:
		s.lacks(secrets)
	default:
		s.again = s.has.Started != nil
		f.converge(s)
	}
}

// renewRefused has a server whose remote has refused its token wait for another one, if pfar obtains that without a
// person. Of a server that wants more scopes it obtains none.
func (s *server) renewRefused(d *delivery) {
	if login := units.ToDo(units.SignIn, s.name); s.want == nil || !s.refused() || s.status.Wait.Remedy != login {
		return
	}
	key := bearerOf(*s.want)
	if key == "" {
		return
	}
	d.vault.Refused(key)
	set, _, ok, err := d.vault.Tokens(key)
	if _, good := oauth.Covers(set.Resource, s.want.Sandbox.Remote); s.awaitsRefresh(d) || !ok || err != nil || good ||
		set.Resource == "" {
		return
	}
	s.status.Detail += fmt.Sprintf("; the OAuth token %q was issued for %q", key, set.Resource)
}

// awaitsRefresh shows what becomes of the token that a remote has refused, and reports false if the server may try
// again.
func (s *server) awaitsRefresh(d *delivery) bool {
	key := bearerOf(*s.want)
	now, problem := d.vault.Refreshes(key)
	switch login := units.ToDo(units.SignIn, s.name); {
	case problem != "":
		if s.renews() {
			words := login.Command + ": " + problem
			s.set(control.Waiting, words)
			s.status.Wait = units.Wait{For: units.WaitLogin, Remedy: login, Words: words}
		}
		return true
	case now:
		s.set(control.Waiting, fmt.Sprintf("the server has refused the OAuth token %q, which is being refreshed", key))
		s.status.Wait = units.Wait{For: units.WaitRefresh}
	}
	return now
}

// bearerOf is the key of the token that goes out in its standard place; "": there is none.
func bearerOf(p plan.Plan) string {
	for _, c := range p.Credentials {
		if slices.Equal(c.Places, broker.Standard()) {
			return c.Key
		}
	}
	return ""
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
func (f *fleet) turnedOutside(s *server, u units.Update) {
	if u.Ended {
		s.run, s.asleep = false, false
		s.has.Found(nil)
		s.dismiss(fmt.Errorf("%w: somebody else stopped %q", control.ErrStopped, s.name))
		f.take(s, u)
		s.forgetProcess()
		for _, e := range s.sessions {
			e.close()
		}
	} else if s.want != nil && s.has.Started == nil {
		p := s.plan() // which it is: what is offered is that
		s.run, s.asleep = s.want.Enabled, false
		s.retries.anew()
		s.has.Found(&p)
		f.take(s, u)
	}
	f.converge(s)
}

// take has a server take what the runner says, and tells the administrator once what the unit says in vain.
func (f *fleet) take(s *server, u units.Update) {
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
	words := f.delivery.comparing(*s.want, scopesOf(*s.want)).unknown()
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
		s.retry.begin(f.inbox, f.after, pauses(), func() { f.startCrashed(s) })
	}
}

// startCrashed starts a server that is still as its crashes have left it.
func (f *fleet) startCrashed(s *server) {
	if f.servers[s.name] != s || s.status.State != control.Failed || s.want == nil || !s.runs() || s.has.Stopping {
		return
	}
	f.log.Info("starting a server again that its crashes had disabled", "server", s.name)
	s.again = s.has.Started != nil
	f.converge(s)
	f.around.tell()
}
