// Package flow has flows as data: steps, each of which calls one node, and the edges between them.
//
// A flow's steps share one store, a flat map of names to JSON values. A step reads its inputs from the store, calls its
// node, and writes the node's outputs to the store. The action that the node ends with chooses the edge to the next
// step. Nothing in a result chooses a step, a node or a parameter.
package flow

import "encoding/json"

// Flow is what a file of a flow, or a line of the command line, says. Check says whether it can run.
type Flow struct {
	Name     string   `json:"name,omitempty"` // of the file without its ending; "": of a command line
	Metadata Metadata `json:"metadata"`
	Steps    []Step   `json:"steps"` // as they are written; the first is where a run starts
	Edges    []Edge   `json:"edges"`
	Most     int      `json:"most_steps,omitempty"` // calls in one run; 0: DefaultMost
	Fresh    bool     `json:"fresh,omitempty"`      // each tool is called, also a pure one whose result is known

	// Store is what a run's store holds before its first step.
	Store map[string]json.RawMessage `json:"store,omitempty"`
}

// Metadata says where a flow is from. Nothing is decided by it.
type Metadata struct {
	Planner   string `json:"planner_version,omitempty"`
	CreatedAt string `json:"created_at,omitempty"` // RFC 3339
	Prompt    string `json:"prompt,omitempty"`     // the words that a planner has had
}

// DefaultMost is how many calls a run makes at most, and MaxMost what a flow may ask for.
const (
	DefaultMost = 64
	MaxMost     = 1024
)

// Step is one place in a flow at which a node is called.
type Step struct {
	ID      string `json:"id"`                // of this flow alone
	Node    string `json:"node"`              // as the flow names it (Find)
	Version string `json:"version,omitempty"` // that the server must have; "": any

	// Source is the tool that the metadata of a file names: SERVER.TOOL, as far as it says. It finds the node where Node
	// does not, and must not name another one. "": the file says nothing.
	Source string `json:"source,omitempty"`

	Params map[string]json.RawMessage `json:"params,omitempty"` // by the node's own names

	// Set is written to the store before the step reads it, by the node's own names of inputs. Only a flow that is not
	// run has nil among them, for a value that the check is not to see.
	Set map[string]json.RawMessage `json:"set,omitempty"`

	// Reads maps the node's own name of an input to its name in the store; others have the same name. A param that is
	// here is read as if it were an input.
	Reads map[string]string `json:"reads,omitempty"`

	Writes map[string]string `json:"writes,omitempty"` // own name of an output to its name in the store
	At     At                `json:"-"`
}

// Edge leads from one step to the next.
type Edge struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Action string `json:"action,omitempty"` // with which From ends; "": Default
	At     At     `json:"-"`
}

// Default is the action of a call that has succeeded.
const Default = "default"

// At is a place in a file, each counted from 1; the zero value is none.
type At struct{ Line, Column int }

// Port is an input, a parameter or an output of a node.
type Port struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"` // the server's words
	Schema      json.RawMessage `json:"schema,omitempty"`      // JSON Schema; nil: any value
	Required    bool            `json:"required,omitempty"`
	Default     json.RawMessage `json:"default,omitempty"` // nil: none

	// Piped is of one input of a native node: where nothing else gives it, it is the result of the step before.
	Piped bool `json:"piped,omitempty"`

	// Own is of ports of a native node by which a step tells itself something for the next time: its name in the store
	// has the step's id, unless the flow maps it.
	Own bool `json:"own,omitempty"`
}

// Node is what a step can call: a tool that a client may use, or one of pfar's own.
type Node struct {
	ID          string   `json:"node_id"`               // SERVER.TOOL, or the name of a native node
	Server      string   `json:"server,omitempty"`      // "": native
	Tool        string   `json:"tool,omitempty"`        // the server's own name of it
	Aliases     []string `json:"aliases,omitempty"`     // other names of it, beside those that Find makes
	Version     string   `json:"version,omitempty"`     // that the server says it has
	Pin         string   `json:"pin,omitempty"`         // digest of the accepted definition; "": held
	Held        string   `json:"held,omitempty"`        // why nobody may call it; "": a client may
	Description string   `json:"description,omitempty"` // the server's words, or the owner's
	Inputs      []Port   `json:"inputs"`
	Params      []Port   `json:"params"`
	Outputs     []Port   `json:"outputs"` // the last is the whole result, under the tool's own name
	Actions     []string `json:"actions"` // Default is the first
	Pure        bool     `json:"pure"`    // its owner says that the same inputs give the same result

	// Reviewed says that a person, or a digest that pfar ships, has accepted what is said of it: a planner may read that.
	Reviewed bool `json:"reviewed,omitempty"`

	// Open is of native nodes whose inputs are what a step says: each name in its Reads, and in its params each NAME that
	// stands as {{NAME}} in a text, is an input that the step must be given.
	Open bool `json:"open,omitempty"`
}

// Nodes finds nodes by the names that flows use.
type Nodes interface {
	// Find returns the node of a name. The error lists near names, or the candidates of an ambiguous one.
	Find(name string) (*Node, error)
}
