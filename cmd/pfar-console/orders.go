package main

import (
	"net/http"
	"time"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback"
)

// orderTime is longer than pfard takes for any order.
const orderTime = 70 * time.Second

// give has pfard carry out an order, and tells on the next page what came of it.
func give(
	s *site, w http.ResponseWriter, r *http.Request, one *session, next string, o attach.Order, done string,
) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(orderTime)) // it never fails on a socket
	link, err := s.orders.order(r.Context(), o)
	s.finish(w, r, one, next, notice{Words: visible.Reveal(o.Server) + done, Link: link}, err)
}

// entering opens the page for the secrets of a server.
func entering(s *site, server string) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		if form["act"] != attach.OrderSecrets {
			s.finish(w, r, one, "wants", notice{}, loopback.ErrForm)
			return
		}
		o := attach.Order{Act: attach.OrderSecrets, Server: server}
		give(s, w, r, one, "wants", o, ": the page for its secrets is ready.")
	}
}

// turned says what follows the orders that start and stop a server.
var turned = map[string]string{
	attach.OrderStart: " is starting.", attach.OrderStop: " is stopping.",
	attach.OrderRestart: " is stopping, and starts again.",
}

// turning has pfard start or stop a server, if it is still up, or still down, as the person has seen it.
func turning(s *site, server string) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		next, done := "server/"+server, turned[form["act"]]
		report, _ := s.runs.now()
		switch {
		case done == "":
			s.finish(w, r, one, next, notice{}, loopback.ErrForm)
		case report == nil || form["seen"] == "" || form["seen"] != upOrDown(*report, server):
			s.finish(w, r, one, next, notice{}, errChanged)
		default:
			give(s, w, r, one, next, attach.Order{Act: form["act"], Server: server}, done)
		}
	}
}
