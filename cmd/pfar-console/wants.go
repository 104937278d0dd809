package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/wants"
)

// lacking is what servers and sessions lack.
type lacking struct {
	Servers  []wanting
	Sessions []want
}

// wanting is one server, and what its owner can grant it.
type wanting struct {
	Name   string
	Wants  []want
	Review *button // of its definitions; nil: there is nothing to review
}

// want is one thing with what grants it: a command, or another page.
type want struct {
	What, Command, Path string
	Enter               string  // the path of a form that opens a page for a secret or a sign-in; "": there is none
	SignIn              bool    // it is a sign-in
	Allow               *button // asks whether the server may reach a host; nil: it is about no host
}

func (s *site) wantsPage(ctx context.Context, one *session) (content, error) {
	report, lacks, pins, err := s.lacks(ctx)
	if report == nil {
		return content{title: "Wants", template: "wants", body: lacking{}}, errNothingSaid
	}
	var b lacking
	grants := granting{secrets: s.orders.allowed.Load(), hosts: mayOrder(s, one) == nil}
	for _, each := range report.Servers {
		if w := wantingOf(one, each, lacks, pins, grants); len(w.Wants) > 0 || w.Review != nil {
			b.Servers = append(b.Servers, w)
		}
	}
	all, lost := s.desk.sessions(ctx)
	for _, w := range wants.Sessions(all) {
		b.Sessions = append(b.Sessions, want{
			What: visible.Reveal(w.Session + ": " + w.What), Path: orderPath(one, "reset", w.Session),
		})
	}
	return content{title: "Wants", template: "wants", body: b}, cmp.Or(err, lost)
}

// granting says what a person may grant a server here. The zero value grants nothing.
type granting struct{ secrets, hosts bool }

// wantingOf says what a server lacks, with buttons for what the person may grant here.
func wantingOf(
	one *session, s control.Server, lacks []wants.Want, pins []operator.ServerPins, grants granting,
) wanting {
	w := wanting{Name: visible.Reveal(s.Name)}
	for _, p := range pins {
		if p.Server == s.Name && (len(p.Held) > 0 || p.Unreviewed > 0 || len(p.Drift) > 0 || p.Error != "") {
			w.Review = &button{one.path("review/" + s.Name), "Review " + toReview(p)}
		}
	}
	for _, each := range lacks {
		if each.Server == s.Name && (w.Review == nil || each.Command != wants.AcceptCommand(s.Name)) {
			lacked := want{What: visible.Reveal(each.What), Command: visible.Reveal(each.Command)}
			if (each.Secret || each.SignIn) && grants.secrets {
				lacked.Enter, lacked.SignIn = one.path("enter/"+s.Name), each.SignIn
			}
			if each.Host != "" && grants.hosts {
				at := hostOffer{offerRefused, s.Name, each.Host}
				lacked.Allow = &button{one.path(at.question()), "Allow " + visible.Reveal(each.Host)}
			}
			w.Wants = append(w.Wants, lacked)
		}
	}
	return w
}

