package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/wants"
)

// ordered carries out an order from a console, and returns its result. Only root and the user who runs pfard may give
// orders.
func (d *daemon) ordered(ctx context.Context, p control.Peer, o attach.Order) (done attach.Ordered, err error) {
	if !operates(p) {
		return done, fmt.Errorf("%w: only root and the user who runs pfard may do this", control.ErrDenied)
	}
	var verb control.Verb
	switch o.Act {
	case attach.OrderSecrets:
		done.Link, err = d.orders.flows.enterSecrets(ctx, p, o.Server)
		return done, err
	case attach.OrderAdd:
		done.Link, err = d.orders.flows.addService(ctx, p, o.Server)
		return done, err
	case attach.OrderClient:
		done.Token, err = declareClient(d, p, o.Client, strings.Fields(o.Servers))
		return done, err
	case attach.OrderAllow:
		return done, d.allow(p, o.Server, o.Host)
	case attach.OrderLearn:
		return done, learnHosts(ctx, d, p, o.Server)
	case attach.OrderImport:
		return done, importServers(ctx, d, p, o.Program, o.Digest)
	case attach.OrderStart:
		verb = control.Start
	case attach.OrderStop:
		verb = control.Stop
	case attach.OrderRestart:
		verb = control.Restart
	default:
		return done, fmt.Errorf("%w: a console orders no %q", control.ErrInvalid, o.Act)
	}
	return done, changeServer(d, p, byConsole, verb, o.Server)
}

// allow lets a server reach a host that it was refused, or that its newest lesson suggests. A console that was taken
// over cannot allow another host.
func (d *daemon) allow(p control.Peer, server, host string) error {
	entry, err := egress.ParseEndpoint(host)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	return d.do(func() error {
		refused := func(w wants.Want) bool { return w.Server == server && w.Host == entry.String() }
		if !slices.ContainsFunc(wants.Of(d.report(), nil), refused) &&
			!d.orders.commands.suggests(server, entry.String()) {
			return fmt.Errorf("%w: pfar did not refuse %s to %q", control.ErrInvalid, entry, server)
		}
		return d.declarer().allow(p, server, entry)
	})
}
