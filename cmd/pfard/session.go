package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/backoff"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// session is a process of a server's that serves one client session alone. It belongs to the loop, but for its
// channels.
type session struct {
	closing bool          // it is being stopped; it counts until nothing of it is left
	served  bool          // the gateway has been able to call it
	begun   chan error    // takes one: nil once its launcher runs, or why it never did
	gone    chan struct{} // closed when nothing of it is left
	since   moment        // of status.State; openSessions fills in status.Since
	status  control.Session
}

func newSession(handle string) *session {
	return &session{
		begun: make(chan error, 1), gone: make(chan struct{}),
		status: control.Session{Handle: handle, State: control.Starting}, since: now(),
	}
}

func (e *session) set(state control.State) {
	if e.status.State != state {
		e.since = now()
	}
	e.status.State = state
}

// begin tells whoever asked for the session, once, how that went.
func (e *session) begin(err error) {
	select {
	case e.begun <- err:
	default:
	}
}

// openSession starts a session's process. If there are as many as there may be it refuses, and returns one that is
// about to leave, if one is.
func (f *fleet) openSession(name, handle string) (opened, leaving *session, err error) {
	s, err := f.startable(name)
	if err != nil {
		return nil, nil, err
	}
	if leaving, err = s.admits(handle); err != nil {
		return nil, leaving, err
	}
	opened = newSession(handle)
	s.sessions[handle] = opened
	f.converge(s)
	f.around.tell()
	return opened, nil, nil
}

// launchSession returns what the process of a session is started with.
func (f *fleet) launchSession(p plan.Plan) (units.Secrets, error) {
	secrets, err := f.delivery.secrets(p)
	if err == nil {
		secrets.Missing = append(secrets.Missing, f.withheld(p)...)
	}
	if !f.waits {
		if unrecorded := f.delivery.record(p, secrets, err); unrecorded != nil {
			secrets.Missing = []string{unrecorded.Error()}
		}
	}
	if err == nil && len(secrets.Missing) > 0 {
		err = fmt.Errorf("%w: %q waits for credentials: %s", control.ErrDown, p.Name, strings.Join(secrets.Missing, "; "))
	}
	return secrets, err
}

// admits says why a server takes no session of that handle now. If that will change by itself, it returns a session
// that is about to leave.
func (s *server) admits(handle string) (leaving *session, err error) {
	switch {
	case !units.IsSession(handle):
		return nil, noHandle(handle)
	case s.has.Started == nil || s.has.Stopping || s.status.State == control.Failed:
		return nil, s.down()
	case !s.has.Started.Gateway.Sessions.Own:
		return nil, fmt.Errorf("%w of %q: its declaration has no sessions = \"own\"", control.ErrShared, s.name)
	case s.opening.timer != nil:
		why := fmt.Sprintf("%v: %q: %s", control.ErrDown, s.name, s.opening.words())
		return nil, &control.Refused{Code: control.CodeDown, Message: why, Wait: s.opening.wait}
	case s.sessions[handle] != nil:
		return nil, fmt.Errorf("%w: session %s of %q", control.ErrOpen, handle, s.name)
	case len(s.sessions) < s.has.Started.Gateway.Sessions.Max:
		return nil, nil
	}
	for _, e := range s.sessions {
		if e.closing {
			leaving = e
		}
	}
	return leaving, fmt.Errorf("%w: %q has %d sessions with a process of their own (sessions_max in %s)",
		control.ErrBusy, s.name, len(s.sessions), s.has.Started.File)
}

// closeSession begins to stop a session's process. Without one there is nothing to do.
func (f *fleet) closeSession(name, handle string) error {
	if !units.IsSession(handle) {
		return noHandle(handle)
	}
	if s := f.servers[name]; s != nil && s.sessions[handle] != nil {
		s.sessions[handle].close()
		f.converge(s)
		f.around.tell()
	}
	return nil
}

func noHandle(text string) error {
	return fmt.Errorf("%w: %q is not the handle of a session: 8 characters of a-z and 2-7", control.ErrInvalid, text)
}

// close has a session's process stopped as a server is (end of stdin, SIGTERM, SIGKILL), with the next look at
// what is wanted.
func (e *session) close() {
	if e.closing {
		return
	}
	e.closing = true
	e.set(control.Stopping)
	e.begin(fmt.Errorf("%w: the session was closed before its process ran", control.ErrStopped))
}

// left forgets a session of whose process nothing is left.
func (s *server) left(handle string) {
	if e := s.sessions[handle]; e != nil {
		delete(s.sessions, handle)
		close(e.gone)
	}
}

// sessionChanged takes the runner's word on a session's process. One that has ended is not started again: what its
// client had in it is gone, and the gateway has seen the end of it. After one that has not come to serve, the next one
// has to wait.
func (f *fleet) sessionChanged(s *server, u units.Update) {
	if u.Refusal.Reason != "" {
		s.status.Denial.Add(u.Refusal, time.Now())
	}
	e := s.sessions[u.Session]
	if e == nil || e.closing {
		return
	}
	e.set(control.State(u.State))
	e.status.PID, e.status.UID = u.PID, u.UID
	if u.State == units.StateRunning {
		e.served = true
		s.opening.anew()
	}
	switch {
	case u.Wait.NeedsLogin(): // the server's own process has the same token: its next start shows whether it is good
		e.close()
		s.unserved(f, u)
		s.again = s.has.Started != nil
		f.converge(s)
	case u.Ended:
		e.begin(fmt.Errorf("%w: its process could not be started: %s", control.ErrDown, u.Detail))
		e.close()
		if !e.served {
			s.unserved(f, u)
		}
		f.converge(s)
	case u.PID != 0:
		e.begin(nil)
	}
}

// unserved has sessions wait until another one gets a process.
func (s *server) unserved(f *fleet, u units.Update) {
	if s.opening.timer != nil { // this one was begun before the pause
		return
	}
	s.opening.wait, s.opening.why = u.Wait, u.Detail
	s.opening.begin(f.inbox, f.after, backoff.Offline(), f.around.tell)
}
