package main

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/cmd/pfar-console/entrance"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/page"
)

const (
	idleTime = 30 * time.Minute // without a person, until a session ends, and with the last one the process
	maxLinks = 8
	maxForm  = 16 << 10 // bytes
	cookie   = "pfar-console"
)

// site is the operator's pages. Others can connect to it: on this machine, or from other machines if it is for those.
// So can each page in a browser. Who has no session learns nothing, and what a browser sends for another page is
// refused.
type site struct {
	has      func(*http.Request) bool // a browser knows the pages by the name that a request has
	entrance *entrance.Entrance       // of operators at other machines; nil: links let the user of this one in
	desk     desk
	now      func() time.Time
	idle     *time.Timer // fires when nobody has used the pages for idleTime
	runs     *running
	told     chan struct{}                // closed when known is there
	known    atomic.Pointer[attach.Known] // nil: pfard has not sent it yet
	orders   *commander
	archive  *archive

	mu       sync.Mutex
	links    links
	sessions []*session
	streams  int // of events that are open
	most     most
}

// links are those that are good.
type links struct {
	open []link
	used func(nonce string) // is told of each that has let somebody in; nil: nobody wants to know
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
	operator string // who signs each act with a passkey; "": the user of this machine
	key      []byte // the id of the operator's passkey
	handle   string // in its paths
	secret   string // its cookie
	turn     string // in its forms
	last     time.Time
	notice   notice // that the next page shows
}

// notice tells the result of an act.
type notice struct {
	Words string
	Bad   bool
	Link  string // to another page
	Token string // of a client, which no other page shows

	since time.Time
	shown bool
}

// noticeTime is how long a notice stays on a page that loads again by itself.
const noticeTime = 10 * time.Second

func newSite(port int, gateway *http.Client, now func() time.Time) *site {
	names := loopback.NamesAt(port)
	return &site{
		has:  func(r *http.Request) bool { return names.Has(r.Host) },
		told: make(chan struct{}), desk: desk{gateway}, now: now, idle: time.NewTimer(idleTime), runs: newRunning(),
		orders: newCommander(), archive: newArchive(), most: most{sessions: 8, streams: 6},
	}
}

// most is how many of each there are at once.
type most struct {
	sessions int
	streams  int // of events, which each hold a connection
}

// invite makes a link good.
func (s *site) invite(nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links.open = append(s.links.open, link{nonce, s.now().Add(page.LinkTime)})
	if len(s.links.open) > maxLinks {
		s.links.open = s.links.open[1:]
	}
	s.idle.Reset(idleTime)
}

// redeem uses up the link that has a path, if there is such a one, and begins a session.
func (s *site) redeem(path string) *session {
	s.mu.Lock()
	nonce, good := take(s, path)
	var one *session
	if good {
		one = begin(s, "", nil)
	}
	s.mu.Unlock()
	if one != nil && s.links.used != nil {
		s.links.used(nonce)
	}
	return one
}

// take takes the link that has a path, and reports whether its time is not over. It is called with s.mu held.
func take(s *site, path string) (nonce string, good bool) {
	found := -1
	for i, l := range s.links.open {
		if subtle.ConstantTimeCompare([]byte(page.Path(l.nonce)), []byte(path)) == 1 {
			found = i
		}
	}
	if found < 0 {
		return "", false
	}
	l := s.links.open[found]
	s.links.open = slices.Delete(s.links.open, found, found+1)
	return l.nonce, s.now().Before(l.until)
}

// begin begins a session, of an operator or of the user of this machine. It is called with s.mu held.
func begin(s *site, operator string, key []byte) *session {
	one := &session{
		operator: operator, key: key, handle: rand.Text(), secret: rand.Text(), turn: rand.Text(), last: s.now(),
	}
	if s.sessions = append(s.sessions, one); len(s.sessions) > s.most.sessions {
		s.sessions = s.sessions[1:]
	}
	s.idle.Reset(idleTime)
	return one
}

// signIn begins a session for an operator, whose browser gets its cookie and goes to a call; "": to all that wait.
func signIn(s *site, w http.ResponseWriter, r *http.Request, operator string, key []byte, call string) {
	s.mu.Lock()
	one := begin(s, operator, key)
	s.mu.Unlock()
	http.SetCookie(w, one.cookie(true))
	rest := ""
	if call != "" {
		rest = "call/" + call
	}
	http.Redirect(w, r, one.path(rest), http.StatusSeeOther)
}

// cookie is the session's.
func (s *session) cookie(secure bool) *http.Cookie {
	return &http.Cookie{
		Name: cookie, Value: s.secret, Path: s.path(""), HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

// over reports whether a session has ended: nobody used it, or its operator has that passkey no more.
func over(s *site, o *session) bool {
	return s.now().Sub(o.last) >= idleTime || s.entrance != nil && !s.entrance.Holds(o.operator, o.key)
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
	s.sessions = slices.DeleteFunc(s.sessions, func(o *session) bool { return over(s, o) })
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
	return slices.Contains(s.sessions, one) && !over(s, one)
}

// mayOrder says why a person may not have pfard start and stop servers and allow hosts; nil: the person may.
func mayOrder(s *site, one *session) error {
	if one.operator == "" {
		return mayCommand(s, one)
	}
	if err := passkey.Find(s.entrance.Operators(), one.operator).Lacks(passkey.Change); err != nil {
		return &ask.Refusal{Reason: err.Error()}
	}
	return nil
}

// mayCommand says why a person may not have pfard learn and import; nil: the person runs pfard, and is at this machine.
func mayCommand(s *site, one *session) error {
	switch {
	case one.operator != "":
		return errElsewhere
	case !s.orders.allowed.Load():
		return errNoOrders
	}
	return nil
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
	n.since = s.now()
	one.notice = n
}

// said takes the notice of a session. If a page loads again by itself, it gets the notice once more for a while.
func (s *site) said(one *session, again bool) notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.notice.shown && !(again && s.now().Sub(one.notice.since) < noticeTime) {
		one.notice = notice{}
	}
	one.notice.shown = true
	return one.notice
}
