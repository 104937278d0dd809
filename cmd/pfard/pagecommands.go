package main

import (
	"context"
	"fmt"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// learnHosts has a server run in learning mode for a person at a console, and returns when the learning has begun.
func learnHosts(ctx context.Context, d *daemon, p control.Peer, server string) error {
	if err := d.do(func() error { return learnable(d.fleet, server) }); err != nil {
		return err
	}
	changed, leave, err := d.followers.follow()
	if err != nil {
		return err
	}
	defer leave()
	record := audit.Record{Kind: audit.Lifecycle, Method: attach.OrderLearn, Server: server}
	if err := requested(d.audit, p, record); err != nil {
		return err
	}
	over, err := d.orders.commands.learn(server)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pageTime, fmt.Errorf("learning of %q did not begin in time", server))
	defer cancel()
	for begun := false; ; {
		err := d.do(func() error {
			s := d.fleet.servers[server]
			begun = s != nil && s.learn != nil
			return nil
		})
		if err != nil || begun {
			return err
		}
		select {
		case <-changed:
		case <-over:
			if l := d.orders.commands.lessonOf(server); l.Found == nil {
				return fmt.Errorf("nothing was learned: %s", l.Failed)
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// learnable returns why a server cannot be brought into learning mode; nil: it can.
func learnable(f *fleet, server string) error {
	s, err := f.startable(server)
	if err == nil && s.learn != nil {
		err = fmt.Errorf("%w: %q is in learning mode already", control.ErrLearning, server)
	}
	return err
}

// importServers imports the servers of a program for a person at a console who has seen the preview with the digest.
func importServers(ctx context.Context, d *daemon, p control.Peer, program, digest string) error {
	return d.orders.commands.importFrom(ctx, program, digest, func() error {
		return requested(d.audit, p, audit.Record{
			Kind: audit.Declaration, Method: attach.OrderImport, Subject: program, New: digest,
		})
	})
}

// requested records who orders what at a console. Without a record it is not done.
func requested(to *auditor, p control.Peer, r audit.Record) error {
	r.User, r.Channel, r.Outcome = fmt.Sprintf("uid %d", p.UID), byConsole, "requested"
	if err := to.append(r); err != nil {
		return fmt.Errorf("%w; without a record it is not done", err)
	}
	return nil
}
