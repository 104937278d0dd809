package main

import (
	"context"
	"fmt"
	"os"

	"github.com/pfar/pfar/units/control"
)

// chatFlows are the set-ups that the processes of chats may have.
type chatFlows struct{ *flows }

// answer carries out what the process of a chat asks for: set-ups of services of the catalogue, which are the owner's.
// They are told apart from those that the owner begins elsewhere.
func (f chatFlows) answer(name string) control.Answer {
	principal := "chat " + name
	return func(ctx context.Context, p control.Peer, q control.Request, send func(control.Response) error) error {
		owner := control.Peer{UID: os.Getuid(), PID: p.PID}
		if q.Verb == control.Supply {
			id, err := f.Of(principal)
			if err == nil && (q.Answer == nil || q.Answer.ID != id) {
				err = fmt.Errorf("%w: it is no set-up of this chat", control.ErrNoFlow)
			}
			if err != nil {
				return err
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
		if wish.Text != nil || len(wish.Answers) > 0 || wish.Server != wish.Service || wish.For != "" || wish.Page {
			return fmt.Errorf("%w: a chat may only name a service of the catalogue", control.ErrDenied)
		}
		return beginAs(ctx, f.flows, owner, principal, wish, send)
	}
}
