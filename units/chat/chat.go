// Package chat holds the conversation of an owner with pfar: messages of a chat in, set-ups, plans, runs and answers
// out. A secret that is pasted reaches the vault and nothing else.
package chat

import (
	"context"
	"encoding/json"

	"github.com/pfar/pfar/units/control"
)

// Message is a message that a person has written.
type Message struct {
	ID   string // by which the platform deletes it
	Room string // the conversation
	From string // the person
	Text string // UTF-8; it may be a secret

	// Hidden is the set-up for whose secret a person was asked, by a prompt that does not show what is typed. The text is
	// that secret, whatever it looks like. nil: there was no such prompt.
	Hidden *control.Flow
}

// Platform is the program or service of the conversation.
type Platform interface {
	// Send writes a text of one or more lines into a room.
	Send(ctx context.Context, room, text string) error

	// Delete takes a message out of its room for everybody. It uses ID, Room and From only: after a crash Text is "".
	// A message that is already gone is no error.
	Delete(ctx context.Context, m Message) error
}

// Once is what a Platform may be able to do beside. It then sends the answer to a message at most once, also if the
// process ended before it could note that the answer is sent.
type Once interface {
	// SendOnce writes a text as Send does, unless a text with the same key was written into the room before. A key has
	// at most 80 letters, digits and dashes.
	SendOnce(ctx context.Context, room, key, text string) error
}

// Setups are the set-ups of the owner, who has at most one at a time. Errors never contain a secret.
type Setups interface {
	// Waiting returns the set-up that is under way, or has ended within the last minute; nil: there is none. Its Wants
	// is nil if it waits for no secret.
	Waiting(ctx context.Context) (*control.Flow, error)

	// Answer gives a set-up the secret that it waits for, or the word of a person that ends it or leaves the secret
	// out (setup.Cancels). It returns as soon as the vault has the secret.
	Answer(ctx context.Context, asked control.Flow, value string) error

	// After returns when a set-up that was answered has ended, or waits for a person again.
	After(ctx context.Context, asked control.Flow) (control.Flow, error)

	// Begin sets a service up, and ends the set-up before it. It returns when the set-up has ended or waits for a
	// person. Errors that wrap control.ErrDenied or ErrNotRunning do not repeat the name.
	Begin(ctx context.Context, service string) (control.Flow, error)
}

// Asker answers questions, as "pfar ask" does.
type Asker interface {
	// Plan has a model write a plan for a question, and carries nothing out.
	Plan(ctx context.Context, question string) (Plan, error)

	// Run carries a plan out and returns the answer when the run is over. It calls tell with what the owner has to know
	// meanwhile, such as that the gate waits for an approval. If ctx ends, the run goes on.
	Run(ctx context.Context, p Plan, tell func(text string)) (answer string, err error)
}

// Plan is what a model proposes to do for a question. The zero value does nothing.
type Plan struct {
	Question string          // the owner's words
	Text     string          // what the owner reads: the plan whole, or an answer that needs no step
	Flow     json.RawMessage // in the form json of policies/flow; nil: there is nothing to run
	Digest   string          // of the plan that Text shows
	Free     bool            // the gate asks nobody, so the owner's word is enough; else a person approves it elsewhere
}
