package main

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/page"
)

// maxBody bounds a form: its value may be encoded with three bytes for each.
const maxBody = 3*page.MaxValue + 1<<10

var (
	//go:embed page.html
	text string

	form = template.Must(template.New("page").Parse(text))

	// policy lets the page apply its own style, send its form to itself, and nothing else: whatever text comes into it
	// loads nothing, runs nothing, and sends nothing anywhere. Nor does another page show it in a frame.
	policy = fmt.Sprintf(
		"default-src 'none'; style-src %s; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		loopback.Digest(loopback.Style),
	)
)

// site is one page. Others on this machine can connect to it, and so can each page in a browser here: who has not the
// nonce learns nothing, and what a browser sends for another page is refused.
type site struct {
	names loopback.Names
	path  string
	task  page.Task
	send  func(attach.Acted, []byte) error // to pfard
	now   func() time.Time

	mu    sync.Mutex
	state page.State
	turn  string        // that the next form must have: each is taken once, for the secret that it asks for
	asks  string        // key of that secret
	shown chan struct{} // closed when a browser has had the page with what came of it
	once  sync.Once
}

func newSite(t page.Task, port int, send func(attach.Acted, []byte) error) *site {
	s := &site{
		names: loopback.NamesAt(port),
		path:  page.Path(t.Nonce), task: t, send: send, now: time.Now,
		turn: rand.Text(), shown: make(chan struct{}),
	}
	s.becomes(t.State)
	return s
}

// becomes has the page show another state, unless its end is shown already. A form that asks for another secret is good
// no more.
func (s *site) becomes(state page.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Phase.Over() {
		return
	}
	s.state = state
	key := ""
	if state.Wanted != nil {
		key = state.Wanted.Key
	}
	if waits(state) && key != s.asks {
		s.asks, s.turn = key, rand.Text()
	}
}

// waits reports whether a page waits for a person.
func waits(s page.State) bool { return s.Phase == page.Waiting || s.Phase == page.SigningIn }

// finished reports whether the page shows what came of the set-up.
func (s *site) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Phase.Over()
}

// ServeHTTP answers GET and POST of the page's path, and nothing else.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	loopback.Guard(w.Header(), policy)
	switch {
	case !s.names.Has(r.Host):
		const words = "open the link exactly as pfar printed it: the page has no other address"
		loopback.Refuse(w, http.StatusMisdirectedRequest, words)
	case subtle.ConstantTimeCompare([]byte(r.RequestURI), []byte(s.path)) != 1:
		loopback.Refuse(w, http.StatusNotFound, "there is no such page, or it has ended: ask pfar for a new link")
	case r.Method == http.MethodGet:
		s.get(w, r)
	case r.Method == http.MethodPost:
		s.post(w, r)
	default:
		w.Header().Set("Allow", "GET, POST")
		loopback.Refuse(w, http.StatusMethodNotAllowed, "only GET and POST")
	}
}

func (s *site) get(w http.ResponseWriter, r *http.Request) {
	if !loopback.Navigated(r.Header) {
		loopback.Refuse(w, http.StatusForbidden, "open this page in a browser window of its own")
		return
	}
	s.show(w, http.StatusOK)
}

// view is what the template shows.
type view struct {
	Task    page.Task
	State   page.State
	Heading string
	Path    string
	Turn    string
	Until   string
	Tools   string
	Most    int
	Refresh int // seconds; 0: the page stays as it is
	Style   template.CSS
}

// refreshes is how often a page is loaded again that goes on by itself. On one of them a person reads a code.
var refreshes = map[page.Phase]int{page.Working: 2, page.SigningIn: 5}

