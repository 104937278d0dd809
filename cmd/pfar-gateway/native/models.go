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
	// Model is the one of a name that nodes may ask; "" is the one that answers nodes which name none. An error says why
	// no node may ask it.
	Model(name string) (Model, error)
}

// Model is a model as it was declared when its name was looked up.
type Model interface {
	// Item is the model as the gate judges a question to it: a tool whose facts are those that the model's file
	// declares, the audience above all.
	Item() enforce.Item
	// Ask puts a prompt to the model. The gate has let the question pass by then, with the Item and the prompt: Ask adds
	// nothing to it, and asks nothing if the model is declared otherwise by now. label is that of the answer alone.
	Ask(ctx context.Context, who enforce.Identity, prompt string, params map[string]json.RawMessage) (
		text string, label gate.Label, err error)
}
