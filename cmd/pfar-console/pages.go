package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/operator/wording"
)

var (
	//go:embed console.css
	ownStyle string
	//go:embed console.js
	script string
	//go:embed pages.html
	text string

	style     = loopback.Style + ownStyle
	templates = template.Must(template.New("").Parse(text))

	// policy lets a page apply its own style and run its own script, which makes no markup of a text (Trusted Types), ask
	// this site whether something has changed, and send its forms to it. Whatever text comes into a page loads nothing,
	// runs nothing, and sends nothing anywhere. Nor does another page show it in a frame.
	policy = fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; connect-src 'self'; form-action 'self'; "+
		"frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
		loopback.Digest(style), loopback.Digest(script))
)

// view is what the templates show. Each text of a stranger's in it has been made visible.
type view struct {
	Title  string
	Home   string // paths
	Leave  string
	Events string
	Turn   string
	Notice notice
	Seen   string // tells what waits from what waits at another time
	Lost   string // why nothing is known
	Style  template.CSS
	Script template.JS

	Clients []client // of the list
	Past    []past   // likewise
	Call    *call    // of one call
}

// client is whose calls wait. Each has a part of the page: many calls of one hide no other's.
type client struct {
	Name  string
	First []entry
	More  []entry
}

// maxFirst is how many calls of one client are in the list at once. The others are below a line that unfolds.
const maxFirst = 4

// entry is one call in the list.
type entry struct {
	Path, Sentence, Left, State string
	Open                        bool // it waits for a person
	Warned                      bool
}

// past is one call that has been answered.
type past struct{ Call, Client, State, By, At, Reason string }

// maxPast is how many of these a page shows.
const maxPast = 10

// call is one call, whole.
type call struct {
	operator.Shown
	wording.Whole
	Path    string
	Name    string
	Until   string
	Open    bool
	TooLong bool
	By      string
	Offers  []offer
}

// offer is a grant that can be given with a call, or why it cannot.
type offer struct{ Act, Words, Why string }

// acts are those of grants.
var acts = map[bool]string{false: "grant", true: "grant-reads"}

func (s *site) view(one *session, title string) view {
	return view{
		Title: title, Home: one.path(""), Leave: one.path("leave"), Events: one.path(eventsPath),
		Turn: one.turn, Notice: s.said(one), Style: template.CSS(style), Script: template.JS(script),
	}
}

