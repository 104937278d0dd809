package main

import (
	"context"
	"fmt"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// ordered carries out what a person orders at a console: only who operates this pfard may.
func (d *daemon) ordered(ctx context.Context, p control.Peer, o attach.Order) (link string, err error) {
	if !operates(p) {
		return "", fmt.Errorf("%w: only root and the user who runs pfard may do this", control.ErrDenied)
	}
	var verb control.Verb
	switch o.Act {
	case attach.OrderSecrets:
		return d.orders.flows.enterSecrets(ctx, p, o.Server)
	case attach.OrderAllow:
		return "", d.declarer().allow(p, o.Server, o.Host)
	case attach.OrderStart:
		verb = control.Start
	case attach.OrderStop:
		verb = control.Stop
	case attach.OrderRestart:
		verb = control.Restart
	default:
		return "", fmt.Errorf("%w: a console orders no %q", control.ErrInvalid, o.Act)
	}
	done := func(control.Response) error { return nil }
	return "", d.answer(ctx, p, control.Request{Verb: verb, Server: o.Server}, done)
}
