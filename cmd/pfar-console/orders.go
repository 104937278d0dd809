package main

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback"
)

// orderTime is how long a page waits for pfard, which takes less for any order, and answerTime how long the browser
// waits for the page.
const (
	orderTime  = 65 * time.Second
	answerTime = 70 * time.Second
)

// give has pfard carry out an order, and tells on the next page what came of it.
func give(
	s *site, w http.ResponseWriter, r *http.Request, one *session, next string, o attach.Order, done string,
) {
	c := http.NewResponseController(w) // setting deadlines never fails on a socket
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Now().Add(answerTime))
	ctx, cancel := context.WithTimeout(r.Context(), orderTime)
	defer cancel()
	result, err := s.orders.order(ctx, o)
	n := notice{
		Words: visible.Reveal(cmp.Or(o.Client, o.Server, o.Program)) + done, Link: result.Link,
		Token: visible.Reveal(result.Token),
	}
	if ctx.Err() != nil {
		n = notice{Words: "pfard has not answered, so it is not known whether this was done.", Bad: true}
		err = nil
	}
	s.finish(w, r, one, next, n, err)
}

// ordering has pfard carry out an order that the page offers without a question.
func ordering(s *site, next string, o attach.Order, done string) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		if form["act"] != o.Act {
			s.finish(w, r, one, next, notice{}, loopback.ErrForm)
			return
		}
		give(s, w, r, one, next, o, done)
	}
}

// entering opens the page for the secrets of a server, or for a sign-in that it waits for.
func entering(s *site, server string) taker {
	o := attach.Order{Act: attach.OrderSecrets, Server: server}
	return ordering(s, "wants", o, ": its one-time page is ready.")
}

// turned says what follows the orders that start and stop a server.
var turned = map[string]string{
	attach.OrderStart: " is starting.", attach.OrderStop: " is stopping.",
	attach.OrderRestart: " is stopping, and starts again.",
}

// turning has pfard start or stop a server, if the page still offers that.
func turning(s *site, server string) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		next, done, may := "server/"+server, turned[form["act"]], mayOrder(s, one)
		switch {
		case done == "":
			s.finish(w, r, one, next, notice{}, loopback.ErrForm)
		case may != nil:
			s.finish(w, r, one, next, notice{}, may)
		case !stillOffered(s, server, form["act"], form["seen"]):
			s.finish(w, r, one, next, notice{}, errChanged)
		default:
			give(s, w, r, one, next, attach.Order{Act: form["act"], Server: server}, done)
		}
	}
}

// stillOffered reports whether the page of a server offers an order, and the same ones as when the person saw it.
func stillOffered(s *site, server, act, seen string) bool {
	report, _ := s.runs.now()
	if report == nil {
		return false
	}
	for _, each := range report.Servers {
		if each.Name == server {
			list, now := turnsOf(each.State)
			return now == seen && slices.ContainsFunc(list, func(t serverAct) bool { return t.Act == act })
		}
	}
	return false
}
