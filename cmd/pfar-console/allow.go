package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/wants"
)

var errNotWanted = &ask.Refusal{Reason: "the server does not want this host any more"}

// wanted is a server that asked for a host.
type wanted struct {
	server control.Server
	seen   string // a fingerprint of the server's file, the hosts that it may reach, and this host
}

// findWanted returns the server of an offer, if the page still offers the host.
func findWanted(ctx context.Context, s *site, one *session, o hostOffer) (w wanted, err error) {
	report, _ := s.runs.now()
	if report == nil {
		return w, errNothingSaid
	}
	if w.server, err = serverNamed(s, o.server); err != nil {
		return w, errNotWanted
	}
	w.seen = content{body: []any{w.server.File, w.server.Domains, o.host}}.fingerprint()
	if o.kind == offerLearned {
		return w, isLearned(ctx, s, one, w.server, o.host)
	}
	refused := func(w wants.Want) bool { return w.Server == o.server && w.Host == o.host }
	if !slices.ContainsFunc(wants.Of(*report, nil), refused) {
		return w, errNotWanted
	}
	return w, nil
}

// isLearned refuses a host that the newest lesson of a server does not suggest, or that the server may reach already.
func isLearned(ctx context.Context, s *site, one *session, server control.Server, host string) error {
	if err := mayCommand(s, one); err != nil {
		return err
	}
	l, err := lessonFor(ctx, s, server.Name)
	if err != nil {
		return err
	}
	suggested := l.Found != nil && slices.Contains(l.Found.Entries(), host)
	if !suggested || slices.Contains(server.Domains, host) {
		return errNotWanted
	}
	return nil
}

// askAllow asks whether a server may reach a host.
func askAllow(ctx context.Context, s *site, one *session, o hostOffer) (content, error) {
	now, err := findWanted(ctx, s, one, o)
	if err == nil {
		err = mayOrder(s, one)
	}
	if err != nil {
		return content{}, err
	}
	q := question{
		Path: one.path(o.question()), Act: attach.OrderAllow, Button: "Allow", Back: one.path(o.page()),
		Seen:  now.seen,
		Words: fmt.Sprintf("Let %s reach %s?", visible.Reveal(o.server), visible.Reveal(o.host)),
		Note: "Whoever has this host gets what the server sends there. pfard adds the host to allowed_domains in " +
			visible.Reveal(cmp.Or(now.server.File, "its declaration")) + ".",
	}
	return content{title: "Allow a host", template: "question", body: q, quiet: true}, nil
}

// allowing has pfard let a server reach a host, if the server may reach the same as when the person was asked.
func allowing(s *site, at hostOffer) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		now, err := findWanted(r.Context(), s, one, at)
		may := mayOrder(s, one)
		switch {
		case form["act"] != attach.OrderAllow:
			err = loopback.ErrForm
		case may != nil:
			err = may
		case err == nil && form["seen"] != now.seen:
			err = errChanged
		}
		if err != nil {
			s.finish(w, r, one, at.page(), notice{}, err)
			return
		}
		o := attach.Order{Act: attach.OrderAllow, Server: at.server, Host: at.host}
		give(s, w, r, one, at.page(), o, " may reach "+visible.Reveal(at.host)+".")
	}
}

// askingAllow makes the page of a question about a host.
func askingAllow(s *site, o hostOffer) maker {
	return func(ctx context.Context, one *session) (content, error) { return askAllow(ctx, s, one, o) }
}
