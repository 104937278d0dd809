package operator

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pfar/pfar/policies/gate"
)

// WholeFlow is the method of a question about all steps of a flow.
const WholeFlow = "flows/run"

// State is what has become of a call. The zero value may not run.
type State uint8

const (
	Denied   State = iota
	Pending        // nobody has answered
	Approved       // it may run, once
	Used           // it has
	Expired        // nobody answered in time, or nobody used the answer
)

var states = []string{"denied", "pending", "approved", "used", "expired"}

func (s State) String() string               { return states[min(int(s), len(states)-1)] }
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the word.
func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(states, string(b))
	if i < 0 {
		return fmt.Errorf("%.50q is not one of %q", b, states)
	}
	*s = State(i)
	return nil
}

// Approver is who answered: the user whom the kernel names, or an operator who signed it with a passkey.
type Approver struct {
	UID     int    `json:"uid"` // of the process that asked
	Name    string `json:"name"`
	Channel string `json:"channel"` // "operator socket" or "passkey"
}

// Request is a call that a human is to decide about, and all that the decision is bound to. Beside and the Reason
// of the Decision are shown, and bind nothing, nor does Last.
type Request struct {
	Client    string          `json:"client"`
	Proof     string          `json:"proof,omitempty"` // how the client has shown who it is
	Session   string          `json:"session"`         // its handle
	Server    string          `json:"server"`
	Name      string          `json:"name"` // of the tool, prompt or resource, as the server has it
	Method    string          `json:"method"`
	Arguments json.RawMessage `json:"arguments"` // exactly what is sent: of a resource {"uri": …}
	Facts     gate.Facts      `json:"facts"`
	Decision  gate.Decision   `json:"decision"`
	Pin       string          `json:"pin"`    // digest of the definition that is accepted
	Policy    string          `json:"policy"` // digest of the policy that decided

	// Findings are those of inspectors, and of secrets' patterns, in words that are the same each time. No grant covers a
	// call with one of them.
	Findings []string `json:"findings,omitempty"`
	Beside
	Unshown `json:"-"`
}

// Beside is what a person is shown beside a call. It binds nothing.
type Beside struct {
	Sources []Source `json:"sources,omitempty"` // of the session's label
	Silent  int      `json:"silent,omitempty"`  // as of a Session
	Call    string   `json:"call,omitempty"`    // id of the audit record
}

// Unshown is what the gateway alone goes by.
type Unshown struct {
	Last  bool       // it cannot be sent again, so that it is waited for as long as it is open
	Plain gate.Facts // its facts without stains, which a grant is bound to; zero: no grant is about it
	// Life is how long it may wait, of a run of a flow, with which nobody waits; 0: somebody does, as long as is usual.
	Life time.Duration
	Run  string // id of the run, which alone may use the approval; "": it is of no run
	Step string // id of the run's step; "": it is about the whole plan
}

// Shown is a call that waits, as a person is to see it.
type Shown struct {
	ID      string    `json:"id"`
	Digest  string    `json:"digest"` // what an approval is bound to
	State   State     `json:"state"`
	Reason  string    `json:"reason,omitempty"`
	Asked   time.Time `json:"asked"`
	Left    int       `json:"left"`           // seconds until it expires
	Link    string    `json:"link,omitempty"` // opens it at the remote console; "": there is none
	By      *Approver `json:"by,omitempty"`
	Masked  []string  `json:"masked,omitempty"` // names of the secrets that are not shown
	Request           // Arguments in canonical form

	Grants []GrantOffer `json:"grants,omitempty"` // for this tool, and for reads of public sources
}

// Event is a change of one. Kind is the state that it has from then on.
type Event struct {
	Kind     string `json:"kind"`
	Approval Shown  `json:"approval"`
}

// Past is one approval that is over, or open, as the disk has it.
type Past struct {
	ID       string    `json:"id"`
	Client   string    `json:"client"`
	Session  string    `json:"session"`
	Server   string    `json:"server"`
	Name     string    `json:"name"`
	Asked    time.Time `json:"asked"`
	State    string    `json:"state"`
	Reason   string    `json:"reason,omitempty"`
	Answered time.Time `json:"answered,omitzero"`
	By       *Approver `json:"by,omitempty"`
}
