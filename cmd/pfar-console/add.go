package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// catalogue is the services that a person can add, and the programs whose servers a person can import.
type catalogue struct {
	Services []offered
	Imports  []button
}

// offered is one service, and what adds it: a form, or a command.
type offered struct {
	Title, Summary string
	Rows           rows
	Name, Server   string // of the server with that name, which is declared, and the path of its page; "": there is none
	Add            string // path of a form that opens the page of its set-up; "": there is none
	Command        string
}

func addPage(s *site, one *session) (content, error) {
	c := content{title: "Add", template: "add"}
	report, _ := s.runs.now()
	known := s.known.Load()
	if report == nil || known == nil {
		c.body = catalogue{}
		return c, errNothingSaid
	}
	b := catalogue{Imports: importable(s, one, known)}
	for _, o := range known.Offers {
		declared := slices.ContainsFunc(report.Servers, func(each control.Server) bool { return each.Name == o.Name })
		b.Services = append(b.Services, offeredOf(one, o, declared, s.orders.allowed.Load()))
	}
	c.body = b
	return c, nil
}

// offeredOf shows a service. adds tells whether the person runs pfard, and so may add it here.
func offeredOf(one *session, o attach.Offer, declared, adds bool) offered {
	show := offered{
		Title: visible.Reveal(o.Title), Summary: visible.Reveal(o.Summary),
		Command: visible.Reveal("pfar add " + o.Name),
	}
	show.Rows.add("runs", o.Runs)
	show.Rows.add("reaches", cmp.Or(strings.Join(o.Reaches, ", "), "no host"))
	for _, s := range o.Secrets {
		show.Rows.add("secret", s)
	}
	switch {
	case declared:
		show.Name, show.Server = visible.Reveal(o.Name), one.path("server/"+o.Name)
	case adds && o.Page:
		show.Add = one.path("add/" + o.Name)
	}
	return show
}

// adding opens the one-time page that sets up a service. The person consents there before anything is written.
func adding(s *site, service string) taker {
	o := attach.Order{Act: attach.OrderAdd, Server: service}
	const done = ": its one-time page is ready. Nothing is installed yet. Open the page to go on."
	return ordering(s, "add", o, done)
}

// showAdd makes the page of the catalogue.
func showAdd(s *site) maker {
	return func(_ context.Context, one *session) (content, error) { return addPage(s, one) }
}
