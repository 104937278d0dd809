package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/question"
)

// announcer tells the owner something in the room where they have talked with pfar last. It returns false if there is
// none.
type announcer interface {
	Announce(ctx context.Context, text string) (bool, error)
}

// notices are told the owner for the gateway: calls of any client wait for approval. No message answers one.
type notices struct {
	to  announcer
	log *slog.Logger
}

const (
	noticeTime = 5 * time.Minute           // for one, at most; the gateway hangs up before
	always     = 10 * 365 * 24 * time.Hour // without a notice
)

// serve takes notices until ctx ends. The socket outlives the process.
func (n notices) serve(ctx context.Context, l *net.UnixListener) error {
	return question.Server{
		Parallel: 1, Timeout: noticeTime, Idle: always, Answer: n.tell,
		Failed: func(err error) { n.log.Warn("a notice is not sent", "error", err.Error()) },
	}.Serve(ctx, l)
}

// tell sends one notice. Its answer says in words for the owner why that failed, if it did.
func (n notices) tell(ctx context.Context, waiting []byte) ([]byte, error) {
	var told inspector.Told
	if err := n.announce(ctx, waiting); err != nil {
		told.Error = err.Error()
	}
	return json.Marshal(told)
}

func (n notices) announce(ctx context.Context, waiting []byte) error {
	var w inspector.Waiting
	if err := json.Unmarshal(waiting, &w); err != nil || w.Version != 1 || w.Count < 1 {
		return errors.New("the gateway and pfar-chat are not of the same version")
	}
	sent, err := n.to.Announce(ctx, w.Title()+"\n"+w.Text()+"\n"+elsewhere)
	if err == nil && !sent {
		return errors.New("the owner has not written to pfar there yet, so pfar knows no room: send it a message")
	}
	return err
}

// elsewhere ends a notice: a word of the owner here may be for a plan.
const elsewhere = "You cannot answer this here: use pfar approvals or the console."
