package main

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/prose"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/loopback"
)

const outside = "there is no such page, or you are not signed in: run \"pfar console\" for a new link"

// ServeHTTP answers requests that have a link or a session. All other requests get one and the same answer.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	loopback.Guard(w.Header(), policy)
	if !s.names.Has(r.Host) {
		const words = "open the link exactly as pfar printed it: the page has no other address"
		loopback.Refuse(w, http.StatusMisdirectedRequest, words)
		return
	}
	handle, rest, ok := within(r.URL.Path)
	if !ok {
		s.enter(w, r)
		return
	}
	query := r.URL.RawQuery
	known := query == "" || query == live && r.Method == http.MethodGet || rest == eventsPath && s.find(query) != nil
	one := s.sessionOf(r, handle, rest != eventsPath && query != live)
	if one == nil || !known {
		loopback.Refuse(w, http.StatusNotFound, outside)
		return
	}
	s.serve(w, r, one, rest)
}

// enter signs in a browser that opens a one-time link. A prefetch by the browser does not use the link up.
func (s *site) enter(w http.ResponseWriter, r *http.Request) {
	looks := len(r.Header.Values("Sec-Purpose")) > 0 || !loopback.Navigated(r.Header)
	if r.Method != http.MethodGet || looks {
		loopback.Refuse(w, http.StatusNotFound, outside)
		return
	}
	one := s.redeem(r.RequestURI)
	if one == nil {
		loopback.Refuse(w, http.StatusNotFound, outside)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookie, Value: one.secret, Path: one.path(""), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, one.path(""), http.StatusSeeOther)
}

// serve answers within a session.
func (s *site) serve(w http.ResponseWriter, r *http.Request, one *session, rest string) {
	get, post := s.find(rest), s.taker(rest)
	switch {
	case rest == eventsPath && r.Method == http.MethodGet:
		s.events(w, r, one)
	case get == nil && post == nil && rest != eventsPath:
		loopback.Refuse(w, http.StatusNotFound, outside)
	case r.Method == http.MethodGet && get != nil && loopback.Navigated(r.Header):
		s.show(w, r, one, rest, get)
	case r.Method == http.MethodGet && get != nil:
		loopback.Refuse(w, http.StatusForbidden, "open this page in a browser window of its own")
	case r.Method == http.MethodPost && post != nil:
		s.post(w, r, one, post)
	default:
		w.Header().Set("Allow", "GET, POST")
		loopback.Refuse(w, http.StatusMethodNotAllowed, "only GET and POST, each where a page does so")
	}
}

// taker returns what carries out the form of the page at a path; nil: that has none.
func (s *site) taker(rest string) taker {
	kind, subject, _ := strings.Cut(rest, "/")
	switch {
	case rest == "leave":
		return func(w http.ResponseWriter, _ *http.Request, one *session, _ map[string]string) {
			s.end(one)
			loopback.Refuse(w, http.StatusOK, "You are signed out. You can close this page.")
		}
	case rest == "clients":
		return declaring(s)
	case kind == "call" && callID(subject):
		return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
			s.answer(w, r, one, subject, form)
		}
	case kind == "review" && units.IsServer(subject):
		return accepting(s, subject)
	case kind == "enter" && units.IsServer(subject):
		return entering(s, subject)
	case kind == "server" && units.IsServer(subject):
		return turning(s, subject)
	case kind == "add" && units.IsServer(subject):
		return adding(s, subject)
	case kind == "allow":
		if server, host, ok := allowAt(subject); ok {
			return allowing(s, server, host)
		}
	case kind == "do":
		if o, subject, ok := orderAt(subject); ok {
			return s.carryOut(o, subject)
		}
	}
	return nil
}

// post reads a form of the session's pages, and carries it out.
func (s *site) post(w http.ResponseWriter, r *http.Request, one *session, do taker) {
	if !loopback.Own(r) {
		loopback.Refuse(w, http.StatusForbidden, nothing+"only pfar's own page may send its form")
		return
	}
	form, err := loopback.ReadForm(w, r, maxForm, "turn", "act", "digest", "reason", "seen", "name", "servers")
	if err != nil {
		loopback.Unreadable(w, nothing, err)
		return
	}
	if subtle.ConstantTimeCompare([]byte(form["turn"]), []byte(one.turn)) != 1 {
		loopback.Refuse(w, http.StatusForbidden, nothing+"the form is not the one of this page; reload the page")
		return
	}
	do(w, r, one, form)
}

// find returns the page at a path of a session; nil: there is none.
func (s *site) find(rest string) maker {
	kind, subject, _ := strings.Cut(rest, "/")
	switch {
	case rest == "":
		return s.waiting
	case rest == "wants":
		return s.wantsPage
	case rest == "sessions":
		return s.sessionsPage
	case rest == "servers":
		return s.serversPage
	case rest == "add":
		return showAdd(s)
	case rest == "clients":
		return showClients(s)
	case rest == "health":
		return showHealth(s)
	case rest == "audit":
		return func(ctx context.Context, one *session) (content, error) {
			return auditPage(ctx, s.archive, one, prose.Filter{})
		}
	case kind == "audit":
		if f, err := filterAt(subject); err == nil {
			return func(ctx context.Context, one *session) (content, error) { return auditPage(ctx, s.archive, one, f) }
		}
	case kind == "record" && audit.IsID(subject):
		return func(ctx context.Context, _ *session) (content, error) { return recordPage(ctx, s.archive, subject) }
	case kind == "server" && units.IsServer(subject):
		return func(ctx context.Context, one *session) (content, error) { return s.serverPage(ctx, one, subject) }
	case kind == "log" && units.IsServer(subject):
		return showLog(s, subject)
	case kind == "review" && units.IsServer(subject):
		return func(ctx context.Context, one *session) (content, error) { return s.desk.review(ctx, one, subject) }
	case kind == "call" && callID(subject):
		return func(ctx context.Context, one *session) (content, error) { return s.call(ctx, one, subject) }
	case kind == "allow":
		if server, host, ok := allowAt(subject); ok {
			return askingAllow(s, server, host)
		}
	case kind == "do":
		if o, subject, ok := orderAt(subject); ok {
			return func(ctx context.Context, one *session) (content, error) { return s.question(ctx, one, o, subject) }
		}
	}
	return nil
}
