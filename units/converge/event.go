package converge

// Event is what has become of a server by a step.
type Event interface{ event() }

type (
	// Stopping: its processes are being stopped, those of its sessions too.
	Stopping struct{ Server string }
	// Stopped: nothing of its own process is left.
	Stopped struct{ Server string }
	// Started: its process is under way.
	Started struct{ Server string }
	// Refused: its process, or that of a session, cannot be started.
	Refused struct {
		Server, Session string
		Err             error
	}
	// Delayed: another process cannot be prepared for. The one that runs goes on.
	Delayed struct {
		Server string
		Err    error
	}
	// Adjusted: it goes by its next plan, but for processes that failed. These are replaced, those of sessions stopped.
	Adjusted struct {
		Server string
		Failed map[string]error // by session; "": the server's own
	}
	// Left: nothing of the process of a session is left.
	Left struct{ Server, Session string }
	// Rests: it does not run, and need not.
	Rests struct{ Server string }
	// Forgotten: nothing of it is left, and nobody wants it.
	Forgotten struct{ Server string }
)

func (Stopping) event()  {}
func (Stopped) event()   {}
func (Started) event()   {}
func (Refused) event()   {}
func (Delayed) event()   {}
func (Adjusted) event()  {}
func (Left) event()      {}
func (Rests) event()     {}
func (Forgotten) event() {}
