package flow

// Plan is a flow that Check has found nothing wrong with. Its nodes are those of the moment of the check: whoever runs
// it compares their pins with those that are accepted by then.
type Plan struct {
	Flow  Flow
	Steps []Planned // in the order of Flow.Steps

	// Digest is the SHA-256, in hexadecimal, of all that the plan says: steps, edges, values, and each node's identity,
	// version and pin.
	Digest string
}

// Planned is a step with its node.
type Planned struct {
	Step
	Node *Node
	Next map[string]int // action to the place of the next step in Plan.Steps; an action that is not there ends the run

	// Unread are the node's own names of outputs that no step reads: they are not put into the store.
	Unread []string
}

// Problem is a mistake in a flow, with its place.
type Problem struct {
	At     At     `json:"at"`
	Step   string `json:"step,omitempty"`   // id; "": it is of the whole flow
	Text   string `json:"text"`             // what is wrong
	Advice string `json:"advice,omitempty"` // what to write instead
}
