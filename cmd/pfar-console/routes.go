package main

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"html/template"
	"net/http"
	"strings"

	"github.com/pfar/pfar/cmd/pfar-console/entrance"
	"github.com/pfar/pfar/cmd/pfar-console/signing"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator"
)

const (
	outside = "there is no such page, or you are not signed in: run \"pfar console\" for a new link"
	ended   = "there is no such page, or you are not signed in any more: open / and sign in again"
	strange = "open the link exactly as pfar printed it: the page has no other address"
	nobody  = "pfar knows no operator and no invitation for this address. If you have a link, open it exactly as it was " +
		"printed. Else ask the administrator of pfar to run pfar operator invite NAME --at https://HOST:PORT"
)

// ServeHTTP answers requests that have a link or a session. On loopback all other requests get one and the same answer;
// for other machines they get the entrance.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.entrance != nil {
		loopback.Guard(w.Header(), remotePolicy)
	} else {
		loopback.Guard(w.Header(), policy)
	}
	if !s.has(r) {
		words := strange
		if s.entrance != nil {
			words = nobody
		}
		loopback.Refuse(w, http.StatusMisdirectedRequest, words)
		return
	}
	handle, rest, ok := within(r.URL.Path)
	switch {
	case !ok && s.entrance != nil:
		s.entrance.ServeHTTP(w, r)
		return
	case !ok:
		s.enter(w, r)
		return
	}
	query := r.URL.RawQuery
	known := query == "" || query == live && r.Method == http.MethodGet || rest == eventsPath && s.find(query) != nil
	one := s.sessionOf(r, handle, rest != eventsPath && query != live)
	if one == nil && s.entrance != nil && r.Method == http.MethodGet && loopback.Navigated(r.Header) {
		http.Redirect(w, r, entrance.PathTo(rest), http.StatusSeeOther) // the session has ended
		return
	}
	if one == nil || !known {
		words := outside
		if s.entrance != nil {
			words = ended
		}
		loopback.Refuse(w, http.StatusNotFound, words)
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
	http.SetCookie(w, one.cookie(false))
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		// Such as the file of pfar console. The browser would follow a redirect without the cookie, which is SameSite=Strict;
		// what this site's own page leads to, it opens with the cookie.
		send(w, "welcome", view{Title: "Signed in", Style: template.CSS(style), Body: one.path("")})
		return
	}
	http.Redirect(w, r, one.path(""), http.StatusSeeOther)
}

// serve answers within a session.
func (s *site) serve(w http.ResponseWriter, r *http.Request, one *session, rest string) {
	get, post := s.find(rest), s.taker(rest)
	toSign, signs := strings.CutPrefix(rest, "sign/")
	switch {
	case signs && r.Method == http.MethodPost:
		prepare(s, w, r, one, toSign)
	case rest == eventsPath && r.Method == http.MethodGet:
		s.events(w, r, one)
	case rest == verifyPath && r.Method == http.MethodGet && r.URL.RawQuery == "" && loopback.Navigated(r.Header):
		verifyAudit(s, w, r, one)
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
	case kind == "call" && operator.IsID(subject):
		return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
			s.answer(w, r, one, subject, form)
		}
	case kind == "review" && units.IsServer(subject):
		return accepting(s, subject)
	case kind == "enter" && units.IsServer(subject):
		return entering(s, subject)
	case kind == "server" && units.IsServer(subject):
		return turning(s, subject)
	case kind == "learn" && units.IsServer(subject):
		return learning(s, subject)
	case kind == "import":
		if program, again, ok := importAt(subject); ok && !again {
			return importServers(s, program)
		}
	case kind == "add" && units.IsServer(subject):
		return adding(s, subject)
	case kind == offerRefused, kind == offerLearned:
		if o, ok := offerAt(kind, subject); ok {
			return allowing(s, o)
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
	if form := formOf(w, r, one); form != nil {
		do(w, signed(r, one, form), one, form)
	}
}

// signed returns the request of a form with the signature that the form has.
func signed(r *http.Request, one *session, form map[string]string) *http.Request {
	if one.operator == "" {
		return r
	}
	f := &signing.Form{}
	if form["proof"] != "" {
		f.Proof = &passkey.Proof{Operator: one.operator, Nonce: form["nonce"], Response: []byte(form["proof"])}
	}
	return f.With(r)
}

// prepare answers the script of a page with what a form is to be signed over. It changes nothing.
func prepare(s *site, w http.ResponseWriter, r *http.Request, one *session, rest string) {
	do := s.taker(rest)
	if do == nil || one.operator == "" || !loopback.FromOwnPage(r) {
		loopback.Refuse(w, http.StatusForbidden, nothing+"only pfar's own page may send its form")
		return
	}
	form := formOf(w, r, one)
	if form == nil {
		return
	}
	// The taker leaves its words to a session that no page shows, and ends none.
	f, scratch := &signing.Form{}, session{operator: one.operator, handle: one.handle, turn: one.turn}
	do(nowhere{http.Header{}}, f.With(r), &scratch, form)
	keys := passkey.Find(s.entrance.Operators(), one.operator).Keys
	answer, err := f.Ask(r.Context(), one.operator, entrance.OriginOf(r), keys)
	if err != nil {
		loopback.Refuse(w, http.StatusServiceUnavailable, words(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the browser may have hung up
}

// nowhere takes an answer that nobody is to see.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}

// formOf reads a form of a session's pages; nil: it has answered that there is none.
func formOf(w http.ResponseWriter, r *http.Request, one *session) map[string]string {
	form, err := loopback.ReadForm(
		w, r, maxForm, "turn", "act", "digest", "reason", "seen", "name", "servers", "nonce", "proof",
	)
	if err != nil {
		loopback.Unreadable(w, nothing, err)
		return nil
	}
	if subtle.ConstantTimeCompare([]byte(form["turn"]), []byte(one.turn)) != 1 {
		loopback.Refuse(w, http.StatusForbidden, nothing+"the form is not the one of this page; reload the page")
		return nil
	}
	return form
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
	case rest == "checks":
		return showChecks(s)
	case rest == "audit", kind == "audit" && subject != "":
		if v, err := auditAt(subject); err == nil {
			return func(ctx context.Context, one *session) (content, error) { return auditPage(ctx, s.archive, one, v) }
		}
	case kind == "record" && audit.IsID(subject):
		return func(ctx context.Context, _ *session) (content, error) { return recordPage(ctx, s.archive, subject) }
	case kind == "server" && units.IsServer(subject):
		return func(ctx context.Context, one *session) (content, error) { return s.serverPage(ctx, one, subject) }
	case kind == "learn" && units.IsServer(subject):
		return showLesson(s, subject)
	case kind == "import":
		if program, again, ok := importAt(subject); ok {
			return showImport(s, program, again)
		}
	case kind == "log" && units.IsServer(subject):
		return showLog(s, subject)
	case kind == "explain" && units.IsServer(subject):
		return showExplain(s, subject)
	case kind == "review" && units.IsServer(subject):
		return func(ctx context.Context, one *session) (content, error) { return s.desk.review(ctx, one, subject) }
	case kind == "call" && operator.IsID(subject):
		return func(ctx context.Context, one *session) (content, error) { return s.call(ctx, one, subject) }
	case kind == offerRefused, kind == offerLearned:
		if o, ok := offerAt(kind, subject); ok {
			return askingAllow(s, o)
		}
	case kind == "do":
		if o, subject, ok := orderAt(subject); ok {
			return func(ctx context.Context, one *session) (content, error) { return s.question(ctx, one, o, subject) }
		}
	}
	return nil
}
