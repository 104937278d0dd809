// Package flows has what the gateway and its clients tell each other about flows: HTTP and JSON on the gateway's
// sockets, at /flows, /flows/CLIENT and /flows/CLIENT/SESSION.
package flows

import (
	"encoding/json"
	"time"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
)

// The verbs of orders.
const (
	Check  = "check"  // read a flow and say what is wrong with it
	Show   = "plan"   // and how the gate judges each step
	Run    = "run"    // and run it
	Nodes  = "nodes"  // list what steps can call
	List   = "list"   // list the client's runs
	Of     = "show"   // show one run with its trace
	Ask    = "ask"    // have a model write a flow
	Word   = "word"   // have a model put the result of a run into words
	Resume = "resume" // run on, after a step whose outcome is not known
	Cancel = "cancel"
)

// NoModel is the status of HTTP with which the gateway answers Ask and Word where no model is declared for that: the
// order needs what somebody else has to make (RFC 4918 section 11.4).
const NoModel = 424

// Order is what a client wants.
type Order struct {
	Verb  string   `json:"verb"`
	Name  string   `json:"name,omitempty"`  // of the flow
	Form  string   `json:"form,omitempty"`  // of Text: json, hcl or line
	Text  string   `json:"text,omitempty"`  // the flow
	Flags []string `json:"flags,omitempty"` // --name value, over what the flow says
	Input *string  `json:"input,omitempty"` // standard input, for the first step; nil: none
	Fresh bool     `json:"fresh,omitempty"` // each tool is called, also a pure one whose result is known
	Run   string   `json:"run,omitempty"`   // id of a run
	Words string   `json:"words,omitempty"` // of Ask: what a person asks for
	Model string   `json:"model,omitempty"` // of Ask and Word: by name; "": the first that may

	// Digest is of Run: that of the plan that was shown. Another one is not run. "": nothing was shown.
	Digest string `json:"shown,omitempty"`

	// Past is of Resume: done or again, what is to become of a step whose outcome is not known.
	Past string `json:"past,omitempty"`
}

// Answer is what the gateway says to an order. The answer to Run and Resume is a line of JSON for each change, the last
// one when the run is over. Each line has the steps of the trace that no line before has had; Dropped counts those
// among them that are kept no more. Who hangs up ends nothing.
type Answer struct {
	Problems []flow.Problem `json:"problems,omitempty"`
	Steps    []Judged       `json:"steps,omitempty"`
	Nodes    []flow.Node    `json:"nodes,omitempty"`
	Runs     []Status       `json:"runs,omitempty"`
	Run      *Status        `json:"run,omitempty"`
	Digest   string         `json:"digest,omitempty"` // of the plan
	Draft    *Draft         `json:"draft,omitempty"`  // of Ask
	Worded   *Worded        `json:"worded,omitempty"` // of Word
}

// Draft is what a model has written: a flow, or an answer that needs none.
type Draft struct {
	Flow      json.RawMessage `json:"flow,omitempty"`      // in the form json; nil: there is none
	Digest    string          `json:"digest,omitempty"`    // of its plan
	Answer    string          `json:"answer,omitempty"`    // words that need no step
	Reasoning string          `json:"reasoning,omitempty"` // the model's own
	Model     string          `json:"model"`
	Label     gate.Label      `json:"label"`              // of the session that has it
	Repaired  bool            `json:"repaired,omitempty"` // the first had mistakes
	LeftOut   int             `json:"left_out,omitempty"` // tools that the model was not told of
}

// Worded are the words of a model about the result of a run.
type Worded struct {
	Text  string     `json:"text,omitempty"`
	Model string     `json:"model,omitempty"`
	Label gate.Label `json:"label,omitzero"`
	Why   string     `json:"why,omitempty"` // there are no words; "": there are
}

// Judged is a step of a plan as the gate judges it before the run: by the worst that the session may have seen by then.
type Judged struct {
	Step      string          `json:"step"`
	Node      string          `json:"node"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // what is known of them
	From      []string        `json:"from,omitempty"`      // names of arguments that earlier steps may give
	Verdict   gate.Verdict    `json:"verdict"`
	Reason    string          `json:"reason"`
	Label     gate.Label      `json:"label"` // of the session before the call, at worst
	Facts     gate.Facts      `json:"facts"`

	// Or has the values that the flow gives to arguments that are not certain: those in From have one of them if no step
	// gives them, and others always.
	Or map[string][]json.RawMessage `json:"or,omitempty"`
}

// State is that of a run. The zero value is none.
type State string

const (
	Running   State = "running"
	Waiting   State = "waiting" // for an approval
	Unknown   State = "unknown" // whether the last step has done what it was to do is not known: its owner decides
	Done      State = "done"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Status is what is told of a run.
type Status struct {
	ID       string     `json:"id"`
	Flow     string     `json:"flow,omitempty"`
	Client   string     `json:"client"`
	Session  string     `json:"session"`
	State    State      `json:"state"`
	Reason   string     `json:"reason,omitempty"`   // why it waits or failed
	Approval string     `json:"approval,omitempty"` // id that it waits for
	At       string     `json:"at,omitempty"`       // id of the step that it calls now, or next; "": it is over
	Begun    time.Time  `json:"begun"`
	Label    gate.Label `json:"label"` // of all that its store holds
	Trace    []Step     `json:"trace,omitempty"`
	Dropped  int        `json:"dropped,omitempty"` // steps of the trace that are kept no more

	// Result is that of the last step, once it is done: the tool's result (CallToolResult), or a native node's value.
	Result json.RawMessage `json:"result,omitempty"`
}

// Step is one call of a run.
type Step struct {
	Step    string        `json:"step"`
	Node    string        `json:"node"`
	Call    string        `json:"call,omitempty"` // id in the audit
	Verdict gate.Verdict  `json:"verdict"`
	Label   gate.Label    `json:"label"`  // of the run after it
	Action  string        `json:"action"` // with which it ended
	Class   failure.Class `json:"class,omitempty"`
	Bytes   int           `json:"bytes"`
	Reused  bool          `json:"reused,omitempty"` // an earlier result of a pure tool was used in place of a call
	Begun   time.Time     `json:"begun"`
	Took    time.Duration `json:"took"` // nanoseconds
}