// show sends a page.
func show(w http.ResponseWriter, name string, v view) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, v); err != nil {
		loopback.Refuse(w, http.StatusInternalServerError, "the page cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // the browser may have hung up
}

// waiting shows all calls that wait.
func (s *site) waiting(w http.ResponseWriter, r *http.Request, one *session) {
	v := s.view(one, "Waiting")
	all, err := s.desk.list(r.Context())
	if err != nil {
		v.Lost = visible.Reveal(words(err))
	}
	v.Seen = fingerprint(all)
	v.Clients = s.byClient(one, all)
	answered, err := s.desk.past(r.Context())
	if err != nil && v.Lost == "" {
		v.Lost = visible.Reveal(words(err))
	}
	for _, p := range answered {
		if p.State != operator.Pending.String() && len(v.Past) < maxPast {
			v.Past = append(v.Past, pastOf(p))
		}
	}
	show(w, "waiting", v)
}

func pastOf(p operator.Past) past {
	by := ""
	if p.By != nil {
		by = visible.Reveal(p.By.Name)
	}
	at := p.Answered
	if at.IsZero() {
		at = p.Asked
	}
	return past{
		Call: visible.Reveal(p.Server + "." + p.Name), Client: visible.Reveal(p.Client), State: visible.Reveal(p.State),
		By: by, At: at.Local().Format(time.DateTime), Reason: visible.Reveal(p.Reason),
	}
}

// byClient sorts what waits by whose it is, each client where its first call is.
func (s *site) byClient(one *session, all []operator.Shown) (clients []client) {
	at := map[string]int{}
	for i := range all {
		c := &all[i]
		k, known := at[c.Client]
		if !known {
			k, at[c.Client] = len(clients), len(clients)
			clients = append(clients, client{Name: visible.Reveal(c.Client)})
		}
		e := entry{
			Path: one.path("call/" + c.ID), Sentence: wording.Sentence(c), State: c.State.String(),
			Left: (time.Duration(c.Left) * time.Second).String(), Open: c.State == operator.Pending,
			Warned: len(c.Findings) > 0 || c.Decision.Once,
		}
		if list := &clients[k].First; len(*list) < maxFirst {
			*list = append(*list, e)
		} else {
			clients[k].More = append(clients[k].More, e)
		}
	}
	return clients
}

// call shows one call, whole, and the buttons that answer it behind all of it.
func (s *site) call(w http.ResponseWriter, r *http.Request, one *session, id string) {
	c, err := s.desk.show(r.Context(), id)
	if err != nil {
		s.say(one, notice{visible.Reveal(words(err)), true})
		http.Redirect(w, r, one.path(""), http.StatusSeeOther)
		return
	}
	v := s.view(one, "Answer a call")
	v.Call = s.callOf(one, c)
	v.Seen = fingerprint([]operator.Shown{c})
	v.Events += "?" + c.ID
	show(w, "call", v)
}

func (s *site) callOf(one *session, c operator.Shown) *call {
	whole := wording.Read(&c)
	k := &call{
		Shown: c, Whole: whole, Path: one.path("call/" + c.ID), Name: visible.Reveal(c.Server + "." + c.Name),
		Until: s.now().Add(time.Duration(c.Left) * time.Second).Local().Format(time.TimeOnly),
		Open:  c.State == operator.Pending, TooLong: whole.TooLong(),
	}
	if c.By != nil {
		k.By = visible.Reveal(c.By.Name)
	}
	for _, o := range c.Grants {
		words := "this tool: it "
		if o.Public {
			words = "tools that only read public sources: it "
		}
		k.Offers = append(k.Offers, offer{acts[o.Public], words + wording.Bounds(o.GrantTerms), visible.Reveal(o.Why)})
	}
	return k
}

// answer sends the answer of a form to the gateway, which accepts one answer for each call.
func (s *site) answer(w http.ResponseWriter, r *http.Request, one *session, id string, form map[string]string) {
	n, err := s.act(r.Context(), id, form)
	refusal, refused := errors.AsType[*ask.Refusal](err)
	switch {
	case errors.Is(err, loopback.ErrForm):
		loopback.Unreadable(w, "nothing was done: ", err)
		return
	case refused:
		n = notice{"Nothing was done: " + visible.Reveal(refusal.Error()), true}
	case err != nil:
		const unknown = "The gateway gave no answer, so it is not known whether the call was answered. " +
			"What it says when it is back stands below: "
		n = notice{unknown + visible.Reveal(err.Error()), true}
	}
	s.say(one, n)
	http.Redirect(w, r, one.path(""), http.StatusSeeOther)
}

var errTooLong = &ask.Refusal{Reason: "the call is too long to read on a page"}

// act carries out one form. It approves only the call whose digest the page has shown.
func (s *site) act(ctx context.Context, id string, form map[string]string) (notice, error) {
	switch form["act"] {
	case "deny":
		return notice{Words: "Denied: " + id}, s.desk.deny(ctx, id, form["reason"])
	case "approve", acts[false], acts[true]:
	default:
		return notice{}, loopback.ErrForm
	}
	c, err := s.desk.show(ctx, id)
	if err == nil && wording.Read(&c).TooLong() {
		err = errTooLong
	}
	if err != nil {
		return notice{}, err
	}
	done := notice{Words: fmt.Sprintf("Approved, once: %s (%s)", wording.Call(&c), id)}
	if form["act"] == "approve" {
		return done, s.desk.approve(ctx, id, form["digest"], nil)
	}
	for _, o := range c.Grants {
		if acts[o.Public] == form["act"] && o.Why == "" {
			done.Words += ", with a grant that " + wording.Bounds(o.GrantTerms)
			return done, s.desk.approve(ctx, id, form["digest"], &o.GrantTerms)
		}
	}
	return notice{}, &ask.Refusal{Reason: "this grant cannot be given with the call"}
}

// words are why the gateway has not answered.
func words(err error) string {
	if refusal, ok := errors.AsType[*ask.Refusal](err); ok {
		return refusal.Error()
	}
	return "the gateway does not answer: " + err.Error()
}

// fingerprint tells what waits from what waits at another time.
func fingerprint(all []operator.Shown) string {
	h := sha256.New()
	for _, c := range all {
		fmt.Fprintln(h, c.ID, c.State)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
