package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/cmd/pfar-console/signing"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/operator/ask"
)

// commander gives pfard the orders of a person who runs pfard, or of operators at other machines. One order is under
// way at a time.
type commander struct {
	exchange[attach.Ordered]
	sends   func(attach.Order) error // sends pfard an order
	allowed atomic.Bool              // the person runs pfard
}

func newCommander() *commander {
	return &commander{exchange: exchange[attach.Ordered]{drop: func(attach.Ordered) {}}}
}

var (
	errOrdering error = &ask.Refusal{Reason: "pfard carries out another order; try again"}
	errNoOrders error = &ask.Refusal{Reason: "only the user who runs pfard may do this"}
	errNoAnswer error = &ask.Refusal{Reason: "pfard does not answer"}

	errElsewhere error = &ask.Refusal{Reason: passkey.ErrElsewhere.Error()}
)

// order has pfard carry out an order, and returns its result. An operator at another machine signs it.
func (c *commander) order(ctx context.Context, o attach.Order) (done attach.Ordered, err error) {
	f := signing.Of(ctx)
	switch {
	case f == nil && !c.allowed.Load():
		return done, errNoOrders
	case f == nil:
		return c.send(ctx, o)
	case !o.Elsewhere():
		return done, errElsewhere
	}
	act, err := o.Signed("")
	if err != nil {
		return done, err
	}
	if o.Proof, err = f.Prove(act, c.nonce); err != nil {
		return done, err
	}
	return c.send(ctx, o)
}

// nonceTime is how long pfard has for a nonce, which it gives at once. The browser waits for it.
const nonceTime = 5 * time.Second

// nonce has pfard give a nonce for an operator's order.
func (c *commander) nonce(ctx context.Context, operator string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, nonceTime, errNoAnswer)
	defer cancel()
	done, err := c.send(ctx, attach.Order{Act: attach.OrderChallenge, Operator: operator})
	return done.Nonce, err
}

// send is order for what pfard lets everybody order who may.
func (c *commander) send(ctx context.Context, o attach.Order) (done attach.Ordered, err error) {
	a, err := c.ask(ctx, func(number uint64) error {
		o.Number = number
		return c.sends(o)
	}, nil)
	switch {
	case errors.Is(err, errBusy):
		return done, errOrdering
	case ctx.Err() != nil:
		return done, context.Cause(ctx)
	case err != nil:
		return done, errNoAnswer
	case a.Error != "":
		return done, &ask.Refusal{Reason: a.Error}
	case (o.Act == attach.OrderSecrets || o.Act == attach.OrderAdd) && a.Link == "":
		return done, &ask.Refusal{Reason: "pfard opened no one-time page; run pfar add"}
	case o.Act == attach.OrderClient && a.Token == "":
		return done, &ask.Refusal{Reason: "pfard gave no token; run pfar client add"}
	}
	return a, nil
}
