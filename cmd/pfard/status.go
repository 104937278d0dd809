package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// renewal is what a server needs whose launcher was given another value than there is now, because a token was
// refreshed or pfard has another environment: another process, once no request is under way. That the gateway knows,
// and asks for it (Sleep).
type renewal int

const (
	noRenewal   renewal = iota
	renewalDue          // the gateway is told so (OnDemand.Renews)
	renewalDone         // it is being started again, and the gateway keeps requests for it
)

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
	s.status.Wait = units.Wait{}
	switch s.status.State, s.status.Detail = state, detail; state {
	case control.Running, control.Offline: // which goes on until it is up
		s.served = true
	case control.Stopped, control.Failed, control.Sleeping, control.Waiting:
		s.served = false
	}
}

// take applies what the runner says. While a stop is under way the server is stopping, whatever its processes say.
func (s *server) take(u units.Update) {
	if s.has.Started == nil {
		return
	}
	if u.Refusal.Reason != "" {
		s.status.Denial.Add(u.Refusal, time.Now())
	}
	if s.has.Stopping {
		return
	}
	s.status.PID = u.PID
	s.set(control.State(u.State), u.Detail)
	switch s.status.State {
	case control.Waiting:
		s.status.Wait = u.Wait
	case control.Offline:
		s.status.Wait = u.Wait
		s.status.Wait.For, s.status.Wait.Remedy = "", units.Remedy{}
	}
	if s.renew == renewalDone && s.status.State == control.Running {
		s.renew = noRenewal
	}
	if s.status.State == control.Running {
		s.shows(u.Verification)
	}
	s.status.UID, s.status.Tools, s.status.Crashes, s.status.Speech = u.UID, u.Tools, u.Crashes, u.Speech
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

func (s *server) report(log string) control.Server {
	r := s.status
	r.Since, r.Log, r.Stale, r.Sessions = s.since.time(now()), log, s.stale && s.held == nil, s.openSessions()
	r.Broken = s.want != nil && s.want.Fault != ""
	if r.State == control.Stopped {
		r.Off = s.isOff()
	}
	p := s.want
	if p == nil || s.has.Next != nil && s.has.Started != nil { // an edit shows once it is in force
		p = s.has.Started
	}
	if p != nil {
		r.File, r.Description, r.Label = p.File, p.Gateway.Description, p.Gateway.Label
		r.URL, r.Attached = p.Sandbox.Remote, p.Sandbox.Attached
		for _, e := range p.Egress.Endpoints {
			r.Domains = append(r.Domains, e.String())
		}
		if p.Gateway.Sessions.Own {
			r.SessionsMax = p.Gateway.Sessions.Max
		}
	}
	verified(&r, p)
	if p != nil && p.Insecure != "" {
		r.Detail = strings.TrimPrefix(r.Detail+"; "+unencrypted(*p), "; ")
	}
	if r.State == control.Waiting && s.status.Wait.NeedsLogin() {
		r.State = control.NeedsLogin
	}
	if s.retry.timer != nil {
		r.Detail += "; pfar starts it again " + pauseWords(s.retry.pause) + " after that"
	}
	if s.opening.timer != nil {
		r.Detail = strings.TrimPrefix(r.Detail+"; "+s.opening.words(), "; ")
	}
	if s.delayed != nil && s.has.Started != nil {
		r.Detail = strings.TrimPrefix(r.Detail+"; not yet as its file says: "+s.delayed.Error(), "; ")
	}
	if s.held != nil {
		const asks = "; not as its file says, which asks for secrets that it is not given: pfar vault give "
		r.Detail = strings.TrimPrefix(r.Detail+asks+s.name, "; ")
	}
	if s.learn != nil {
		r.Learning = true
		r.Detail = strings.TrimPrefix(r.Detail+"; "+detailLearning, "; ")
	}
	return r
}

// unencrypted says that everybody on the way to a server can read and change what goes there, and its owner's reason.
func unencrypted(p plan.Plan) string { return fmt.Sprintf("not encrypted: %q", p.Insecure) }

// detailLearning stands behind what else is to be said, so that nobody forgets that a server is not as it was declared.
const detailLearning = "learning: what it wants to reach and may not is recorded"

func (s *server) reasonNotRun() string {
	switch s.isOff() {
	case control.OffByOperator:
		return "disabled by you; pfar enable " + s.name
	case control.OffByFile:
		return "enabled = false in its declaration"
	}
	return "stopped"
}

// isOff is why the server may not be started.
func (s *server) isOff() control.Off {
	switch {
	case s.off:
		return control.OffByOperator
	case s.want != nil && !s.want.Enabled:
		return control.OffByFile
	}
	return ""
}

// reasonAsleep says what ends a server's sleep, behind its state.
func reasonAsleep(p plan.Plan) string {
	if idle := p.Gateway.IdleTimeout; idle > 0 {
		return fmt.Sprintf("starts with the first call (idle_timeout %s)", declaration.Short(idle))
	}
	return "starts with the first call (autostart = false)"
}

// down is the error of what needs a server that does not run.
func (s *server) down() error {
	why := fmt.Sprintf("%v: %q is %s: %s", control.ErrDown, s.name, s.status.State, s.status.Detail)
	return &control.Refused{Code: control.CodeDown, Message: why, Wait: s.status.Wait}
}

// returns reports whether a server that was up, or offline, is on its way down and up again.
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

// undecided reports whether a server waits for its owner to accept its program. Its launcher ends by itself once that
// is done.
func (s *server) undecided() bool {
	return s.status.State == control.Waiting && s.status.Wait.For == units.WaitProgram
}

// refused reports whether a remote server waits because it has refused the token that it was given, or wants one.
func (s *server) refused() bool {
	return s.status.State == control.Waiting && s.status.Wait.For == units.WaitLogin || s.renews()
}

// renews reports whether a server waits for another token than the one that it has refused.
func (s *server) renews() bool {
	return s.status.State == control.Waiting && s.status.Wait.For == units.WaitRefresh
}

// lacks has a server wait for credentials.
func (s *server) lacks(secrets units.Secrets) {
	wait := units.WaitForSecrets(secrets)
	s.set(control.Waiting, wait.Status())
	s.status.Wait = wait
}

// openSessions is what a report says of a server's sessions.
func (s *server) openSessions() []control.Session {
	var list []control.Session
	for _, e := range s.sessions {
		status := e.status
		status.Since = e.since.time(now())
		list = append(list, status)
	}
	slices.SortFunc(list, func(a, b control.Session) int { return strings.Compare(a.Handle, b.Handle) })
	return list
}

// shows takes what the gateway says of a server's secrets, unless it has others by now.
func (s *server) shows(v units.Verification) {
	if s.former != "" && v.For == s.former && v.For != s.present {
		return
	}
	s.status.Verification = v
}

// verified is a report's word on a server's secrets.
func verified(r *control.Server, p *plan.Plan) {
	v := &r.Verification
	v.For = ""
	if v.Result != units.Invalid || p == nil {
		return
	}
	if trial := p.Gateway.Trial; trial != nil {
		v.Remedy, v.Where = trial.Remedy, trial.Where
	}
	if r.State == control.Running {
		r.State, r.Detail = control.CredentialInvalid, handover.Refused(*v)
	}
}

// doubtful reports whether clients may see nothing of a server because its secrets are not known to be right.
func (s *server) doubtful() bool {
	if s.want.Gateway.Trial == nil {
		return false
	}
	switch s.status.Verification.Result {
	case units.Verified, units.Unverified:
		return false
	}
	return true
}
