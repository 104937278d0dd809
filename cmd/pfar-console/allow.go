package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
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

// wanted returns the server that was refused a host. seen is a fingerprint of the server's file, the hosts that it may
// reach, and this host.
func wanted(s *site, server, host string) (now control.Server, seen string, err error) {
	report, _ := s.runs.now()
	if report == nil {
		return now, "", errNothingSaid
	}
	for _, w := range wants.Of(*report, nil) {
		if w.Server != server || w.Host != host {
			continue
		}
		for _, each := range report.Servers {
			if each.Name == server {
				return each, content{body: []any{each.File, each.Domains, host}}.fingerprint(), nil
			}
		}
	}
	return now, "", errNotWanted
}

// askAllow asks whether a server may reach a host.
func askAllow(s *site, one *session, server, host string) (content, error) {
	now, seen, err := wanted(s, server, host)
	if err == nil {
		err = mayOrder(s, one)
	}
	if err != nil {
		return content{}, err
	}
	q := question{
		Path: allowPath(one, server, host), Act: attach.OrderAllow, Button: "Allow", Back: one.path("wants"), Seen: seen,
		Words: fmt.Sprintf("Let %s reach %s?", visible.Reveal(server), visible.Reveal(host)),
		Note: "Whoever has this host gets what the server sends there. pfard adds the host to allowed_domains in " +
			visible.Reveal(cmp.Or(now.File, "its declaration")) + ".",
	}
	return content{title: "Allow a host", template: "question", body: q, quiet: true}, nil
}

// allowing has pfard let a server reach a host, if the server may reach the same as when the person was asked.
func allowing(s *site, server, host string) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		_, seen, err := wanted(s, server, host)
		may := mayOrder(s, one)
		switch {
		case form["act"] != attach.OrderAllow:
			err = loopback.ErrForm
		case may != nil:
			err = may
		case err == nil && form["seen"] != seen:
			err = errChanged
		}
		if err != nil {
			s.finish(w, r, one, "wants", notice{}, err)
			return
		}
		o := attach.Order{Act: attach.OrderAllow, Server: server, Host: host}
		give(s, w, r, one, "wants", o, " may reach "+visible.Reveal(host)+".")
	}
}

// askingAllow makes the page of a question about a host.
func askingAllow(s *site, server, host string) maker {
	return func(_ context.Context, one *session) (content, error) { return askAllow(s, one, server, host) }
}
