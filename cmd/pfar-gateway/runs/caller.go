// Package runs runs flows: it keeps each run's position and store on the disk, and chooses nothing. What it calls
// passes the gate one by one.
package runs

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
)

// Caller makes the calls of runs, as the client whose runs they are.
type Caller interface {
	// Call makes one call. It may take as long as the node takes, but not as long as a person: if the gate asks, it
	// returns at once with Waits. An error is one of the caller itself, and the run fails with its words, but for ErrLeft.
	// Nothing is sent before Call.Begun has returned nil, nor once ctx is done.
	Call(ctx context.Context, c Call) (Result, error)
	// Answered calls then, in a goroutine of its own, when the approval of an id does not wait any more; at once if it
	// does not now. stop makes that it is not called; it may be on its way. After stop nobody needs the answer. stop does
	// not wait for a call of then.
	Answered(approval string, then func()) (stop func())
	// Writes reports whether a call of a node may change something. What is not known changes something.
	Writes(client string, n *flow.Node) bool
	// Held hears that the result of a call must not be written to the disk (Parts.Clean): once a call, before anybody is
	// told that the run has failed. A client that computes values could guess a secret by that. The Call has the client,
	// the plan and the step alone.
	Held(c Call)
}

// ErrLeft is of a call that has failed because pfar itself ends: its server has ended with pfard. Result.Sent is all
// that is known of it. The run stays where it is for the next gateway: a call that reads, or was not sent, is made
// again, and one that writes has an unknown outcome.
var ErrLeft = errors.New("pfar ended in the course of the call")

// Ended is what a Caller may have beside, which then hears when a run is over: at once, and again when a call has come
// back that was on its way.
type Ended interface{ Ended(run string) }

// Call is one call of a run.
type Call struct {
	Run, Client, Session string
	Proof                string // of whoever began the run
	Plan                 *flow.Plan
	Step                 int // place in Plan.Steps
	Turn                 int // how many calls the run has made before
	Arguments            json.RawMessage

	// Floor is the label of all that the run's store holds. The session's label is raised to it before the gate decides.
	Floor gate.Label
	Epoch int64 // of the session, when the run began; 0: not known

	Asked bool // the call has waited for an approval: it is the same one as before

	begun func() error
}

// Begun is to be called right before the node gets the request. If the call writes, it waits until the disk has it that
// the call has begun: meanwhile the gate decides. With an error nothing may be sent.
func (c *Call) Begun() error {
	if c.begun == nil {
		return errors.New("the run has not begun the call")
	}
	return c.begun()
}

// Result is what has become of a call.
type Result struct {
	ID      string // of the call's record in the audit
	Verdict gate.Verdict
	Value   json.RawMessage // a tool's result (CallToolResult) as raw as it came, or a native node's value
	Label   gate.Label      // of Value
	Failed  failure.Failure // its class; "" with Error: one that is not known
	Error   string          // why the call failed; "": it has not
	Denied  bool            // the gate, or a person, has denied it
	Waits   string          // id of the approval that the call waits for; nothing was sent
	Sent    bool            // the node has had the request, or may have had it
	Reused  bool            // Value is of an earlier call
}
