package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/audit"
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
	case attach.OrderLearn:
		return done, learnHosts(ctx, d, p, o.Server)
	case attach.OrderImport:
		return done, importServers(ctx, d, p, o.Program, o.Digest)
	}
	return done, orderServer(d, audit.Record{User: fmt.Sprintf("uid %d", p.UID), Channel: byConsole}, o)
}

// orderServer starts or stops a server, or lets it reach a host that it was refused. by says who orders it.
func orderServer(d *daemon, by audit.Record, o attach.Order) error {
	switch o.Act {
	case attach.OrderAllow:
		return d.allow(by, o.Server, o.Host)
	case attach.OrderStart:
		return changeServer(d, by, control.Start, o.Server)
	case attach.OrderStop:
		return changeServer(d, by, control.Stop, o.Server)
	case attach.OrderRestart:
		return changeServer(d, by, control.Restart, o.Server)
	}
	return fmt.Errorf("%w: a console orders no %q", control.ErrInvalid, o.Act)
}

// allow lets a server reach a host that it was refused. By order of a console of this machine, it may also be one that
// the server's newest lesson suggests. A console that was taken over cannot allow another host. Operators at other
// machines see no lessons: what they sign is for refused hosts alone.
func (d *daemon) allow(by audit.Record, server, host string) error {
	entry, err := egress.ParseEndpoint(host)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	return d.do(func() error {
		refused := func(w wants.Want) bool { return w.Server == server && w.Host == entry.String() }
		learned := by.Channel == byConsole && d.orders.commands.suggests(server, entry.String())
		if !learned && !slices.ContainsFunc(wants.Of(d.report(), nil), refused) {
			return fmt.Errorf("%w: pfar did not refuse %s to %q", control.ErrInvalid, entry, server)
		}
		return d.declarer().allow(by, server, entry)
	})
}
