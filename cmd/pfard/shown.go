package main

import (
	"context"
	"slices"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/control"
)

// shown is the consoleSource of this pfard.
type shown struct{ *daemon }

func (s shown) reports(ctx context.Context, send func(control.Response) error) error {
	return s.watchReports(ctx, nil, send)
}

func (s shown) order(ctx context.Context, p control.Peer, o attach.Order) (attach.Ordered, error) {
	return s.ordered(ctx, p, o)
}

func (s shown) known() attach.Known {
	return attach.Known{
		Offers: offersOf(s.orders.flows.services()), Clients: s.clients(), Programs: chores.There(s.orders.commands.home),
		Connects: attach.Connects{Pfar: s.orders.commands.pfar, Run: s.options.dirs.Run},
	}
}

func (s shown) clients() []attach.Client {
	list, told, _ := s.clientele.now()
	if !told { // nobody is let in yet
		return nil
	}
	return clientsOf(list)
}

// clientsOf are the clients as a console shows them, with those that are built in.
func clientsOf(list []access.Client) (shown []attach.Client) {
	list = slices.Clone(list)
	for _, name := range []string{access.Default, access.Operator} {
		if !slices.ContainsFunc(list, func(c access.Client) bool { return c.Name == name }) {
			list = append(list, access.BuiltIn(name))
		}
	}
	slices.SortFunc(list, byName)
	for _, c := range list {
		shown = append(shown, attach.Client{
			Name: c.Name, File: c.File, Identity: c.Identity(), Servers: c.ServersInWords(), Tools: c.ToolsInWords(),
			Profile: c.Profile, Relax: c.Relax, Off: !c.Enabled, HasToken: len(c.Tokens) > 0,
		})
	}
	return shown
}
