package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/operator/ask"
)

// commander gives pfard the orders of a person who runs pfard. One order is under way at a time.
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
)

// order has pfard carry out an order. The link is that of a one-time page, if the order was to open one.
func (c *commander) order(ctx context.Context, o attach.Order) (link string, err error) {
	if !c.allowed.Load() {
		return "", errNoOrders
	}
	a, err := c.ask(ctx, func(number uint64) error {
		o.Number = number
		return c.sends(o)
	})
	switch {
	case errors.Is(err, errBusy):
		return "", errOrdering
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", errNoAnswer
	case a.Error != "":
		return "", &ask.Refusal{Reason: a.Error}
	case (o.Act == attach.OrderSecrets || o.Act == attach.OrderAdd) && a.Link == "":
		return "", &ask.Refusal{Reason: "there is no one-time page"}
	}
	return a.Link, nil
}
