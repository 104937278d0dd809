package inspect

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/question"
)

// New returns an inspector that is asked on a Unix socket. Each connection is one question, an inspector.Question to
// the end of what is written, and its answer is all that can be read. Behind it is a program in a sandbox
// (pfar-sandbox), or what asks a model (pfar-egress): the gateway itself connects to nobody else.
func New(e inspector.External, socket string) (*Inspector, error) {
	e, err := e.Declared()
	if err != nil {
		return nil, fmt.Errorf("inspector %.50q: %w", e.Name, err)
	}
	return &Inspector{declared: e, slots: make(chan struct{}, e.Parallel), ask: asked(socket).ask}, nil
}

// asked is the socket that an inspector is asked on.
type asked string

func (s asked) ask(ctx context.Context, p part) (verdict, error) {
	ask, err := json.Marshal(inspector.Question{
		Version: 1, Direction: p.Direction.String(), Server: p.Server, Tool: p.Tool, Label: p.Label.String(), Part: p.number,
		Parts: p.of, Text: p.text,
	})
	if err != nil {
		return verdict{}, err
	}
	answer, err := question.Ask(ctx, string(s), ask, maxAnswer+1)
	if err != nil {
		return verdict{}, err
	}
	return read(answer)
}
