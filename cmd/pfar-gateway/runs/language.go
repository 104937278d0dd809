package runs

import (
	"encoding/json"

	"github.com/pfar/pfar/policies/flow"
)

// Language is what the language of flows says about a step. It has no effect but on the store that it is given.
type Language interface {
	// Arguments makes the arguments of a step's call from the store, and first writes the values there that the step sets.
	Arguments(p *flow.Planned, store map[string]json.RawMessage) (json.RawMessage, error)
	// Write puts the outputs of a step's call into the store.
	Write(p *flow.Planned, result json.RawMessage, store map[string]json.RawMessage) error
}
