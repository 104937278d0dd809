package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/packet"
)

// admitted is who may use what, as far as the gateway has been told and keeps it for the next one.
type admitted struct {
	before []access.Client // what the gateway before this one was told
	stored bool            // it is in the store; belongs to followClients once that runs
	taken  bool            // before says something, even if it is nobody
}

// maxStored bounds what of the clients is stored, in bytes.
const maxStored = 16 << 20

// take goes on with the clients of the gateway before this one, until pfard says who is declared now.
func (a *admitted) take(g *gateway, files []*os.File) {
	if len(files) == 0 {
		return
	}
	a.stored = true
	packet.CloseAll(files[1:])
	b, err := units.ReadSealed(files[0], maxStored)
	if err == nil {
		err = json.Unmarshal(b, &a.before)
	}
	if err != nil {
		g.log.Warn("giving up the clients of the gateway before this one", "reason", err.Error())
		a.before = nil
		return
	}
	a.taken = true
}

// admit lets clients in by what is known of them. Where there is a pfard, it is waited for if that is nothing: a declaration
// may keep from the built-in clients what they could use without it.
func (g *gateway) admit() {
	if g.pfard == nil || g.admitted.taken {
		g.endpoint.Learn(g.admitted.before)
	}
}

// followClients learns who is declared, until ctx ends. Without the first answer nobody is served, so it is asked for more
// often.
func (g *gateway) followClients(ctx context.Context) {
	g.followPfard(ctx, "which clients are declared", 2*time.Second, func(heard func()) error {
		return g.pfard.Clients(ctx, func(list []access.Client) error {
			g.endpoint.Learn(list)
			heard()
			if err := g.keepClients(list); err != nil {
				g.log.Warn("the next gateway will have to wait for pfard's clients", "error", err.Error())
			}
			return nil
		})
	})
}

// keepClients has the next gateway begin with a list.
func (g *gateway) keepClients(list []access.Client) error {
	if g.store == nil {
		return nil
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	f, err := units.Sealed(units.FDClients, b)
	if err != nil {
		return err
	}
	defer f.Close()
	if g.admitted.stored {
		if err := g.store.Forget(units.FDClients); err != nil {
			return err
		}
	}
	g.admitted.stored = true
	return g.store.Keep(units.FDClients, f)
}
