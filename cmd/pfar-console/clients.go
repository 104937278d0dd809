package main

import (
	"context"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/operator/wording"
)

// clientele is who may use servers, and where the endpoint is.
type clientele struct {
	Rows    []wording.Row // of the endpoint
	Clients []clientShown
}

// clientShown is one client, and the commands for it. Only a terminal shows a client's token, once.
type clientShown struct {
	Name     string
	Off      bool // it is let in nowhere
	Rows     []wording.Row
	Commands []string
}

// clientsPage shows the clients.
func clientsPage(s *site) (content, error) {
	c := content{title: "Clients", template: "clients"}
	report, _ := s.runs.now()
	known := s.known.Load()
	if report == nil || known == nil {
		c.body = clientele{}
		return c, errNothingSaid
	}
	var b clientele
	if report.Endpoint != "" {
		b.Rows = append(b.Rows, wording.Row{Name: "address", Text: visible.Reveal(report.Endpoint)})
	}
	if report.Socket != "" {
		b.Rows = append(b.Rows, wording.Row{Name: "socket", Text: visible.Reveal(report.Socket)})
	}
	for _, each := range known.Clients {
		b.Clients = append(b.Clients, clientOf(each))
	}
	c.body = b
	return c, nil
}

func clientOf(c attach.Client) clientShown {
	show := clientShown{Name: visible.Reveal(c.Name), Off: c.Off}
	row := func(name, text string) {
		if text != "" {
			show.Rows = append(show.Rows, wording.Row{Name: name, Text: visible.Reveal(text)})
		}
	}
	row("is", c.Identity)
	row("servers", c.Servers)
	row("tools", c.Tools)
	row("profile", c.Profile)
	row("because", c.Relax)
	row("declared in", c.File)
	if c.File != "" {
		for _, command := range []string{"pfar client config ", "pfar client rotate "} {
			show.Commands = append(show.Commands, visible.Reveal(command+c.Name))
		}
	}
	return show
}

// showClients makes the page of the clients.
func showClients(s *site) maker {
	return func(context.Context, *session) (content, error) { return clientsPage(s) }
}