// toReview says what of a server is to be reviewed.
func toReview(p operator.ServerPins) string {
	var list []string
	if n := len(p.Held) + p.Left; n > 0 {
		list = append(list, plural.Count(n, "held definition"))
	}
	if p.Unreviewed > 0 {
		list = append(list, plural.Count(p.Unreviewed, "unreviewed definition"))
	}
	if len(p.Drift) > 0 {
		list = append(list, "the changed version or program")
	}
	if len(list) == 0 {
		return "what is wrong with its pins"
	}
	last := len(list) - 1
	if last == 0 {
		return list[0]
	}
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

// review is what a person accepts: all of it is on the page.
type review struct {
	Server      string
	Path        string `json:"-"`
	Error       string // that its pins cannot be used
	Version     string // of the server, which is accepted with the last of its definitions
	Drift       string
	Definitions []definition
	Left        int // that are not shown, and are not accepted with the others
	Accepts     int
	Settles     bool   // it accepts the drift alone
	Seen        string `json:"-"`
}

// definition is one that is held or that nobody has reviewed.
type definition struct {
	Name, State, Digest string
	Problem             string // why it is not accepted on this page
	Suspicious          string
	Results             string
	Lines               []diffLine
}

// diffLine is a line of a difference, and whether it is new ("+") or gone ("-").
type diffLine struct{ Sign, Text string }

// maxReviewed is how many definitions, and maxLines how many lines of them one page shows.
const (
	maxReviewed = 64
	maxLines    = 4000
)

func (d desk) review(ctx context.Context, one *session, server string) (content, error) {
	p, err := d.pinsOf(ctx, server)
	if err != nil {
		return content{}, err
	}
	b, _ := reviewOf(p)
	b.Path = one.path("review/" + server)
	return content{title: "Definitions of " + b.Server, template: "review", body: b, quiet: true}, nil
}

// reviewOf returns what the page shows. names are the definitions that its button accepts, as TITLE@DIGEST.
func reviewOf(p operator.ServerPins) (r review, names []string) {
	r.Server, r.Error, r.Version = visible.Reveal(p.Server), visible.Reveal(p.Error), visible.Reveal(p.Version)
	r.Drift, r.Left = visible.Reveal(strings.Join(p.Drift, ", ")), p.Left
	names = []string{} // the gateway refuses null in its place
	lines := 0
	add := func(d definition, text, name string) {
		d.Lines = linesOf(text)
		if len(r.Definitions) == maxReviewed || lines+len(d.Lines) > maxLines {
			r.Left++
			return
		}
		lines += len(d.Lines)
		if r.Definitions = append(r.Definitions, d); d.Problem == "" {
			names = append(names, name)
		}
	}
	for _, h := range p.Held {
		d := definition{
			Name: visible.Reveal(h.Title), State: visible.Reveal(h.State), Digest: beginning(h.Digest),
			Problem: visible.Reveal(h.Problem), Suspicious: visible.Reveal(h.Suspicious),
			Results: visible.Reveal(h.Results),
		}
		if h.Digest != "" && (h.Cut > 0 || h.Diff == "") {
			d.Problem = "it is too long to be shown whole"
		}
		add(d, h.Diff, h.Title+"@"+h.Digest)
	}
	for _, k := range p.Descriptors {
		if p.NeedsReview(k) && k.Kind != operator.Program {
			d := definition{
				Name: visible.Reveal(k.Title), State: "unreviewed", Digest: beginning(k.Digest),
				Results: visible.Reveal(k.Results),
			}
			if k.Text == "" || k.Cut > 0 {
				d.Problem = "it is too long to be shown whole"
			}
			add(d, k.Text, k.Title+"@"+k.Digest)
		}
	}
	r.Accepts = len(names)
	r.Settles = len(names) == 0 && len(p.Held) == 0 && r.Drift != ""
	r.Seen = content{body: []any{r, names}}.fingerprint()
	return r, names
}

// beginning is as much of a digest as people compare.
func beginning(digest string) string { return visible.Reveal(digest[:min(len(digest), 16)]) }

func linesOf(text string) (list []diffLine) {
	within := false
	for line := range strings.Lines(text) {
		l := diffLine{Text: visible.Reveal(strings.TrimSuffix(line, "\n"))}
		if sign := line[:1]; within && (sign == "+" || sign == "-") {
			l.Sign = sign
		}
		within = within || strings.HasPrefix(line, "@@") // behind the head of a difference
		list = append(list, l)
	}
	return list
}

// accepting has the gateway accept what a person has seen on the page of a server, by its digests.
func accepting(s *site, server string) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		n, err := notice{}, error(loopback.ErrForm)
		if form["act"] == "accept" {
			n, err = s.desk.accept(r.Context(), server, form["seen"])
		}
		s.finish(w, r, one, "wants", n, err)
	}
}

var errNothingToAccept = &ask.Refusal{Reason: "there is nothing left to accept"}

func (d desk) accept(ctx context.Context, server, seen string) (notice, error) {
	p, err := d.pinsOf(ctx, server)
	if err != nil {
		return notice{}, err
	}
	now, names := reviewOf(p)
	switch {
	case now.Seen != seen:
		return notice{}, errChanged
	case len(names) == 0 && !now.Settles:
		return notice{}, errNothingToAccept
	}
	var answer struct {
		Accepted []string `json:"accepted"`
	}
	err = d.ask(ctx, http.MethodPost, "/pins/"+server+"/accept", map[string][]string{"names": names}, &answer)
	done := fmt.Sprintf("Accepted: %s of %s", plural.Count(len(answer.Accepted), "definition"), now.Server)
	if len(names) == 0 {
		done = "Accepted: the change of " + now.Server
	}
	return notice{Words: done}, err
}
