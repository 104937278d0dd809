// Package converge brings the processes of servers to what is wanted of them, whoever runs these processes.
package converge

import "github.com/pfar/pfar/units/plan"

// Want is all that is wanted, by server. A server that it does not name is stopped and forgotten.
type Want map[string]*Server

// Server is what is wanted of one server. Another value is another want, also if it says the same: what has failed is
// tried again.
type Server struct {
	Plan  plan.Plan
	Run   bool // it is to run by Plan
	Again bool // its process is to be another one, though the plan is the same
	Offer bool // others may start it while it does not run

	// Sessions are the handles of sessions that are to have a process of their own while it runs. The Runner takes out
	// those whose process has been stopped, or cannot be started.
	Sessions map[string]bool
}

// Have is what is known of the processes of one server.
type Have struct {
	Started  *plan.Plan // by which its process goes; nil: it has none
	Busy     bool       // it is being stopped, or brought to another plan
	Sessions int        // processes of sessions
}

// Step is what is to be done next about one server.
type Step string

const (
	Wait    Step = "wait"    // for what is under way
	Keep    Step = "keep"    // it is as it should be
	Adjust  Step = "adjust"  // have it go by another plan while it runs
	Replace Step = "replace" // stop it, to start another process
	Stop    Step = "stop"
	Start   Step = "start"
	Rest    Step = "rest" // it does not run, and need not
	Forget  Step = "forget"
)

// Decide returns the next step from what there is to what is wanted. want is nil of a server that is to be forgotten.
func Decide(have Have, want *Server) Step {
	run := want != nil && want.Run
	switch {
	case have.Busy || have.Started == nil && have.Sessions > 0: // nothing of it may be left before what comes next
		return Wait
	case have.Started != nil && !run:
		return Stop
	case have.Started != nil && want.Again:
		return Replace
	case have.Started != nil && plan.Digest(*have.Started) == plan.Digest(want.Plan):
		return Keep
	case have.Started != nil:
		if _, live := plan.Adjusted(*have.Started, want.Plan); live {
			return Adjust
		}
		return Replace
	case want == nil:
		return Forget
	case run:
		return Start
	}
	return Rest
}
