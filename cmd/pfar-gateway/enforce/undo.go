package enforce

import (
	"context"
	"errors"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/units/handover"
)

// Keeper has what is in a server's folders kept, before a call is sent that may overwrite it (registry.Registry).
type Keeper interface {
	Keep(ctx context.Context, server string, call handover.Call) error
}

var errNoKeeper = errors.New("nobody keeps anything")

// keep has what a call may overwrite kept.
func keep(ctx context.Context, p *Point, server string, call handover.Call) error {
	if p.Keeper == nil {
		return errNoKeeper
	}
	call.Cleared = label.Restores{Sessions: p.Sessions}.Cleared()
	return p.Keeper.Keep(ctx, server, call)
}
