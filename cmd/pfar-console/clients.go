package main

import (
	"context"
	"net/http"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
)

// clientele is who may use servers, and where the endpoint is.
type clientele struct {
	Rows    rows   // of the endpoint
	Declare string // path of a form for a new client; "": the person does not run pfard
	Clients []clientShown
}

// clientShown is one client, and the commands for it.
type clientShown struct {
	Name     string
	Off      bool // it is disabled, or its file is broken
	Rows     rows
	Commands []command
	Configs  configs
}

// command is a command with its purpose.
type command struct{ What, Command string }

// clientsPage shows the clients.
func clientsPage(s *site, one *session) (content, error) {
	c := content{title: "Clients", template: "clients", copies: true}
	report, _ := s.runs.now()
	known := s.known.Load()
	if report == nil || known == nil {
		c.body = clientele{}
		return c, errNothingSaid
	}
	var b clientele
	b.Rows.add("endpoint", report.Endpoint)
	b.Rows.add("socket", report.Socket)
	if s.orders.allowed.Load() {
		b.Declare = one.path("clients")
	}
	for i, each := range known.Clients {
		show := clientOf(each)
		show.Configs = configsOf(each, i, report.Endpoint, known.Connects)
		b.Clients = append(b.Clients, show)
	}
	c.body = b
	return c, nil
}

func clientOf(c attach.Client) clientShown {
	show := clientShown{Name: visible.Reveal(c.Name), Off: c.Off}
	show.Rows.add("known by", c.Identity)
	show.Rows.add("servers", c.Servers)
	show.Rows.add("tools", c.Tools)
	show.Rows.add("profile", c.Profile)
	show.Rows.add("reason", c.Relax)
	show.Rows.add("declared in", c.File)
	if c.File != "" {
		name := visible.Reveal(c.Name)
		show.Commands = []command{
			{"For its configuration in a terminal", "pfar client config " + name},
			{"To replace its token (--keep keeps the old one, too)", "pfar client rotate " + name},
		}
	}
	return show
}

// showClients makes the page of the clients.
func showClients(s *site) maker {
	return func(_ context.Context, one *session) (content, error) { return clientsPage(s, one) }
}

// declaring has pfard declare a client, and shows its token on the next page alone.
func declaring(s *site) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		o := attach.Order{Act: attach.OrderClient, Client: form["name"], Servers: form["servers"]}
		ordering(s, "clients", o, " is declared.")(w, r, one, form)
	}
}
