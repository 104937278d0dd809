package main

import (
	"context"
	"os"

	"github.com/pfar/pfar/units/control"
)

// chatFlows are the set-ups that the processes of chats may have.
type chatFlows struct{ *flows }

// answer carries out what the process of a chat asks for, as the owner's wish in that chat: the process cannot leave
// the chat out, or name another one.
func (f chatFlows) answer(name string) control.Answer {
	return func(ctx context.Context, p control.Peer, q control.Request, send func(control.Response) error) error {
		owner := control.Peer{UID: os.Getuid(), PID: p.PID}
		if q.Verb == control.Supply {
			if q.Answer != nil {
				given := *q.Answer
				given.Chat = name
				q.Answer = &given
			}
			now, err := f.supply(owner, q)
			if err != nil {
				return err
			}
			return send(control.Response{Declarations: control.Declarations{Flow: now}})
		}
		wish := control.SetUp{}
		if q.SetUp != nil {
			wish = *q.SetUp
		}
		wish.Chat = name
		q.SetUp = &wish
		return f.flows.answer(ctx, owner, q, send)
	}
}
