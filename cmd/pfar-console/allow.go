package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/wants"
)

// allowAt reads the path of a question about a host behind "allow/": SERVER/HOST.
func allowAt(rest string) (server, host string, ok bool) {
	server, host, _ = strings.Cut(rest, "/")
	return server, host, units.IsServer(server) && host != ""
}

var errNotWanted = &ask.Refusal{Reason: "the server does not want this host any more"}

// wanted is a server that asked for a host.
type wanted struct {
	server control.Server
	seen   string // a fingerprint of the server's file, the hosts that it may reach, and this host
	next   string // the page that offers the host
}

// findWanted returns the server if it was refused a host or, for who sees its newest lesson, if that suggests the host.
func findWanted(ctx context.Context, s *site, one *session, server, host string) (w wanted, err error) {
	report, _ := s.runs.now()
	if report == nil {
		return w, errNothingSaid
	}
	if w.server, err = serverNamed(s, server); err != nil {
		return w, errNotWanted
	}
	w.seen, w.next = content{body: []any{w.server.File, w.server.Domains, host}}.fingerprint(), "wants"
	refused := func(w wants.Want) bool { return w.Server == server && w.Host == host }
	if slices.ContainsFunc(wants.Of(*report, nil), refused) {
		return w, nil
	}
	if mayCommand(s, one) != nil {
		return w, errNotWanted
	}
	w.next = "learn/" + server
	l, err := lessonFor(ctx, s, server)
	if err == nil && (l.Found == nil || !slices.Contains(l.Found.Entries(), host) ||
		slices.Contains(w.server.Domains, host)) {
		err = errNotWanted
	}
	return w, err
}

// askAllow asks whether a server may reach a host.
func askAllow(ctx context.Context, s *site, one *session, server, host string) (content, error) {
	now, err := findWanted(ctx, s, one, server, host)
	if err == nil {
		err = mayOrder(s, one)
	}
	if err != nil {
		return content{}, err
	}
	q := question{
		Path: allowPath(one, server, host), Act: attach.OrderAllow, Button: "Allow", Back: one.path(now.next),
		Seen:  now.seen,
		Words: fmt.Sprintf("Let %s reach %s?", visible.Reveal(server), visible.Reveal(host)),
		Note: "Whoever has this host gets what the server sends there. pfard adds the host to allowed_domains in " +
			visible.Reveal(cmp.Or(now.server.File, "its declaration")) + ".",
	}
	return content{title: "Allow a host", template: "question", body: q, quiet: true}, nil
}

// allowing has pfard let a server reach a host, if the server may reach the same as when the person was asked.
func allowing(s *site, server, host string) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		now, err := findWanted(r.Context(), s, one, server, host)
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
			s.finish(w, r, one, "wants", notice{}, err)
			return
		}
		o := attach.Order{Act: attach.OrderAllow, Server: server, Host: host}
		give(s, w, r, one, now.next, o, " may reach "+visible.Reveal(host)+".")
	}
}

// askingAllow makes the page of a question about a host.
func askingAllow(s *site, server, host string) maker {
	return func(ctx context.Context, one *session) (content, error) { return askAllow(ctx, s, one, server, host) }
}
