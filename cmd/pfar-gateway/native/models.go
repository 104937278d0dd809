// Package native has pfar's own nodes, which flows call beside the tools of servers: a call's arguments in, a value and
// its label out. None of them reaches a network, or a file outside of its client's folder.
package native

import (
	"context"
	"encoding/json"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/policies/gate"
)

// Models are the models that the owner has declared. The nodes llm and summarize-text ask them.
type Models interface {
	// Item is a model as the gate judges a question to it: a tool whose facts are those that the model's file declares,
	// the audience above all. "" is the model that answers nodes which name none. An error says why no node may ask it.
	Item(name string) (enforce.Item, error)
	// Ask puts a prompt to a model. The gate has let the question pass by then, with the Item of the same name, and the
	// prompt is the one that the gate has seen: Ask adds nothing to it. label is that of the answer alone.
	Ask(ctx context.Context, who enforce.Identity, name, prompt string, params map[string]json.RawMessage) (
		text string, label gate.Label, err error)
}
