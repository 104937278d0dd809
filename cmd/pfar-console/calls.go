package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/operator/wording"
)

// waiting is the list of all calls that wait, and of the last ones that were answered.
type waiting struct {
	Clients []client
	Others  int // clients beside these
	Past    []past
}

// client is whose calls wait. Each has a part of the page: many calls of one hide no other's.
type client struct {
	Name  string
	Calls folded[entry]
}

// entry is one call in the list.
type entry struct {
	Path, Sentence, State string
	Left                  string `json:"-"`
	Open                  bool   // it waits for a person
	Warned                bool
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

// waiting shows all calls that wait.
func (s *site) waiting(ctx context.Context, one *session) (content, error) {
	all, others, err := s.desk.list(ctx)
	answered, lost := s.desk.past(ctx)
	b := waiting{Clients: clientsOf(one, all), Others: others}
	for _, p := range answered {
		if p.State != operator.Pending.String() && len(b.Past) < maxPast {
			b.Past = append(b.Past, pastOf(p))
		}
	}
	return content{title: "Waiting", template: "waiting", body: b}, cmp.Or(err, lost)
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

// clientsOf puts what waits of each client into words.
func clientsOf(one *session, all []waitingOf) (clients []client) {
	for _, of := range all {
		c := client{Name: visible.Reveal(of.client)}
		for i := range of.calls {
			c.Calls.add(func() entry { return entryOf(one, &of.calls[i]) })
		}
		c.Calls.Left += of.left
		clients = append(clients, c)
	}
	return clients
}

func entryOf(one *session, c *operator.Shown) entry {
	return entry{
		Path: one.path("call/" + c.ID), Sentence: wording.Sentence(c), State: c.State.String(),
		Left: (time.Duration(c.Left) * time.Second).String(), Open: c.State == operator.Pending,
		Warned: len(c.Findings) > 0 || c.Decision.Once,
	}
}

// call shows one call, whole, and the buttons that answer it behind all of it.
func (s *site) call(ctx context.Context, one *session, id string) (content, error) {
	c, err := s.desk.show(ctx, id)
	if err != nil {
		return content{}, err
	}
	return content{title: "Answer a call", template: "call", body: s.callOf(one, c), seen: c.State.String()}, nil
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
	s.finish(w, r, one, "", n, err)
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
