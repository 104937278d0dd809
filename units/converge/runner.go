package converge

import (
	"maps"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

// Machine runs processes, each by the plan of its instance. A plan that names a session makes a further process of its
// server. What becomes of processes a machine tells by itself.
type Machine interface {
	Start(p plan.Plan, secrets units.Secrets) error
	Adjust(p plan.Plan) error          // returns when what runs goes by p; an error: it may not
	Prepare(p plan.Plan) error         // Start will not fail for want of space
	Stop(instance string)              // returns when nothing is left; a session's process is forgotten with it
	Offer(server string, p *plan.Plan) // others may start it, if it does not run; nil: they may not
	Forget(server string)
	Log(name string) string // says where to read what an instance or the gateway writes
}

// Caller is who wants something. Its methods are called by the goroutine that calls Apply, but for Post.
type Caller interface {
	Post(f func())                             // has that goroutine call f
	Launch(p plan.Plan) (units.Secrets, error) // gives what a process is started with; an error: it is not
	Happened(e Event)                          // is told of each step, in their order
}

// Runner brings what a machine runs to what is wanted. One goroutine uses it.
type Runner struct {
	machine Machine
	caller  Caller
	states  map[string]*State
}

// New returns a Runner that knows of nothing that runs.
func New(m Machine, c Caller) *Runner { return &Runner{m, c, map[string]*State{}} }

// State is what runs of one server. Only its Runner changes it, but for Found.
type State struct {
	Started  *plan.Plan // by which its process was started, or goes by now; nil: it has none
	Next     *plan.Plan // by which it is about to go, while it runs on; nil: it stays
	Stopping bool

	server   string
	want     *Server
	again    bool            // as Server.Again, until it is stopped
	sessions map[string]bool // that have a process, by handle; true: it is being stopped
}

// Of returns the state of a server.
func (r *Runner) Of(server string) *State {
	if r.states[server] == nil {
		r.states[server] = &State{server: server, sessions: map[string]bool{}}
	}
	return r.states[server]
}

// Found takes it that somebody else has started the server by a plan or, if that is nil, stopped it.
func (s *State) Found(p *plan.Plan) { s.Started = p }

// FoundSession takes it that a session has a process.
func (s *State) FoundSession(handle string) { s.sessions[handle] = false }

// Stray stops an instance that nobody wants and of which nothing is known. It does not wait.
func (r *Runner) Stray(instance string) { go r.machine.Stop(instance) }

// Forget gives up what is kept of a server that does not run.
func (r *Runner) Forget(server string) {
	delete(r.states, server)
	r.machine.Forget(server)
}

// Log says where to read what an instance writes, or the gateway.
func (r *Runner) Log(name string) string { return r.machine.Log(name) }

// Apply begins to bring what runs to what is wanted, and goes on by itself. It does not wait: a stop may take seconds.
// It may be called again with the same wants, which changes nothing.
func (r *Runner) Apply(want Want) {
	for name, w := range want {
		if s := r.Of(name); s.want != w {
			s.want, s.again = w, s.again || w.Again
			r.step(s)
		}
	}
	for name, s := range maps.Clone(r.states) {
		if want[name] == nil {
			s.want = nil
			r.step(s)
		}
	}
}

// step does the next step for one server.
func (r *Runner) step(s *State) {
	r.endSessions(s)
	w := s.want
	if w != nil {
		now := *w
		now.Again = s.again
		w = &now
	}
	switch Decide(Have{s.Started, s.Stopping || s.Next != nil, len(s.sessions)}, w) {
	case Adjust:
		r.adjust(s)
	case Replace:
		if err := r.machine.Prepare(w.Plan); err != nil { // nothing that runs ends for want of space
			r.caller.Happened(Delayed{s.server, err})
			return
		}
		r.stop(s)
	case Stop:
		r.stop(s)
	case Start:
		r.start(s)
	case Rest:
		offered := &w.Plan
		if !w.Offer {
			offered = nil
		}
		r.machine.Offer(s.server, offered)
		r.caller.Happened(Rests{s.server})
	case Forget:
		r.machine.Forget(s.server)
		delete(r.states, s.server)
		r.caller.Happened(Forgotten{s.server})
	}
	r.startSessions(s)
}

// over tells what has come of something that took its time, and goes on unless whoever is told has had another want
// applied.
func (r *Runner) over(s *State, e Event) {
	before := s.want
	r.caller.Happened(e)
	if s.want == before && r.states[s.server] == s {
		r.step(s)
	}
}

func (r *Runner) start(s *State) {
	p := s.want.Plan
	secrets, err := r.caller.Launch(p)
	if err == nil {
		err = r.machine.Start(p, secrets)
	}
	if err != nil {
		r.caller.Happened(Refused{Server: s.server, Err: err})
		return
	}
	s.Started, s.again = &p, false
	r.caller.Happened(Started{s.server})
}

func (r *Runner) stop(s *State) {
	s.Stopping, s.again = true, false
	r.caller.Happened(Stopping{s.server})
	r.endSessions(s)
	go func() {
		r.machine.Stop(s.server)
		r.caller.Post(func() {
			s.Stopping, s.Started = false, nil
			r.over(s, Stopped{s.server})
		})
	}()
}

// adjust brings what runs to a plan for which it need not be started again.
func (r *Runner) adjust(s *State) {
	p := s.want.Plan
	s.Next = &p
	instances := []plan.Plan{p}
	for handle, ending := range s.sessions {
		if own := p; !ending {
			own.Gateway.Session = handle
			instances = append(instances, own)
		}
	}
	go func() {
		failed := map[string]error{}
		for _, i := range instances {
			if err := r.machine.Adjust(i); err != nil {
				failed[i.Gateway.Session] = err
			}
		}
		r.caller.Post(func() { r.adjusted(s, failed) })
	}()
}

// adjusted takes it that a server goes by its next plan. What may not is stopped: it runs by no older one.
func (r *Runner) adjusted(s *State, failed map[string]error) {
	if s.Started != nil {
		s.Started = s.Next
	}
	s.Next = nil
	for handle := range failed {
		if handle == "" {
			s.again = s.Started != nil
		} else if ending, there := s.sessions[handle]; !there || ending {
			delete(failed, handle) // it has ended
		} else {
			r.endSession(s, handle)
		}
	}
	r.over(s, Adjusted{s.server, failed})
}

// startSessions starts the processes of sessions that are wanted of a server that runs. One that cannot be started is
// not tried again.
func (r *Runner) startSessions(s *State) {
	if s.want == nil || s.Started == nil || s.Stopping {
		return
	}
	for handle := range s.want.Sessions {
		if _, there := s.sessions[handle]; there {
			continue
		}
		p := *s.Started
		if s.Next != nil {
			p = *s.Next
		}
		p.Gateway.Session = handle
		secrets, err := r.caller.Launch(p)
		if err == nil {
			err = r.machine.Start(p, secrets)
		}
		if err != nil {
			delete(s.want.Sessions, handle)
			r.caller.Happened(Refused{s.server, handle, err})
			continue
		}
		s.sessions[handle] = false
	}
}

// endSessions stops the processes of sessions that nobody wants, or whose server does not go on.
func (r *Runner) endSessions(s *State) {
	for handle, ending := range s.sessions {
		if !ending && (s.want == nil || !s.want.Sessions[handle] || s.Started == nil || s.Stopping) {
			r.endSession(s, handle)
		}
	}
}

// endSession stops the process of a session, which is never started again: what its client had in it is gone.
func (r *Runner) endSession(s *State, handle string) {
	s.sessions[handle] = true
	if s.want != nil {
		delete(s.want.Sessions, handle)
	}
	go func() {
		r.machine.Stop(units.Instance(s.server, handle))
		r.caller.Post(func() {
			delete(s.sessions, handle)
			r.over(s, Left{s.server, handle})
		})
	}()
}
