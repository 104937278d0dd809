package main

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/page"
)

const (
	idleTime    = 30 * time.Minute // without a person, until a session ends, and with the last one the process
	linkTime    = 10 * time.Minute // that a link is good
	maxSessions = 8
	maxLinks    = 8
	maxStreams  = 6       // of events, which each hold a connection
	maxForm     = 8 << 10 // bytes
	cookie      = "pfar-console"
)

// site is the operator's pages. Others on this machine can connect to it, and so can each page in a browser here: who
// has no session learns nothing, and what a browser sends for another page is refused.
type site struct {
	names loopback.Names
	desk  desk
	now   func() time.Time
	idle  *time.Timer // fires when nobody has used the pages for idleTime

	mu       sync.Mutex
	links    []link
	sessions []*session
	streams  int // of events that are open
}

// link lets somebody in, once.
type link struct {
	nonce string
	until time.Time
}

// session is one browser that a link has let in. A cookie belongs to a name and not to a port, so a browser sends it to
// every program that listens on 127.0.0.1. This one belongs to a path that only this site has, and that nobody guesses;
// that is why it cannot be a __Host- cookie, whose path is /.
type session struct {
	handle string // in its paths
	secret string // its cookie
	turn   string // in its forms
	last   time.Time
	notice notice // that the next page shows
}

// notice tells the result of an act.
type notice struct {
	Words string
	Bad   bool
}

func newSite(port int, gateway *http.Client, now func() time.Time) *site {
	return &site{names: loopback.NamesAt(port), desk: desk{gateway}, now: now, idle: time.NewTimer(idleTime)}
}

// invite makes a link good.
func (s *site) invite(nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, link{nonce, s.now().Add(linkTime)})
	if len(s.links) > maxLinks {
		s.links = s.links[1:]
	}
	s.idle.Reset(idleTime)
}

// redeem uses up the link that has a path, if there is such a one, and begins a session.
func (s *site) redeem(path string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := -1
	for i, l := range s.links {
		if subtle.ConstantTimeCompare([]byte(page.Path(l.nonce)), []byte(path)) == 1 {
			found = i
		}
	}
	if found < 0 {
		return nil
	}
	good := s.now().Before(s.links[found].until)
	s.links = slices.Delete(s.links, found, found+1)
	if !good {
		return nil
	}
	one := &session{handle: rand.Text(), secret: rand.Text(), turn: rand.Text(), last: s.now()}
	if s.sessions = append(s.sessions, one); len(s.sessions) > maxSessions {
		s.sessions = s.sessions[1:]
	}
	s.idle.Reset(idleTime)
	return one
}

// within splits a path of a session's into its handle and the rest: "/c/HANDLE/call/ID".
func within(path string) (handle, rest string, ok bool) {
	inner, ok := strings.CutPrefix(path, "/c/")
	if !ok {
		return "", "", false
	}
	return strings.Cut(inner, "/")
}

func (s *session) path(rest string) string { return "/c/" + s.handle + "/" + rest }

// sessionOf returns the session of a request, if it has the cookie of one that lives; else nil. byHand says that a
// person has sent the request, and not a page by itself.
func (s *site) sessionOf(r *http.Request, handle string, byHand bool) *session {
	cookies := r.CookiesNamed(cookie)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.sessions = slices.DeleteFunc(s.sessions, func(o *session) bool { return now.Sub(o.last) >= idleTime })
	for _, o := range s.sessions {
		if o.handle != handle || len(cookies) != 1 ||
			subtle.ConstantTimeCompare([]byte(cookies[0].Value), []byte(o.secret)) != 1 {
			continue
		}
		if byHand {
			o.last = now
			s.idle.Reset(idleTime)
		}
		return o
	}
	return nil
}

// lives reports whether a session has not ended.
func (s *site) lives(one *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.sessions, one) && s.now().Sub(one.last) < idleTime
}

// end signs a browser out.
func (s *site) end(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = slices.DeleteFunc(s.sessions, func(o *session) bool { return o == one })
}

// say leaves a notice for the next page of a session.
func (s *site) say(one *session, n notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.notice = n
}

// said takes the notice of a session.
func (s *site) said(one *session) notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := one.notice
	one.notice = notice{}
	return n
}

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

// live is the query of a page that a browser loads again by itself.
const live = "live"

// enter lets in whoever comes with a link. A browser that only looks what is behind it, to show it sooner, does not use
// it up.
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

const eventsPath = "events"

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

// taker carries out a form.
type taker func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string)

// taker returns what carries out the form of the page at a path; nil: that has none.
func (s *site) taker(rest string) taker {
	kind, subject, _ := strings.Cut(rest, "/")
	switch {
	case rest == "leave":
		return func(w http.ResponseWriter, _ *http.Request, one *session, _ map[string]string) {
			s.end(one)
			loopback.Refuse(w, http.StatusOK, "You are signed out. You can close this page.")
		}
	case kind == "call" && callID(subject):
		return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
			s.answer(w, r, one, subject, form)
		}
	case kind == "do":
		if o, subject, ok := orderAt(subject); ok {
			return s.carryOut(o, subject)
		}
	}
	return nil
}

const nothing = "nothing was done: "

// post reads a form of the session's pages, and carries it out.
func (s *site) post(w http.ResponseWriter, r *http.Request, one *session, do taker) {
	if !loopback.Own(r) {
		loopback.Refuse(w, http.StatusForbidden, nothing+"only pfar's own page may send its form")
		return
	}
	form, err := loopback.ReadForm(w, r, maxForm, "turn", "act", "digest", "reason")
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