func (s *site) show(w http.ResponseWriter, code int) {
	s.mu.Lock()
	state, turn := s.state, s.turn
	s.mu.Unlock()
	v := view{
		Task: s.task, State: state, Heading: "Connect " + s.task.Title, Path: s.path, Turn: turn,
		Tools: plural.Count(state.Tools, "tool"), Most: page.MaxValue,
		Refresh: refreshes[state.Phase], Style: template.CSS(loopback.Style),
	}
	until := state.Deadline
	if state.Device != nil {
		until = state.Device.Until
	}
	if !until.IsZero() {
		v.Until = until.Local().Format("15:04")
	}
	if state.Phase == "" {
		loopback.Refuse(w, http.StatusGone, "this page has nothing to show")
		return
	}
	var b bytes.Buffer
	if err := form.Execute(&b, v); err != nil {
		loopback.Refuse(w, http.StatusInternalServerError, "the page cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	if _, err := w.Write(b.Bytes()); err == nil && state.Phase.Over() {
		s.once.Do(func() { close(s.shown) })
	}
}

func (s *site) post(w http.ResponseWriter, r *http.Request) {
	if !loopback.Own(r) {
		loopback.Refuse(w, http.StatusForbidden, "only this page may send its form: open the link and use the form there")
		return
	}
	a, err := read(w, r)
	if err != nil {
		loopback.Unreadable(w, "nothing was stored: ", err, errLarge, errControl)
		return
	}
	switch s.take(a) {
	case http.StatusGone:
		loopback.Refuse(w, http.StatusGone, "nothing was stored: the page no longer waits for this")
	case http.StatusConflict:
		loopback.Refuse(w, http.StatusConflict,
			"nothing was stored: this form was already sent, or the page now asks for something else; reload it")
	case http.StatusForbidden:
		loopback.Refuse(w, http.StatusForbidden, "nothing was stored: the page does not offer that")
	case http.StatusBadRequest:
		loopback.Refuse(w, http.StatusBadRequest, "nothing was stored: "+errEmpty.Error())
	case http.StatusServiceUnavailable:
		const words = "nothing was stored: pfar has stopped; when it runs again, ask it for a new link"
		loopback.Refuse(w, http.StatusServiceUnavailable, words)
	default:
		http.Redirect(w, r, s.path, http.StatusSeeOther)
	}
}

// answer is a form that was sent.
type answer struct {
	act   page.Act
	turn  string
	value []byte
}

var (
	errEmpty   = errors.New("the field is empty; go back and paste the value")
	errLarge   = fmt.Errorf("the value has more than %d bytes", page.MaxValue)
	errControl = errors.New("the value contains line breaks or control characters; go back and copy it again")
)

// read reads a form, each of whose fields stands in it once.
func read(w http.ResponseWriter, r *http.Request) (a answer, err error) {
	form, err := loopback.ReadForm(w, r, maxBody, "act", "turn", "value")
	if err != nil {
		return a, err
	}
	// A copied value often ends in a line break.
	a = answer{page.Act(form["act"]), form["turn"], []byte(strings.TrimSpace(form["value"]))}
	switch {
	case !slices.Contains([]page.Act{page.Enter, page.Skip, page.Cancel, page.SignIn, page.GiveUp}, a.act):
		return a, loopback.ErrForm
	case len(a.value) > page.MaxValue:
		return a, errLarge
	case !utf8.Valid(a.value) || bytes.ContainsFunc(a.value, unicode.IsControl):
		return a, errControl
	}
	return a, nil
}

// take hands an answer to pfard if the page waits for it, and says how that went as a status of HTTP.
func (s *site) take(a answer) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := s.state.Wanted
	switch {
	case !waits(s.state), !s.state.Deadline.IsZero() && s.now().After(s.state.Deadline):
		return http.StatusGone
	case subtle.ConstantTimeCompare([]byte(a.turn), []byte(s.turn)) != 1:
		return http.StatusConflict
	case !offers(s.state, a.act):
		return http.StatusForbidden
	case a.act == page.Enter && wanted != nil && len(a.value) == 0:
		return http.StatusBadRequest
	}
	if a.act != page.Enter || wanted == nil {
		a.value = nil
	}
	if err := s.send(attach.Acted{Act: a.act, Key: s.asks}, a.value); err != nil {
		return http.StatusServiceUnavailable
	}
	s.state, s.turn = page.State{Phase: page.Working}, rand.Text()
	return http.StatusSeeOther
}

// offers reports whether a page has a button for an act.
func offers(s page.State, a page.Act) bool {
	switch a {
	case page.Cancel:
		return true
	case page.Enter:
		return s.Phase == page.Waiting
	case page.Skip:
		return s.Phase == page.Waiting && s.Wanted != nil && s.Wanted.Optional
	case page.SignIn:
		return s.Phase == page.Waiting && s.Wanted != nil && s.Wanted.SignIn
	case page.GiveUp:
		return s.Phase == page.SigningIn
	}
	return false
}
