package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/control"
)

// maxClients bounds what of the clients is stored, in bytes.
const maxClients = 16 << 20

// takeClients goes on with the clients of the gateway before this one, until pfard says who is declared now.
func (g *gateway) takeClients(files []*os.File) {
	g.kept.clients.take(files, g.log, func(b []byte) error {
		list := new([]access.Client)
		if err := json.Unmarshal(b, list); err != nil {
			return err
		}
		g.before = list
		return nil
	})
}

// admit lets clients in by what is known of them. Where there is a pfard, it is waited for if that is nothing: a
// declaration may keep from the built-in clients what they could use without it.
func (g *gateway) admit() {
	switch {
	case g.before != nil:
		g.endpoint.Learn(*g.before)
	case g.pfard == nil:
		g.endpoint.Learn(nil)
	}
}

// followClients learns who is declared, and which operators sign with passkeys, until ctx ends. Without the first
// answer nobody is served, so it is asked for more often.
func (g *gateway) followClients(ctx context.Context) {
	g.followPfard(ctx, "which clients are declared", 2*time.Second, func(heard func()) error {
		return g.pfard.Clients(ctx, func(now control.Admitted) error {
			g.signers.Learn(now.Operators)
			g.wishes.Able(now.Pages)
			g.endpoint.Learn(now.Clients)
			heard()
			b, err := json.Marshal(now.Clients)
			if err != nil {
				return err
			}
			g.kept.clients.keep(g.store, b, g.log)
			return nil
		})
	})
}
